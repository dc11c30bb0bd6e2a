r"""The true optimum of a drafted tree: how long a block any lossless rule can emit on average.

With t running over the sets of drafted paths (tries) of probability P(t), and the blocks b of t
being an accepted path of t plus one token, which leads out of t (one that stays inside could be
accepted, for a longer block), the program over joint masses :math:`C[t, b]` is

.. math::
    \max \sum_{t, b} C[t, b]\,|b| \quad\text{s.t.}\quad
    \sum_b C[t, b] = P(t), \qquad
    \sum_{b \preceq s} q(s \mid b) \sum_t C[t, b] = q(s) \;\; \text{for all } |s| = L + 1, \qquad
    C \ge 0 .

The equalities for shorter strings are sums of those for the longest. Any prices :math:`\beta_s`
bound every rule from above,

.. math:: \sum_s \beta_s q(s)
          + \sum_t P(t) \max_b \Big(|b| - \sum_{s \succeq b} \beta_s q(s \mid b)\Big),

and that number, computed from the prices that HiGHS returns but not from its word, is the
certificate. At one path the optimum is block verification's (2602.16961).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from multidraft import checks
from multidraft.errors import InputError, Refused
from multidraft.trees import shapes
from multidraft.trees.drawing import Markov, Model
from multidraft.trees.exact import enumerate_drafts, path_codes, string_law, strings
from multidraft.trees.tree import Tree

# Columns of the largest program that is tried: it takes HiGHS about a minute.
MOST_COLUMNS = 200_000
# What is tried until the bounds meet: unit of mass, and slack of the strings' equalities relative
# to their mass. The equalities depend on each other and their coefficients are rounded, so there
# must be some slack; HiGHS's tolerance is absolute and its round-off relative, so right-hand sides
# near 1 are lowered, and where that hides small masses another unit serves.
ATTEMPTS = ((2.0**-8, 4e-15), (1.0, 1e-13), (2.0**-8, 1e-11))
CLOSED = 1e-9  # gap at which the bounds have met
# Strings less probable than this are left to chance: HiGHS ignores coefficients below 1e-9, and a
# column is scaled by the square root of its block's probability.
LEAST = 1e-16


@dataclass(frozen=True)
class TreeOptimum:
    """Longest expected block of any lossless rule, with its certificate.

    Attributes
    ----------
    lower : expected length under the plan found, recomputed
    upper : dual bound recomputed from the prices
    violation : largest violation of a constraint by the plan
    columns : size of the program
    seconds : wall time, listing and solving
    limited : whether the time limit ended the solve early
    """

    lower: float
    upper: float
    violation: float
    columns: int
    seconds: float
    limited: bool

    @property
    def gap(self) -> float:
        """Distance of the two bounds."""
        return self.upper - self.lower

    def __float__(self) -> float:
        return self.lower


def optimum(target: Any, draft: Any, paths: int, length: int) -> TreeOptimum:
    """The optimum for `paths` iid paths of `length` drafted tokens.

    Parameters
    ----------
    target, draft : (V,), or models
        One law for every node, or a model, see :mod:`multidraft.trees.drawing`.

    Raises
    ------
    InputError
        A program of more than `MOST_COLUMNS` columns.

    Examples
    --------
    >>> round(float(optimum([0.2, 0.3, 0.5], [0.6, 0.3, 0.1], paths=1, length=2)), 9)
    2.0
    """
    return tree_optimum(shapes.paths(paths, length), target, draft)


def tree_optimum(
    tree: Tree, target: Any, draft: Any, *, time_limit: float | None = None
) -> TreeOptimum:
    """The optimum for any tree and draft law.

    Raises
    ------
    InputError
        Too many drafted trees to list, or a program of more than `MOST_COLUMNS` columns.
    Refused
        HiGHS does not solve the program.
    """
    start = time.perf_counter()
    program = Program.of(tree, _model(target, "target"), _model(draft, "draft"))
    found: list[TreeOptimum] = []
    for attempt in ATTEMPTS:
        try:
            found.append(_solved(program, *attempt, time_limit, start))
        except Refused:
            if attempt == ATTEMPTS[-1] and not found:
                raise
            continue
        if found[-1].limited or abs(found[-1].gap) <= CLOSED:
            break
    return min(found, key=lambda answer: abs(answer.gap))


def _solved(
    program: Program, unit: float, slack: float, time_limit: float | None, start: float
) -> TreeOptimum:
    """Solve in one unit and with one slack, and recompute what the answer is worth."""
    from multidraft.solvers import highs

    matrix, sides = program.matrix(), np.concatenate([program.mass, program.law])
    columns, rows, scaled = _scaled(program, matrix)
    room = np.where(rows.kept < len(program.mass), 0.0, slack)
    answer = highs.maximise(
        program.lengths[columns.kept] * columns.scale,
        scaled,
        unit * (sides[rows.kept] * rows.scale - room),
        unit * (sides[rows.kept] * rows.scale + room),
        time_limit=time_limit,
    )
    plan = np.zeros(len(program.lengths))
    plan[columns.kept] = np.maximum(answer.primal / unit, 0.0) * columns.scale
    prices = np.full(len(sides), program.lengths.max() * 1.0)  # no block pays for strings left out
    prices[rows.kept] = answer.dual * rows.scale
    return TreeOptimum(
        lower=float(program.lengths @ plan),
        upper=program.bound(prices[len(program.mass) :]),
        violation=float(np.abs(matrix @ plan - sides).max()),
        columns=len(program.lengths),
        seconds=time.perf_counter() - start,
        limited=answer.limited,
    )


@dataclass(frozen=True)
class _Kept:
    """Rows or columns that HiGHS is given, and their factors."""

    kept: Int[np.ndarray, " K"]
    scale: Float[np.ndarray, " K"]


def _scaled(program: Program, matrix: Any) -> tuple[_Kept, _Kept, Any]:
    """The program as HiGHS gets it, its coefficients brought together.

    A string s divides its row by q(s), and a block b scales its column by the root of q(b); both
    coefficients of the column are then within that root of 1.
    """
    chance = program.chance()
    columns = np.flatnonzero(chance > LEAST)
    strings_kept = np.flatnonzero(program.law > LEAST)
    rows = np.concatenate([np.arange(len(program.mass)), len(program.mass) + strings_kept])
    factors = np.concatenate([np.ones(len(program.mass)), 1 / program.law[strings_kept]])
    by_column, by_row = _Kept(columns, np.sqrt(chance[columns])), _Kept(rows, factors)
    part = matrix[rows][:, columns].multiply(factors[:, None]).multiply(by_column.scale[None])
    return by_column, by_row, part.tocsc()


def _model(model: Any, name: str) -> Model:
    if callable(model):
        return model
    probs = checks.as_floats(model, name)
    if probs.ndim != 1:
        raise InputError(f"{name} is one law, (V,), or a model, not an array {probs.shape}.")
    return Markov.constant(probs)


@dataclass(frozen=True)
class Program:
    """The block program as arrays, one entry per column unless said otherwise.

    Attributes
    ----------
    mass : (T,) probability of every trie
    law : (V**(D+1),) the target's law of the longest strings
    tries : trie of the column
    lengths : length of its block, in increasing order
    codes : index of its block among the strings of that length
    onward : for every length l - 1, the law (V**l, V**(D+1-l)) of what follows a block
    """

    mass: Float[np.ndarray, " T"]
    law: Float[np.ndarray, " strings"]
    tries: Int[np.ndarray, " N"]
    lengths: Int[np.ndarray, " N"]
    codes: Int[np.ndarray, " N"]
    onward: tuple[Float[np.ndarray, "_ _"], ...]

    @classmethod
    def of(cls, tree: Tree, target: Model, draft: Model) -> Program:
        """List the tries of a tree, and the blocks of every trie."""
        nodes, mass, vocabulary = _tries(tree, target, draft)
        depth = tree.depth
        inside = nodes >= 0
        columns = int(inside.sum()) * (vocabulary - 1) + len(nodes)  # a tree's nodes less its edges
        if columns > MOST_COLUMNS:
            raise InputError(
                f"the block program has {columns} columns, more than {MOST_COLUMNS}: use fewer or "
                "shorter paths, or a smaller vocabulary."
            )
        tries, lengths, codes = _blocks(nodes, vocabulary, depth)
        order = np.argsort(lengths, kind="stable")
        return cls(
            mass,
            string_law(target, vocabulary, depth + 1),
            tries[order],
            lengths[order],
            codes[order],
            tuple(_onward(target, vocabulary, n, depth + 1) for n in range(1, depth + 2)),
        )

    def chance(self) -> Float[np.ndarray, " N"]:
        """Probability of every column's block as a string."""
        chance = np.empty(len(self.lengths))
        for length, ends in enumerate(self.onward, start=1):
            of_length = self.lengths == length
            chance[of_length] = self.law.reshape(ends.shape).sum(-1)[self.codes[of_length]]
        return chance

    def matrix(self) -> Any:
        """Constraint matrix: one row per trie, then one per longest string."""
        from scipy.sparse import csc_array

        indices, values, counts = [], [], []
        for length, ends in enumerate(self.onward, start=1):
            of_length = self.lengths == length
            codes, width = self.codes[of_length], ends.shape[1]
            rows = len(self.mass) + codes[:, None] * width + np.arange(width)
            indices.append(np.column_stack([self.tries[of_length], rows]).ravel())
            values.append(np.column_stack([np.ones(len(codes)), ends[codes]]).ravel())
            counts.append(np.full(len(codes), width + 1))
        starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
        shape = (len(self.mass) + len(self.law), len(self.lengths))
        return csc_array((np.concatenate(values), np.concatenate(indices), starts), shape=shape)

    def bound(self, prices: Float[np.ndarray, " strings"]) -> float:
        """Upper bound on every rule's expected length, from any prices of the longest strings."""
        gain = self.lengths.astype(np.float64)
        for length, ends in enumerate(self.onward, start=1):
            of_length = self.lengths == length
            cost = (ends * prices.reshape(ends.shape)).sum(-1)
            gain[of_length] -= cost[self.codes[of_length]]
        best = np.full(len(self.mass), -np.inf)
        np.maximum.at(best, self.tries, gain)
        return float(self.law @ prices + self.mass @ best)


def _tries(
    tree: Tree, target: Model, draft: Model
) -> tuple[Int[np.ndarray, "T S"], Float[np.ndarray, " T"], int]:
    """Distinct sets of drafted strings with their probabilities; -1 pads.

    The empty string, the root, is in every set. Strings of different lengths have different keys:
    the index of the string plus the number of all shorter ones.
    """
    drafted, chance = enumerate_drafts(tree, target, draft)
    keys = path_codes(drafted) + _offsets(drafted.vocabulary, tree.depth + 1)[drafted.depths]
    keys = np.sort(np.where(drafted.live, keys, -1), axis=-1)
    keys[:, 1:][keys[:, 1:] == keys[:, :-1]] = -1
    nodes, inverse = np.unique(np.sort(keys, axis=-1), axis=0, return_inverse=True)
    return nodes, np.bincount(inverse.ravel(), chance), drafted.vocabulary


def _blocks(
    nodes: Int[np.ndarray, "T S"], vocabulary: int, depth: int
) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
    """Trie, length and index of every block: a node of the trie plus a token that leaves it."""
    offsets = _offsets(vocabulary, depth + 1)
    tries, slots = np.nonzero(nodes >= 0)
    keys = nodes[tries, slots]
    lengths = np.searchsorted(offsets, keys, side="right")  # a node's depth, plus one
    codes = (keys - offsets[lengths - 1])[:, None] * vocabulary + np.arange(vocabulary)
    extended = offsets[lengths][:, None] + codes  # key of the node plus the token
    size = int(offsets[-1]) + vocabulary ** (depth + 1)
    stays = np.isin(tries[:, None] * size + extended, tries * size + keys)
    place, _ = np.nonzero(~stays)
    return tries[place], lengths[place], codes[~stays]


def _offsets(vocabulary: int, depth: int) -> Int[np.ndarray, " depth1"]:
    """Number of strings shorter than 0, 1, ..., depth."""
    return np.concatenate([[0], np.cumsum(vocabulary ** np.arange(depth))])


def _onward(
    target: Model, vocabulary: int, length: int, longest: int
) -> Float[np.ndarray, "blocks ends"]:
    """Law of the longest strings, given their first `length` tokens."""
    law = np.ones((vocabulary**length, 1))
    for depth in range(length, longest):
        next_token = target(strings(vocabulary, depth)[:, None])[:, 0]
        law = (law[..., None] * next_token.reshape(*law.shape, vocabulary)).reshape(len(law), -1)
    return law
