r"""The canonical program: which drafted token to select (Khisti et al., 2410.18234).

    max  sum_y min(q(y), b(y)),    b(y) = sum_x P(x) beta(y | x)
    s.t. sum_{y in S(x)} beta(y | x) = 1,    beta >= 0

The optimum equals that of the OTLP: select one draft with weights beta, then do single-draft
speculative sampling with the selection law b as the draft law.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import block_array, csc_array, eye_array

from multidraft import laws
from multidraft.problem import Problem
from multidraft.solvers import token_sets
from multidraft.solvers.base import Answer
from multidraft.solvers.highs import LinearProgram
from multidraft.solvers.priority import priced_cut
from multidraft.solvers.token_sets import SetSelection, TokenSets


@dataclass(frozen=True)
class CanonicalLP(LinearProgram):
    """HiGHS on the selection weights, tuples merged by their token set."""

    name: ClassVar[str] = "canonical-lp"

    def variables(self, law: laws.Law) -> float:
        return token_sets.count(law) * law.width + law.vocabulary

    def answer(self, problem: Problem) -> Answer:
        sets = TokenSets.of(problem.law)
        count, arcs, vocabulary = len(sets.mass), len(sets.arcs[0]), problem.vocabulary
        by_set, by_token = sets.incidence
        kept = eye_array(vocabulary)  # variables t(y) <= b(y) and t(y) <= q(y)
        matrix = block_array([[by_set, None], [-by_token, kept], [None, kept]])
        most = np.concatenate([sets.mass, np.zeros(vocabulary), problem.target])
        least = np.concatenate([np.where(sets.members[:, 0] >= 0, sets.mass, 0.0), most[count:]])
        least[count:] = -np.inf
        optimum = self.maximise(
            np.append(np.zeros(arcs), np.ones(vocabulary)),
            csc_array(matrix),
            least,
            most,
        )
        plan = SetSelection.repaired(problem, sets, sets.flow(optimum.primal[:arcs]))
        cut = priced_cut(problem.target, sets, optimum.dual[-vocabulary:])
        return Answer(plan, cut, optimum.limited)
