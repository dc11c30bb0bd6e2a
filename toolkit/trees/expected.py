r"""Expected block lengths: given a drafted tree, averaged over all, and the quick estimate.

Given one drafted tree, a rule's expected length is a finite sum over its conditional laws, so
nothing is simulated: see :meth:`TreeRule.expected_length`. Averaged over drafted trees it is the
block efficiency. The quick estimate, on which Sequoia's trees rest, replaces all of this by one
acceptance vector, the same at every node:

.. math:: \sum_v \prod_{u \le v} P[\mathrm{rank}(u)] .
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from multidraft.errors import InputError
from multidraft.trees.drawing import Model
from multidraft.trees.exact import enumerate_drafts
from multidraft.trees.rules.base import Judgement, TreeRule
from multidraft.trees.shapes import acceptance_vector
from multidraft.trees.tree import Tree


def expected_length(rule: TreeRule, tree: Tree, target: Model, draft: Model) -> float:
    """Block efficiency of a rule, exact, by listing all drafted trees.

    Raises
    ------
    InputError
        Too many drafted trees to list.
    Refused
        The rule does not take the tree.
    """
    drafted, mass = enumerate_drafts(tree, target, draft)
    return float(mass @ rule.expected_length(drafted))


def slot_acceptance(
    judgement: Judgement, mass: Float[np.ndarray, " B"] | None = None
) -> Float[np.ndarray, "D n"]:
    """Probability that the b-th child of an accepted node is accepted, by depth of the node.

    Parameters
    ----------
    judgement : Judgement
        Of a batch of drafted trees.
    mass : (B,), optional
        Weight of every tree; equal when not given.

    Returns
    -------
    (D, n)
        Row d holds P[1], ..., P[n] of the nodes at depth d (the root at 0); nan where there are
        none.
    """
    drafted = judgement.drafted
    weight = np.full(drafted.batch, 1 / drafted.batch) if mass is None else mass
    width = max(len(below) for group in drafted.groups for below in group.tree.children)
    accepted, reached = np.zeros((2, drafted.depth, width))
    for group in drafted.groups:
        reach = weight[group.rows, None] * judgement.reach[np.ix_(group.rows, group.slots)]
        for slot, below in enumerate(group.tree.children):
            depth, count = group.tree.depths[slot], len(below)
            if below and depth < drafted.depth:
                accepted[depth, :count] += reach[:, below].sum(0)
                reached[depth, :count] += reach[:, slot].sum()
    return np.where(reached > 0, accepted / np.where(reached > 0, reached, 1.0), np.nan)


def estimate(tree: Tree, acceptance: Any) -> float:
    """Estimated block length of a tree from a per-slot acceptance vector (Sequoia, 2402.12374).

    Parameters
    ----------
    tree : Tree
    acceptance : (n,) or (D, n)
        P[b], the probability that the b-th child of an accepted node is the accepted one; one row
        for all nodes, or one per depth of the node.

    Raises
    ------
    InputError
        Fewer numbers than the tree has children or levels.

    Examples
    --------
    >>> estimate(Tree([-1, 0, 0, 1], "iid"), [0.5, 0.25])
    2.0
    """
    rows = np.atleast_2d(np.asarray(acceptance, dtype=np.float64))
    chances = np.array([acceptance_vector(row) for row in rows])
    width = max(map(len, tree.children))
    if chances.shape[1] < width or len(chances) not in (1, *range(tree.depth, len(chances) + 1)):
        raise InputError(
            f"acceptance has shape {chances.shape}: {tree} needs {width} numbers, in one row or in "
            f"one for each of its {tree.depth} levels."
        )
    value = np.ones(tree.slots)
    for slot in range(1, tree.slots):
        level = chances[0 if len(chances) == 1 else tree.depths[slot] - 1]
        value[slot] = value[tree.parents[slot]] * level[tree.ranks[slot]]
    return float(value.sum())
