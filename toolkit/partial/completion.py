r"""The two extreme completions of a pair of partially known laws.

A completion gives every unlisted token a probability, at most the side's cap, so that both laws sum
to 1. The comparison function :math:`E(\lambda) = \sum_y \min(q_y, \lambda p_y)` says all about how
alike two laws are: the overlap is E(1), and the optimum for iid drafts depends on nothing else. Two
completions bound it for every :math:`\lambda` at once, from below and from above:

* **farthest**: no unlisted probability meets probability of the other side, so
  :math:`E(\lambda)` is the sum over the tokens that both sides list. Every further pair of masses
  could only add to it. (It needs room in the vocabulary; in a small one the bound is not attained.)
* **nearest**: a token that only the target lists can take draft probability a up to the draft's cap
  c, one that only the draft lists can take target probability b, and the rests can be proportional.
  With :math:`S_a(\lambda) = \min(\lambda u_p, \sum \min(q_y, \lambda c_p))` over the tokens that
  only the target lists and :math:`S_b(\lambda) = \min(u_q, \sum \min(\lambda p_y, c_q))` over those
  that only the draft lists, no completion exceeds

  .. math:: E(\lambda) \le \sum_{both} \min(q_y, \lambda p_y)
            + \min\big(u_q + S_a(\lambda),\; \lambda u_p + S_b(\lambda)\big) ,

  since masses s and t matched there leave at most
  :math:`\min(u_q - t, \lambda u_p - s)` for the tokens that nobody lists. The two terms of the
  minimum cross at one :math:`\bar\lambda`. The completion
  :math:`a_y = \min(c_p, q_y/\bar\lambda)`, :math:`b_y = \min(c_q, \bar\lambda p_y)`, rests
  proportional (their ratio is then :math:`\bar\lambda`) attains the bound for every
  :math:`\lambda`: below the crossing it matches all of u_p and S_b, above it all of u_q and S_a.
  When both rests are used up before the terms cross, each is spread over the other side's list by
  itself and the same holds.

Tokens that nobody lists appear as one bucket here. Splitting a bucket in proportion changes no
comparison, so the caps are no obstacle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from multidraft.partial.pair import Listed, Pair

_HALVINGS = 80  # of the range of log-ratios below, to the last digit
_RANGE = 460.0  # e^460 = 1e200: no ratio of two probabilities is outside


class Completion(NamedTuple):
    """Complete laws: the tokens of a `Pair`, then one or two buckets of all others."""

    target: Float[np.ndarray, "N W2"]
    draft: Float[np.ndarray, "N W2"]


def farthest(pair: Pair) -> Completion:
    """The completion that is least alike: unlisted probability meets none of the other side."""
    nothing = np.zeros(len(pair))
    target = np.column_stack([pair.target, pair.target_rest, nothing])
    draft = np.column_stack([pair.draft, nothing, pair.draft_rest])
    return Completion(target, draft)


def nearest(pair: Pair) -> Completion:
    r"""The completion that is most alike, in every sense that :math:`E(\lambda)` measures."""
    drafted, wanted = allotments(pair)
    target = np.where(pair.draft_only, wanted, pair.target)
    draft = np.where(pair.target_only, drafted, pair.draft)
    left_target = np.maximum(1 - target.sum(-1), 0.0)
    left_draft = np.maximum(1 - draft.sum(-1), 0.0)
    nothing = np.zeros(len(pair))
    return Completion(
        np.column_stack([target, left_target, nothing]),
        np.column_stack([draft, left_draft, nothing]),
    )


def allotments(pair: Pair) -> tuple[Float[np.ndarray, "N W"], Float[np.ndarray, "N W"]]:
    """Draft probability for tokens that only the target lists, and the other way round."""
    q, p = np.where(pair.target_only, pair.target, 0.0), np.where(pair.draft_only, pair.draft, 0.0)
    cap_q, cap_p = pair.target_cap[:, None], pair.draft_cap[:, None]
    rest_q, rest_p = pair.target_rest, pair.draft_rest

    def drafted(ratio: Float[np.ndarray, " N"]) -> Float[np.ndarray, "N W"]:
        return np.minimum(cap_p, q / ratio[:, None])

    def wanted(ratio: Float[np.ndarray, " N"]) -> Float[np.ndarray, "N W"]:
        return np.minimum(cap_q, p * ratio[:, None])

    def surplus(ratio: Float[np.ndarray, " N"]) -> Float[np.ndarray, " N"]:
        spent = rest_p - drafted(ratio).sum(-1)
        return rest_q - wanted(ratio).sum(-1) - ratio * spent

    # The draft's rest is used up at ratios below `low`, the target's at ratios above `high`.
    low = _crossing(lambda ratio: drafted(ratio).sum(-1) - rest_p, len(pair))
    high = _crossing(lambda ratio: rest_q - wanted(ratio).sum(-1), len(pair))
    between = np.clip(_crossing(surplus, len(pair)), low, high)
    apart = high <= low
    return drafted(np.where(apart, low, between)), wanted(np.where(apart, high, between))


def _crossing(
    function: Callable[[Float[np.ndarray, " N"]], Float[np.ndarray, " N"]], rows: int
) -> Float[np.ndarray, " N"]:
    """Ratio at which a decreasing function of it passes zero, on its positive side."""
    low, high = np.full(rows, -_RANGE), np.full(rows, _RANGE)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        positive = function(np.exp(middle)) >= 0
        low, high = np.where(positive, middle, low), np.where(positive, high, middle)
    return np.exp(low)


def truncated(target: Listed, draft: Listed, k: int) -> Completion:
    """The laws after top-k with k <= K, which a log of K tokens says exactly.

    Raises
    ------
    Refused
        A context whose k most probable tokens are not all known.
    """
    pair = Pair.of(target.first(k), draft.first(k))
    q = pair.target / pair.target.sum(-1, keepdims=True)
    p = pair.draft / pair.draft.sum(-1, keepdims=True)
    return Completion(q, p)
