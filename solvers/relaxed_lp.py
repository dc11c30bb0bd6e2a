r"""The relaxed OTLP as a linear program on merged token sets.

    max  sum_{S} sum_{y in S} C[S, y]
    s.t. sum_{y in S} C[S, y] <= P(S),    sum_{S with y} C[S, y] <= q(y),    C >= 0

Keeping only `y in S` and turning both equalities into `<=` leaves the optimum unchanged (Thomas and
Pal, 2511.15898). Its dual has 0/1 solutions: the tokens of price 1 are the cut H.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import csc_array, vstack

from multidraft import laws
from multidraft.problem import Problem
from multidraft.solvers import token_sets
from multidraft.solvers.base import Answer
from multidraft.solvers.highs import LinearProgram
from multidraft.solvers.priority import priced_cut
from multidraft.solvers.token_sets import Forest, SetPlan, TokenSets


@dataclass(frozen=True)
class RelaxedLP(LinearProgram):
    """HiGHS on the relaxed program, tuples merged by their token set."""

    name: ClassVar[str] = "relaxed-lp"

    def variables(self, law: laws.Law) -> float:
        return token_sets.count(law) * law.width

    def answer(self, problem: Problem) -> Answer:
        sets = TokenSets.of(problem.law)
        count = len(sets.mass)
        most = np.concatenate([sets.mass, problem.target])
        optimum = self.maximise(
            np.ones(len(sets.arcs[0])),
            csc_array(vstack(sets.incidence)),
            np.zeros_like(most),
            most,
        )
        rows = optimum.basic_rows
        is_basis = optimum.basic_columns.sum() + rows.sum() == len(rows)
        forest = Forest(optimum.basic_columns, rows[:count], rows[count:]) if is_basis else None
        plan = SetPlan.repaired(problem, sets, sets.flow(optimum.primal), forest)
        cut = priced_cut(problem.target, sets, optimum.dual[count:])
        return Answer(plan, cut, optimum.limited)
