r"""Naive matching: draw the output from the target, and see whether it was drafted.

Lossless for every draft law, and what serving engines do with deterministic drafts. It accepts with
probability :math:`\sum_y q(y) \Pr[y \in S(x)]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from multidraft import laws
from multidraft.problem import Problem
from multidraft.verifiers.base import Acceptance, Rule
from multidraft.verifiers.inclusion import matched


@dataclass(frozen=True)
class Naive(Rule):
    """Draw from the target and match, for every draft law."""

    name: ClassVar[str] = "naive"
    laws: ClassVar = (laws.Law,)

    def _acceptance(self, problem: Problem) -> Acceptance:
        accepted = matched(problem)
        return Acceptance.exact(accepted, accepted, problem.batch)
