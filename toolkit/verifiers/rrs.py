r"""Recursive rejection sampling (SpecInfer, 2305.09781): test the drafts one after another.

Each draft is tested against what its predecessors left of the target. With :math:`R_0 = q`,

.. math:: \Pr[\text{accept } x_k] = \min\!\Big(1, \frac{R_k(x_k)}{Z_k\,p_k(x_k)}\Big), \qquad
          R_{k+1} = (R_k - Z_k\,p_k)_+, \quad Z_k = \sum_y R_k(y),

unnormalised, so that nothing is divided by a small number. All tests fail with probability
:math:`Z_n`, whatever the drafts are, and the residual :math:`R_n` never hits a rejected draft.
For iid drafts :math:`R_k = (q - c_k p)_+` with :math:`c_{k+1} = c_k + Z_k`: one pass per draft.
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
class RRS(Rule):
    """Recursive rejection sampling for independent drafts, from one law or from several."""

    name: ClassVar[str] = "rrs"
    laws: ClassVar = (laws.IID, laws.Independent)

    def on(self, context: Context) -> PreparedRRS:
        return PreparedRRS(context)

    def kernel(self, context: Context) -> Kernel | None:
        if isinstance(context.law, laws.IID):
            return compiled.with_replacement, context.draft, context.counts[:, None]
        return None

    def passes(self, n: int) -> int:
        return n

    def _acceptance(self, problem: Problem) -> Acceptance:
        prepared = self.on(Context.of(problem.target, problem.law, check=False))
        accepted = 1 - prepared.residual.total()
        return Acceptance.exact(accepted, accepted, problem.batch)


class PreparedRRS(Prepared):
    """The masses Z_0 ... Z_{n-1}, (C, n), and the residual R_n; neither depends on the drafts."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        iid = isinstance(context.law, laws.IID)
        self.masses, self.residual = _iid(context) if iid else _independent(context)

    def terms(self, tokens: Int[Tensor, "M n"]) -> tuple[Float[Tensor, "M n"], Weights]:
        left, accept = at(self.context.target, tokens), []
        for k, draft in enumerate(self.context.drafts):
            taken = self.masses[:, k : k + 1] * at(draft, tokens)
            accept.append(ratio(left[:, k], taken[:, k]))
            left = (left - taken).relu_()
        return in_turn(torch.stack(accept, -1)), self.residual


def _iid(context: Context) -> tuple[Float[Tensor, "C n"], Weights]:
    mass, factor, masses = context.ones(), torch.zeros_like(context.ones()), []
    for k in range(context.law.width):
        if k > 0:
            mass = passes.excess(context.target, context.draft, factor)
        masses.append(mass)
        factor = torch.where(k < context.counts, factor + mass, factor)
    return torch.stack(masses, -1), Weights(context.target, context.draft, factor)


def _independent(context: Context) -> tuple[Float[Tensor, "C n"], Weights]:
    left, masses = context.target, []
    for draft in context.drafts:
        masses.append(left.sum(-1, dtype=torch.float64) if masses else context.ones())
        left = (left - masses[-1][:, None].to(left.dtype) * draft).relu_()
    return torch.stack(masses, -1), Weights(left, spare=context.target)
