# %% [markdown]
# # 8. Trees and block efficiency
#
# So far the draft proposed one next token, several times. In practice it goes on: it proposes whole
# continuations, a chain or a *tree* of tokens, and one call of the target scores them all. What
# counts is the **block efficiency**: how many tokens come out of one call of the target, on
# average. It is at least 1, since a call always yields one token of its own, the *bonus* token.
#
# Notation: q target, p draft, L the depth of the tree.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np

import multidraft as md
from multidraft import trees
from multidraft.plots.canvas import COLOURS
from multidraft.trees.pictures import outline_on

plt.style.use("multidraft.plots.paper")
BLUE, ORANGE, GREEN = COLOURS[:3]

# %% [markdown]
# ## A chain
#
# Drafted tokens are tested one after another, and the block ends at the first that fails. If each
# is accepted with probability α, whatever came before, the expected block has
#
# $$ 1 + \alpha + \alpha^2 + \dots + \alpha^L = \frac{1 - \alpha^{L+1}}{1 - \alpha} $$
#
# tokens ([2211.17192](https://arxiv.org/abs/2211.17192)). Let the same laws hold at every place, so
# that this is exact. The library lists all drafted chains and adds up; nothing is simulated.

# %%
target = trees.Markov.constant([0.2, 0.3, 0.5])
draft = trees.Markov.constant([0.6, 0.3, 0.1])
alpha = np.minimum(target.start, draft.start).sum()
token_by_token = trees.get("top-down", rule="rrs")
depths = np.arange(1, 6)
chains = [trees.expected_length(token_by_token, trees.chain(L), target, draft) for L in depths]
formula = (1 - alpha ** (depths + 1)) / (1 - alpha)
print(f"acceptance {alpha:.1f}; tokens per call for L = 1 to 5:", np.round(chains, 3))
assert np.allclose(chains, formula)

# %% [markdown]
# ## Block verification
#
# Testing token by token is the best one can do for a single token, but not for a block. *Block
# verification* ([2403.10444](https://arxiv.org/abs/2403.10444)) tests every beginning of the chain
# as a whole: a token where the draft was too bold can be outweighed by a later one. Longer blocks,
# from the same drafts, with the same output law. (Dotted: 2.5, what endless token-by-token tests
# could give.) The optimum of the chain is a linear program over all lossless rules; block
# verification reaches it.

# %%
block = trees.get("block")
blocks = [trees.expected_length(block, trees.chain(L), target, draft) for L in depths]
best = [float(trees.optimum(target.start, draft.start, paths=1, length=L)) for L in depths[:3]]
figure, axes = plt.subplots(figsize=(4.4, 2.2))
axes.plot(depths, chains, "s--", color=ORANGE, label="token by token")
axes.plot(depths, blocks, "o-", color=BLUE, label="block verification")
axes.plot(depths[:3], best, "x", color="black", markersize=6, label="optimum (linear program)")
axes.axhline(1 / (1 - alpha), color=ORANGE, linestyle=":")
axes.set(xlabel="length of the chain L", ylabel="tokens per target call", xticks=depths)
axes.legend()
plt.show()
print("block verification:", np.round(blocks, 3))
assert np.isclose(1 / (1 - alpha), 2.5) and blocks[-1] > 2.5
assert np.allclose(blocks[:3], best)
assert np.isclose(blocks[1], 2) and (np.array(blocks[1:]) > chains[1:]).all()
for rule in (token_by_token, block):
    assert trees.deviation(rule, trees.chain(3), target, draft) < 1e-12  # both are lossless

# %% [markdown]
# ## A tree
#
# Several candidates at a node give more chances to go on. Here two paths of two tokens, drawn in
# models whose next token depends on the last one. `judge` computes what a rule does with this tree:
# each edge shows p and q of its token and the probability a that the path down to it is accepted.

# %%
target = trees.Markov([0.2, 0.3, 0.5], [[0.7, 0.2, 0.1], [0.1, 0.15, 0.75], [0.3, 0.4, 0.3]])
draft = trees.Markov([0.6, 0.3, 0.1], [[0.2, 0.3, 0.5], [0.45, 0.35, 0.2], [0.1, 0.8, 0.1]])
shape = trees.paths(2, 2)
drafted = trees.draw(shape, target, draft, np.array([[0.95, 0.7, 0.5, 0.9]]))
judged = trees.get("traversal").judge(drafted)
emitted = judged.draw(np.array([[0.6, 0.5]]))
print("expected length of the block:", judged.expected_length[0].round(3))
print("emitted this time:", "".join("abc"[t] for t in emitted.tokens[0] if t >= 0))
assert np.isclose(1 + judged.reach[0, 1:].sum(), judged.expected_length[0])
trees.picture(judged, block=emitted, name="abc".__getitem__)

# %% [markdown]
# Slot by slot: the expected length is 1, for the bonus token, plus the sum of all a.
#
# ## Rules on the same trees
#
# Average over all drafted trees and compare. *Top-down* goes from the root and uses a token rule at
# each node; *traversal* ([2505.12398](https://arxiv.org/abs/2505.12398)) goes from the leaves to
# the root; *greedy multi-path* ([2602.16961](https://arxiv.org/abs/2602.16961)) verifies the best
# path as a block; *bottom-up interval* is the traversal order with the optimal token rule of
# [notebook 5](05_interval_partition.ipynb).

# %%
rules = {
    "top-down, RRS": trees.get("top-down", rule="rrs"),
    "top-down, interval": trees.get("top-down", rule="interval"),
    "traversal": trees.get("traversal"),
    "greedy multi-path": trees.get("greedy-multipath"),
    "bottom-up, interval": trees.get("bottom-up", rule="interval"),
}
optimum = float(trees.optimum(target, draft, paths=2, length=2))
lengths = {name: trees.expected_length(rule, shape, target, draft) for name, rule in rules.items()}
for name, rule in rules.items():
    assert trees.deviation(rule, shape, target, draft) < 1e-12
    assert lengths[name] <= optimum + 1e-9
figure, axes = plt.subplots(figsize=(4.8, 1.9))
bars = axes.barh(list(lengths), list(lengths.values()), color=BLUE)
axes.bar_label(bars, fmt="%.3f", label_type="center", color="white", fontsize=6.5)
axes.axvline(optimum, color=ORANGE)
axes.annotate(f"optimum {optimum:.3f}", (optimum, -0.6), ha="center", annotation_clip=False)
axes.set(xlabel="tokens per target call", xlim=(1, optimum + 0.12))
axes.invert_yaxis()
plt.show()

# %% [markdown]
# ## Which shape?
#
# A budget of N drafted tokens can be a chain, a bush, or anything between. Sequoia
# ([2402.12374](https://arxiv.org/abs/2402.12374)) chooses by numbers: let P[b] be the probability
# that the b-th child of a node is the one accepted. For drafts without replacement it can be read
# off the acceptance with b and with b − 1 drafts. On the 24 recorded contexts of the package:

# %%
trace = md.traces.frozen()
one = md.Problem.from_logits(trace.target, trace.draft("skip-8"), "iid", n=1, temperature=0.6)
rule = md.verifiers.get("rrsw")
accepted = [
    rule.acceptance(md.Problem(one.target, md.WithoutReplacement(one.law.probs, n))).value.mean()
    for n in range(1, 7)
]
chances = np.diff([0.0, *accepted])
print("P[1] to P[6]:", chances.round(3))
assert (np.diff(chances) < 0).all()  # later children are needed less and less

# %% [markdown]
# The best tree for these numbers is found by dynamic programming. It is wide near the root, and
# goes on below the first children, where a block is likely to get.

# %%
shown = {
    "chain of 7": trees.chain(7),
    "binary, 14 tokens": trees.k_ary(2, 3),
    "Sequoia, 7": trees.sequoia(chances, 7),
    "Sequoia, 24": trees.sequoia(chances, 24),
}
figure, panels = plt.subplots(1, 4, figsize=(6.9, 1.8))
for axes, (name, shape) in zip(panels, shown.items(), strict=True):
    outline_on(axes, shape, f"{name}\n{trees.estimate(shape, chances):.2f} tokens per call")
plt.show()

budgets = [1, 2, 4, 8, 16, 32, 64]
curves = {
    "Sequoia": [trees.estimate(trees.sequoia(chances, n), chances) for n in budgets],
    "chain": [trees.estimate(trees.chain(n), chances) for n in budgets],
    "one level (6 at most)": [1 + chances[:n].sum() for n in budgets],
}
figure, axes = plt.subplots(figsize=(4.4, 2.2))
for (name, values), colour, mark in zip(curves.items(), COLOURS, "os^", strict=False):
    axes.plot(budgets, values, color=colour, marker=mark, label=name)
axes.set_xscale("log", base=2)
axes.set_xticks(budgets, budgets)
axes.set(xlabel="drafted tokens", ylabel="estimated tokens per call")
axes.legend()
plt.show()
for name in ["chain", "one level (6 at most)"]:
    assert (np.array(curves["Sequoia"]) >= np.array(curves[name]) - 1e-12).all()

# %% [markdown]
# An estimate, for two reasons: real drafts get worse with depth
# ([2602.16994](https://arxiv.org/abs/2602.16994)), and P was averaged over contexts first. What it
# is off by is measured in the folder `results` of the project.
#
# ## Is it worth it?
#
# Drafting takes time too. If one call of the draft costs c calls of the target, a chain of L costs
# 1 + c L, and what matters is tokens per unit of time. There is a best length, and it is short.

# %%
lengths = np.arange(0, 13)
figure, axes = plt.subplots(figsize=(4.4, 2.2))
for number, cost in enumerate([0.02, 0.1, 0.3]):
    speed = (1 - 0.7 ** (lengths + 1)) / 0.3 / (1 + cost * lengths)
    axes.plot(lengths, speed, color=COLOURS[number], label=f"c = {cost}")
    axes.plot(lengths[speed.argmax()], speed.max(), "o", color=COLOURS[number])
    print(
        f"draft cost {cost}: best length {lengths[speed.argmax()]}, {speed.max():.2f} times as fast"
    )
axes.axhline(1, color="black", linewidth=0.6)
axes.set(xlabel="length of the chain L", ylabel="speed-up at α = 0.7")
axes.legend()
plt.show()

# %% [markdown]
# ## Exercises
#
# **1.** α = 0.8 and a chain of four. How many tokens per call?
#
# <details><summary>Answer</summary>
#
# (1 − 0.8⁵)/0.2 = 3.3616.
#
# </details>
#
# **2.** α = 0.6, and a call of the draft costs c = 0.2. What is the best length of a chain?
#
# <details><summary>Answer</summary>
#
# L = 1 gives 1.6/1.2 = 1.333, L = 2 gives 1.96/1.4 = 1.4, L = 3 gives 2.176/1.6 = 1.36. So 2.
#
# </details>
#
# **3.** P = (0.6, 0.3), and two tokens to draft. Chain or bush? How many tokens per call does the
# better one give?
#
# <details><summary>Answer</summary>
#
# Chain: 1 + 0.6 + 0.36 = 1.96. Bush: 1 + 0.6 + 0.3 = 1.9. The chain, 1.96.
#
# </details>

# %%
mine = {}  # for example {1: 3.0, 2: 5, 3: 1.5}
speeds = (1 - 0.6 ** (lengths + 1)) / 0.4 / (1 + 0.2 * lengths)
truth = {
    1: (1 - 0.8**5) / 0.2,
    2: int(lengths[speeds.argmax()]),
    3: trees.estimate(trees.sequoia([0.6, 0.3], 2), [0.6, 0.3]),
}
for number, answer in mine.items():
    print(number, "is right" if abs(answer - truth[number]) < 1e-3 else "is not right yet")
assert np.allclose(list(truth.values()), [3.3616, 2, 1.96])
assert np.allclose(speeds[1:4], [1.6 / 1.2, 1.4, 1.36])
