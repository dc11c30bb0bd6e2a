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
from jaxtyping import Float
from torch import Tensor

from multidraft import laws
from multidraft.problem import Problem
from multidraft.verifiers import passes
from multidraft.verifiers.base import Acceptance, Context, Rule


@dataclass(frozen=True)
class RRS(Rule):
    """Recursive rejection sampling for independent drafts, from one law or from several."""

    name: ClassVar[str] = "rrs"
    laws: ClassVar = (laws.IID, laws.Independent)

    def _acceptance(self, problem: Problem) -> Acceptance:
        accepted = 1 - levels(Context.of(problem))[:, -1]
        return Acceptance.exact(accepted, accepted, problem.batch)


def levels(context: Context) -> Float[Tensor, "R n1"]:
    """Masses Z_0 = 1, Z_1, ... Z_n that the target keeps after each rejection, one pass each."""
    if isinstance(context.law, laws.IID):
        return _iid_levels(context)
    left, masses = context.target, [torch.ones(context.rows, dtype=torch.float64)]
    for draft in context.drafts:
        left = (left - masses[-1][:, None].to(left.dtype) * draft).relu_()
        masses.append(left.sum(-1, dtype=torch.float64))
    return torch.stack(masses, -1)


def _iid_levels(context: Context) -> Float[Tensor, "R n1"]:
    counts, factor = context.counts, torch.zeros(context.rows, dtype=torch.float64)
    masses = [torch.ones_like(factor)]
    for k in range(context.law.width):
        factor = factor + masses[-1]
        rest = passes.excess(context.target, context.draft, factor)
        masses.append(torch.where(k < counts, rest, masses[-1]))
    return torch.stack(masses, -1)
