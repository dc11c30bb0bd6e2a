r"""The exact law of the emitted block, by listing every drafted tree (small vocabularies).

A rule is lossless when its blocks, continued by the target alone, have the target's own law: for
every string s

.. math:: \sum_{b \succeq s} P(b) + \sum_{b \prec s} P(b)\, q(s \mid b) = q(s),

b running over the blocks that extend or equal s and over its proper prefixes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from multidraft import laws
from multidraft.arrays import float64
from multidraft.errors import InputError
from multidraft.laws import Spec
from multidraft.trees.drafted import DraftedTree
from multidraft.trees.drawing import Model, evaluate
from multidraft.trees.rules.base import TreeRule
from multidraft.trees.tree import Tree

# Listing all drafted trees is for small ones: this many probabilities are 128 MiB.
MOST_NUMBERS = 2**24


def enumerate_drafts(
    tree: Tree, target: Model, draft: Model
) -> tuple[DraftedTree, Float[np.ndarray, " B"]]:
    """List every drafted tree of positive probability, with that probability.

    Raises
    ------
    InputError
        When there are too many to hold in memory.
    """
    tokens, mass = np.full((1, tree.slots), -1), np.ones(1)
    for slot, below in enumerate(tree.children):  # parents come first
        if below:
            tokens, mass = _with_children(tree, slot, draft, tokens, mass)
    parents = np.tile(tree.parents, (len(tokens), 1))
    everywhere = np.ones(tokens.shape, dtype=bool)
    inner = everywhere & np.array([bool(below) for below in tree.children])
    drafted = DraftedTree.of(
        tree,
        tokens,
        evaluate(target, parents, tokens, everywhere),
        evaluate(draft, parents, tokens, inner),
        check=False,
    )
    return drafted, mass


def _with_children(
    tree: Tree, slot: int, draft: Model, tokens: np.ndarray, mass: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Every way to draft the children of one slot, for every tree so far."""
    below, spec = list(tree.children[slot]), tree.spec(slot)
    ways, way = np.unique(tokens[:, tree.path(slot)], axis=0, return_inverse=True)
    missing = (ways < 0).any(-1, keepdims=True)  # nothing is drafted below a slot without a token
    probs = np.where(missing, 0.0, float64(draft(np.maximum(ways, 0)[None]))[0])
    each, kind = np.unique(probs, axis=0, return_inverse=True)
    kind = kind.ravel()[way.ravel()]
    grown, masses = [], []
    for i, law in enumerate(each):
        rows = np.flatnonzero(kind == i)
        drafts, chances = _tuples(spec, law)
        _check_size(sum(map(len, masses)) + len(rows) * len(drafts), tree, probs.shape[-1])
        part = np.repeat(tokens[rows], len(drafts), axis=0)
        part[:, below] = np.tile(drafts, (len(rows), 1))
        grown.append(part)
        masses.append(np.outer(mass[rows], chances).ravel())
    return np.concatenate(grown), np.concatenate(masses)


def _tuples(spec: Spec, probs: Float[np.ndarray, " V"]) -> tuple[np.ndarray, np.ndarray]:
    if not probs.any():
        return np.full((1, spec["n"]), -1), np.ones(1)
    return laws.make(spec, probs, check=False).enumerate()


def _check_size(count: int, tree: Tree, vocabulary: int) -> None:
    if count * tree.slots * vocabulary > MOST_NUMBERS:
        raise InputError(
            f"{tree} over {vocabulary} tokens has more than {count} drafted trees, too many to "
            "list: use a smaller tree or vocabulary, or draw trees and average."
        )


@dataclass(frozen=True)
class BlockLaw:
    """Law of an emitted block over strings of V tokens.

    Attributes
    ----------
    vocabulary : number of tokens V
    masses : ``masses[l - 1]`` of shape (V**l,) holds the blocks of length l; the string
        ``x_1 ... x_l`` has index ``sum x_i V**(l - i)``
    """

    vocabulary: int
    masses: tuple[Float[np.ndarray, " _"], ...]

    @property
    def expected_length(self) -> float:
        """Expected number of tokens of a block."""
        return float(sum(n * mass.sum() for n, mass in enumerate(self.masses, start=1)))

    def continued(self, target: Model) -> Float[np.ndarray, " strings"]:
        """Law of the strings of the longest length when the target continues every block."""
        whole = np.zeros(1)
        for length, mass in enumerate(self.masses):
            laws_here = target(strings(self.vocabulary, length)[:, None])[:, 0]
            whole = (whole[:, None] * laws_here).ravel() + mass
        return whole


def block_law(rule: TreeRule, tree: Tree, target: Model, draft: Model) -> BlockLaw:
    """The exact law of the block that a rule emits.

    Parameters
    ----------
    rule : TreeRule
    tree : Tree
        With few nodes: V to their number drafted trees are listed.
    target, draft : models
        See :mod:`multidraft.trees.drawing`.
    """
    drafted, mass = enumerate_drafts(tree, target, draft)
    judged = rule.judge(drafted)
    drafted, size = judged.drafted, drafted.vocabulary
    codes = path_codes(drafted)
    masses = [np.zeros(size**length) for length in range(1, drafted.depth + 2)]
    for slot in range(drafted.slots):
        rows = np.flatnonzero(judged.stop[:, slot] > 0)
        if not rows.size:
            continue
        bonus = judged.bonus(np.full(drafted.batch, slot))[rows]
        weight = (mass * judged.stop[:, slot])[rows, None] * bonus
        index = codes[rows, slot, None] * size + np.arange(size)
        for depth in np.unique(drafted.depths[rows, slot]):
            here = drafted.depths[rows, slot] == depth
            masses[depth] += np.bincount(
                index[here].ravel(), weight[here].ravel(), minlength=size ** (depth + 1)
            )
    return BlockLaw(size, tuple(masses))


def string_law(target: Model, vocabulary: int, length: int) -> Float[np.ndarray, " strings"]:
    """The target's own law over strings of one length."""
    whole = np.ones(1)
    for depth in range(length):
        whole = (whole[:, None] * target(strings(vocabulary, depth)[:, None])[:, 0]).ravel()
    return whole


def deviation(rule: TreeRule, tree: Tree, target: Model, draft: Model) -> float:
    """Largest error of the emitted law over all strings of the longest length; 0 is lossless."""
    emitted = block_law(rule, tree, target, draft)
    truth = string_law(target, emitted.vocabulary, len(emitted.masses))
    return float(np.abs(emitted.continued(target) - truth).max())


def strings(vocabulary: int, length: int) -> Int[np.ndarray, "strings length"]:
    """All strings of one length, in the order of their index."""
    index = np.arange(vocabulary**length)[:, None]
    return index // vocabulary ** np.arange(length - 1, -1, -1) % vocabulary


def path_codes(drafted: DraftedTree) -> Int[np.ndarray, "B S"]:
    """Index of the string on the way to every slot, among the strings of its length."""
    codes, rows = np.zeros(drafted.tokens.shape, dtype=np.int64), np.arange(drafted.batch)
    for slot in range(1, drafted.slots):
        above = codes[rows, np.maximum(drafted.parents[:, slot], 0)]
        codes[:, slot] = above * drafted.vocabulary + np.maximum(drafted.tokens[:, slot], 0)
    return codes
