r"""The OTLP as the literature states it, tuple by tuple: the reference that all else is held to.

    max  sum_x sum_{y in S(x)} C[x, y]
    s.t. sum_y C[x, y] = P(x),    sum_x C[x, y] = q(y),    C >= 0

One variable for each of the V^n tuples and V tokens, nothing merged, nothing left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from scipy.sparse import csc_array, vstack

from multidraft import laws
from multidraft.problem import Problem
from multidraft.solvers.base import Answer
from multidraft.solvers.highs import LinearProgram
from multidraft.solvers.priority import priced_cut
from multidraft.solvers.token_sets import SetPlan, TokenSets, incidence


@dataclass(frozen=True)
class FullLP(LinearProgram):
    """HiGHS on all V^n * V variables (tuples of mass zero left out).

    The plan keeps what the coupling sends to drafted tokens; the rest of the coupling, whatever the
    optimiser chose, is replaced by the product of the two residuals, which has the same marginals.
    """

    name: ClassVar[str] = "full-lp"

    def variables(self, law: laws.Law) -> float:
        return law.tuple_count() * law.vocabulary

    def answer(self, problem: Problem) -> Answer:
        tuples = TokenSets.listed(problem.law)
        count, vocabulary = len(tuples.mass), problem.vocabulary
        rows, tokens = np.divmod(np.arange(count * vocabulary), vocabulary)
        drafted = np.zeros((count, vocabulary), dtype=bool)
        drafted[tuples.arcs] = True
        optimum = self.maximise(
            drafted.ravel().astype(np.float64),
            csc_array(vstack(incidence(rows, tokens, drafted.shape))),
            *_marginals(tuples.mass, problem.target),
        )
        sets, at = tuples.merged()
        flow = np.zeros(sets.members.shape)
        np.add.at(flow, at, tuples.flow(optimum.primal.reshape(drafted.shape)[tuples.arcs]))
        cut = priced_cut(problem.target, sets, optimum.dual[count:])
        return Answer(SetPlan.repaired(problem, sets, flow), cut, optimum.limited)


def _marginals(
    mass: Float[np.ndarray, " M"], target: Float[np.ndarray, " V"]
) -> tuple[Float[np.ndarray, " R"], Float[np.ndarray, " R"]]:
    """Both sides of the equalities, with one of them freed.

    Any one equality follows from the others when both laws have the same sum. In floats they do
    not, and HiGHS calls that infeasible; so the largest target mass takes up the difference.
    """
    most = np.concatenate([mass, target])
    least, free = most.copy(), len(mass) + target.argmax()
    least[free], most[free] = 0.0, np.inf
    return least, most
