r"""Minimum-norm point of the polytope of selection laws (Fujishige and Wolfe), own implementation.

    min  || b - q ||^2     over the base polytope  { b : b(A) <= hit(A), b(all) = hit(all) }

The optimum over sets and the optimal selection law come out together: at the minimiser,
:math:`\sum_y \min(q, b) = \min_A \{ \mathrm{hit}(A) + q(A^c) \}`, attained by ``A = {b < q}``.
Every iterate is a mixture of priority orders, hence a plan with a value of its own, and every order
gives V cuts, so the solve stops as soon as plan and cut agree, usually long before the norm is
minimal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import cho_factor, cho_solve

from multidraft import laws
from multidraft.problem import Problem
from multidraft.solvers import memory
from multidraft.solvers.base import Answer, Solver
from multidraft.solvers.priority import MOST_LISTED, PriorityPlan, Winner, cut_along, winner

_ZERO = 1e-14  # a share below this is round-off
_VERTEX = 32.0  # bytes per token of a vertex and its order, and of their copies
_USUAL = 300  # vertices that a mixture seldom exceeds
_BY_STAY = 1000  # largest vocabulary for laws that are asked for V values of `stay` per iteration


@dataclass(frozen=True)
class Mixture:
    """Priority orders (K, V), their shares (K,), the best cut seen, its bound, and the gap."""

    orders: Int[np.ndarray, "K V"]
    shares: Float[np.ndarray, " K"]
    cut: Bool[np.ndarray, " V"]
    upper: float
    gap: float
    limited: bool


@dataclass(frozen=True)
class Submodular(Solver):
    """Fujishige-Wolfe on any draft law, the duality gap as stopping rule.

    Parameters
    ----------
    gap : float
        Stop when plan and cut are this close.
    iterations : int
        Orders to try before the solve ends with status ``LIMIT``.
    memory : float
        Bytes that the vertices may take; at the limit the solve ends like that.
    """

    name: ClassVar[str] = "submodular"
    gap: float = 1e-13
    iterations: int = 5000
    memory: float = memory.MOST

    def reason(self, problem: Problem) -> str | None:
        law = problem.law
        product = isinstance(law, laws.IID | laws.Independent)
        if not product and law.tuple_count() > MOST_LISTED and law.vocabulary > _BY_STAY:
            return (
                f"{self.name} needs {law.vocabulary} values of stay per step for "
                f"{law.name} drafts: use {memory.alternative(law)}."
            )
        return memory.refusal(self.name, law, self._bytes(law), self.memory)

    def _bytes(self, law: laws.Law) -> float:
        vertices = _VERTEX * law.vocabulary * min(law.vocabulary, _USUAL)
        product = isinstance(law, laws.IID | laws.Independent)
        listed = 0.0 if product else memory.listing(law, min(law.tuple_count(), MOST_LISTED))
        return vertices + listed

    def answer(self, problem: Problem) -> Answer:
        found = nearest(
            problem.target,
            winner(problem.law),
            gap=self.gap,
            iterations=self.iterations,
            memory=self.memory,
        )
        plan = PriorityPlan(problem, found.orders, found.shares)
        return Answer(plan, found.cut, found.limited)


def nearest(
    target: Float[np.ndarray, " V"],
    winner: Winner,
    *,
    gap: float,
    iterations: int,
    memory: float = memory.MOST,
) -> Mixture:
    r"""Approach the point of the polytope that is nearest to `target`.

    Stops when :math:`\sum \min(q, b)` is within `gap` of the best cut, when a step no longer
    shortens the distance, after `iterations` orders, or when they fill the `memory`.
    """
    order = np.argsort(-target, kind="stable")
    corral = _Corral(order, winner(order) - target)
    cut, upper = cut_along(target, order, winner(order))
    shortest, missing = np.inf, np.inf
    for _ in range(iterations):
        point = corral.point()
        order = np.argsort(point, kind="stable")
        vertex = winner(order)
        sides, bound = cut_along(target, order, vertex)
        if bound < upper:
            cut, upper = sides, bound
        # sum min(q, b) = sum q + sum min(b - q, 0)
        missing = upper - target.sum() - np.minimum(point, 0.0).sum()
        length = float(point @ point)
        if missing <= gap or length >= shortest:
            return corral.mixture(cut, upper, missing, limited=False)
        if len(corral.shares) * _VERTEX * len(target) > memory:
            break
        shortest = length
        corral.enter(order, vertex - target)
    return corral.mixture(cut, upper, missing, limited=True)


class _Corral:
    """Affinely independent vertices (relative to the target) and the nearest point's shares."""

    def __init__(self, order: np.ndarray, point: np.ndarray) -> None:
        self.orders, self.points = order[None], point[None]
        self.gram = np.array([[point @ point]])
        self.shares = np.ones(1)

    def point(self) -> Float[np.ndarray, " V"]:
        return self.shares @ self.points

    def enter(self, order: np.ndarray, point: np.ndarray) -> None:
        """Add a vertex and move to the nearest point of the hull (Wolfe's minor cycles)."""
        inner = self.points @ point
        self.gram = np.block([[self.gram, inner[:, None]], [inner, point @ point]])
        self.orders = np.vstack([self.orders, order])
        self.points = np.vstack([self.points, point])
        self.shares = np.append(self.shares, 0.0)
        while not self._settle():
            pass

    def _settle(self) -> bool:
        """Walk towards the affine minimiser, drop what reaches zero; True when it is inside."""
        goal = self._affine_minimiser()
        inside = bool((goal >= -_ZERO).all())
        if inside:
            self.shares = goal
        else:
            falling = goal < self.shares
            steps = np.full(len(goal), np.inf)
            steps[falling] = self.shares[falling] / (self.shares - goal)[falling]
            self.shares = self.shares + steps.min() * (goal - self.shares)
            self.shares[steps.argmin()] = 0.0
        self._keep(self.shares > _ZERO)
        return inside

    def _affine_minimiser(self) -> Float[np.ndarray, " K"]:
        """Shares, of any sign, of the point of the affine hull that is nearest to the target."""
        size = len(self.gram)
        system, ones = self.gram + max(np.trace(self.gram) / size, _ZERO), np.ones(size)
        try:
            shares = cho_solve(cho_factor(system, check_finite=False), ones, check_finite=False)
        except np.linalg.LinAlgError:  # vertices that are dependent up to round-off
            shares = np.linalg.lstsq(system, ones, rcond=None)[0]
        return shares / shares.sum()

    def _keep(self, held: Bool[np.ndarray, " K"]) -> None:
        if not held.all():
            self.orders, self.points = self.orders[held], self.points[held]
            self.gram = self.gram[np.ix_(held, held)]
        self.shares = self.shares[held] / self.shares[held].sum()

    def mixture(self, cut: np.ndarray, upper: float, gap: float, *, limited: bool) -> Mixture:
        return Mixture(self.orders, self.shares, cut, upper, gap, limited)
