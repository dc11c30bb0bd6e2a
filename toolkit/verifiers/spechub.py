r"""SpecHub (2411.05289): two drafts, one of them always the hub a, the most probable draft token.

The pairs (i, a) and (a, i) have masses :math:`p(i)` and :math:`Q(a,i) = p(a) p(i) / (1 - p(a))`.
The token i is tested with :math:`\min(1, q(i)/p(i))` in the first and
:math:`\min(1, (q(i) - p(i))_+ / Q(a,i))` in the second. Both tests together leave the mass
:math:`m = \sum_{i \ne a} (r(i) - q(i))_+` with :math:`r(i) = p(i)/(1 - p(a))`; it goes to the hub
with probability :math:`\min(1, q(a) / m)`. The residual is :math:`(q - r)_+` off the hub, zero on
every i that can be rejected, so the tests' acceptance is the acceptance, and the optimum.
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
from multidraft.verifiers.base import Acceptance, Kernel, Prepared, Rule, ratio
from multidraft.verifiers.context import Context, at
from multidraft.verifiers.greedy import masses
from multidraft.verifiers.passes import Weights, mass_without


@dataclass(frozen=True)
class SpecHub(Rule):
    """Tests of the token beside the hub, then of the hub, for hub drafts."""

    name: ClassVar[str] = "spechub"
    laws: ClassVar = (laws.Hub,)

    def on(self, context: Context) -> PreparedSpecHub:
        return PreparedSpecHub(context)

    def kernel(self, context: Context) -> Kernel | None:
        return compiled.spechub, context.draft, context.sure

    def passes(self, n: int) -> int:
        return 3

    def _acceptance(self, problem: Problem) -> Acceptance:
        hub, other = masses(problem)
        return Acceptance.exact(hub + other, hub + other, problem.batch)


class PreparedSpecHub(Prepared):
    """Mass p(rest) off the hub, and the probability that the hub's test accepts."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        hub = context.sure
        zero = torch.zeros(hub.shape, dtype=torch.float64, device=hub.device)
        self.rest = mass_without(context.draft, hub)
        below = Weights(context.draft, context.target, self.rest, named=hub, instead=zero).total()
        left = torch.where(self.rest > 0, below / self.rest, 1.0)
        self.hub_test = ratio(at(context.target, hub)[:, 0], left)
        scale = torch.where(self.rest > 0, 1 / self.rest, 0.0)
        self.residual = Weights(context.target, context.draft, scale, named=hub, instead=zero)

    def terms(self, tokens: Int[Tensor, "M 2"]) -> tuple[Float[Tensor, "M 2"], Weights]:
        context, is_hub = self.context, tokens == self.context.sure
        target, draft = at(context.target, tokens), at(context.draft, tokens)
        pair = at(context.draft, context.sure) * draft  # Q(a, i) times the mass off the hub
        as_first = ratio(target, draft)
        as_second = ratio((target - draft).relu_() * self.rest[:, None], pair)
        other = torch.where(is_hub[:, :1], as_second, as_first).masked_fill(is_hub, 0.0)
        hub = (1 - other.sum(-1, keepdim=True)) * self.hub_test[:, None]
        return torch.where(is_hub, hub, other), self.residual
