"""Compiled building blocks: sums over the vocabulary and draws from weights, one pass each.

A pass goes block by block: slices of one block let the compiler use vector registers, and
re-association lets it sum in them. All arithmetic is float64 whatever the laws' precision, like
that of the probabilities that are gathered token by token, so the two agree to the last digits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

BLOCK = 512  # tokens per partial sum: finding a drawn token reads one block again
COMPILED: Any = {"cache": True, "nogil": True}
FUSED: Any = {**COMPILED, "fastmath": {"reassoc", "contract"}}


@njit(**COMPILED, inline="always")
def row_of(array, i):
    """Row i of an array that has one row for all or one row each."""
    return array[i if array.shape[0] > 1 else 0]


@njit(**FUSED)
def _above(q, p, c):
    total = 0.0
    for y in range(q.size):
        total += max(np.float64(q[y]) - c * np.float64(p[y]), 0.0)
    return total


@njit(**FUSED)
def _mass(q):
    total = 0.0
    for y in range(q.size):
        total += q[y]
    return total


@njit(**FUSED)
def _common(q, p, c):
    common, slope = 0.0, 0.0
    for y in range(q.size):
        low = c * np.float64(p[y])
        common += min(np.float64(q[y]), low)
        slope += p[y] if q[y] > low else 0.0
    return common, slope


@njit(**COMPILED, fastmath={"nnan", "nsz", "reassoc"})
def _peak(p):
    top = p[0]
    for y in range(p.size):
        top = max(top, p[y])
    return top


@njit(**COMPILED)
def largest(p, out):
    """Write the ids of the largest entries, largest first, ties to the lowest id, -1 for zeros.

    Only blocks that hold something larger than the smallest entry kept so far are looked into.
    """
    out[:] = -1
    if out.size == 0:
        return
    for k in range(0, p.size, BLOCK):
        block, last = p[k : k + BLOCK], out[out.size - 1]
        if _peak(block) > (p[last] if last >= 0 else 0.0):
            for y in range(k, k + block.size):
                last = out[out.size - 1]
                if p[y] > (p[last] if last >= 0 else 0.0):
                    j = out.size - 1
                    while j > 0 and (out[j - 1] < 0 or p[out[j - 1]] < p[y]):
                        out[j] = out[j - 1]
                        j -= 1
                    out[j] = y


@njit(**COMPILED)
def excess(q, p, c):
    """``sum (q - c p)+``."""
    total = 0.0
    for k in range(0, q.size, BLOCK):
        total += _above(q[k : k + BLOCK], p[k : k + BLOCK], c)
    return total


@njit(**COMPILED)
def overlap(q, p, c):
    """``sum min(q, c p)`` and its slope in c, the draft mass of ``{q > c p}``."""
    common, slope = 0.0, 0.0
    for k in range(0, q.size, BLOCK):
        more = _common(q[k : k + BLOCK], p[k : k + BLOCK], c)
        common += more[0]
        slope += more[1]
    return common, slope


@njit(**COMPILED)
def _sum(q, p, c, a):
    """Sum of the weights ``a q + (q - c p)+`` of one block or less."""
    above = _above(q, p, c) if c != 0.0 else _mass(q)
    return above + a * _mass(q) if a != 0.0 else above


@njit(**COMPILED)
def _next(named, start, stop):
    """Place in `named` of the smallest token in ``start .. stop - 1``, -1 if there is none."""
    found = -1
    for j in range(named.size):
        if start <= named[j] < stop and (found < 0 or named[j] < named[found]):
            found = j
    return found


@njit(**COMPILED)
def _block_sums(q, p, c, a, named, instead):
    """Sum of the weights of every block; named tokens cut a block into pieces."""
    sums = np.empty((q.size + BLOCK - 1) // BLOCK)
    for k in range(sums.size):
        start, stop = k * BLOCK, min((k + 1) * BLOCK, q.size)
        sums[k] = 0.0
        j = _next(named, start, stop)
        while j >= 0:
            token = named[j]
            sums[k] += _sum(q[start:token], p[start:token], c, a) + instead[j]
            start = token + 1
            j = _next(named, start, stop)
        sums[k] += _sum(q[start:stop], p[start:stop], c, a)
    return sums


@njit(**COMPILED)
def total(q, p, c, a, named, instead):
    """Sum of the weights ``a q + (q - c p)+``, those of named tokens replaced."""
    return _block_sums(q, p, c, a, named, instead).sum()


@njit(**COMPILED)
def mass_without(p, ids):
    """Mass of all tokens but the distinct `ids` (-1: none), never as a difference."""
    return total(p, p, 0.0, 0.0, ids, np.zeros(ids.size))


@njit(**COMPILED)
def draw(q, p, c, a, named, instead, spare, uniform):
    """Draw from the same weights; all weights zero stand for round-off, and `spare` takes over."""
    sums = _block_sums(q, p, c, a, named, instead)
    mass = sums.sum()
    if mass > 0.0:
        return _find(q, p, c, a, named, instead, sums, uniform * mass)
    sums = _block_sums(spare, spare, 0.0, 0.0, named[:0], instead[:0])
    return _find(spare, spare, 0.0, 0.0, named[:0], instead[:0], sums, uniform * sums.sum())


@njit(**COMPILED)
def _find(q, p, c, a, named, instead, sums, goal):
    """First token whose cumulative weight exceeds `goal`, else the last of positive weight."""
    k, done = 0, 0.0
    while k < sums.size - 1 and done + sums[k] <= goal:
        done += sums[k]
        k += 1
    while k > 0 and sums[k] <= 0.0:  # round-off ran past the last weight
        k, goal = k - 1, np.inf
    start, stop, token = k * BLOCK, min((k + 1) * BLOCK, q.size), -1
    j = _next(named, start, stop)
    for y in range(start, stop):
        if j >= 0 and named[j] == y:
            w = instead[j]
            j = _next(named, y + 1, stop)
        else:
            w = a * q[y] + max(np.float64(q[y]) - c * np.float64(p[y]), 0.0)
        if w > 0.0:
            token = y
            done += w
            if done > goal:
                break
    return token
