r"""List-level coupling by shared randomness (GLS, 2506.05632; races, 2504.15475).

Target and drafts look at the same exponential noise :math:`E_i^k`, one row per draft:

.. math:: X^k = \arg\min_i E_i^k / p_i, \qquad Y = \arg\min_i \min_k E_i^k / q_i .

Each draft has law p and Y has law q, whatever the drafts are. Given the noise Y does not depend on
p at all: the rule is drafter-invariant. The drafts themselves do not determine the law of Y, so
the noise has to be kept from drafting to verification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from multidraft import laws
from multidraft.errors import InputError, Refused
from multidraft.problem import Problem
from multidraft.verifiers.base import Acceptance, Drafts, Outcome, Prepared, Rule, outcome
from multidraft.verifiers.context import Context
from multidraft.verifiers.passes import Weights

_HALF = 2.0**-54  # moves uniforms off 0 and 1


@dataclass(frozen=True)
class GLS(Rule):
    """Drafts and output from one set of exponential races.

    Parameters
    ----------
    strong : bool
        In ragged batches the output looks at the noise of the drafts that a row has; True lets it
        look at all n rows of noise, so that it does not depend on the number of drafts either
        (strong drafter-invariance).
    """

    name: ClassVar[str] = "gls"
    laws: ClassVar = (laws.IID,)
    strong: bool = False

    def draws(self, n: int) -> int:
        """None: the noise is drawn with the drafts."""
        return 0

    def draft_draws(self, law: laws.Law) -> int:
        return law.width * law.vocabulary

    def sample_drafts(
        self, target: Any, law: laws.Law, *, uniforms: Float[Tensor, "B draws"]
    ) -> Drafts:
        self.require(law)
        context = Context.of(target, law, check=False)
        places = torch.arange(law.width, device=uniforms.device)
        noise = uniforms.reshape(len(uniforms), law.width, law.vocabulary)
        noise = -torch.log((noise + _HALF).clamp(max=1 - 2 * _HALF))
        tokens = _winners(noise, context.draft)
        return Drafts(tokens.masked_fill(places >= context.counts[:, None], -1), noise)

    def on(self, context: Context) -> PreparedGLS:
        return PreparedGLS(context, self.strong)

    def _acceptance(self, problem: Problem) -> Acceptance:
        from multidraft.solvers.prefix import iid_optimum

        lower = list_bound(problem)
        if (problem.law.counts == 1).all():
            return Acceptance.exact(lower, lower, problem.batch)
        upper = iid_optimum(problem.target, problem.law.probs, problem.law.n)[0]
        none = np.zeros(problem.batch)
        return Acceptance(lower, lower, "bound", lower, np.asarray(upper), none)

    def output_law(self, problem: Problem) -> Float[np.ndarray, " V"]:
        raise Refused("gls has no conditional law given the drafts alone: check it statistically.")


class PreparedGLS(Prepared):
    """Nothing to prepare."""

    draws: ClassVar[int] = 0

    def __init__(self, context: Context, strong: bool) -> None:
        super().__init__(context)
        self.strong = strong

    def verify(
        self,
        drafts: Drafts,
        *,
        uniforms: Float[Tensor, "M draws"] | None = None,
        generator: torch.Generator | None = None,
        check: bool = True,
    ) -> Outcome:
        if drafts.noise is None:
            raise InputError("gls needs the noise of its drafts: draw them with sample_drafts.")
        tokens, bad = self._checked(drafts, check)
        bad |= ((tokens != _winners(drafts.noise, self.context.draft)) & (tokens >= 0)).any(-1)
        noise = drafts.noise
        if not self.strong:
            noise = noise.masked_fill((tokens < 0)[:, :, None], torch.inf)
        token = _winners(noise.amin(1, keepdim=True), self.context.target)[:, 0]
        found = outcome(tokens, token, bad)
        if check and bool(bad.any()):
            raise InputError("drafts that their noise did not produce: pass both unchanged.")
        return found

    def terms(self, tokens: Int[Tensor, "M n"]) -> tuple[Float[Tensor, "M n"], Weights]:
        raise Refused("gls has no conditional law given the drafts alone.")


def _winners(noise: Float[Tensor, "M n V"], law: Float[Tensor, "R V"]) -> Int[Tensor, "M n"]:
    """Token of the smallest ``noise / law`` of each row (never one without mass)."""
    return (noise / law[:, None, :]).argmin(-1)


def list_bound(problem: Problem) -> Float[np.ndarray, "*batch"]:
    r"""Probability that the output is the draft of the sequence that attains its minimum.

    .. math:: \sum_j n \Big/ \sum_i \big[\max(q_i/q_j, p_i/p_j) + (n-1)\, q_i/q_j\big]

    over the tokens j with q_j, p_j > 0: at most the acceptance, equal to it for n = 1.
    """
    q = problem.target.reshape(-1, problem.vocabulary)
    p = np.broadcast_to(problem.law.probs, problem.target.shape).reshape(q.shape)
    counts = np.broadcast_to(problem.law.counts, problem.batch).ravel()
    rows = [_list_bound(*row) for row in zip(q, p, counts.tolist(), strict=True)]
    return np.array(rows).reshape(problem.batch)


def _list_bound(q: Float[np.ndarray, " V"], p: Float[np.ndarray, " V"], n: int) -> float:
    both = (q > 0) & (p > 0)
    ratio = np.where(p > 0, q / np.where(p > 0, p, 1.0), np.inf)
    order = np.argsort(ratio, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    # max(q_i/q_j, p_i/p_j) is the first where i has the larger q/p, else the second.
    above = np.append(np.cumsum(q[order][::-1])[::-1], 0.0)[place + 1]
    below = np.cumsum(p[order])[place]
    races = (above[both] + (n - 1) * q.sum()) / q[both] + below[both] / p[both]
    return float((n / races).sum())
