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
from scipy.sparse import csc_array

from multidraft.problem import Problem
from multidraft.solvers import highs
from multidraft.solvers.base import Answer, Solver
from multidraft.solvers.token_sets import SetPlan, TokenSets

MOST_TUPLES = 5_000_000


@dataclass(frozen=True)
class RelaxedLP(Solver):
    """HiGHS on the relaxed program, tuples merged by their token set.

    Parameters
    ----------
    time_limit : float, optional
        Seconds for HiGHS; at the limit the best plan so far is returned with status ``LIMIT``.
    """

    name: ClassVar[str] = "relaxed-lp"
    time_limit: float | None = None

    def reason(self, problem: Problem) -> str | None:
        tuples = problem.law.tuple_count()
        if tuples > MOST_TUPLES:
            return f"{self.name} lists the {tuples:.2g} tuples, more than {MOST_TUPLES:.0g}: use subset."
        return None

    def answer(self, problem: Problem) -> Answer:
        sets = TokenSets.of(problem.law)
        rows, tokens = sets.arcs
        count = len(sets.mass)
        entries = np.stack([rows, count + tokens], axis=-1).ravel()
        matrix = csc_array(
            (np.ones(entries.size), entries, 2 * np.arange(len(rows) + 1)),
            shape=(count + problem.vocabulary, len(rows)),
        )
        most = np.concatenate([sets.mass, problem.target])
        optimum = highs.maximise(
            np.ones(len(rows)), matrix, np.zeros_like(most), most, time_limit=self.time_limit
        )
        flow = np.zeros(sets.members.shape)
        flow[sets.members >= 0] = optimum.primal
        plan = SetPlan.repaired(problem, sets, flow)
        return Answer(plan, np.abs(optimum.dual[count:]) > 0.5, optimum.limited)
