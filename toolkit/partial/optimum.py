r"""Intervals for the optimum of every draft law, over all completions of a pair.

The optimum is :math:`\min_H q(H) + \mathrm{hit}(H^c)`, so its smallest value is one minimum over
sets and completions together, and any set bounds its largest value from above.

* **iid** (any n): a function of the comparison function E alone, hence attained by the farthest and
  the nearest completion; exact at both ends.
* **top, greedy, hub**: with T the sure drafts, known because n <= K, and r the law of the last one,
  the optimum is :math:`q(T) + \sum_{y \notin T} \min(q_y, r_y)`. This is an overlap in which the
  tokens of T have unlimited draft probability; exact at both ends.
* **without replacement**, smallest: a token of known target probability and no draft probability
  never helps, so all unlisted draft probability belongs to tokens without target probability,
  inside H; the more pieces, the fewer hits outside H: the limit of a Poisson stream. Exact.
* **without replacement**, largest: sets of two kinds are enough to come close. If H holds no token
  that the draft leaves out, q(H) is at most the known mass plus min(u_q, m c_q) and hit is known.
  If its complement U holds only tokens that the target lists, q(H) is known, and hit(U) is largest
  when U gets the draft probability min(u_p, m c_p) and the rest comes in the fewest pieces.

All values are exact up to round-off of about 1e-14; the ends that are not attained by a completion
of a small vocabulary are limits of large ones.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from multidraft import checks, laws
from multidraft.errors import Refused
from multidraft.partial.arrivals import Arrivals
from multidraft.partial.completion import farthest, nearest
from multidraft.partial.pair import Interval, Pair
from multidraft.solvers import prefix

_CHUNK = 64  # contexts at once: 64 x 8 x 480 numbers are 2 MB


def overlap(pair: Pair) -> Interval:
    r"""Single-draft acceptance :math:`\sum_y \min(q_y, p_y)`; exact at both ends."""
    far, near = farthest(pair), nearest(pair)
    ends = (np.minimum(part.target, part.draft).sum(-1) for part in (far, near))
    return Interval(*ends).within()


def optimum(pair: Pair, law: str, n: int) -> Interval:
    """Optimal acceptance of `n` drafts of a law, over every completion of the pair.

    Parameters
    ----------
    pair : Pair
        N contexts.
    law : str
        iid, without-replacement, greedy, hub or top.
    n : int
        Number of drafts; the hub law has two.

    Returns
    -------
    Interval
        [0, 1] in a context whose sure drafts are not listed.

    Raises
    ------
    Refused
        A law without a bound, or sure drafts that no context determines.
    """
    checks.count(n, "n")
    if law not in BOUNDS:
        raise Refused(
            f"no interval is known for the law {law} on partial logs: choose one of "
            f"{', '.join(BOUNDS)}, or record full logits."
        )
    if law == laws.Hub.name and n != 2:
        raise Refused(f"the hub law drafts two tokens, not n={n}.")
    return BOUNDS[law](pair, n).within()


def _iid(pair: Pair, n: int) -> Interval:
    ends = (prefix.iid_optimum(*completion, n)[0] for completion in (farthest(pair), nearest(pair)))
    return Interval(*ends)


def _top(pair: Pair, n: int) -> Interval:
    sure = pair.top_drafts(n)
    known = np.where(sure, pair.target, 0.0).sum(-1)
    missing = (sure & ~pair.in_target).sum(-1)
    most = known + np.minimum(pair.target_rest, missing * pair.target_cap)
    return Interval(known, most).where(pair.knows_top(n))


def _greedy(pair: Pair, n: int) -> Interval:
    sure = pair.top_drafts(n - 1)
    last, rest, cap = last_draft(pair, sure)
    drafted = np.where(sure, np.inf, last)
    known = np.where(pair.both, np.minimum(pair.target, drafted), 0.0).sum(-1)
    wanted = np.where(pair.draft_only, np.minimum(drafted, pair.target_cap[:, None]), 0.0).sum(-1)
    offered = np.where(pair.target_only, np.minimum(pair.target, cap[:, None]), 0.0).sum(-1)
    met_target = pair.target_rest + np.minimum(rest, offered)
    met_draft = rest + np.minimum(pair.target_rest, wanted)
    most = known + np.minimum(met_target, met_draft)
    return Interval(known, most).where(pair.knows_top(n - 1))


def last_draft(
    pair: Pair, sure: Bool[np.ndarray, "N W"]
) -> tuple[Float[np.ndarray, "N W"], Float[np.ndarray, " N"], Float[np.ndarray, " N"]]:
    """Law of the one random draft: on listed tokens, the mass of the unlisted, and their cap."""
    left = np.where(sure, 0.0, pair.draft)
    total = left.sum(-1) + pair.draft_rest
    total = np.where(total > 0, total, 1.0)  # nothing is left to draw
    return left / total[:, None], pair.draft_rest / total, pair.draft_cap / total


def _without_replacement(pair: Pair, n: int) -> Interval:
    chunks = [slice(start, start + _CHUNK) for start in range(0, len(pair), _CHUNK)]
    ends = [_without_replacement_ends(pair.rows(chunk), n) for chunk in chunks]
    return Interval(*(np.concatenate(end) for end in zip(*ends, strict=True)))


def _without_replacement_ends(pair: Pair, n: int) -> tuple[np.ndarray, np.ndarray]:
    return _smallest(pair, n), np.minimum(_with_rest_outside(pair, n), _with_rest_inside(pair, n))


def _smallest(pair: Pair, n: int) -> Float[np.ndarray, " N"]:
    """Sets H: all tokens without target probability, then the common ones in order of q/p."""
    q, p = _in_order(pair.both, pair.target, pair.draft)
    inside, outside = np.cumsum(q, -1), _sums_after(p)
    arrivals = Arrivals(len(pair), n)
    arrivals.add_stream(pair.draft_rest)
    arrivals.add_each(np.where(pair.draft_only, pair.draft, 0.0))
    best = arrivals.hit(p.sum(-1))
    for i in range(p.shape[1]):
        arrivals.add(p[:, i])
        best = np.minimum(best, inside[:, i] + arrivals.hit(outside[:, i]))
    return best


def _with_rest_outside(pair: Pair, n: int) -> Float[np.ndarray, " N"]:
    """Sets H of tokens that the draft lists: the draft is known inside, q(H) is bounded."""
    cap = pair.target_cap[:, None]
    most = np.where(pair.in_target, pair.target, cap)
    order = _order(pair.in_draft, most, pair.draft)
    parts = pair.target, np.where(pair.in_target, 0.0, cap), pair.draft
    listed, unlisted, p = (_take(part, order) for part in parts)
    inside = np.cumsum(listed, -1) + np.minimum(np.cumsum(unlisted, -1), pair.target_rest[:, None])
    outside = _sums_after(p) + pair.draft_rest[:, None]
    arrivals, best = Arrivals(len(pair), n), np.ones(len(pair))
    for i in range(p.shape[1]):
        arrivals.add(p[:, i])
        best = np.minimum(best, inside[:, i] + arrivals.hit(outside[:, i]))
    return best


def _with_rest_inside(pair: Pair, n: int) -> Float[np.ndarray, " N"]:
    """Sets whose complement U holds tokens that the target lists: q(H) is known, hit bounded.

    Tokens pass from U to H in order of q/p, with the draft's cap for p where it is unlisted.
    """
    cap = pair.draft_cap
    most = np.where(pair.in_draft, pair.draft, cap[:, None])
    order = _order(pair.in_target, pair.target, most)
    q, p = _take(pair.target, order), _take(np.where(pair.in_draft, pair.draft, 0.0), order)
    alien = _take(pair.target_only, order)
    arrivals = Arrivals(len(pair), n)
    arrivals.add_each(np.where(pair.draft_only, pair.draft, 0.0))
    best, passed, left = np.ones(len(pair)), pair.target_rest, alien.sum(-1)
    after = np.column_stack([p.sum(-1), _sums_after(p)])
    for i in range(p.shape[1] + 1):
        taken = np.minimum(pair.draft_rest, left * cap)
        pieces = Arrivals(len(pair), n)
        pieces.add_pieces(pair.draft_rest - taken, cap)
        best = np.minimum(best, passed + arrivals.hit(after[:, i] + taken, pieces))
        if i < p.shape[1]:
            arrivals.add(p[:, i])
            passed, left = passed + q[:, i], left - alien[:, i]
    return best


def _order(
    wanted: Bool[np.ndarray, "N W"], q: Float[np.ndarray, "N W"], p: Float[np.ndarray, "N W"]
) -> Int[np.ndarray, "N W"]:
    """Order of increasing q/p, the tokens that are not wanted last (marked by -1)."""
    ratio = np.where(p > 0, q / np.where(p > 0, p, 1.0), np.inf)
    order = np.lexsort((ratio, ~wanted), axis=-1)
    return np.where(np.take_along_axis(wanted, order, -1), order, -1)


def _take(values: Shaped[np.ndarray, "N W"], order: Int[np.ndarray, "N W"]) -> np.ndarray:
    return np.take_along_axis(values, np.maximum(order, 0), -1) * (order >= 0)


def _in_order(
    wanted: Bool[np.ndarray, "N W"], q: Float[np.ndarray, "N W"], p: Float[np.ndarray, "N W"]
) -> tuple[Float[np.ndarray, "N W"], Float[np.ndarray, "N W"]]:
    order = _order(wanted, q, p)
    return _take(q, order), _take(p, order)


def _sums_after(values: Float[np.ndarray, "N W"]) -> Float[np.ndarray, "N W"]:
    """Sum of the entries after each one."""
    sums = np.cumsum(values[:, ::-1], -1)[:, ::-1]
    return np.column_stack([sums[:, 1:], np.zeros(len(values))])


#: The draft laws with an interval, by name.
BOUNDS: dict[str, Callable[[Pair, int], Interval]] = {
    laws.IID.name: _iid,
    laws.WithoutReplacement.name: _without_replacement,
    laws.Greedy.name: _greedy,
    laws.Hub.name: _greedy,
    laws.Top.name: _top,
}
