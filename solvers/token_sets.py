"""Drafted tuples merged by their set of tokens, and the plans that live on them.

Acceptance only asks whether the output is among the drafts, so tuples with the same tokens share
their mass: 2 V^n fewer columns for the linear programs, and the left nodes of the flow network.
"""

from __future__ import annotations

from functools import cached_property
from typing import Self

import numpy as np
from jaxtyping import Float, Int

from multidraft.laws import Law
from multidraft.problem import Problem
from multidraft.solution import Plan


class TokenSets:
    """The distinct token sets of a law with their masses.

    Attributes
    ----------
    members : (M, n) token ids in increasing order, -1 where the set has fewer than n tokens.
    mass : (M,)
    """

    members: Int[np.ndarray, "M n"]
    mass: Float[np.ndarray, " M"]

    def __init__(self, members: Int[np.ndarray, "M n"], mass: Float[np.ndarray, " M"]) -> None:
        self.members, self.mass = members, mass

    @classmethod
    def of(cls, law: Law) -> Self:
        """Merge the tuples of a law (one context, small V)."""
        tuples, mass = law.enumerate()
        sets = distinct(tuples)
        keys = _keys(sets, law.vocabulary)
        _, first, index = np.unique(keys, return_index=True, return_inverse=True, axis=0)
        return cls(sets[first], np.bincount(index.ravel(), weights=mass))

    @cached_property
    def arcs(self) -> tuple[Int[np.ndarray, " K"], Int[np.ndarray, " K"]]:
        """Pairs (set, token in the set), row by row."""
        rows, columns = np.nonzero(self.members >= 0)
        return rows, self.members[rows, columns]

    def find(self, tuples: Int[np.ndarray, "K n"], vocabulary: int) -> Int[np.ndarray, " K"]:
        """Row of each tuple's token set, -1 for a set without mass."""
        known = {key: i for i, key in enumerate(map(bytes, _keys(self.members, vocabulary)))}
        wanted = map(bytes, _keys(distinct(tuples), vocabulary))
        return np.array([known.get(key, -1) for key in wanted], dtype=np.int64)


def distinct(tuples: Int[np.ndarray, "M n"]) -> Int[np.ndarray, "M n"]:
    """Sort each tuple and replace its repeats by -1 at the end."""
    high = np.iinfo(np.int64).max
    ordered = np.sort(np.where(tuples < 0, high, tuples), axis=-1)
    ordered[:, 1:][ordered[:, 1:] == ordered[:, :-1]] = high
    ordered.sort(axis=-1)
    return np.where(ordered == high, -1, ordered)


def _keys(sets: Int[np.ndarray, "M n"], vocabulary: int) -> Int[np.ndarray, "M k"]:
    """One integer per set where V^n fits into 63 bits, else the row itself."""
    n = sets.shape[-1]
    if n * np.log2(vocabulary + 1) < 62:
        return (sets + 1) @ (vocabulary + 1) ** np.arange(n, dtype=np.int64)[:, None]
    return sets


class SetPlan(Plan):
    """A plan of the relaxed program: mass that flows from each token set to each of its tokens.

    Parameters
    ----------
    problem : Problem
    sets : TokenSets
    flow : (M, n)
        Non-negative mass, at most the set's in each row and the target's in each token.
    """

    def __init__(self, problem: Problem, sets: TokenSets, flow: Float[np.ndarray, "M n"]) -> None:
        self.problem, self.sets, self.flow = problem, sets, flow

    @classmethod
    def repaired(cls, problem: Problem, sets: TokenSets, flow: Float[np.ndarray, "M n"]) -> Self:
        """Scale an optimiser's flow down to where every constraint holds (up to round-off)."""
        flow = np.where(sets.members >= 0, np.maximum(flow, 0.0), 0.0)
        flow = flow * _shrink(flow.sum(-1), sets.mass)[:, None]
        arrived = _arrived(sets, flow, problem.vocabulary)
        flow = flow * _shrink(arrived, problem.target)[np.maximum(sets.members, 0)]
        return cls(problem, sets, flow)

    @cached_property
    def kept(self) -> Float[np.ndarray, " V"]:
        return _arrived(self.sets, self.flow, self.problem.vocabulary)

    @cached_property
    def selection(self) -> Float[np.ndarray, " V"]:
        """Selection law: what a set does not send on is laid on its first token.

        A rejected tuple selects some token; the single-draft test rejects it just as well.
        """
        left = np.maximum(self.sets.mass - self.flow.sum(-1), 0.0)
        head = self.sets.members[:, 0]
        return self.kept + np.bincount(
            head[head >= 0], weights=left[head >= 0], minlength=self.problem.vocabulary
        )

    def keep(self, drafts: Int[np.ndarray, "M n"]) -> Float[np.ndarray, "M n"]:
        rows = self.sets.find(drafts, self.problem.vocabulary)
        share = self.flow[rows] / self.sets.mass[rows, None]
        here = drafts[:, :, None] == self.sets.members[rows][:, None, :]
        keep = (here * share[:, None, :]).sum(-1)
        fresh = ~_repeats(drafts) & (drafts >= 0) & (rows >= 0)[:, None]
        return np.where(fresh, keep, 0.0)

    def violation(self) -> Float[np.ndarray, ""]:
        over_sets = self.flow.sum(-1) - self.sets.mass
        over_tokens = self.kept - self.problem.target
        stray = np.where(self.sets.members < 0, np.abs(self.flow), 0.0)
        return np.asarray(
            max(0.0, over_sets.max(), over_tokens.max(), -self.flow.min(), stray.max())
        )


def _arrived(sets: TokenSets, flow: Float[np.ndarray, "M n"], vocabulary: int) -> np.ndarray:
    rows, tokens = sets.arcs
    columns = np.nonzero(sets.members >= 0)[1]
    return np.bincount(tokens, weights=flow[rows, columns], minlength=vocabulary)


def _shrink(total: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Return the factor of at most 1 that brings `total` down to `most`."""
    over = total > most
    return np.where(over, most / np.where(over, total, 1.0), 1.0)


def _repeats(tuples: Int[np.ndarray, "M n"]) -> np.ndarray:
    """Mark every token that stands further left in its tuple already."""
    same = tuples[:, :, None] == tuples[:, None, :]
    return np.tril(same, -1).any(-1)
