r"""Recursive rejection without replacement (RSD 2402.14160, Sequoia 2402.12374, EAGLE).

As `rrs`, but after each rejection the draft law drops the token and renormalises. The residual
after k rejections is :math:`(q - c_k p)_+`, which is zero on every rejected token, with

.. math:: c_{k+1} = c_k + Z_k / s_k, \qquad Z_k = \sum_y (q - c_k p)_+, \qquad
          s_k = 1 - p(x_1) - \dots - p(x_k).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from multidraft import laws
from multidraft.problem import Problem
from multidraft.verifiers import compiled, passes
from multidraft.verifiers.base import Acceptance, Kernel, Prepared, Rule, in_turn, ratio
from multidraft.verifiers.context import Context
from multidraft.verifiers.passes import Weights, at


@dataclass(frozen=True)
class RRSW(Rule):
    """Recursive rejection for drafts without replacement.

    Parameters
    ----------
    paths : int
        Where the acceptance is an estimate (three or more drafts from many tokens): how many paths
        of rejected drafts it averages over.
    seed : int
        Of those paths.
    """

    name: ClassVar[str] = "rrsw"
    laws: ClassVar = (laws.WithoutReplacement,)
    paths: int = 1024
    seed: int = 0

    def on(self, context: Context) -> PreparedRRSW:
        return PreparedRRSW(context)

    def kernel(self, context: Context) -> Kernel | None:
        return compiled.without_replacement, context.draft, context.counts[:, None]

    def passes(self, n: int) -> int:
        return n

    def _acceptance(self, problem: Problem) -> Acceptance:
        from multidraft.verifiers.rejected_paths import acceptance

        return acceptance(problem, self.paths, self.seed)


class PreparedRRSW(Prepared):
    """Nothing to prepare: what a rejection leaves depends on the token that was rejected."""

    def terms(self, tokens: Int[Tensor, "M n"]) -> tuple[Float[Tensor, "M n"], Weights]:
        q, p = self.context.target, self.context.draft
        target, draft, drawn = at(q, tokens), at(p, tokens), tokens >= 0
        mass = rest = torch.ones(len(tokens), dtype=torch.float64, device=tokens.device)
        factor, accept = torch.zeros_like(mass), []
        for k in range(tokens.shape[-1]):
            if k > 0:
                mass, rest = passes.excess_and_rest(q, p, factor, tokens[:, :k].contiguous())
            left = (target[:, k] - factor * draft[:, k]).relu_() * rest
            accept.append(ratio(left, mass * draft[:, k]))
            factor = torch.where(drawn[:, k], factor + mass / rest, factor)
        return in_turn(torch.stack(accept, -1)), Weights(q, p, factor)
