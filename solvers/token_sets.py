"""Drafted tuples merged by their set of tokens, and the plans that live on them.

Acceptance only asks whether the output is among the drafts, so tuples with the same tokens share
their mass: the columns of the linear programs, and the left nodes of the flow network.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import Any, Self

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csc_array

from multidraft import laws
from multidraft.arrays import take
from multidraft.problem import Problem
from multidraft.solution import Plan, SelectionPlan


class TokenSets:
    """The token sets of a law with their masses.

    Attributes
    ----------
    members : (M, n) token ids in increasing order, -1 where the set has fewer than n tokens.
    mass : (M,)
    vocabulary : V
    """

    def __init__(
        self, members: Int[np.ndarray, "M n"], mass: Float[np.ndarray, " M"], vocabulary: int
    ) -> None:
        self.members, self.mass, self.vocabulary = members, mass, vocabulary

    @classmethod
    def of(cls, law: laws.Law) -> Self:
        """Merge the tuples of a law (one context, small V)."""
        return cls.listed(law).merged()[0]

    @classmethod
    def listed(cls, law: laws.Law) -> Self:
        """One row per drafted tuple, not merged: the programs as the papers state them."""
        tuples, mass = law.enumerate()
        held = mass > 0  # a product of small masses may underflow
        return cls(distinct(tuples[held]), mass[held], law.vocabulary)

    def merged(self) -> tuple[Self, Int[np.ndarray, " M"]]:
        """Return the distinct sets, and for every row of this object the row of its set."""
        _, first, rows = np.unique(
            _keys(self.members, self.vocabulary), return_index=True, return_inverse=True
        )
        mass = sums(rows, self.mass, len(first))
        return type(self)(self.members[first], mass, self.vocabulary), rows

    @cached_property
    def arcs(self) -> tuple[Int[np.ndarray, " K"], Int[np.ndarray, " K"]]:
        """Pairs (set, token in the set), row by row."""
        rows, columns = np.nonzero(self.members >= 0)
        return rows, self.members[rows, columns]

    @cached_property
    def incidence(self) -> tuple[csc_array, csc_array]:
        """Matrices (M, K) and (V, K) that sum flows on the arcs by set and by token."""
        return incidence(*self.arcs, (len(self.mass), self.vocabulary))

    def flow(self, values: Float[np.ndarray, " K"]) -> Float[np.ndarray, "M n"]:
        """Lay values on the arcs out as a table of the shape of `members`."""
        table = np.zeros(self.members.shape)
        table[self.members >= 0] = values
        return table

    def arrived(self, flow: Float[np.ndarray, "M n"]) -> Float[np.ndarray, " V"]:
        """Mass that a table of flows brings to each token."""
        inside = self.members >= 0
        return sums(self.members[inside], flow[inside], self.vocabulary)

    @cached_property
    def _index(self) -> tuple[np.ndarray, np.ndarray]:
        keys = _keys(self.members, self.vocabulary)
        order = np.argsort(keys, kind="stable")
        return keys[order], order

    def find(self, tuples: Int[np.ndarray, "K n"]) -> Int[np.ndarray, " K"]:
        """Row of each tuple's token set, -1 for a set without mass."""
        known, order = self._index
        wanted = _keys(distinct(tuples), self.vocabulary)
        if len(known) == 0:
            return np.full(len(wanted), -1)
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.where(known[at] == wanted, order[at], -1)

    def restricted(self, tokens: Bool[np.ndarray, " V"]) -> Self:
        """Drop all other tokens from these sets and merge again; empty sets are left out."""
        kept = distinct(np.where(np.append(tokens, False)[self.members], self.members, -1))
        held = kept[:, 0] >= 0
        return type(self)(kept[held], self.mass[held], self.vocabulary).merged()[0]

    def inside(self, tokens: Bool[np.ndarray, " V"]) -> Self:
        """Return the sets all of whose tokens are among `tokens`."""
        held = np.append(tokens, True)[self.members].all(-1)
        return type(self)(self.members[held], self.mass[held], self.vocabulary)


def sums(
    at: Int[np.ndarray, " K"], weights: Float[np.ndarray, " K"], size: int
) -> Float[np.ndarray, " N"]:
    """Sum weights by place, 0 to ``size - 1``."""
    return np.bincount(at, weights, minlength=size).astype(np.float64)  # integers if K = 0


def incidence(
    rows: Int[np.ndarray, " K"], tokens: Int[np.ndarray, " K"], shape: tuple[int, int]
) -> tuple[csc_array, csc_array]:
    """Matrices that sum over the arcs (row, token) by row, and by token."""
    ones, start = np.ones(len(rows)), np.arange(len(rows) + 1)
    return (
        csc_array((ones, rows, start), shape=(shape[0], len(rows))),
        csc_array((ones, tokens, start), shape=(shape[1], len(rows))),
    )


def distinct(tuples: Int[np.ndarray, "M n"]) -> Int[np.ndarray, "M n"]:
    """Sort each tuple and replace its repeats by -1 at the end."""
    high = np.iinfo(np.int64).max
    ordered = np.sort(np.where(tuples < 0, high, tuples), axis=-1)
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = high
    ordered.sort(axis=-1)
    return np.where(ordered == high, -1, ordered)


def _keys(sets: Int[np.ndarray, "M n"], vocabulary: int) -> Any:
    """One integer per set, the same at every width; Python's own where 63 bits do not hold it."""
    n = sets.shape[-1]
    kind = np.int64 if n * np.log2(vocabulary + 1) < 62 else object
    keys = np.zeros(len(sets), dtype=kind)
    for column in sets.T[::-1]:
        keys = keys * (vocabulary + 1) + (column + 1)
    return keys


def count(law: laws.Law) -> float:
    """How many token sets a law has at most, without listing them."""
    tuples = law.tuple_count()
    if isinstance(law, laws.WithoutReplacement):
        support = int((law.probs > 0).sum())
        return float(comb(support, min(law.width, support)))
    if isinstance(law, laws.IID | laws.Independent):
        parts = law.parts if isinstance(law, laws.Independent) else (law.probs,)
        support = int(np.any([part > 0 for part in parts], axis=0).sum())
        return min(tuples, sum(comb(support, k) for k in range(1, law.width + 1)))
    return tuples


@dataclass(frozen=True)
class Forest:
    """Basis of the transport program: arcs that may carry flow, nodes that may keep a slack.

    Attributes
    ----------
    arcs : (K,) in the order of ``TokenSets.arcs``.
    sets : (M,)
    tokens : (V,)
    """

    arcs: Bool[np.ndarray, " K"]
    sets: Bool[np.ndarray, " M"]
    tokens: Bool[np.ndarray, " V"]


class SetPlan(Plan):
    """A plan of the relaxed program: mass that flows from each token set to each of its tokens.

    Parameters
    ----------
    problem : Problem
    sets : TokenSets
        Merged.
    flow : (M, n)
        Non-negative mass, at most the set's in each row and the target's in each token.
    forest : Forest, optional
        The basis that the flow was read from, for a proof in rationals.
    """

    def __init__(
        self,
        problem: Problem,
        sets: TokenSets,
        flow: Float[np.ndarray, "M n"],
        forest: Forest | None = None,
    ) -> None:
        self.problem, self.sets, self.flow, self.forest = problem, sets, flow, forest

    @classmethod
    def repaired(
        cls,
        problem: Problem,
        sets: TokenSets,
        flow: Float[np.ndarray, "M n"],
        forest: Forest | None = None,
    ) -> Self:
        """Scale an optimiser's flow down to where every constraint holds (up to round-off)."""
        flow = np.where(sets.members >= 0, np.maximum(flow, 0.0), 0.0)
        flow = flow * _shrink(flow.sum(-1), sets.mass)[:, None]
        flow = flow * take_tokens(_shrink(sets.arrived(flow), problem.target), sets.members)
        return cls(problem, sets, flow, forest)

    @classmethod
    def of(cls, plan: Plan) -> Self:
        """The same kept mass as any plan's, by enumeration of all drafted tuples (small V)."""
        if isinstance(plan, cls):
            return plan
        tuples, mass = plan.problem.law.enumerate()
        held = mass > 0
        tuples, mass = tuples[held], mass[held]
        sets, rows = TokenSets(distinct(tuples), mass, plan.problem.vocabulary).merged()
        at = (sets.members[rows][:, None, :] == tuples[:, :, None]).argmax(-1)
        flow = np.zeros(sets.members.shape)
        kept = np.where(tuples >= 0, plan.keep(tuples) * mass[:, None], 0.0)
        np.add.at(flow, (rows[:, None], at), kept)
        return cls(plan.problem, sets, flow)

    @property
    def kept(self) -> Float[np.ndarray, " V"]:
        return self.sets.arrived(self.flow)

    @property
    def selection(self) -> Float[np.ndarray, " V"]:
        """Selection law: what a set does not send on is laid on its first token.

        A rejected tuple selects some token; the single-draft test rejects it just as well.
        """
        left = np.maximum(self.sets.mass - self.flow.sum(-1), 0.0)
        head = self.sets.members[:, 0]
        held = head >= 0
        return self.kept + sums(head[held], left[held], self.problem.vocabulary)

    def keep(self, drafts: Int[np.ndarray, "M n"]) -> Float[np.ndarray, "M n"]:
        return _shares(self.sets, self.flow, drafts)

    def violation(self) -> Float[np.ndarray, ""]:
        over_sets = self.flow.sum(-1) - self.sets.mass
        over_tokens = self.kept - self.problem.target
        stray = np.where(self.sets.members < 0, np.abs(self.flow), 0.0)
        faults = (over_sets, over_tokens, -self.flow, stray)
        return np.asarray(max(fault.max(initial=0.0) for fault in faults))


class SetSelection(SelectionPlan):
    """Canonical decomposition on token sets: each set selects one of its tokens.

    Parameters
    ----------
    problem : Problem
    sets : TokenSets
        Merged.
    flow : (M, n)
        Mass ``P(S) beta(y | S)`` with which a set selects each of its tokens.
    """

    def __init__(self, problem: Problem, sets: TokenSets, flow: Float[np.ndarray, "M n"]) -> None:
        self.problem, self.sets, self.flow = problem, sets, flow

    @classmethod
    def repaired(cls, problem: Problem, sets: TokenSets, flow: Float[np.ndarray, "M n"]) -> Self:
        """Scale an optimiser's weights so that every set selects exactly one token."""
        inside = sets.members >= 0
        flow = np.where(inside, np.maximum(flow, 0.0), 0.0)
        total = flow.sum(-1, keepdims=True)
        even = inside / np.maximum(inside.sum(-1, keepdims=True), 1)
        share = np.where(total > 0, flow / np.where(total > 0, total, 1.0), even)
        return cls(problem, sets, share * sets.mass[:, None])

    @property
    def selection(self) -> Float[np.ndarray, " V"]:
        return self.sets.arrived(self.flow)

    def weights(self, drafts: Int[np.ndarray, "M n"]) -> Float[np.ndarray, "M n"]:
        return _shares(self.sets, self.flow, drafts)

    def violation(self) -> Float[np.ndarray, ""]:
        off = np.abs(self.flow.sum(-1) - self.sets.mass)[self.sets.members[:, 0] >= 0]
        return np.asarray(max(off.max(initial=0.0), (-self.flow).max(initial=0.0)))


def take_tokens(
    values: Float[np.ndarray, " V"], members: Int[np.ndarray, "M n"]
) -> Float[np.ndarray, "M n"]:
    """Value of each member's token, 0 at padding."""
    return take(np.broadcast_to(values, (len(members), len(values))), members)


def _shares(
    sets: TokenSets, flow: Float[np.ndarray, "M n"], drafts: Int[np.ndarray, "K n"]
) -> Float[np.ndarray, "K n"]:
    """Share of its set's mass that flows to each drafted token; a repeated token gets zero."""
    rows = sets.find(drafts)
    out, known = np.zeros(drafts.shape), rows >= 0
    drafts, rows = drafts[known], rows[known]
    share = flow[rows] / sets.mass[rows, None]
    here = drafts[:, :, None] == sets.members[rows][:, None, :]
    fresh = ~repeats(drafts) & (drafts >= 0)
    out[known] = np.where(fresh, (here * share[:, None, :]).sum(-1), 0.0)
    return out


def _shrink(total: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Return the factor of at most 1 that brings `total` down to `most`."""
    over = total > most
    return np.where(over, most / np.where(over, total, 1.0), 1.0)


def repeats(tuples: Int[np.ndarray, "M n"]) -> np.ndarray:
    """Mark every token that stands further left in its tuple already."""
    same = tuples[:, :, None] == tuples[:, None, :]
    return np.tril(same, -1).any(-1)
