r"""Interval for recursive rejection without replacement (rrsw) on partially known laws.

With :math:`G(c) = \sum_y (q_y - c\,p_y)_+` and s the draft probability that is left, the residual
after k rejections is :math:`(q - c_k p)_+`, :math:`c_0 = 0`, :math:`c_{k+1} = c_k + G(c_k)/s_k`.
Draft x is rejected at that stage with weight :math:`p_x (c_{k+1} - \max(c_k, q_x/p_x))_+`; the
weights sum to :math:`G(c_{k+1})`. All n drafts are rejected with probability
:math:`E\,G(c_n)`, the average over rejected tokens drawn with the normalised weights.

G lies between that of the nearest and of the farthest completion. So c lies in an interval: the
next one is convex in c for a fixed G, its largest value is at an end, its smallest where the draft
probability above c falls to s. Hence weights and final values lie in intervals too, and the average
is extreme where the largest (smallest) values get as much weight as they can. The tokens of largest
draft probability are followed one by one; all others, listed or not, count as one kind with a draft
probability between 0 and the largest of theirs, which can be rejected again and again. For complete
laws with few tokens the interval is a point.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from multidraft.partial.completion import farthest, nearest
from multidraft.partial.pair import Interval, Pair

_PATHS = 10_000  # of rejected tokens that one context may take
_HUGE = 1e200


def rrsw(pair: Pair, n: int) -> Interval:
    """Acceptance of rrsw for n drafts without replacement, over every completion."""
    far, near = farthest(pair), nearest(pair)
    ends = np.empty((2, len(pair)))
    for i in range(len(pair)):
        excess = _Excess.of(near.target[i], near.draft[i]), _Excess.of(far.target[i], far.draft[i])
        ends[:, i] = _all_rejected(_Kinds.of(pair, i, n), *excess, n)
    return Interval(1 - ends[1], 1 - ends[0])


class _Excess(NamedTuple):
    """The function G of one context: ratios q/p, increasing, and both masses from each place on."""

    ratio: Float[np.ndarray, " W"]
    target: Float[np.ndarray, " W1"]
    draft: Float[np.ndarray, " W1"]

    @classmethod
    def of(cls, q: Float[np.ndarray, " W"], p: Float[np.ndarray, " W"]) -> _Excess:
        ratio = np.where(p > 0, q / np.where(p > 0, p, 1.0), np.inf)
        order = np.argsort(ratio)
        sums = (np.append(np.cumsum(part[order][::-1])[::-1], 0.0) for part in (q, p))
        return cls(ratio[order], *sums)

    def __call__(self, c: Float[np.ndarray, " M"]) -> Float[np.ndarray, " M"]:
        place = np.searchsorted(self.ratio, c, side="right")
        return np.maximum(self.target[place] - c * self.draft[place], 0.0)

    def level(self, mass: Float[np.ndarray, " M"]) -> Float[np.ndarray, " M"]:
        """Smallest c above which the draft has at most this mass."""
        place = np.searchsorted(-self.draft, -mass, side="left")
        return np.append(0.0, self.ratio)[place]


class _Kinds(NamedTuple):
    """Draft tokens that are followed, and one kind for all others: bounds on p and on q/p.

    `mass` is the draft probability of the whole kind.
    """

    mass: Float[np.ndarray, " M1"]
    least: Float[np.ndarray, " M1"]
    most: Float[np.ndarray, " M1"]
    low: Float[np.ndarray, " M1"]
    high: Float[np.ndarray, " M1"]

    @classmethod
    def of(cls, pair: Pair, row: int, n: int) -> _Kinds:
        p, known = pair.draft[row], pair.in_target[row]
        order = np.argsort(-p, kind="stable")[: int((p > 0).sum())]
        kept = order[: max(1, int(_PATHS ** (1 / max(n - 1, 1))) - 1)]
        others = np.append(p[order[len(kept) :]], pair.draft_cap[row])
        low = np.where(known, pair.target[row], 0.0)[kept] / p[kept]
        high = np.where(known, pair.target[row], pair.target_cap[row])[kept] / p[kept]
        return cls(
            np.append(p[kept], p[order[len(kept) :]].sum() + pair.draft_rest[row]),
            np.append(p[kept], 0.0),
            np.append(p[kept], others.max()),
            np.append(low, 0.0),
            np.append(high, np.inf),
        )


class _State(NamedTuple):
    """Bounds on c and s after some rejections, and the tokens that were rejected, by path."""

    low: Float[np.ndarray, " M"]
    high: Float[np.ndarray, " M"]
    least: Float[np.ndarray, " M"]
    most: Float[np.ndarray, " M"]
    used: np.ndarray

    def step(self, near: _Excess, far: _Excess) -> _State:
        """Bounds on the next c."""
        ends = (self.low + far(self.low) / self.least, self.high + far(self.high) / self.least)
        turn = np.clip(near.level(self.most), self.low, self.high)
        low, high = turn + near(turn) / self.most, np.minimum(np.maximum(*ends), _HUGE)
        return self._replace(low=low, high=high)

    def reject(self, kinds: _Kinds) -> _State:
        """One path per path and kind: each token of `kinds` rejected after each path."""
        width = len(kinds.least)
        marks = np.eye(width, dtype=bool)
        marks[-1, -1] = False  # the others are many
        used = (self.used[:, None, :] | marks).reshape(-1, width)
        least = np.maximum(self.least[:, None] - kinds.most, 1 / _HUGE)
        most = np.maximum(self.most[:, None] - kinds.least, 1 / _HUGE)
        low, high = (np.repeat(end, width) for end in (self.low, self.high))
        return _State(low, high, least.ravel(), most.ravel(), used)


def _all_rejected(kinds: _Kinds, near: _Excess, far: _Excess, n: int) -> tuple[float, float]:
    """Bounds on the probability that all tests fail."""
    one, zero = np.ones(1), np.zeros(1)
    state = _State(zero, zero, one, one, np.zeros((1, len(kinds.least)), dtype=bool))
    after = state.step(near, far)
    levels = []
    for _ in range(n - 1):
        levels.append(_shares(kinds, state, after, near, far))
        state = after.reject(kinds)
        after = state.step(near, far)
    low, high = near(after.high), far(after.low)
    for least, most in reversed(levels):
        low = -_largest_mean(-low.reshape(least.shape), least, most)
        high = _largest_mean(high.reshape(least.shape), least, most)
    return float(low[0]), float(high[0])


def _shares(
    kinds: _Kinds, state: _State, after: _State, near: _Excess, far: _Excess
) -> tuple[Float[np.ndarray, "M M1"], Float[np.ndarray, "M M1"]]:
    """Bounds on the share of each kind among the rejected tokens of the next draft."""
    floors = np.maximum(state.high[:, None], kinds.high)
    roofs = np.maximum(state.low[:, None], kinds.low)
    least = kinds.least * np.maximum(after.low[:, None] - floors, 0.0)
    most = kinds.mass * np.maximum(after.high[:, None] - roofs, 0.0)
    total = near(after.high)[:, None], far(after.low)[:, None]
    least = least / np.where(total[1] > 0, total[1], 1.0)
    most = np.where(total[0] > 0, most / np.where(total[0] > 0, total[0], 1.0), kinds.mass > 0)
    return np.where(state.used, 0.0, least), np.where(state.used, 0.0, np.minimum(most, 1.0))


def _largest_mean(
    values: Float[np.ndarray, "M M1"],
    least: Float[np.ndarray, "M M1"],
    most: Float[np.ndarray, "M M1"],
) -> Float[np.ndarray, " M"]:
    """Largest mean of each row over weights between `least` and `most` that sum to 1."""
    order = np.argsort(-values, axis=-1)
    values, least, most = (np.take_along_axis(part, order, -1) for part in (values, least, most))
    spare = np.maximum(1 - least.sum(-1, keepdims=True), 0.0)
    room = np.maximum(most - least, 0.0)
    extra = np.clip(spare - (np.cumsum(room, -1) - room), 0.0, room)
    left = spare[:, 0] - extra.sum(-1)
    return ((least + extra) * values).sum(-1) + left * values[:, 0]
