r"""Acceptance of rejection without replacement: a mean over paths of rejected drafts.

With the notation of `rrsw`, after k rejections draft x fails its test with probability
:math:`\ell_k(x) = (p(x)/s_k - (q - c_k p)_+(x)/Z_k)_+`, and all tests fail with probability

.. math:: \sum_{x_1 \dots x_{n-1}} \ell_0(x_1) \cdots \ell_{n-2}(x_{n-1})\, Z_n / Z_{n-1}
          = E\, Z_n ,

the expectation over paths drawn from the normalised :math:`\ell_k`. Once the ratios q/p are sorted,
:math:`Z(c) = \sum_y (q - c\,p)_+` and those laws are read off cumulative sums. Two drafts and short
supports are summed; else the mean is estimated, with little spread since a path enters only through
its masses s. As :math:`Z_n` falls when an s falls, s = 1 and the smallest s bound it on both sides.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from numba import njit

from multidraft.problem import Problem
from multidraft.solvers.prefix import argsort_nonnegative, in_parallel, ratios
from multidraft.verifiers.base import Acceptance

_MOST_PATHS = 100_000  # that are summed one by one, per context, for three or more drafts


def acceptance(problem: Problem, paths: int, seed: int) -> Acceptance:
    """Acceptance of `rrsw`: exact, or estimated for three or more drafts from many tokens.

    Value and tested acceptance are the same: the residual never hits a rejected draft.
    """
    shape = (-1, problem.vocabulary)
    draft = np.broadcast_to(problem.law.probs, problem.target.shape)
    q, p = (np.ascontiguousarray(part).reshape(shape) for part in (problem.target, draft))
    counts = np.broadcast_to(problem.law.counts, problem.batch).ravel()
    accepted = np.empty((4, len(q)))  # mean, standard error, lower, upper

    def work(start: int, stop: int) -> None:
        for i in range(start, stop):
            n = min(int(counts[i]), int(np.count_nonzero(p[i])))
            accepted[:, i] = _row(q[i], p[i], n, paths, np.random.default_rng([seed, i]))

    in_parallel(work, len(q))
    value, stderr, lower, upper = map(np.asarray, accepted.reshape(4, *problem.batch))
    exact = (lower == upper).all()
    return Acceptance(value, value, "exact" if exact else "estimate", lower, upper, stderr)


def _row(
    q: Float[np.ndarray, " V"],
    p: Float[np.ndarray, " V"],
    n: int,
    paths: int,
    generator: np.random.Generator,
) -> tuple[float, float, float, float]:
    q, p, ratio, tails, heads = _by_ratio(q, p)
    heavy, rest = _heaviest(p, n)
    if n <= 2 or math.perm(int(np.count_nonzero(p)), n - 1) <= _MOST_PATHS:
        value = 1 - _all_paths(q, p, ratio, tails, heavy, rest, n)
        return value, 0.0, value, value
    uniforms = generator.random((paths, n - 1))
    failed = _some_paths(p, ratio, tails, heads, heavy, rest, n, uniforms)
    masses = np.sort(p[heavy])[::-1][: n - 1]
    left = np.append(1.0, rest + masses.sum() - np.cumsum(masses))
    lower, upper = 1 - _chain(ratio, tails, np.ones(n)), 1 - _chain(ratio, tails, left)
    return 1 - failed.mean(), failed.std(ddof=1) / math.sqrt(paths), lower, upper


@njit(cache=True, nogil=True)
def _by_ratio(q, p):
    """Both laws in increasing order of q/p, the ratios, their sums from and up to each place."""
    ratio = ratios(q, p)
    order = argsort_nonnegative(ratio)
    q, p, ratio = q[order], p[order], ratio[order]
    tails, heads = np.zeros((2, q.size + 1)), np.zeros((2, q.size + 1))
    for i in range(q.size):
        heads[0, i + 1], heads[1, i + 1] = heads[0, i] + q[i], heads[1, i] + p[i]
    for i in range(q.size - 1, -1, -1):
        tails[0, i], tails[1, i] = tails[0, i + 1] + q[i], tails[1, i + 1] + p[i]
    return q, p, ratio, tails, heads


@njit(cache=True, nogil=True)
def _heaviest(p, n):
    """Places of the n - 1 most probable tokens, and the mass of all others."""
    order = argsort_nonnegative(p)
    return order[p.size - n + 1 :], p[order[: p.size - n + 1]].sum()


@njit(cache=True, nogil=True)
def _mass_left(p, drafted, heavy, rest):
    """Mass off the drafted tokens; an undrafted heavy token outweighs each drafted light one."""
    left = rest
    for y in heavy:
        left += 0.0 if (drafted == y).any() else p[y]
    for x in drafted:
        left -= 0.0 if (heavy == x).any() else p[x]
    return left


@njit(cache=True, nogil=True)
def _excess(ratio, tails, c):
    """``sum (q - c p)+``."""
    k = np.searchsorted(ratio, c, side="right")
    return max(tails[0, k] - c * tails[1, k], 0.0) if tails[1, k] > 0.0 else tails[0, k]


@njit(cache=True, nogil=True)
def _chain(ratio, tails, left):
    """Z_n for given masses s_0, s_1, ... s_{n-1}."""
    c, z = 0.0, 1.0
    for s in left:
        c += z / s
        z = _excess(ratio, tails, c)
    return z


@njit(cache=True, nogil=True)
def _all_paths(q, p, ratio, tails, heavy, rest, n):
    """Sum over all paths, depth first. Level k holds c_k, Z_k, s_k and the path's weight."""
    c, z, s, weight = np.zeros(n + 1), np.ones(n + 1), np.ones(n), np.ones(n)
    path = np.full(n, -1)
    total, k = 0.0, 0
    while k >= 0:
        c[k + 1] = c[k] + z[k] / s[k]
        z[k + 1] = _excess(ratio, tails, c[k + 1])
        if k == n - 1:
            total += weight[k] * z[n] / z[n - 1]
            k -= 1
        elif z[k + 1] > 0.0:
            k = _next_path(q, p, ratio, heavy, rest, c, z, s, weight, path, k)
        else:
            k -= 1
    return total


@njit(cache=True, nogil=True)
def _next_path(q, p, ratio, heavy, rest, c, z, s, weight, path, k):
    """Replace draft k of the path by the next that can fail; go down with it, or else up."""
    for x in range(path[k] + 1, q.size):
        if ratio[x] >= c[k + 1]:
            break
        lost = p[x] / s[k] - max(q[x] - c[k] * p[x], 0.0) / z[k]
        if lost > 0.0 and not (path[:k] == x).any():
            path[k], path[k + 1] = x, -1
            weight[k + 1] = weight[k] * lost
            s[k + 1] = _mass_left(p, path[: k + 1], heavy, rest)
            return k + 1
    return k - 1


@njit(cache=True, nogil=True)
def _some_paths(p, ratio, tails, heads, heavy, rest, n, uniforms):
    """Z_n of one path per row of uniforms."""
    out, path = np.empty(len(uniforms)), np.empty(n - 1, dtype=np.int64)
    for i in range(len(uniforms)):
        c, z, s = 0.0, 1.0, 1.0
        for k in range(n - 1):
            after = c + z / s
            if z > 0.0:
                path[k] = _draw_failed(p, ratio, heads, path[:k], c, z, s, after, uniforms[i, k])
                s = _mass_left(p, path[: k + 1], heavy, rest)
            c, z = after, _excess(ratio, tails, after)
        out[i] = _excess(ratio, tails, c + z / s)
    return out


@njit(cache=True, nogil=True)
def _draw_failed(p, ratio, heads, drafted, c, z, s, after, uniform):
    """Draw a place from the law of the next rejected draft by bisection on its running mass."""
    middle = np.searchsorted(ratio, c, side="right")
    end = np.searchsorted(ratio, after)
    goal = uniform * _failed_mass(p, heads, drafted, z, s, after, middle, end)
    low, high = 0, end - 1
    while low < high:
        i = (low + high) // 2
        if _failed_mass(p, heads, drafted, z, s, after, middle, i + 1) > goal:
            high = i
        else:
            low = i + 1
    while (drafted == low).any():  # round-off
        low += 1
    return low


@njit(cache=True, nogil=True)
def _failed_mass(p, heads, drafted, z, s, after, middle, end):
    """Mass of the failed drafts before place `end`: ``p/s`` up to `middle`, ``(c' p - q)/Z`` then.

    Every drafted token lies before `middle` and is left out.
    """
    first = min(middle, end)
    mass = heads[1, first] / s
    if end > middle:
        more = after * (heads[1, end] - heads[1, middle]) - (heads[0, end] - heads[0, middle])
        mass += more / z
    for x in drafted:
        mass -= p[x] / s if x < end else 0.0
    return mass
