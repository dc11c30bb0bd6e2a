r"""The contract of a tree rule, and what all of them share.

Given a drafted tree a rule accepts a path from the root to some slot and adds one token from a law
of its own there. Both are data: ``stop[v]`` is the probability that the accepted path ends in slot
v, ``bonus(v)`` the law of the token added. A rule computes those two for all trees of one shape;
drawing, expected lengths and exact laws of the emitted block follow from them in one place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from multidraft.arrays import search
from multidraft.errors import InputError, Refused
from multidraft.trees.drafted import DraftedTree, Group
from multidraft.trees.tree import Tree


class Verdict(ABC):
    """What a rule finds for a group of trees of one shape.

    Attributes
    ----------
    stop : (b, s) probability that the accepted path ends in each slot; rows sum to 1
    """

    stop: Float[np.ndarray, "b s"]

    @abstractmethod
    def bonus(self, slot: int, rows: Int[np.ndarray, " k"]) -> Float[np.ndarray, "k V"]:
        """Law of the token added after `slot`, for some rows of the group."""


@dataclass(frozen=True)
class Block:
    """What one target call emits, for B trees.

    Attributes
    ----------
    tokens : (B, D + 1) the accepted path and the added token, -1 beyond them
    length : (B,) number of tokens emitted, at least 1
    slot : (B,) slot at which the accepted path ends, 0 for the root
    path : (B, D) accepted slots from the root's child on, -1 beyond them
    """

    tokens: Int[np.ndarray, "B D1"]
    length: Int[np.ndarray, " B"]
    slot: Int[np.ndarray, " B"]
    path: Int[np.ndarray, "B D"]


class Judgement:
    """The law of the block that a rule emits, given each drafted tree of a batch.

    Attributes
    ----------
    drafted : the trees as judged (equal siblings merged, where the rule does so)
    stop : (B, S) probability that the accepted path ends in each slot
    """

    drafted: DraftedTree
    stop: Float[np.ndarray, "B S"]

    def __init__(self, drafted: DraftedTree, parts: Sequence[tuple[Group, Verdict]]) -> None:
        self.drafted, self._parts = drafted, tuple(parts)
        self.stop = np.zeros(drafted.tokens.shape)
        for group, verdict in self._parts:
            self.stop[np.ix_(group.rows, group.slots)] = verdict.stop

    @property
    def expected_length(self) -> Float[np.ndarray, " B"]:
        """Expected number of emitted tokens of each tree, the added one included."""
        return (self.stop * (self.drafted.depths + 1)).sum(-1)

    @cached_property
    def reach(self) -> Float[np.ndarray, "B S"]:
        """Probability that each slot lies on the accepted path; 1 at the root."""
        reach, rows = self.stop.copy(), np.arange(self.drafted.batch)
        for slot in range(self.drafted.slots - 1, 0, -1):
            above = self.drafted.parents[:, slot]
            reach[rows, np.maximum(above, 0)] += np.where(above >= 0, reach[:, slot], 0.0)
        return reach

    def bonus(self, slots: Int[np.ndarray, " B"]) -> Float[np.ndarray, "B V"]:
        """Law of the token added when the accepted path ends in the given slot of each tree."""
        law = np.zeros((self.drafted.batch, self.drafted.vocabulary))
        for group, verdict in self._parts:
            ends = slots[group.rows]
            for place in np.unique(np.searchsorted(group.slots, ends)):
                rows = np.flatnonzero(ends == group.slots[place])
                law[group.rows[rows]] = verdict.bonus(int(place), rows)
        return law

    def draw(self, uniforms: Float[np.ndarray, "B 2"]) -> Block:
        """Draw a block per tree: one uniform finds the end of the path, the other the token."""
        slots = search(np.cumsum(self.stop, -1), uniforms[:, :1])[:, 0]
        bonus = self.bonus(slots)
        return block(self.drafted, slots, search(np.cumsum(bonus, -1), uniforms[:, 1:])[:, 0])


def block(
    drafted: DraftedTree, slots: Int[np.ndarray, " B"], extra: Int[np.ndarray, " B"]
) -> Block:
    """Assemble blocks from the ends of the accepted paths and the added tokens."""
    rows, depth = np.arange(drafted.batch), drafted.depth
    lengths = drafted.depths[rows, slots]
    path = np.full((drafted.batch, depth), -1)
    tokens = np.full((drafted.batch, depth + 1), -1)
    tokens[rows, lengths] = extra
    here = slots.copy()
    while (on := here > 0).any():
        place = drafted.depths[rows, here] - 1
        path[rows[on], place[on]] = here[on]
        tokens[rows[on], place[on]] = drafted.tokens[rows, here][on]
        here = np.where(on, drafted.parents[rows, here], 0)
    return Block(tokens, lengths + 1, slots, path)


class TreeRule(ABC):
    """A configured rule. Subclasses are frozen dataclasses: options are their fields.

    Attributes
    ----------
    name : name in the registry.
    merge : whether equal siblings are merged first, see :meth:`DraftedTree.merged`.
    """

    name: ClassVar[str]
    merge = False

    @abstractmethod
    def refuses(self, tree: Tree) -> str | None:
        """Why the rule does not take trees of this shape and these laws; None when it does."""

    @abstractmethod
    def _verdict(self, group: Group) -> Verdict: ...

    def judge(self, drafted: DraftedTree) -> Judgement:
        """The exact law of the emitted block, given each drafted tree.

        Raises
        ------
        Refused
            With the sentence of :meth:`refuses`.
        """
        self.require_all(drafted)
        drafted = self._merged(drafted)
        return Judgement(drafted, [(group, self._verdict(group)) for group in drafted.groups])

    def require_all(self, drafted: DraftedTree) -> None:
        """Raise `Refused` when the rule does not take some of the trees."""
        for group in drafted.groups:
            if reason := self.refuses(group.tree):
                raise Refused(reason)

    def _merged(self, drafted: DraftedTree) -> DraftedTree:
        return drafted.merged() if self.merge else drafted

    def draws(self, depth: int) -> int:
        """Number of uniforms that :meth:`verify` takes for trees of this depth."""
        return 2

    def verify(self, drafted: DraftedTree, uniforms: Any) -> Block:
        """Emit one block per tree, a pure function of its row of uniforms in [0, 1).

        Parameters
        ----------
        drafted : DraftedTree
        uniforms : (B, draws)
            At least ``draws(drafted.depth)`` columns; more are not used.

        Raises
        ------
        Refused
            With the sentence of :meth:`refuses`.
        InputError
            Uniforms of the wrong shape or range.
        """
        return self.judge(drafted).draw(self._uniforms(drafted, uniforms))

    def expected_length(self, drafted: DraftedTree) -> Float[np.ndarray, " B"]:
        """Expected length of the block given each drafted tree, exact, without simulation."""
        return self.judge(drafted).expected_length

    def _uniforms(self, drafted: DraftedTree, uniforms: Any) -> Float[np.ndarray, "B draws"]:
        draws = self.draws(drafted.depth)
        uniforms = np.asarray(uniforms, dtype=np.float64)
        if uniforms.ndim != 2 or len(uniforms) != drafted.batch or uniforms.shape[1] < draws:
            raise InputError(
                f"uniforms have shape {uniforms.shape}: {self.name} takes {(drafted.batch, draws)}."
            )
        if not ((uniforms >= 0) & (uniforms < 1)).all():
            raise InputError("uniforms lie in [0, 1).")
        return uniforms[:, :draws]


def normalised(
    masses: Float[np.ndarray, "*batch V"], instead: Float[np.ndarray, "*batch V"]
) -> Float[np.ndarray, "*batch V"]:
    """Divide rows by their sums; a row of zeros (round-off: it is never drawn from) is replaced."""
    total = masses.sum(-1, keepdims=True)
    return np.where(total > 0, masses / np.where(total > 0, total, 1.0), instead)


def split(
    law: Float[np.ndarray, "k V"], drafts: Int[np.ndarray, "k n"]
) -> tuple[Float[np.ndarray, "k n"], Float[np.ndarray, "k V"]]:
    """Divide a law into what it gives the drafts, the first of equal ones, and all the rest."""
    left, shares = law.copy(), np.zeros(drafts.shape)
    for j, tokens in enumerate(drafts.T):
        shares[:, j] = pick(left, tokens)
        left[np.flatnonzero(tokens >= 0), tokens[tokens >= 0]] = 0.0
    return shares, left


def ratio(
    over: Float[np.ndarray, "*batch"], under: Float[np.ndarray, "*batch"], empty: float
) -> Float[np.ndarray, "*batch"]:
    """``over / under``, with `empty` for 0/0."""
    return np.where(under > 0, over / np.where(under > 0, under, 1.0), empty)


def pick(
    law: Float[np.ndarray, "*batch V"], tokens: Int[np.ndarray, "*batch"]
) -> Float[np.ndarray, "*batch"]:
    """Probability of one token per row; 0 for a missing token, -1."""
    found = np.take_along_axis(law, np.maximum(tokens, 0)[..., None], axis=-1)[..., 0]
    return np.where(tokens >= 0, found, 0.0)
