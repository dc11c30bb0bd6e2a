r"""The minimising cut of independent drafts with different laws, at full vocabulary.

    min over sets H of tokens    q(H) - prod_i p_i(H)

No prefix rule exists, but all that couples the tokens are the n numbers ``s_i = p_i(H)``. Branch
and bound splits boxes of s. Inside a box ``l <= s <= u`` a minimiser H obeys, for every token y,

    y in H      implies  q_y <= prod s - prod (s - p_y) <= lambda(u) . p_y
    y not in H  implies  q_y >= prod (s + p_y) - prod s >= lambda(l) . p_y

with ``lambda_i(s) = prod_{j != i} s_j``: most tokens are decided, their mass narrows the box, and
so on until the box is empty, no token is left, or nothing moves. What is left is bounded below by

    sum_y min(0, q_y - lambda . p_y)  +  min over the vertices v of the box (lambda . v - prod v)

for any lambda, and each lambda gives a cut ``{q < lambda . p}``, an upper bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numba import njit

from multidraft import laws
from multidraft.problem import Problem
from multidraft.solvers import memory
from multidraft.solvers.base import Answer, Solver

_ROUND_OFF = 1e-14  # slack of sums of probabilities
_STARTS = 8  # rounds of linearisation for the first cut


class Minimum(NamedTuple):
    """A minimising cut and what was proved about it.

    Attributes
    ----------
    value : acceptance bound of the cut, ``1 + q(H) - stay(H)``; the optimum up to `gap`.
    cut : (V,) the set H.
    gap : no set of tokens lies lower than ``value - gap``.
    boxes : number of boxes looked at.
    """

    value: float
    cut: Bool[np.ndarray, " V"]
    gap: float
    boxes: int


@dataclass(frozen=True)
class BranchAndBound(Solver):
    """Minimising cut of independent drafts, any vocabulary; a value without a plan.

    Time O(n V) for the first boxes, little for the rest.

    Parameters
    ----------
    tolerance : float
        Largest gap between the cut's value and the proved lower bound.
    most_boxes : int
        Boxes after which the search ends with status ``LIMIT``.
    """

    name: ClassVar[str] = "branch-and-bound"
    tolerance: float = 1e-12
    most_boxes: int = 1_000_000

    def reason(self, problem: Problem) -> str | None:
        if not isinstance(problem.law, laws.Independent):
            return (
                f"{self.name} is for independent drafts, not {problem.law.name}: use "
                f"{memory.alternative(problem.law)}."
            )
        return None

    def answer(self, problem: Problem) -> Answer:
        assert isinstance(problem.law, laws.Independent)
        minimum = independent_optimum(
            problem.target,
            problem.law.parts,
            tolerance=self.tolerance,
            most_boxes=self.most_boxes,
        )
        return Answer(None, minimum.cut, limited=minimum.gap > 2 * self.tolerance)


def independent_optimum(
    target: Float[np.ndarray, " V"],
    drafts: tuple[Float[np.ndarray, " V"], ...],
    *,
    tolerance: float = 1e-12,
    most_boxes: int = 1_000_000,
) -> Minimum:
    r"""Optimal acceptance of independent drafts, ``1 + min_H q(H) - \prod_i p_i(H)``.

    Parameters
    ----------
    target : (V,)
        Law q.
    drafts : n arrays, each (V,)
        Laws p_1 .. p_n.
    tolerance : float
        Boxes that cannot improve the best cut by more are dropped.
    most_boxes : int
        The search stops after this many boxes; `Minimum.gap` then holds what is proved.

    Examples
    --------
    >>> q, p1, p2 = np.array([.1, .3, .6]), np.array([.7, .2, .1]), np.array([.5, .5, 0.])
    >>> round(independent_optimum(q, (p1, p2)).value, 12)
    0.5
    """
    masses = np.ascontiguousarray(np.stack(drafts, axis=-1), dtype=np.float64)
    price, best, bound, boxes = _search(
        np.array(target, dtype=np.float64), masses.copy(), tolerance, most_boxes
    )
    cut = target < masses @ price
    return Minimum(_value(target, masses, cut), cut, float(max(0.0, best - bound)), boxes)


def _value(target: np.ndarray, masses: np.ndarray, cut: np.ndarray) -> float:
    outside = np.minimum(masses[~cut].sum(0), 1.0)
    with np.errstate(divide="ignore"):
        return float(min(1.0, target[cut].sum() - np.expm1(np.log1p(-outside).sum())))


@njit(cache=True, nogil=True)
def _search(q, p, tolerance, most_boxes):
    """Depth-first search; rows of `q` and `p` are permuted so that open tokens come first."""
    n = p.shape[1]
    price, best = _first_cut(q, p)
    bound, boxes = best, 0
    lows, highs, opened, inside = [np.zeros(n)], [np.ones(n)], [q.size], [np.zeros(n + 1)]
    while len(lows) > 0 and boxes < most_boxes:
        boxes += 1
        low, high, sums = lows.pop(), highs.pop(), inside.pop()
        count = _decide(q, p, opened.pop(), low, high, sums)
        if count < 0:
            continue
        slope = _others((low + high) / 2)
        lower, value = _bounds(q, p, count, sums, low, high, slope)
        if value < best:
            best, price = value, slope
        if lower >= best - tolerance or count == 0:
            bound = min(bound, max(lower, best - tolerance) if count > 0 else value)
            continue
        i = np.argmax(high - low)
        middle = (low[i] + high[i]) / 2
        for side in range(2):
            first, last = low.copy(), high.copy()
            if side == 0:
                last[i] = middle
            else:
                first[i] = middle
            lows.append(first)
            highs.append(last)
            opened.append(count)
            inside.append(sums.copy())
    if len(lows) > 0:
        bound = -1.0  # boxes are left: nothing better than q(H) - prod >= -1 is known of them
    return price, best, min(bound, best), boxes


@njit(cache=True, nogil=True)
def _others(s):
    """``lambda_i = prod_{j != i} s_j``."""
    out = np.ones(s.size)
    for i in range(s.size):
        for j in range(s.size):
            if j != i:
                out[i] *= s[j]
    return out


@njit(cache=True, nogil=True)
def _first_cut(q, p):
    """Best cut of a few rounds of linearising the product, from all tokens inside."""
    n = p.shape[1]
    slope = np.ones(n)
    price, best = np.zeros(n), 0.0  # the empty cut
    for _ in range(_STARTS):
        value, s = 0.0, np.zeros(n)
        for y in range(q.size):
            if q[y] < np.dot(slope, p[y]):
                value += q[y]
                s += p[y]
        if value - np.prod(s) < best:
            best, price = value - np.prod(s), slope
        slope = _others(s)
    return price, best


@njit(cache=True, nogil=True)
def _decide(q, p, count, low, high, sums):
    """Decide tokens and narrow the box until neither helps; tokens left open, -1 if none fits.

    `sums` holds the mass of the tokens decided to be inside: of q first, then of every draft.
    """
    n = p.shape[1]
    while True:
        least, most = _others(low), _others(high)
        left, free = 0, np.zeros(n)
        for y in range(count):
            if q[y] < np.dot(least, p[y]):
                sums[0] += q[y]
                sums[1:] += p[y]
            elif q[y] <= np.dot(most, p[y]):
                free += p[y]
                _swap(q, p, y, left)
                left += 1
        for i in range(n):
            first = max(low[i], sums[1 + i])
            last = min(high[i], sums[1 + i] + free[i])
            if first > last + _ROUND_OFF:
                return -1
            low[i], high[i] = first, max(first, last)
        enough = left > 0.8 * count
        count = left
        if enough or count == 0:
            return count


@njit(cache=True, nogil=True, inline="always")
def _swap(q, p, y, z):
    q[y], q[z] = q[z], q[y]
    for i in range(p.shape[1]):
        p[y, i], p[z, i] = p[z, i], p[y, i]


@njit(cache=True, nogil=True)
def _bounds(q, p, count, sums, low, high, slope):
    """Lower bound of the box, and the value of the cut, that the price `slope` gives."""
    value, s = sums[0], sums[1:].copy()
    for y in range(count):
        if q[y] < np.dot(slope, p[y]):
            value += q[y]
            s += p[y]
    lower = value - np.dot(slope, s) + _least_vertex(low, high, slope)
    return lower, value - np.prod(s)


@njit(cache=True, nogil=True)
def _least_vertex(low, high, slope):
    """Minimum of ``slope . v - prod v`` over the box: attained at a vertex."""
    n, best = low.size, np.inf
    for vertex in range(1 << n):
        linear, product = 0.0, 1.0
        for i in range(n):
            v = high[i] if vertex >> i & 1 else low[i]
            linear += slope[i] * v
            product *= v
        best = min(best, linear - product)
    return best
