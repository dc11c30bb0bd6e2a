r"""The least spread optimal selection law for iid drafts, in closed form.

With H a minimising set, U its complement and ``p`` the draft law, two levels solve

.. math:: \sum_U \min(q, \mathrm{high}\, p) = 1 - p(H)^n, \qquad
          \sum_H \max(q, \mathrm{low}\, p) = p(H)^n

and ``b = min(q, high p)`` on U, ``max(q, low p)`` on H is an optimal selection law: ``b/p`` is
``q/p`` clipped to ``[low, high]``.  It is the smallest optimal law in convex order, hence
realisable whenever any optimal law is (docs/interval-partition).  Both sums are piecewise linear in
their level, so a level is found by bucket sums and by sorting the one bucket that holds it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from jaxtyping import Bool, Float, Int
from numba import njit

from multidraft.problem import Problem
from multidraft.solution import SelectionPlan
from multidraft.solvers.partition import Partition, partition
from multidraft.solvers.prefix import (
    COMPILED,
    Flags,
    Keys,
    Marks,
    Reals,
    Rows,
    Scalar,
    bucket_edges,
    bucket_masses,
    chunked_sum,
    hit_probability,
    in_parallel,
    last_bucket,
    ratios,
    sorted_tokens,
    tails,
)


@dataclass(frozen=True)
class Selection:
    """Clipped selection laws of a batch.

    Attributes
    ----------
    law : b, ``(*batch, V)``.
    low, high : clip levels ``(*batch,)``; 0 and infinity where nothing is clipped.
    """

    law: Float[np.ndarray, "*batch V"]
    low: Float[np.ndarray, "*batch"]
    high: Float[np.ndarray, "*batch"]


def clipped_selection(
    target: Float[np.ndarray, "*#batch V"],
    draft: Float[np.ndarray, "*#batch V"],
    n: int | Int[np.ndarray, "*#batch"],
    cut: Bool[np.ndarray, "*#batch V"],
) -> Selection:
    """Optimal selection law for ``n`` iid drafts, given a minimising set of `prefix.iid_optimum`.

    Parameters
    ----------
    target, draft
        Laws q and p, ``(*batch, V)``, broadcast against each other.
    n
        Number of drafts, one integer or one per batch element.
    cut
        The minimising set H; where it is empty the optimum is 1 and b = q.
    """
    target, draft, cut = np.broadcast_arrays(target, draft, cut)
    batch, vocabulary = target.shape[:-1], target.shape[-1]
    counts = np.broadcast_to(np.asarray(n, dtype=np.int64), batch).reshape(-1)
    q = np.ascontiguousarray(target, dtype=np.float64).reshape(-1, vocabulary)
    p = np.ascontiguousarray(draft, dtype=np.float64).reshape(-1, vocabulary)
    inside = np.ascontiguousarray(cut, dtype=np.bool_).reshape(-1, vocabulary)
    law, levels = np.empty_like(q), np.empty((2, len(q)))
    in_parallel(lambda a, z: _selection_rows(q, p, counts, inside, law, levels, a, z), len(q))
    low, high = levels.reshape(2, *batch)
    return Selection(law.reshape(*batch, vocabulary), low, high)


class ClippedPlan(SelectionPlan):
    """Select a draft so that the selected token has the clipped law, then the single-draft test.

    Parameters
    ----------
    problem
        A problem with iid drafts, one context or a batch.
    selection
        The clipped law b, ``(*batch, V)``.
    """

    def __init__(self, problem: Problem, selection: Float[np.ndarray, "*batch V"]) -> None:
        self.problem, self._selection = problem, selection

    @classmethod
    def of(cls, problem: Problem, cut: Bool[np.ndarray, "*batch V"]) -> Self:
        """Build the plan of a minimising set H of the problem."""
        law = clipped_selection(problem.target, problem.law.probs, problem.law.n, cut).law
        return cls(problem, law)

    @property
    def selection(self) -> Float[np.ndarray, "*batch V"]:
        return self._selection

    @cached_property
    def partitions(self) -> list[Partition]:
        """The partition that realises the law, one for every context of the batch."""
        return partition(self._draft, self.selection, self.problem.law.counts)

    def weights(self, drafts: Int[np.ndarray, "M n"]) -> Float[np.ndarray, "M n"]:
        return self.partitions[0].weights(drafts)

    def violation(self) -> Float[np.ndarray, "*batch"]:
        """Largest excess over ``b(A) <= hit(A)``, and distance of ``b`` from total mass 1.

        The excess is largest on a set of the tokens with the largest b/p, so V sets are all sets.
        """
        p, b = self._draft, self.selection
        with np.errstate(divide="ignore", invalid="ignore"):
            order = np.argsort(np.where(p > 0, -b / p, -np.inf), axis=-1)
        drafted = np.minimum(np.cumsum(np.take_along_axis(p, order, -1), -1), 1.0)
        with np.errstate(divide="ignore"):
            hit = -np.expm1(self.problem.law.counts[..., None] * np.log1p(-drafted))
        excess = np.cumsum(np.take_along_axis(b, order, -1), -1) - hit
        return np.maximum(excess.max(-1), np.abs(b.sum(-1) - 1))

    def row(self, i: int) -> Self:
        one = type(self)(self.problem[i], self.selection[i])
        if "partitions" in self.__dict__:
            one.partitions = self.partitions[i : i + 1]
        return one

    @property
    def _draft(self) -> Float[np.ndarray, "*batch V"]:
        return np.broadcast_to(self.problem.law.probs, self.selection.shape)


@njit(**COMPILED)
def _selection_rows(
    target: Rows,
    draft: Rows,
    counts: Keys,
    cut: Marks,
    law: Rows,
    levels: Rows,
    start: Scalar,
    stop: Scalar,
) -> None:
    for row in range(start, stop):
        q, p, inside = target[row], draft[row], cut[row]
        low, high = 0.0, np.inf
        if inside.any():
            low, high = _levels(q, p, counts[row], inside)
        levels[0, row], levels[1, row] = low, high
        for y in range(q.size):
            if p[y] == 0.0:
                law[row, y] = 0.0
            elif inside[y]:
                law[row, y] = max(q[y], low * p[y])
            else:
                law[row, y] = min(q[y], high * p[y])


@njit(**COMPILED)
def _levels(q: Reals, p: Reals, n: int, inside: Flags) -> tuple[float, float]:
    keys, outside, top = ratios(q, p).view(np.int64), (p > 0.0) & ~inside, last_bucket(n)
    mass_in, mass_out = chunked_sum(p, inside), chunked_sum(p, outside)
    # Either form is exact where its own sum is the small one.
    stay = math.exp(n * math.log1p(-mass_out)) if mass_out < 0.5 else mass_in**n
    low = _low(q, p, keys, inside, top, stay)
    return low, _high(q, p, keys, outside, top, hit_probability(mass_out, n))


@njit(**COMPILED)
def _high(q: Reals, p: Reals, keys: Keys, outside: Flags, top: int, goal: Scalar) -> float:
    """Level with ``sum min(q, high p) = goal`` over the tokens outside H."""
    targets, drafts = bucket_masses(q, p, keys, outside, top)
    below, above, edges, k = 0.0, tails(drafts), bucket_edges(top), 0
    while k < top and below + targets[k] + edges[k + 1] * above[k + 1] < goal:
        below += targets[k]
        k += 1
    tokens = sorted_tokens(keys, outside, np.arange(top + 1) == k)
    clipped = above[k + 1] + tails(p[tokens])
    last = edges[k]
    for i in range(tokens.size):
        y = tokens[i]
        if below + q[y] / p[y] * clipped[i] >= goal:
            return max((goal - below) / clipped[i], last)
        below, last = below + q[y], q[y] / p[y]
    return max((goal - below) / above[k + 1], last) if above[k + 1] > 0.0 else np.inf


@njit(**COMPILED)
def _low(q: Reals, p: Reals, keys: Keys, inside: Flags, top: int, goal: Scalar) -> float:
    """Level with ``sum max(q, low p) = goal`` over the tokens of H."""
    targets, drafts = bucket_masses(q, p, keys, inside, top)
    below, above, edges, k = 0.0, tails(targets), bucket_edges(top), 0
    while k < top and above[k + 1] + edges[k + 1] * (below + drafts[k]) < goal:
        below += drafts[k]
        k += 1
    tokens = sorted_tokens(keys, inside, np.arange(top + 1) == k)
    kept = above[k + 1] + tails(q[tokens])
    last = edges[k]
    for i in range(tokens.size + 1):
        ratio = q[tokens[i]] / p[tokens[i]] if i < tokens.size else np.inf
        if kept[i] + ratio * below >= goal:
            return max((goal - kept[i]) / below, last) if below > 0.0 else 0.0
        if i < tokens.size:
            below, last = below + p[tokens[i]], ratio
    return 0.0
