r"""Intervals for the acceptance of rules, over every completion of a pair.

* **k-seq**: the tests accept with :math:`E(\rho^*)`, where the increasing :math:`E(\rho)` meets the
  decreasing solution of :math:`1 - (1 - E/\rho)^n = E`; a larger E only moves the point up. So the
  farthest and the nearest completion are its ends.
* **greedy, spechub**: they attain the optimum of their laws. A rule that attains the optimum of
  iid drafts (interval) has its interval.
* **rrs**: with :math:`G(c) = 1 - E(c) = \sum (q - c\,p)_+` all tests fail with :math:`G(c_n)`,
  where :math:`c_{k+1} = c_k + G(c_k)`, :math:`c_1 = 1`. The step grows with c and with G, so the
  nearest and the farthest G bound c_n, and G(c_n) lies between the nearest G at the largest c_n and
  the farthest at the smallest. Not exact at the ends: no completion is near for one draft and far
  for the next.
* **rrsw**: see `multidraft.partial.rejection`.
* **naive**: :math:`\sum_y q_y \pi(p_y)` with :math:`\pi` the probability of being drafted. Unlisted
  probability that meets none of the other side gives the lower end. For the upper end write a and b
  for prices of unlisted draft and target probability: whatever the completion, the value is at most

  .. math:: \mathrm{known} + a\,u_p + b\,u_q + \sum_{y} \max_{x \le c_p} [q_y \pi(x) - a x]
            + \sum_{y} c_q (\pi(p_y) - b)_+

  (over the tokens that only the target, or only the draft lists) if no unlisted pair gains,
  :math:`c_q (\pi(x) - b) \le a x`. With :math:`\pi(x) \le \min(\kappa x, \pi(c_p))` the best prices
  are among a few.

Other rules have no interval here: their acceptance is at least 0 and at most the optimum's upper
end, which is all that these logs say.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from jaxtyping import Float

from multidraft import laws
from multidraft.errors import Refused
from multidraft.partial.arrivals import Arrivals, inclusion
from multidraft.partial.completion import Completion, farthest, nearest
from multidraft.partial.optimum import last_draft, optimum
from multidraft.partial.pair import Interval, Pair
from multidraft.partial.rejection import rrsw

_CHUNK = 64  # contexts at once


def acceptance(pair: Pair, rule: str, law: str, n: int, best: Interval | None = None) -> Interval:
    """Acceptance of a rule for `n` drafts of a law, over every completion of the pair.

    Parameters
    ----------
    pair : Pair
        N contexts.
    rule, law : str
        Names, as in ``multidraft.verifiers`` and ``multidraft.laws``.
    n : int
        Number of drafts.
    best : Interval, optional
        The optimum of these drafts, where the caller has it already.

    Returns
    -------
    Interval
        Of the probability that the output is one of the drafts.

    Raises
    ------
    Refused
        A rule that does not take the law, or that has no interval.
    """
    if reason := refuses(rule, law):
        raise Refused(reason)
    best = optimum(pair, law, n) if best is None else best
    lower, upper = BOUNDS[rule, law](pair, n=n)
    return Interval(np.minimum(lower, best.upper), np.minimum(upper, best.upper)).within()


def refuses(rule: str, law: str) -> str | None:
    """Why there is no interval for a rule and a law; None where there is one."""
    if (rule, law) in BOUNDS:
        return None
    return (
        f"no interval is known for {rule} with {law} drafts on partial logs: all they say is that "
        "its acceptance is at most the optimum's upper end; record full logits to evaluate it."
    )


def _k_seq(pair: Pair, n: int) -> Interval:
    from multidraft import Problem
    from multidraft.verifiers import get

    def value(completion: Completion) -> Float[np.ndarray, " N"]:
        law = laws.IID(completion.draft, n)
        return get("k-seq").acceptance(Problem(completion.target, law)).value

    return Interval(value(farthest(pair)), value(nearest(pair)))


def _rrs(pair: Pair, n: int) -> Interval:
    far, near = _excess(farthest(pair)), _excess(nearest(pair))
    smallest = largest = np.ones(len(pair))
    for _ in range(n - 1):
        smallest, largest = smallest + near(smallest), largest + far(largest)
    return Interval(1 - far(smallest), 1 - near(largest))


def _excess(completion: Completion) -> Callable[[np.ndarray], np.ndarray]:
    r"""The function :math:`c \mapsto \sum_y (q_y - c\,p_y)_+`, one argument per context."""
    q, p = completion
    return lambda c: np.maximum(q - c[:, None] * p, 0.0).sum(-1)


# ---------------------------------------------------------------------------------------- naive


def _match_iid(pair: Pair, n: int) -> Interval:
    drafted, most = (-np.expm1(n * np.log1p(-part)) for part in (pair.draft, pair.draft_cap))
    return _match(pair, drafted, drafted, np.full(len(pair), float(n)), most)


def _match_sure(pair: Pair, n: int) -> Interval:
    """Sure drafts, and one of the law r."""
    sure = pair.top_drafts(n - 1)
    last, rest, cap = last_draft(pair, sure)
    drafted = np.where(sure, 1.0, last)
    slope = np.where(rest > 0, rest / np.where(rest > 0, pair.draft_rest, 1.0), 0.0)
    return _match(pair, drafted, drafted, slope, cap).where(pair.knows_top(n - 1))


def _match_without_replacement(pair: Pair, n: int) -> Interval:
    chunks = [pair.rows(slice(start, start + _CHUNK)) for start in range(0, len(pair), _CHUNK)]
    ends = [_match(chunk, *_drafted(chunk, n)) for chunk in chunks]
    return Interval(*(np.concatenate(end) for end in zip(*ends, strict=True)))


def _drafted(pair: Pair, n: int) -> tuple[np.ndarray, ...]:
    """Bounds on the probability that a token is drafted: listed ones, then an unlisted one.

    An unlisted token competes with the listed ones and at least with the rest without it.
    """
    stream, pieces, others = (Arrivals(len(pair), n) for _ in range(3))
    stream.add_stream(pair.draft_rest)
    pieces.add_pieces(pair.draft_rest, pair.draft_cap)
    others.add_pieces(pair.draft_rest - pair.draft_cap, pair.draft_cap)
    others.add_each(pair.draft)
    least, most = (inclusion(pair.draft, rest, n) for rest in (stream, pieces))
    return least, most, others.time(), others.hit(pair.draft_cap)


def _match(
    pair: Pair,
    least: Float[np.ndarray, "N W"],
    most: Float[np.ndarray, "N W"],
    slope: Float[np.ndarray, " N"],
    ceiling: Float[np.ndarray, " N"],
) -> Interval:
    """Interval of the sum of target probability times probability of being drafted.

    Parameters
    ----------
    least, most : (N, W)
        Bounds on the probability that a listed token is drafted.
    slope, ceiling : (N,)
        An unlisted token of draft probability x is drafted with at most
        ``min(slope * x, ceiling)``.
    """
    lower = np.where(pair.both, pair.target * least, 0.0).sum(-1)
    known = np.where(pair.both, pair.target * most, 0.0).sum(-1)
    alone = np.where(pair.target_only, pair.target, 0.0)
    caps = slope * pair.target_cap
    prices = np.column_stack([np.zeros(len(pair)), caps, slope[:, None] * alone])
    costs = [_cost(pair, most, slope, ceiling, alone, price) for price in prices.T]
    return Interval(lower, known + np.min(costs, axis=0))


def _cost(
    pair: Pair,
    most: Float[np.ndarray, "N W"],
    slope: Float[np.ndarray, " N"],
    ceiling: Float[np.ndarray, " N"],
    alone: Float[np.ndarray, "N W"],
    price: Float[np.ndarray, " N"],
) -> Float[np.ndarray, " N"]:
    """Value of the unlisted probabilities at a price of the draft's."""
    full = ceiling / np.where(slope > 0, slope, 1.0)  # draft probability that reaches the ceiling
    cap = pair.target_cap
    floor = np.where(cap > 0, full * np.maximum(slope - price / np.where(cap > 0, cap, 1.0), 0), 0)
    offered = full * np.maximum(alone * slope[:, None] - price[:, None], 0.0).sum(-1)
    return pair.draft_rest * price + offered + _filled(pair, most, floor)


def _filled(
    pair: Pair, most: Float[np.ndarray, "N W"], floor: Float[np.ndarray, " N"]
) -> Float[np.ndarray, " N"]:
    """Most that the unlisted target probability yields: the best draft tokens, then `floor`."""
    yields = -np.sort(-np.where(pair.draft_only, most, 0.0), axis=-1)
    places = np.arange(yields.shape[1]) * pair.target_cap[:, None]
    amounts = np.clip(pair.target_rest[:, None] - places, 0.0, pair.target_cap[:, None])
    left = np.maximum(pair.target_rest - amounts.sum(-1), 0.0)
    return (amounts * np.maximum(yields, floor[:, None])).sum(-1) + left * floor


#: The rules with an interval, with the draft laws.
BOUNDS: dict[tuple[str, str], Callable[..., Interval]] = {
    ("naive", "iid"): _match_iid,
    ("naive", "without-replacement"): _match_without_replacement,
    ("naive", "greedy"): _match_sure,
    ("naive", "hub"): _match_sure,
    ("naive", "top"): partial(optimum, law="top"),
    ("k-seq", "iid"): _k_seq,
    ("rrs", "iid"): _rrs,
    ("interval", "iid"): partial(optimum, law="iid"),
    ("rrsw", "without-replacement"): rrsw,
    ("greedy", "greedy"): partial(optimum, law="greedy"),
    ("greedy", "hub"): partial(optimum, law="hub"),
    ("spechub", "hub"): partial(optimum, law="hub"),
}
