"""Linear programs handed to HiGHS as arrays, with the settings that its answers need.

Masses are scaled up before they go in: HiGHS's tolerances are absolute, and its presolve drops what
is smaller than 1e-7. Whatever it returns is recomputed by the caller; its status is only used to
tell a finished solve from a limit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
from jaxtyping import Bool, Float
from scipy.sparse import csc_array

from multidraft import checks, laws
from multidraft.errors import Refused
from multidraft.problem import Problem
from multidraft.solvers import memory
from multidraft.solvers.base import Solver

# Mass units: powers of two, so that scaling rounds nothing. Simplex ends at a vertex, and one unit
# of 2^-24 = 6e-8 keeps tiny masses above its tolerance. The first-order method wants right-hand
# sides near 1 instead, so its unit is the mean mass.
UNITS = 2.0**24
_FEASIBILITY = 1e-10  # the smallest that HiGHS takes; in mass 6e-18
_FIRST_ORDER = 1e-9  # relative tolerance of PDLP

_DONE = (highspy.HighsModelStatus.kOptimal,)
_LIMIT = (highspy.HighsModelStatus.kTimeLimit, highspy.HighsModelStatus.kIterationLimit)
_UNSURE = (highspy.HighsModelStatus.kUnknown,)  # PDLP within round-off of its tolerance


class _Quiet(highspy.Highs):
    """HiGHS without its banner, which its constructor prints on enabling callbacks."""

    def enableCallbacks(self) -> None:
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()


@contextmanager
def quieted() -> Iterator[None]:
    """Keep the banner away while another library constructs HiGHS through highspy."""
    loud = highspy.Highs
    highspy.Highs = _Quiet  # type: ignore[misc]
    try:
        yield
    finally:
        highspy.Highs = loud  # type: ignore[misc]


@dataclass(frozen=True)
class LinearProgram(Solver):
    """A formulation that HiGHS solves; its options.

    Parameters
    ----------
    algorithm : {"simplex", "pdlp"}
        PDLP for sizes where simplex takes minutes; its plan is good to about 1e-8.
    time_limit : float, optional
        Seconds for HiGHS; at the limit the best plan so far is returned with status ``LIMIT``.
    memory : float
        Bytes that the solve may take.
    """

    algorithm: str = "simplex"
    time_limit: float | None = None
    memory: float = memory.MOST

    @abstractmethod
    def variables(self, law: laws.Law) -> float:
        """How many variables the program has at most."""

    def reason(self, problem: Problem) -> str | None:
        needed = memory.listing(problem.law) + memory.COLUMN * self.variables(problem.law)
        return memory.refusal(self.name, problem.law, needed, self.memory)

    def maximise(
        self,
        gain: Float[np.ndarray, " N"],
        matrix: csc_array,
        least: Float[np.ndarray, " M"],
        most: Float[np.ndarray, " M"],
    ) -> Optimum:
        """Call :func:`maximise` with these options."""
        return maximise(
            gain, matrix, least, most, algorithm=self.algorithm, time_limit=self.time_limit
        )


@dataclass(frozen=True)
class Optimum:
    """What HiGHS found.

    Attributes
    ----------
    primal : values of the variables, in mass.
    dual : prices of the rows.
    basic_columns, basic_rows : the basis; all False after PDLP, which has none.
    limited : whether a limit ended the solve.
    """

    primal: Float[np.ndarray, " N"]
    dual: Float[np.ndarray, " M"]
    basic_columns: Bool[np.ndarray, " N"]
    basic_rows: Bool[np.ndarray, " M"]
    limited: bool


def maximise(
    gain: Float[np.ndarray, " N"],
    matrix: csc_array,
    least: Float[np.ndarray, " M"],
    most: Float[np.ndarray, " M"],
    *,
    algorithm: str = "simplex",
    time_limit: float | None = None,
) -> Optimum:
    r"""Solve :math:`\max\, c^\top x` subject to ``least <= A x <= most`` and ``x >= 0``.

    Right-hand sides and the returned `primal` are masses. One thread. Simplex ends at a vertex;
    PDLP is a first-order method for sizes where simplex takes minutes. A feasible program that
    presolve calls infeasible at round-off is solved again without presolve.

    Raises
    ------
    InputError
        An unknown algorithm.
    Refused
        HiGHS ends without a solution and without a limit; its own words are in the message.
    """
    checks.choice(algorithm, ("simplex", "pdlp"), "algorithm")
    units = UNITS if algorithm == "simplex" else _mean_units(most)
    program = _program(gain, matrix, least * units, most * units)
    for presolve in ("on", "off"):
        highs = _run(program, _options(algorithm, presolve, time_limit))
        status = highs.getModelStatus()
        if status in (*_DONE, *_LIMIT, *(_UNSURE if algorithm == "pdlp" else ())):
            return _optimum(highs, program, units, limited=status in _LIMIT)
    raise Refused(f"HiGHS ends with: {highs.modelStatusToString(status)}.")


def _run(program: highspy.HighsLp, options: dict[str, Any]) -> highspy.Highs:
    """Run HiGHS on one thread.

    HiGHS has one scheduler per process and refuses to start when other code has given it more
    threads; then it runs with that number, still without using them.
    """
    highs = _Quiet()
    for name, value in options.items():
        highs.setOptionValue(name, value)
    highs.passModel(program)
    highs.run()
    if highs.getModelStatus() == highspy.HighsModelStatus.kNotset:
        highs.setOptionValue("threads", 0)
        highs.run()
    return highs


def _mean_units(most: Float[np.ndarray, " M"]) -> float:
    masses = most[np.isfinite(most)]
    return float(2.0 ** np.round(-np.log2(masses.mean())))


def _optimum(
    highs: highspy.Highs, program: highspy.HighsLp, units: float, *, limited: bool
) -> Optimum:
    solution, basis = highs.getSolution(), highs.getBasis()
    columns, rows = program.num_col_, program.num_row_
    primal = np.array(solution.col_value) if solution.value_valid else np.zeros(columns)
    dual = np.array(solution.row_dual) if solution.dual_valid else np.zeros(rows)
    return Optimum(
        primal / units,
        dual,
        _basic(basis.col_status if basis.valid else [], columns),
        _basic(basis.row_status if basis.valid else [], rows),
        limited,
    )


def _basic(statuses: Iterable[Any], size: int) -> Bool[np.ndarray, " N"]:
    found = [status == highspy.HighsBasisStatus.kBasic for status in statuses]
    return np.array(found or [False] * size, dtype=bool)


def _program(
    gain: np.ndarray, matrix: csc_array, least: np.ndarray, most: np.ndarray
) -> highspy.HighsLp:
    program = highspy.HighsLp()
    program.num_row_, program.num_col_ = len(least), len(gain)
    program.sense_ = highspy.ObjSense.kMaximize
    program.col_cost_ = gain
    program.col_lower_ = np.zeros(len(gain))
    program.col_upper_ = np.full(len(gain), highspy.kHighsInf)
    program.row_lower_, program.row_upper_ = least, most
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = matrix.indptr.astype(np.int32)
    program.a_matrix_.index_ = matrix.indices.astype(np.int32)
    program.a_matrix_.value_ = matrix.data.astype(np.float64)
    return program


def _options(algorithm: str, presolve: str, time_limit: float | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "solver": algorithm,
        "presolve": presolve,
        "threads": 1,
        "parallel": "off",
        "primal_feasibility_tolerance": _FEASIBILITY,
        "dual_feasibility_tolerance": _FEASIBILITY,
        "pdlp_optimality_tolerance": _FIRST_ORDER,
    }
    return options if time_limit is None else options | {"time_limit": time_limit}
