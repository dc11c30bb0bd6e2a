r"""The convex program over the polytope of selection laws.

    max  sum_y min(q(y), b(y))    s.t.  b(A) <= hit(A) for all A,    b(all) = hit(all),    b >= 0

with ``hit(A) = Pr[S(x) meets A]``: no tuple appears, and 2^V constraints do. For small V all are
written down; beyond, only those that a solution violates, found by the minimum-norm point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float

from multidraft.problem import Problem
from multidraft.solvers.base import Answer, Solver
from multidraft.solvers.convex_lp import solve, value
from multidraft.solvers.priority import PriorityPlan, Winner, cut_along, winner
from multidraft.solvers.submodular import Mixture, nearest

_CLOSE = 1e-12  # distance at which the nearest realisable law counts as found
_STEPS = 2000
_TOLERATED = 1e-9  # what an interior-point solution violates anyway


@dataclass(frozen=True)
class Polymatroid(Solver):
    """cvxpy over the base polytope; its law is then replaced by the nearest realisable one.

    Parameters
    ----------
    solver : str
        Name of an optimiser that cvxpy knows.
    all_sets : int
        Largest vocabulary for which all 2^V constraints are written down.
    tokens : int
        Largest vocabulary taken.
    rounds : int
        Rounds of cutting planes before the solve ends with status ``LIMIT``.
    """

    name: ClassVar[str] = "polymatroid"
    solver: str = "CLARABEL"
    all_sets: int = 10
    tokens: int = 64
    rounds: int = 100

    def reason(self, problem: Problem) -> str | None:
        if problem.vocabulary > self.tokens:
            return (
                f"{self.name} takes up to {self.tokens} tokens, not {problem.vocabulary}: use "
                "submodular, or raise its option tokens."
            )
        return None

    def answer(self, problem: Problem) -> Answer:
        complete = problem.vocabulary <= self.all_sets
        sets = _all_sets(problem.vocabulary) if complete else np.eye(problem.vocabulary, dtype=bool)
        vertex = winner(problem.law)
        law = self._program(problem, sets)
        found = nearest(law, vertex, gap=_CLOSE, iterations=_STEPS)
        for _ in range(0 if complete else self.rounds):
            violated = _violated(law, found, vertex)
            if len(violated) == 0:
                break
            sets = np.vstack([sets, violated])
            law = self._program(problem, sets)
            found = nearest(law, vertex, gap=_CLOSE, iterations=_STEPS)
        order = np.argsort(law - problem.target, kind="stable")
        cut, _ = cut_along(problem.target, order, vertex(order))
        plan = PriorityPlan(problem, found.orders, found.shares)
        limited = not complete and len(_violated(law, found, vertex)) > 0
        return Answer(plan, cut, limited)

    def _program(self, problem: Problem, sets: Bool[np.ndarray, "K V"]) -> Float[np.ndarray, " V"]:
        """Optimal b under the given constraints, not necessarily realisable."""
        import cvxpy as cp

        law = cp.Variable(problem.vocabulary, nonneg=True)
        total = float(problem.law.hit(np.ones(problem.vocabulary, dtype=bool)))
        within = sets.astype(np.float64) @ law <= problem.law.hit(sets)
        accepted = cp.sum(cp.minimum(problem.target, law))
        solve(cp.Maximize(accepted), [within, cp.sum(law) == total], self.solver)
        return np.maximum(value(law), 0.0)


def _all_sets(vocabulary: int) -> Bool[np.ndarray, "K V"]:
    """Every set of tokens but the empty one."""
    return (np.arange(1, 2**vocabulary)[:, None] >> np.arange(vocabulary) & 1).astype(bool)


def _violated(
    law: Float[np.ndarray, " V"], found: Mixture, vertex: Winner
) -> Bool[np.ndarray, "K V"]:
    """Sets that hold more of `law` than they are hit: the worst, and others on one chain."""
    realised = found.shares @ np.array([vertex(order) for order in found.orders])
    order = np.argsort(realised - law, kind="stable")
    excess = np.cumsum((law - vertex(order))[order])
    heads = np.tril(np.ones((len(order), len(order)), dtype=bool))
    chain = np.zeros_like(heads)
    chain[:, order] = heads
    sets = np.vstack([~found.cut, chain[excess > _TOLERATED]])
    return sets if law.sum() - found.upper > _TOLERATED else sets[:0]
