r"""my-rule: recursive rejection, a working rule to be changed into yours.

A rule states two things for every drafted tuple x, and everything else follows from them:

* ``keep``: the probability that each draft is kept;
* the residual: the law of the output when no draft is kept.

The output then has the law

.. math:: \pi(y \mid x) = \sum_{k : x_k = y} \mathrm{keep}_k(x)
          + \big(1 - \sum_k \mathrm{keep}_k(x)\big)\,\mathrm{residual}(y \mid x) ,

and the rule is lossless if the mean of that over the draft law is the target q. Here each draft is
tested against what its predecessors left of the target: R starts as q, a draft x is kept with
probability min(1, R(x) / (Z p(x))), where Z is the sum of R, and when it is rejected R becomes
(R - Z p)+.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from multidraft import laws
from multidraft.verifiers.base import Prepared, Rule, in_turn, ratio
from multidraft.verifiers.context import Context
from multidraft.verifiers.passes import Weights, at


@dataclass(frozen=True)
class MyRule(Rule):
    """Say in one line what the rule does: `multidraft methods` prints this line."""

    name: ClassVar[str] = "my-rule"
    # CHANGE: the draft laws for which the rule is lossless. All others are refused, with a reason.
    laws: ClassVar = (laws.IID,)
    # An option of the rule is a field with a default: `strength: float = 1.0`.

    def on(self, context: Context) -> PreparedMyRule:
        return PreparedMyRule(context)

    def passes(self, n: int) -> int:
        # CHANGE: how often the whole vocabulary is looked at for n drafts.
        return n

    # Both acceptance figures are summed over the drafted tuples, or estimated where those are too
    # many. If you know a formula, write it here and the tests compare it with the sum:
    #
    #     def _acceptance(self, problem: Problem) -> Acceptance:
    #         return Acceptance.exact(value, tested, problem.batch)


class PreparedMyRule(Prepared):
    """The rule on fixed contexts; what does not depend on the drafts belongs into `__init__`."""

    def terms(self, tokens: Int[Tensor, "M n"]) -> tuple[Float[Tensor, "M n"], Weights]:
        # CHANGE: this is the rule. `target` and `draft` are (1, V) or (M, V), `tokens` ids (M, n)
        # with -1 for a missing draft, whose probability `at` reads as 0.
        target, draft = self.context.target, self.context.draft
        left, accept = target, []
        for k in range(tokens.shape[-1]):
            mass = left.sum(-1, keepdim=True, dtype=torch.float64)
            drafted = tokens[:, k : k + 1]
            accept.append(ratio(at(left, drafted), mass * at(draft, drafted)))
            # Rows may have fewer drafts than others: then nothing is taken from R.
            drawn = (k < self.context.counts)[:, None]
            left = torch.where(drawn, (left - mass.to(left.dtype) * draft).relu(), left)
        # Tests made one after another; Weights need not be normalised, and where they are all zero
        # (round-off, when target and draft are equal) the spare law is drawn from.
        return in_turn(torch.cat(accept, -1)), Weights(left, spare=target)
