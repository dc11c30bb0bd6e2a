r"""K-SEQ (SpecTr, 2310.15141): the same lowered test for every draft in turn.

A draft x is accepted with probability :math:`\min(1, q(x) / (\rho\,p(x)))`. With
:math:`\beta(\rho) = \sum_y \min(q(y)/\rho, p(y))` the tests accept with probability
:math:`1 - (1-\beta)^n`, and the rule is lossless for every :math:`\rho \in [\rho^*, n]`, where
:math:`\rho^*` solves :math:`1 - (1-\beta)^n = \rho\beta`; the smallest accepts most, at least
:math:`1 - (1-1/n)^n` of the optimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from jaxtyping import Float
from torch import Tensor

from multidraft import laws
from multidraft.problem import Problem
from multidraft.verifiers import passes
from multidraft.verifiers.base import Acceptance, Context, Rule

PASSES = 10  # most passes that the search for rho makes; it converges in four to seven
_ULPS = 2.0**-50  # Newton's point is moved up by this much, to end on the lossless side
_NEAR = 1e-15  # a surplus this small is round-off


@dataclass(frozen=True)
class KSeq(Rule):
    """K-SEQ with the smallest lossless rho of each context, for iid drafts."""

    name: ClassVar[str] = "k-seq"
    laws: ClassVar = (laws.IID,)

    def _acceptance(self, problem: Problem) -> Acceptance:
        context = Context.of(problem)
        threshold = Threshold.of(context)
        hits = _residual_hits(context, threshold)
        return Acceptance.exact(threshold.tested + hits, threshold.tested, problem.batch)


@dataclass(frozen=True)
class Threshold:
    """The number rho of each context, its single-draft mass beta and its probability of a pass.

    Attributes
    ----------
    rho, beta, tested : (R,) float64, ``tested = 1 - (1 - beta)^n``
    """

    rho: Float[Tensor, " R"]
    beta: Float[Tensor, " R"]
    tested: Float[Tensor, " R"]

    @classmethod
    def of(cls, context: Context) -> Self:
        """Find rho* from above by bracketed Newton steps; every rho returned is lossless."""
        n = context.counts.double()
        low, high = torch.ones_like(n), n.clone()
        rho, best = low, cls(high, torch.full_like(n, torch.nan), torch.full_like(n, torch.nan))
        for k in range(PASSES):
            mass, slope = passes.overlap(context.target, context.draft, rho)
            now = cls(rho, beta := (mass / rho).clamp(max=1.0), _any_of(beta, n))
            surplus = now.tested - mass
            lossless = (surplus <= 0) | (rho >= n)
            best = best._replaced(lossless, now)
            low, high = torch.where(lossless, low, rho), torch.where(lossless, rho, high)
            close = lossless & (surplus >= -_NEAR)
            if k == PASSES - 1 or (
                rho.device.type == "cpu" and bool((close | (high <= low)).all())
            ):
                break
            step = n * (1 - beta) ** (n - 1) * (slope - beta) / rho - slope
            rho = _inside(rho - surplus / _nonzero(step) + _ULPS * n, low, high)
            if k == PASSES - 2:  # the union bound makes n lossless: the last resort
                rho = torch.where(best.beta.isnan(), n, rho)
        return best

    def _replaced(self, rows: Tensor, other: Threshold) -> Threshold:
        pairs = ((self.rho, other.rho), (self.beta, other.beta), (self.tested, other.tested))
        return Threshold(*(torch.where(rows, new, old) for old, new in pairs))


def _any_of(beta: Float[Tensor, " R"], n: Float[Tensor, " R"]) -> Float[Tensor, " R"]:
    """``1 - (1 - beta)^n``, accurate for small beta."""
    return -torch.expm1(n * torch.log1p(-beta))


def _inside(point: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the point where it lies between the ends, else their middle."""
    return torch.where((point > low) & (point < high), point, (low + high) / 2)


def _nonzero(values: Tensor) -> Tensor:
    return torch.where(values == 0, 1.0, values)


def _residual_hits(context: Context, threshold: Threshold) -> Float[Tensor, " R"]:
    """Probability that all tests fail and the residual token was drafted all the same.

    Where ``q > rho p`` a draft never fails; elsewhere the residual is a fixed fraction of q, which
    is zero at rho*. Only rows whose search ended early have anything to add.
    """
    fraction = 1 - threshold.tested / _nonzero(threshold.rho * threshold.beta)
    hits = torch.zeros_like(fraction)
    for i in torch.nonzero((fraction > _NEAR) & (threshold.beta > 0)).ravel().tolist():
        q, p = (
            context.target[min(i, len(context.target) - 1)],
            context.draft[min(i, len(context.draft) - 1)],
        )
        failed = (p - q / threshold.rho[i]).clamp(min=0.0) / (1 - threshold.beta[i])
        hits[i] = fraction[i] * (q * _any_of(failed, context.counts[i].double())).sum()
    return hits
