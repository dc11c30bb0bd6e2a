r"""Sums over the sets of distinct tokens that n iid drafts can show, listed one by one (compiled).

A set s of at most n of the k listed tokens is drafted, beside tokens that are not listed (of mass
`rest` together), with probability

.. math:: n!\,[z^n]\; e^{\mathrm{rest}\, z} \prod_{i \in s} (e^{p_i z} - 1),

a sum of positive terms. Sets are walked depth first, in the order of their tokens; masses are
listed once, then each sum is one walk that adds a token's weight on the way down.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit


def count(tokens: int, n: int) -> int:
    """Return the number of sets of 1 to n out of so many tokens."""
    return sum(math.comb(tokens, size) for size in range(1, n + 1))


def masses(p: np.ndarray, rest: float, n: int) -> np.ndarray:
    """Probability of every set, in the order of the walk.

    Parameters
    ----------
    p : (k,) masses of the listed tokens.
    rest : mass of all tokens that are not listed but may be drafted beside them.
    n : number of drafts.
    """
    found = np.empty(count(len(p), n))
    _walk_masses(np.ascontiguousarray(p), rest, n, found)
    return found


def log_sums(
    weights: np.ndarray, offset: float, n: int, mass: np.ndarray
) -> tuple[float, np.ndarray]:
    r"""Return :math:`\sum_s m_s \log(c + \sum_{i \in s} w_i)` and its slopes in ``log w``.

    Parameters
    ----------
    weights : (k,) w, positive.
    offset : c, 0 or positive.
    n : number of drafts, the largest size of a set.
    mass : masses in the order of the walk, see :func:`masses`.

    Returns
    -------
    value, slopes
        ``slopes[i] = sum over s with i of m_s w_i / (c + sum w)``: the mass that selects token i.
    """
    slopes = np.zeros(len(weights))
    return _walk_logs(np.ascontiguousarray(weights), offset, n, mass, slopes), slopes


@njit(cache=True, nogil=True)
def _walk_masses(p, rest, n, found):
    k = len(p)
    factors = np.empty((k, n + 1))  # coefficients of exp(p z) - 1
    series = np.empty((n + 1, n + 1))  # of the product over the set so far
    series[0, 0] = 1.0
    factors[:, 0] = 0.0
    for power in range(1, n + 1):
        series[0, power] = series[0, power - 1] * rest / power
        for i in range(k):
            factors[i, power] = p[i] / power * (factors[i, power - 1] if power > 1 else 1.0)
    scale = 1.0
    for power in range(2, n + 1):
        scale *= power
    index = np.zeros(n, dtype=np.int64)
    depth, place = 0, 0
    while depth >= 0:
        i = index[depth]
        if i == k:
            depth -= 1
            if depth >= 0:
                index[depth] += 1
            continue
        low = n if depth == n - 1 else 0  # a full set only needs the last coefficient
        for power in range(low, n + 1):
            total = 0.0
            for part in range(1, power + 1):
                total += factors[i, part] * series[depth, power - part]
            series[depth + 1, power] = total
        found[place] = scale * series[depth + 1, n]
        place += 1
        if depth == n - 1:
            index[depth] += 1
        else:
            depth += 1
            index[depth] = i + 1


@njit(cache=True, nogil=True)
def _walk_logs(w, offset, n, mass, slopes):
    k = len(w)
    index = np.zeros(n, dtype=np.int64)
    sums, ratios = np.empty(n + 1), np.zeros(n + 1)
    sums[0] = offset
    value, depth, place = 0.0, 0, 0
    while depth >= 0:
        i = index[depth]
        if i == k:
            depth -= 1
            if depth >= 0:
                # Every set below holds the token of this level.
                parent = index[depth]
                slopes[parent] += w[parent] * ratios[depth + 1]
                ratios[depth] += ratios[depth + 1]
                index[depth] += 1
            continue
        total = sums[depth] + w[i]
        m = mass[place]
        place += 1
        value += m * math.log(total)
        if depth == n - 1:
            slopes[i] += w[i] * m / total
            ratios[depth] += m / total
            index[depth] += 1
        else:
            sums[depth + 1], ratios[depth + 1] = total, m / total
            depth += 1
            index[depth] = i + 1
    return value
