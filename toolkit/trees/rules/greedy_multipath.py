r"""Greedy multi-path block verification (2602.16961): block verification of the best of K paths.

Order the tokens at every node by q/p (ties by id) and paths by their first difference. The best of
K iid paths is one draw from a skewed draft law: with A the mass of all paths ranked below a prefix,
:math:`x_0` the prefix's own mass, and for a token x after it y the mass :math:`x_0 \sum p` of the
tokens ranked below x and :math:`z = x_0\,p(x)`,

.. math:: b(x) = \frac{(A + y + z)^K - (A + y)^K}{(A + x_0)^K - A^K}.

Block verification of the best path against b is lossless. Both differences are divided by what they
have in common, :math:`a^K - b^K = (a - b) \sum_j a^j b^{K-1-j}`, so nothing cancels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from multidraft.trees.drafted import Group
from multidraft.trees.rules.base import TreeRule, Verdict, pick, ratio
from multidraft.trees.rules.block import PathVerdict, single_draft
from multidraft.trees.tree import Tree


@dataclass(frozen=True)
class GreedyMultipath(TreeRule):
    """Block verification of the best of K iid paths, which may share a trunk."""

    name: ClassVar[str] = "greedy-multipath"

    def refuses(self, tree: Tree) -> str | None:
        forks = [slot for slot, below in enumerate(tree.children) if len(below) > 1]
        if len(forks) > 1:
            return "greedy-multipath verifies paths that part at one node; this tree forks again."
        if forks and tree.spec(forks[0])["law"] != "iid":
            return "greedy-multipath is lossless for iid paths only: draw the tree with law iid."
        if forks and len({int(tree.depths[leaf]) for leaf in _leaves(tree)}) > 1:
            return "greedy-multipath verifies paths of one length, and these differ."
        return None

    def _verdict(self, group: Group) -> Verdict:
        best = _BestPath.of(group)
        inner = PathVerdict.of(best.laws, best.tokens)
        stop = np.zeros(group.tokens.shape)  # off the best path nothing is accepted
        np.put_along_axis(stop, best.path, inner.stop, axis=-1)
        return MultipathVerdict(best, inner, stop)


@dataclass(frozen=True)
class MultipathVerdict(Verdict):
    """The verdict on the best path, spread over the slots of the tree."""

    best: _BestPath
    inner: PathVerdict
    stop: Float[np.ndarray, "b s"]

    def bonus(self, slot: int, rows: Int[np.ndarray, " k"]) -> Float[np.ndarray, "k V"]:
        """Law of the token added after `slot`, which must lie on the best path."""
        return self.inner.bonus(int(self.best.group.tree.depths[slot]), rows)


@dataclass(frozen=True)
class _BestPath:
    """The best path of every row, and its skewed law.

    Attributes
    ----------
    group : the drafted trees
    path : (b, L + 1) slots of the best path, the root first
    below, share : (b, L + 1) A and x_0 of its prefixes, both divided by A + x_0
    fork : depth at which the paths part
    """

    group: Group
    path: Int[np.ndarray, "b L1"]
    below: Float[np.ndarray, "b L1"]
    share: Float[np.ndarray, "b L1"]
    fork: int

    @classmethod
    def of(cls, group: Group) -> _BestPath:
        tree, rows = group.tree, np.arange(len(group.rows))
        ways = np.array([(0, *tree.path(leaf)) for leaf in _leaves(tree)])
        fork = next((int(tree.depths[v]) for v, c in enumerate(tree.children) if len(c) > 1), 0)
        shape = (len(rows), ways.shape[1])
        best = cls(group, np.zeros(shape, np.int64), np.zeros(shape), np.ones(shape), fork)
        active = np.ones((len(rows), len(ways)), dtype=bool)
        for i in range(1, shape[1]):
            best._extend(i, rows, ways, active)
        return best

    def _extend(self, i: int, rows: np.ndarray, ways: np.ndarray, active: np.ndarray) -> None:
        """Choose the best token number i among the active paths, and update A and x_0."""
        target, draft = _at(self.group.target, self.path[:, i - 1], rows), self._draft(i - 1, rows)
        rank = _ranks(target, draft)
        tokens = self.group.tokens[:, ways[:, i]]
        scores = np.where(active, np.take_along_axis(rank, np.maximum(tokens, 0), axis=-1), -1)
        scores = np.where(tokens >= 0, scores, -1)
        winner = scores.argmax(-1)
        self.path[:, i] = ways[winner, i]
        token = self.group.tokens[rows, self.path[:, i]]
        active &= tokens == token[:, None]
        if i > self.fork:  # along the trunk there is one path, below it A = 0
            worse = np.where(rank < scores.max(-1)[:, None], draft, 0.0).sum(-1)
            low = self.below[:, i - 1] + self.share[:, i - 1] * worse
            own = self.share[:, i - 1] * pick(draft, token)
            self.below[:, i] = ratio(low, low + own, empty=0.0)
            self.share[:, i] = ratio(own, low + own, empty=1.0)

    @property
    def count(self) -> int:
        """Number of paths K."""
        return len(_leaves(self.group.tree))

    @property
    def tokens(self) -> Int[np.ndarray, "b L"]:
        """Tokens of the best path."""
        return np.take_along_axis(self.group.tokens, self.path[:, 1:], axis=-1)

    def laws(self, i: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Target law and skewed draft law after i tokens of the best path."""
        target, draft = _at(self.group.target, self.path[rows, i], rows), self._draft(i, rows)
        if i < self.fork or self.count == 1:
            return target, draft
        return target, _skewed(draft, target, self.below[rows, i], self.share[rows, i], self.count)

    def _draft(self, i: int, rows: np.ndarray) -> Float[np.ndarray, "k V"]:
        """Law of one child of the best path's slot at depth i."""
        if i == self.fork and self.count > 1:
            return self.group.draft(int(self.path[0, i]), rows)
        return _at(
            lambda slot, some: single_draft(self.group, slot, some), self.path[rows, i], rows
        )


def _skewed(
    draft: Float[np.ndarray, "k V"],
    target: Float[np.ndarray, "k V"],
    below: Float[np.ndarray, " k"],
    share: Float[np.ndarray, " k"],
    count: int,
) -> Float[np.ndarray, "k V"]:
    """Law of the next token of the best of `count` paths, given the prefix they share so far."""
    order = np.argsort(_ranks(target, draft), axis=-1)
    ranked = np.take_along_axis(draft, order, axis=-1)
    upto = np.cumsum(ranked, axis=-1)
    before = np.append(np.zeros((len(draft), 1)), upto[:, :-1], axis=-1)
    a, s = below[:, None], share[:, None]
    skew = _powers(a + s * upto, a + s * before, count) / _powers(a + s, a, count)
    law = np.empty_like(draft)
    np.put_along_axis(law, order, ranked * skew, axis=-1)
    return law


def _powers(high: np.ndarray, low: np.ndarray, count: int) -> np.ndarray:
    """``(high^count - low^count) / (high - low)``, as a sum."""
    total = np.zeros(np.broadcast_shapes(high.shape, low.shape))
    for j in range(count):
        total += high**j * low ** (count - 1 - j)
    return total


def _ranks(
    target: Float[np.ndarray, "k V"], draft: Float[np.ndarray, "k V"]
) -> Int[np.ndarray, "k V"]:
    """Position of every token in the order of q/p, ties by id; tokens with p = 0 come last."""
    worth = np.where(draft > 0, target / np.where(draft > 0, draft, 1.0), np.inf)
    return np.argsort(np.argsort(worth, axis=-1, kind="stable"), axis=-1)


def _at(
    laws: Callable[[int, np.ndarray], np.ndarray], slots: np.ndarray, rows: np.ndarray
) -> Float[np.ndarray, "k V"]:
    """Laws at another slot in every row."""
    parts = {int(slot): np.flatnonzero(slots == slot) for slot in np.unique(slots)}
    found = [(places, laws(slot, rows[places])) for slot, places in parts.items()]
    whole = np.empty((len(rows), found[0][1].shape[-1]))
    for places, law in found:
        whole[places] = law
    return whole


def _leaves(tree: Tree) -> list[int]:
    return [slot for slot, below in enumerate(tree.children) if not below]
