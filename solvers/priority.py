r"""Priority orders: the vertices of the polytope of selection laws, and plans that mix them.

``hit(A) = Pr[S(x) meets A]`` is a coverage function. A selection law b can be realised iff it lies
in the base polytope of that function, ``b(A) <= hit(A)`` for all A with equality for all tokens,
and the vertices of the polytope are the laws of "select the drafted token that comes first in a
fixed order" (Edmonds). A mixture of orders is therefore a plan that needs no table of tuples.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from multidraft import laws
from multidraft.problem import Problem
from multidraft.solution import SelectionPlan
from multidraft.solvers.token_sets import TokenSets, sums

# Maps an order of all tokens, first choice first, to the law of the first drafted token.
Winner: TypeAlias = Callable[[Int[np.ndarray, " V"]], Float[np.ndarray, " V"]]

# Laws with at most so many tuples are listed; others are asked for `stay`, set by set.
MOST_LISTED = 2_000_000


def winner(law: laws.Law) -> Winner:
    """Return the vertex of a law's polytope for any order, by the cheapest exact route.

    Products of laws take O(n V) per order, laws with few tuples one pass over their token sets, any
    other law V evaluations of ``stay``.
    """
    if isinstance(law, laws.IID):
        return _of_product([law.probs] * law.n)
    if isinstance(law, laws.Independent):
        return _of_product(list(law.parts))
    if law.tuple_count() <= MOST_LISTED:
        return of_sets(TokenSets.of(law))
    return _of_stay(law)


def _of_product(parts: list[Float[np.ndarray, " V"]]) -> Winner:
    """The gains of ``1 - prod_i p_i(rest)``, telescoped into positive terms."""

    def law(order: Int[np.ndarray, " V"]) -> Float[np.ndarray, " V"]:
        mass = np.array([part[order] for part in parts])
        later = np.zeros_like(mass)
        later[:, :-1] = np.cumsum(mass[:, :0:-1], axis=1)[:, ::-1]
        gains = np.zeros(len(order))
        for i in range(len(parts)):
            gains += later[:i].prod(0) * mass[i] * (later[i + 1 :] + mass[i + 1 :]).prod(0)
        return _scattered(gains, order)

    return law


def of_sets(sets: TokenSets) -> Winner:
    """Return the vertices of a law given by its token sets: each set goes to its first member."""

    def law(order: Int[np.ndarray, " V"]) -> Float[np.ndarray, " V"]:
        first = _ranks(order)[sets.members].min(-1)
        won = first < len(order)
        return sums(order[first[won]], sets.mass[won], len(order))

    return law


def _of_stay(law: laws.Law) -> Winner:
    """The gains of ``hit`` along the order, from V evaluations of ``stay``."""

    def gains(order: Int[np.ndarray, " V"]) -> Float[np.ndarray, " V"]:
        later = _ranks(order)[:-1] >= np.arange(1, len(order) + 1)[:, None]
        stays = np.append(1.0, law.stay(later))
        return _scattered(np.maximum(stays[:-1] - stays[1:], 0.0), order)

    return gains


def _scattered(values: np.ndarray, order: np.ndarray) -> Float[np.ndarray, " V"]:
    out = np.empty_like(values)
    out[order] = values
    return out


def _ranks(order: Int[np.ndarray, " V"]) -> Int[np.ndarray, " W"]:
    """Place of every token in the order; one more entry, for padding, comes last."""
    ranks = np.full(len(order) + 1, len(order))
    ranks[order] = np.arange(len(order))
    return ranks


def cut_along(
    target: Float[np.ndarray, " V"],
    order: Int[np.ndarray, " V"],
    gains: Float[np.ndarray, " V"],
) -> tuple[Bool[np.ndarray, " V"], float]:
    """Best of the V + 1 sets H that leave out the first tokens of an order.

    Parameters
    ----------
    target, order
        The target law and all tokens; the outside of H is a head of the order.
    gains
        The vertex of the order, as :func:`winner` gives it.

    Returns
    -------
    The set H and its bound ``q(H) + hit(outside)``.
    """
    change = np.append(0.0, np.cumsum((gains - target)[order]))
    size = int(change.argmin())
    cut = np.ones(len(order), dtype=bool)
    cut[order[:size]] = False
    return cut, float(target.sum() + change[size])


def priced_cut(
    target: Float[np.ndarray, " V"], sets: TokenSets, prices: Float[np.ndarray, " V"]
) -> Bool[np.ndarray, " V"]:
    """Best set H of the dearest tokens: rounds the prices of any dual, never to a worse bound."""
    order = np.argsort(prices, kind="stable")
    return cut_along(target, order, of_sets(sets)(order))[0]


class PriorityPlan(SelectionPlan):
    """Draw one of K orders of the tokens, then select the drafted token that comes first in it.

    Parameters
    ----------
    problem : Problem
    orders : (K, V)
        Each row lists all tokens, first choice first.
    shares : (K,)
        Probability of each order.
    """

    def __init__(
        self, problem: Problem, orders: Int[np.ndarray, "K V"], shares: Float[np.ndarray, " K"]
    ) -> None:
        self.problem, self.orders, self.shares = problem, orders, shares

    @property
    def selection(self) -> Float[np.ndarray, " V"]:
        return self._selection

    @cached_property
    def _selection(self) -> Float[np.ndarray, " V"]:
        law = winner(self.problem.law)
        mixed = np.zeros(self.problem.vocabulary)
        for share, order in zip(self.shares, self.orders, strict=True):
            mixed += share * law(order)
        return mixed

    def weights(self, drafts: Int[np.ndarray, "M n"]) -> Float[np.ndarray, "M n"]:
        out = np.zeros(drafts.shape)
        rows = np.arange(len(drafts))
        for share, order in zip(self.shares, self.orders, strict=True):
            ranks = _ranks(order)[drafts]
            first = ranks.argmin(-1)
            out[rows, first] += share * (ranks[rows, first] < len(order))
        return out

    def violation(self) -> Float[np.ndarray, ""]:
        every = np.arange(self.problem.vocabulary)
        if not (np.sort(self.orders, axis=-1) == every).all():
            return np.asarray(np.inf)
        return np.asarray(max(0.0, abs(self.shares.sum() - 1), -self.shares.min()))
