r"""Single-draft speculative sampling (Leviathan et al. 2211.17192, Chen et al. 2302.01318).

The draft x is accepted with probability :math:`\min(1, q(x)/p(x))`, else the output is drawn from
:math:`(q - p)_+` normalised. Acceptance :math:`\sum_y \min(q(y), p(y))`, the optimum for one draft.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from multidraft import laws
from multidraft.problem import Problem
from multidraft.verifiers import compiled
from multidraft.verifiers.base import Acceptance, Kernel, Rule
from multidraft.verifiers.context import Context
from multidraft.verifiers.rrs import PreparedRRS


@dataclass(frozen=True)
class Single(Rule):
    """Speculative sampling with one draft: the case n = 1 of every law that draws it from p."""

    name: ClassVar[str] = "single"
    laws: ClassVar = (laws.IID, laws.Independent, laws.WithoutReplacement, laws.Greedy)

    def refuses(self, law: laws.Law) -> str | None:
        if (reason := super().refuses(law)) or law.width == 1:
            return reason
        return f"single verifies one draft, not {law.width}: see multidraft.verifiers.names()."

    def on(self, context: Context) -> PreparedRRS:
        return PreparedRRS(context)

    def kernel(self, context: Context) -> Kernel | None:
        return compiled.with_replacement, context.drafts[0], context.counts[:, None]

    def _acceptance(self, problem: Problem) -> Acceptance:
        overlap = np.minimum(problem.target, problem.law.probs).sum(-1)
        return Acceptance.exact(overlap, overlap, problem.batch)
