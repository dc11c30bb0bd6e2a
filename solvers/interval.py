r"""The optimum for iid drafts, realised exactly at any vocabulary size and any number of drafts.

Prefix rule, clipped selection law, partition of the unit interval: three passes over the
vocabulary, and a verification that looks at the drafted tokens only (docs/interval-partition).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from multidraft import laws
from multidraft.problem import Problem
from multidraft.solvers.base import Answer, Solver
from multidraft.solvers.prefix import iid_optimum
from multidraft.solvers.selection import ClippedPlan


class IntervalPlan(ClippedPlan):
    """Give every draft an independent time on its token's pieces of [0, 1]; select the earliest."""

    def violation(self) -> Float[np.ndarray, "*batch"]:
        """Distance of the law that the partition realises, and of its lengths, from the claims."""
        p, b = np.atleast_2d(self._draft), np.atleast_2d(self.selection)
        worst = [
            max(np.abs(piece.realised(p[i]) - b[i]).max(), piece.length_error(p[i]))
            for i, piece in enumerate(self.partitions)
        ]
        return np.reshape(worst, self.problem.batch)


@dataclass(frozen=True)
class Interval(Solver):
    """Interval partition, batched: O(V log V) per context, linear memory, exact for any n."""

    name: ClassVar[str] = "interval"
    batched: ClassVar[bool] = True

    def reason(self, problem: Problem) -> str | None:
        if isinstance(problem.law, laws.IID):
            return None
        return (
            f"{self.name} orders independent clocks of one law, so it takes iid drafts, not "
            f"{problem.law.name}: use max-flow or entropic."
        )

    def answer(self, problem: Problem) -> Answer:
        cut = iid_optimum(problem.target, problem.law.probs, problem.law.n)[1]
        plan = IntervalPlan.of(problem, cut)
        _ = plan.partitions  # part of the solve, not of the first verification
        return Answer(plan, cut)
