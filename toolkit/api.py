"""Solve a problem, or only ask for its value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from multidraft import laws, solvers
from multidraft.errors import Refused

if TYPE_CHECKING:
    from multidraft.problem import Problem
    from multidraft.solution import Solution

_REPEATED = 60.0  # seconds


def solve(problem: Problem, method: str = "auto", **options: Any) -> Solution:
    """Solve the optimal-transport program of a problem.

    Parameters
    ----------
    problem : Problem
        One context, or a batch for the methods that are vectorised.
    method : str
        A name from ``multidraft.solvers.names()``, or ``"auto"`` for the first that takes the
        problem, in the order of the registry.
    **options
        Options of the method.

    Returns
    -------
    Solution
        With a certificate that is recomputed from the plan and the cut.

    Raises
    ------
    InputError
        An unknown method or option.
    Refused
        The method does not take the problem; the message says why.

    Examples
    --------
    >>> import multidraft as md
    >>> problem = md.Problem([0.15, 0.25, 0.25, 0.35], md.IID([0.45, 0.35, 0.15, 0.05], n=2))
    >>> solution = md.solve(problem, "relaxed-lp")
    >>> round(float(solution.acceptance), 12), solution.status.name
    (0.7475, 'OPTIMAL')
    """
    return _solver(problem, method, options).solve(problem)


def _solver(problem: Problem, method: str, options: dict[str, Any]) -> Any:
    if method != "auto":
        return solvers.get(method, **options)
    reasons: dict[str, str | None] = {}
    for name in solvers.names():
        reasons[name] = solvers.get(name).refuses(problem)
        if reasons[name] is None:
            return solvers.get(name, **options)
    raise Refused("no method takes this problem: " + "; ".join(filter(None, reasons.values())))


def solve_each(
    problem: Problem, method: str = "auto", *, jobs: int = 1, **options: Any
) -> list[Solution]:
    """Solve every row of a batch by itself, in `jobs` processes."""
    from joblib import Parallel, delayed

    rows = [problem[i] for i in range(len(problem))]
    tasks = (delayed(solve)(row, method, **options) for row in rows)
    return list(Parallel(n_jobs=jobs)(tasks))  # type: ignore[arg-type]


def optimal_acceptance(problem: Problem) -> Float[np.ndarray, "*batch"]:
    r"""Return the optimum :math:`\min_H q(H) + \mathrm{hit}(H^c)` by the cheapest exact route.

    Returns
    -------
    Array of the batch's shape, ``()`` or ``(B,)``.

    Raises
    ------
    Refused
        No method takes the problem.

    Examples
    --------
    >>> import multidraft as md
    >>> float(md.optimal_acceptance(md.Problem([0.2, 0.3, 0.5], md.Top([0.6, 0.3, 0.1], n=2))))
    0.5
    """
    from multidraft.solvers import branch_and_bound, prefix

    law = problem.law
    if isinstance(law, laws.IID):
        return prefix.iid_optimum(problem.target, law.probs, law.n)[0]
    if isinstance(law, laws.WithoutReplacement):
        return prefix.without_replacement_optimum(problem.target, law.probs, law.n)[0]
    if isinstance(law, laws.Independent) and not problem.batch:
        return np.array(branch_and_bound.independent_optimum(problem.target, law.parts).value)
    if not solvers.get("subset").refuses(problem):
        return solve(problem, "subset").acceptance
    if not problem.batch:
        return solve(problem).acceptance
    return np.array([optimal_acceptance(problem[i]) for i in range(len(problem))])


def compare(problem: Problem) -> list[Solution]:
    """Solve one context with every method that takes it, in the order of the registry.

    A method that takes less than a minute the first time is run again: loading libraries and
    compiling is not part of its seconds.
    """
    return [_warm(problem, name) for name in solvers.available(problem)]


def _warm(problem: Problem, name: str) -> Solution:
    first = solve(problem, name)
    return solve(problem, name) if first.seconds < _REPEATED else first
