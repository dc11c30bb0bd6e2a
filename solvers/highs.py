"""Linear programs handed to HiGHS as arrays, with the settings that its answers need.

Masses are scaled up before they go in: HiGHS's tolerances are absolute, and its presolve drops what
is smaller than 1e-7. Whatever it returns is recomputed by the caller; its status is only used to
tell a finished solve from a limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np
from jaxtyping import Float
from scipy.sparse import csc_array

from multidraft.errors import Refused

# Mass units: a power of two, so that scaling rounds nothing. One unit is 2^-24 = 6e-8 of mass.
UNITS = 2.0**24
_FEASIBILITY = 1e-10  # the smallest that HiGHS takes; in mass 6e-18


class _Quiet(highspy.Highs):
    """HiGHS without its banner, which its constructor prints on enabling callbacks."""

    def enableCallbacks(self) -> None:
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()


@dataclass(frozen=True)
class Optimum:
    """Primal values, row duals (per unit of mass), and whether the time limit ended the solve."""

    primal: Float[np.ndarray, " N"]
    dual: Float[np.ndarray, " M"]
    limited: bool


def maximise(
    gain: Float[np.ndarray, " N"],
    matrix: csc_array,
    least: Float[np.ndarray, " M"],
    most: Float[np.ndarray, " M"],
    *,
    time_limit: float | None = None,
) -> Optimum:
    r"""Solve :math:`\max\, c^\top x` subject to ``least <= A x <= most`` and ``x >= 0``.

    Right-hand sides and the returned `primal` are masses. Simplex, one thread, a vertex solution. A
    feasible program that presolve calls infeasible at round-off is solved again without presolve.

    Raises
    ------
    Refused
        HiGHS ends without a solution and without a limit; its own words are in the message.
    """
    program = _program(gain, matrix, least * UNITS, most * UNITS)
    for presolve in ("on", "off"):
        highs = _configured(presolve, time_limit)
        highs.passModel(program)
        highs.run()
        status = highs.getModelStatus()
        if status in (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kTimeLimit):
            break
    else:
        raise Refused(f"HiGHS ends with: {highs.modelStatusToString(status)}.")
    solution = highs.getSolution()
    primal, dual = np.array(solution.col_value), np.array(solution.row_dual)
    return Optimum(primal / UNITS, dual, status == highspy.HighsModelStatus.kTimeLimit)


def _program(
    gain: np.ndarray, matrix: csc_array, least: np.ndarray, most: np.ndarray
) -> highspy.HighsLp:
    program = highspy.HighsLp()
    program.num_row_, program.num_col_ = matrix.shape
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


def _configured(presolve: str, time_limit: float | None) -> highspy.Highs:
    highs = _Quiet()
    options: dict[str, str | bool | int | float] = {
        "solver": "simplex",
        "presolve": presolve,
        "threads": 1,
        "primal_feasibility_tolerance": _FEASIBILITY,
        "dual_feasibility_tolerance": _FEASIBILITY,
    }
    if time_limit is not None:
        options["time_limit"] = time_limit
    for name, value in options.items():
        highs.setOptionValue(name, value)
    return highs
