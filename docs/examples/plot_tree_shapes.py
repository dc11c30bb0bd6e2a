"""
Which tree for a budget of drafted tokens?
==========================================

A tree of drafted tokens is verified in one call of the target. A chain goes deep, a bush has many
first tokens, a binary tree lies between. The *block efficiency* is the mean number of tokens that
one call emits, the target's own last token included.
"""

import numpy as np
import polars as pl

import multidraft as md
from multidraft import trees

# %%
# Two models of 16 tokens: the next token depends on the last one, and the draft is a noisy copy of
# the target.

generator = np.random.default_rng(0)
laws, noise = generator.dirichlet(np.full(16, 0.4), (2, 17))
noisy = 0.4 * laws + 0.6 * noise
target, draft = trees.Markov(laws[0], laws[1:]), trees.Markov(noisy[0], noisy[1:])

# %%
# Each shape with 2, 6, 14 and 30 drafted tokens, verified from the root with the optimal token rule
# at every node. A rule's expected length on a drafted tree is a finite sum, so only the drafts are
# random: 200 trees each.

shapes = {
    "chain": [trees.chain(n) for n in (2, 6, 14, 30)],
    "two paths": [trees.paths(2, length) for length in (1, 3, 7, 15)],
    "binary tree": [trees.k_ary(2, depth) for depth in (1, 2, 3, 4)],
    "bush": [trees.paths(n, 1) for n in (2, 6, 14, 30)],
}
rule = trees.get("top-down", rule="interval")


def row(shape: str, tree: trees.Tree) -> dict[str, object]:
    """Block efficiency of a tree, with its standard error."""
    drafted = trees.draw(tree, target, draft, generator.random((200, tree.nodes)))
    mean = md.results.clustered_mean(rule.expected_length(drafted), np.arange(200))
    numbers = {"value": mean.mean, "stderr": mean.stderr}
    return {"shape": shape, "nodes": tree.nodes, **numbers}


table = pl.DataFrame([row(name, tree) for name in shapes for tree in shapes[name]])
print(table.pivot("nodes", index="shape", values="value"))

# %%
# A bush can never emit more than two tokens, and the end of a long chain is rarely reached. The
# more tokens one can draft, the more a tree should branch.

labels = {"xlabel": "drafted tokens", "ylabel": "tokens per call"}
md.plots.lines(table, x="nodes", colour="shape", height=2, **labels)
