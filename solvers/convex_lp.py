r"""The relaxed and the canonical program, written in cvxpy as the papers state them.

Relaxed (Thomas and Pal, 2511.15898), one variable for each drafted tuple and token in it::

    max  sum C    s.t.  sum_y C[x, y] <= P(x),    sum_x C[x, y] <= q(y),    C >= 0

Canonical (Khisti et al., 2410.18234), selection weights beta(y | x)::

    max  sum_y min(q(y), sum_x P(x) beta(y | x))    s.t.  sum_y beta(y | x) = 1,    beta >= 0

A second, independent way to the same numbers: cvxpy's own canonicalisation, and another optimiser.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from multidraft import checks
from multidraft.errors import Refused
from multidraft.problem import Problem
from multidraft.solvers import memory
from multidraft.solvers.base import Answer, Solver
from multidraft.solvers.highs import quieted
from multidraft.solvers.priority import priced_cut
from multidraft.solvers.token_sets import SetPlan, SetSelection, TokenSets

# Bytes per variable while cvxpy canonicalises and the optimiser factorises; measured, rounded up.
_COLUMN = 2000.0


@dataclass(frozen=True)
class ConvexLP(Solver):
    """The papers' programs in cvxpy; duals are read back and turned into the cut.

    Interior-point optimisers stop near 1e-8, so their plans usually end with status ``INEXACT``.

    Parameters
    ----------
    program : {"relaxed", "canonical"}
    solver : str
        Name of an optimiser that cvxpy knows, for example ``CLARABEL`` or ``HIGHS``.
    memory : float
        Bytes that the solve may take.
    """

    name: ClassVar[str] = "convex-lp"
    program: str = "relaxed"
    solver: str = "CLARABEL"
    memory: float = memory.MOST

    def reason(self, problem: Problem) -> str | None:
        law = problem.law
        needed = memory.listing(law) + _COLUMN * law.tuple_count() * law.width
        return memory.refusal(self.name, law, needed, self.memory)

    def answer(self, problem: Problem) -> Answer:
        build = PROGRAMS[checks.choice(self.program, PROGRAMS, "program")]
        tuples = TokenSets.listed(problem.law)
        flow, prices, kind = build(problem, tuples, self.solver)
        sets, at = tuples.merged()
        merged = np.zeros(sets.members.shape)
        np.add.at(merged, at, tuples.flow(flow))
        return Answer(
            kind.repaired(problem, sets, merged), priced_cut(problem.target, sets, prices)
        )


Found = tuple[Float[np.ndarray, " K"], Float[np.ndarray, " V"], Any]


def _relaxed(problem: Problem, tuples: TokenSets, solver: str) -> Found:
    """Flow on the arcs, price of each token, and the plan that such a flow makes."""
    import cvxpy as cp

    by_tuple, by_token = tuples.incidence
    flow = cp.Variable(len(tuples.arcs[0]), nonneg=True)
    demand = by_token @ flow <= problem.target
    solve(cp.Maximize(cp.sum(flow)), [by_tuple @ flow <= tuples.mass, demand], solver)
    return value(flow), value(demand), SetPlan


def _canonical(problem: Problem, tuples: TokenSets, solver: str) -> Found:
    """As `_relaxed`; a token is dear where more of it is selected than the target wants."""
    import cvxpy as cp

    by_tuple, by_token = tuples.incidence
    weights = cp.Variable(len(tuples.arcs[0]), nonneg=True)
    mass = tuples.mass[tuples.arcs[0]]
    selection = by_token @ cp.multiply(mass, weights)
    drafted = (tuples.members[:, 0] >= 0).astype(np.float64)
    accepted = cp.sum(cp.minimum(problem.target, selection))
    solve(cp.Maximize(accepted), [by_tuple @ weights == drafted], solver)
    found = value(weights) * mass
    return found, by_token @ found - problem.target, SetSelection


PROGRAMS = {"relaxed": _relaxed, "canonical": _canonical}


def solve(objective: Any, constraints: list[Any], solver: str) -> None:
    """Solve quietly; the caller recomputes everything from the values.

    cvxpy warns of inaccurate solutions, which the certificate measures, and of canonicalisation
    details that a user of this toolkit can do nothing about.

    Raises
    ------
    InputError
        cvxpy has no such optimiser.
    Refused
        The optimiser ends without values; its status is in the message.
    """
    import cvxpy as cp

    checks.choice(solver, tuple(cp.installed_solvers()), "solver of cvxpy")
    program = cp.Problem(objective, constraints)
    options = {"parallel": "off"} if solver == "HIGHS" else {}
    with warnings.catch_warnings(), quieted():
        warnings.simplefilter("ignore")
        try:
            program.solve(solver=solver, **options)
        except cp.SolverError as error:
            raise Refused(f"{solver} fails: {error}") from None
    if program.variables()[0].value is None:
        raise Refused(f"{solver} ends with: {program.status}.")


def value(term: Any) -> Float[np.ndarray, " N"]:
    """Return the value of a variable, or the dual value of a constraint."""
    found = term.dual_value if hasattr(term, "dual_value") else term.value
    return np.asarray(found, dtype=np.float64).reshape(-1)
