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

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from multidraft import laws
from multidraft.trees.drafted import Group
from multidraft.trees.rules.base import TreeRule, Verdict, pick, ratio
from multidraft.trees.rules.block import PathVerdict
from multidraft.trees.tree import Tree


@dataclass(frozen=True)
class GreedyMultipath(TreeRule):
    """Block verification of the best of K iid paths, which may share a trunk."""

    name: ClassVar[str] = "greedy-multipath"

    def refuses(self, tree: Tree) -> str | None:
        forks = [slot for slot, below in enumerate(tree.children) if len(below) > 1]
        if tree.law_names() - {laws.IID.name}:
            return "greedy-multipath is lossless for iid paths only: draw the tree with law iid."
        if len(forks) > 1:
            return "greedy-multipath verifies paths that part at one node; this tree forks again."
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
    count : number of paths K
    fork : depth at which the paths part
    path : (b, L + 1) slots of the best path, the root first
    below, share : (b, L + 1) A and x_0 of its prefixes, both divided by A + x_0
    """

    group: Group
    count: int
    fork: int
    path: Int[np.ndarray, "b L1"]
    below: Float[np.ndarray, "b L1"]
    share: Float[np.ndarray, "b L1"]

    @classmethod
    def of(cls, group: Group) -> _BestPath:
        tree, rows = group.tree, np.arange(len(group.rows))
        ways = np.array([(0, *tree.path(leaf)) for leaf in _leaves(tree)])
        fork = next((int(tree.depths[v]) for v, c in enumerate(tree.children) if len(c) > 1), 0)
        path, below, share = [rows * 0], [rows * 0.0], [rows * 0.0 + 1.0]
        active = np.ones((len(rows), len(ways)), dtype=bool)
        for i in range(1, ways.shape[1]):
            draft, tokens = group.draft(path[-1], rows), group.tokens[:, ways[:, i]]
            worth = _worth(group.target(path[-1], rows), draft)
            winner = _winner(worth, np.where(active, tokens, -1))
            token = tokens[rows, winner]
            path.append(ways[winner, i])
            active &= tokens == token[:, None]
            worse = _worse(worth, draft, token) if i > fork else 0.0  # a trunk has no rivals
            low, own = below[-1] + share[-1] * worse, share[-1] * pick(draft, token)
            below.append(ratio(low, low + own, empty=0.0))
            share.append(ratio(own, low + own, empty=1.0))
        return cls(group, len(ways), fork, *(np.stack(part, -1) for part in (path, below, share)))

    @property
    def tokens(self) -> Int[np.ndarray, "b L"]:
        """Tokens of the best path."""
        return np.take_along_axis(self.group.tokens, self.path[:, 1:], axis=-1)

    def laws(self, i: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Target law and skewed draft law after i tokens of the best path."""
        slots = self.path[rows, i]
        target, draft = self.group.target(slots, rows), self.group.draft(slots, rows)
        if i < self.fork or self.count == 1:
            return target, draft
        return target, _skewed(draft, target, self.below[rows, i], self.share[rows, i], self.count)


def _worth(
    target: Float[np.ndarray, "k V"], draft: Float[np.ndarray, "k V"]
) -> Float[np.ndarray, "k V"]:
    """The ratio q/p by which tokens are ordered; tokens that are never drafted come last."""
    return np.where(draft > 0, target / np.where(draft > 0, draft, 1.0), np.inf)


def _winner(
    worth: Float[np.ndarray, "k V"], tokens: Int[np.ndarray, "k n"]
) -> Int[np.ndarray, " k"]:
    """Position of the best token of every row, -1 being none; of equal ones the highest id."""
    values = np.take_along_axis(worth, np.maximum(tokens, 0), axis=-1)
    values = np.where(tokens >= 0, values, -1.0)
    best = values == values.max(-1, keepdims=True)
    return np.where(best, tokens, -2).argmax(-1)


def _worse(
    worth: Float[np.ndarray, "k V"], draft: Float[np.ndarray, "k V"], tokens: Int[np.ndarray, " k"]
) -> Float[np.ndarray, " k"]:
    """Draft mass of the tokens ranked below one token of every row."""
    own = np.take_along_axis(worth, np.maximum(tokens, 0)[:, None], axis=-1)
    earlier = np.arange(worth.shape[-1]) < tokens[:, None]
    return np.where((worth < own) | ((worth == own) & earlier), draft, 0.0).sum(-1)


def _skewed(
    draft: Float[np.ndarray, "k V"],
    target: Float[np.ndarray, "k V"],
    below: Float[np.ndarray, " k"],
    share: Float[np.ndarray, " k"],
    count: int,
) -> Float[np.ndarray, "k V"]:
    """Law of the next token of the best of `count` paths, given the prefix they share so far."""
    order = np.argsort(_worth(target, draft), axis=-1, kind="stable")
    ranked = np.take_along_axis(draft, order, axis=-1)
    upto = np.cumsum(ranked, axis=-1)
    before = np.append(np.zeros((len(draft), 1)), upto[:, :-1], axis=-1)
    a, s = below[:, None], share[:, None]
    skew = _powers(a + s * upto, a + s * before, count) / _powers(a + s, a, count)
    law = np.empty_like(draft)
    np.put_along_axis(law, order, ranked * skew, axis=-1)
    return law


def _powers(
    high: Float[np.ndarray, "k n"], low: Float[np.ndarray, "k n"], count: int
) -> Float[np.ndarray, "k n"]:
    """``(high^count - low^count) / (high - low)``, as a sum: ``sum_j high^j low^(count-1-j)``."""
    total, power = np.ones_like(high), np.ones_like(low)
    for _ in range(count - 1):
        power = power * low
        total = total * high + power
    return total


def _leaves(tree: Tree) -> list[int]:
    return [slot for slot, below in enumerate(tree.children) if not below]
