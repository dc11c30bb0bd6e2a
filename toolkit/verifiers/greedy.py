r"""The greedy rule (Hu et al., 2502.18779): single-draft verification of the one random draft.

The sure drafts cost nothing: the random one, of law r, is accepted with probability
:math:`\min(1, q/r)`, and a draw from the residual :math:`(q - r)_+` may land on a sure draft. The
output is a draft with probability :math:`q(\mathrm{Top}) + \sum_y \min(q(y), r(y))`, the optimum of
the law.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from multidraft import laws
from multidraft.arrays import take
from multidraft.problem import Problem
from multidraft.verifiers import compiled
from multidraft.verifiers.base import Acceptance, Kernel, Prepared, Rule, ratio
from multidraft.verifiers.context import Context
from multidraft.verifiers.passes import Weights, at, mass_without


@dataclass(frozen=True)
class GreedyRule(Rule):
    """Single-draft test of the random draft, for greedy and hub drafts."""

    name: ClassVar[str] = "greedy"
    laws: ClassVar = (laws.Greedy, laws.Hub)

    def on(self, context: Context) -> PreparedGreedy:
        return PreparedGreedy(context)

    def kernel(self, context: Context) -> Kernel | None:
        return compiled.greedy, context.draft, context.sure

    def passes(self, n: int) -> int:
        return 3

    def _acceptance(self, problem: Problem) -> Acceptance:
        sure, tested = masses(problem)
        return Acceptance.exact(sure + tested, tested, problem.batch)


class PreparedGreedy(Prepared):
    """The scale 1/p(rest) of the random draft's law, zero where nothing is left to draw."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        rest = mass_without(context.draft, context.sure).expand(context.size)
        self.scale = torch.where(rest > 0, 1 / rest, 0.0)

    def terms(self, tokens: Int[Tensor, "M n"]) -> tuple[Float[Tensor, "M n"], Weights]:
        context, sure = self.context, self.context.sure
        free = (tokens[:, :, None] != sure[:, None, :]).all(-1)
        random = at(context.draft, tokens) * self.scale[:, None]
        keep = ratio(at(context.target, tokens), random) * free
        target = at(context.target, sure)
        return keep, Weights(context.target, context.draft, self.scale, named=sure, instead=target)


def masses(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Target mass of the sure drafts, and overlap of the target with the law of the random one."""
    law = problem.law
    assert isinstance(law, laws.SureAndLast)
    sure = law.sure()
    sure = np.broadcast_to(sure, (*problem.batch, sure.shape[-1]))
    overlap = np.minimum(problem.target, law.last()).sum(-1)
    return np.asarray(take(problem.target, sure).sum(-1)), np.asarray(overlap)
