r"""SpecHub (2411.05289): two drafts, one of them always the hub a, the most probable draft token.

The pairs (i, a) and (a, i) have masses :math:`p(i)` and :math:`Q(a,i) = p(a) p(i) / (1 - p(a))`.
The token i is tested with :math:`\min(1, q(i)/p(i))` in the first and
:math:`\min(1, (q(i) - p(i))_+ / Q(a,i))` in the second; what both leave, :math:`m_1 + m_2`, goes to
the hub with :math:`\min(1, q(a) / (m_1 + m_2))`. The residual is zero on the hub and on every i that
can be rejected, so the tests' acceptance is the acceptance, and the optimum of the law.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from multidraft import laws
from multidraft.problem import Problem
from multidraft.verifiers.base import Acceptance, Rule
from multidraft.verifiers.greedy import masses


@dataclass(frozen=True)
class SpecHub(Rule):
    """Tests of the token beside the hub, then of the hub, for hub drafts."""

    name: ClassVar[str] = "spechub"
    laws: ClassVar = (laws.Hub,)

    def _acceptance(self, problem: Problem) -> Acceptance:
        hub, other = masses(problem)
        return Acceptance.exact(hub + other, hub + other, problem.batch)
