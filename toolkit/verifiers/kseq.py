r"""K-SEQ (SpecTr, 2310.15141): the same lowered test for every draft in turn.

A draft x is accepted with probability :math:`\min(1, q(x) / (\rho\,p(x)))`. With
:math:`\beta(\rho) = \sum_y \min(q(y)/\rho, p(y))` the tests accept with probability
:math:`\tau = 1 - (1-\beta)^n`, and the residual is

.. math:: q - \frac{\tau}{\beta} \min(q/\rho, p)
          \;\propto\; \Big(\frac{\rho\beta}{\tau} - 1\Big)\, q + (q - \rho\,p)_+ .

The rule is lossless for every :math:`\rho \in [\rho^*, n]`, where :math:`\rho^*` solves
:math:`\tau = \rho\beta`; the smallest accepts most, at least :math:`1 - (1-1/n)^n` of the optimum.
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
from multidraft.verifiers.compiled import NEAR, PASSES, ULPS
from multidraft.verifiers.context import Context
from multidraft.verifiers.passes import Weights, at


@dataclass(frozen=True)
class KSeq(Rule):
    """K-SEQ with the smallest lossless rho of each context, for iid drafts."""

    name: ClassVar[str] = "k-seq"
    laws: ClassVar = (laws.IID,)

    def on(self, context: Context) -> PreparedKSeq:
        return PreparedKSeq(context, Threshold.of(context))

    def kernel(self, context: Context) -> Kernel | None:
        return compiled.k_seq, context.draft, context.counts[:, None]

    def passes(self, n: int) -> int:
        return 10  # some Newton steps for rho, and the residual

    def _acceptance(self, problem: Problem) -> Acceptance:
        context = Context.of(problem.target, problem.law, check=False)
        threshold = Threshold.of(context)
        value = threshold.tested + _residual_hits(context, threshold)
        return Acceptance.exact(value, threshold.tested, problem.batch)


class PreparedKSeq(Prepared):
    """The threshold rho of each context, and the residual."""

    def __init__(self, context: Context, threshold: Threshold) -> None:
        super().__init__(context)
        self.threshold = threshold
        self.residual = Weights(context.target, context.draft, threshold.rho, share=threshold.share)

    def terms(self, tokens: Int[Tensor, "M n"]) -> tuple[Float[Tensor, "M n"], Weights]:
        target, draft = at(self.context.target, tokens), at(self.context.draft, tokens)
        return in_turn(ratio(target, self.threshold.rho[:, None] * draft)), self.residual


@dataclass(frozen=True)
class Threshold:
    """The number rho of each context, its single-draft mass beta and its tests' acceptance tau.

    Attributes
    ----------
    rho, beta, tested : (C,) float64
    """

    rho: Float[Tensor, " C"]
    beta: Float[Tensor, " C"]
    tested: Float[Tensor, " C"]

    @property
    def share(self) -> Float[Tensor, " C"]:
        """``rho beta / tau - 1``, zero up to round-off at rho*."""
        whole = torch.where(self.tested > 0, self.tested, 1.0)
        return torch.where(self.tested > 0, self.rho * self.beta / whole - 1, 0.0).clamp(min=0.0)

    @classmethod
    def of(cls, context: Context) -> Threshold:
        """Find rho* from above by bracketed Newton steps; every rho returned is lossless.

        The surplus ``tau - rho beta`` falls with rho and is not positive at n (union bound).
        """
        n = context.counts.double()
        low, high = torch.ones_like(n), n.clone()
        rho, best = low, cls(high, torch.full_like(n, torch.nan), torch.full_like(n, torch.nan))
        for k in range(PASSES):
            mass, slope = passes.overlap(context.target, context.draft, rho)
            beta = (mass / rho).clamp(max=1.0)
            now = cls(rho, beta, _any_of(beta, n))
            surplus = now.tested - mass
            lossless = (surplus <= 0) | (rho >= n)
            best = best._replaced(lossless, now)
            low, high = torch.where(lossless, low, rho), torch.where(lossless, rho, high)
            done = (lossless & (surplus >= -NEAR)) | (high - low <= ULPS * n)
            if rho.device.type == "cpu" and bool((done & ~best.beta.isnan()).all()):
                break
            step = n * (1 - beta) ** (n - 1) * (slope - beta) / rho - slope
            point = rho - surplus / torch.where(step == 0, 1.0, step) + ULPS * n
            rho = torch.where((point > low) & (point < high), point, (low + high) / 2)
            if k == PASSES - 2:  # the last resort
                rho = torch.where(best.beta.isnan(), n, rho)
        return best

    def _replaced(self, rows: Tensor, other: Threshold) -> Threshold:
        pairs = ((self.rho, other.rho), (self.beta, other.beta), (self.tested, other.tested))
        return Threshold(*(torch.where(rows, new, old) for old, new in pairs))


def _any_of(beta: Tensor, n: Tensor) -> Tensor:
    """``1 - (1 - beta)^n``, accurate for small beta."""
    return -torch.expm1(n * torch.log1p(-beta))


def _residual_hits(context: Context, threshold: Threshold) -> Float[Tensor, " C"]:
    """Probability that all tests fail and the residual token was drafted all the same.

    Where ``q > rho p`` a draft never fails; elsewhere the residual is ``share`` times q, with
    ``tau / (rho beta)`` for normalisation. Only searches that ended early have anything to add.
    """
    hits = torch.zeros_like(threshold.rho)
    for i in torch.nonzero(threshold.share > NEAR).ravel().tolist():
        q, p = (part[min(i, len(part) - 1)] for part in (context.target, context.draft))
        failed = (p - q / threshold.rho[i]).clamp(min=0.0) / (1 - threshold.beta[i])
        share = threshold.share[i] / (1 + threshold.share[i])
        hits[i] = share * (q * _any_of(failed.clamp(max=1.0), context.counts[i].double())).sum()
    return hits
