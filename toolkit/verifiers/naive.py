r"""Naive matching: the output is a draw from the target, accepted if it was drafted.

Lossless for every draft law, and what serving engines do with deterministic drafts. It accepts with
probability :math:`\sum_y q(y) \Pr[y \in S(x)]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from multidraft import laws
from multidraft.problem import Problem
from multidraft.verifiers import compiled
from multidraft.verifiers.base import Acceptance, Kernel, Prepared, Rule, fresh
from multidraft.verifiers.context import Context, at
from multidraft.verifiers.inclusion import matched
from multidraft.verifiers.passes import Weights


@dataclass(frozen=True)
class Naive(Rule):
    """Draw from the target and match, for every draft law."""

    name: ClassVar[str] = "naive"
    laws: ClassVar = (laws.Law,)

    def on(self, context: Context) -> PreparedNaive:
        return PreparedNaive(context)

    def kernel(self, context: Context) -> Kernel | None:
        if isinstance(context.law, laws.IID):
            return compiled.naive, context.draft, context.counts[:, None]
        return None

    def passes(self, n: int) -> int:
        return 1

    def _acceptance(self, problem: Problem) -> Acceptance:
        accepted = matched(problem)
        return Acceptance.exact(accepted, accepted, problem.batch)


class PreparedNaive(Prepared):
    """The draw in two steps: one of the drafts, each with its target mass, or any other token."""

    def terms(self, tokens: Int[Tensor, "M n"]) -> tuple[Float[Tensor, "M n"], Weights]:
        keep = at(self.context.target, tokens) * fresh(tokens)
        return keep, Weights(self.context.target, named=tokens, instead=torch.zeros_like(keep))
