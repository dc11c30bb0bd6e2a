r"""Recursive rejection without replacement (RSD 2402.14160, Sequoia, EAGLE).

As `rrs`, but after each rejection the draft law drops the token and renormalises. The residual after
k rejections is :math:`(q - c_k p)_+` with

.. math:: c_{k+1} = c_k + Z_k / s_k, \qquad Z_k = \sum_y (q - c_k p)_+, \qquad
          s_k = 1 - p(x_1) - \dots - p(x_k),

since it is zero on every rejected token. The probability that all tests fail is the mean of
:math:`Z_n` over the path of rejected drafts, whose law is
:math:`x_{k+1} \sim (p/s_k - (q - c_k p)_+/Z_k)_+` off :math:`x_1, \dots, x_k`.
For n = 2 that is one sum over the first draft; :math:`Z_2` is piecewise linear in c, so one sort of
q/p gives all its values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from multidraft import laws
from multidraft.errors import Refused
from multidraft.problem import Problem
from multidraft.solvers.prefix import argsort_nonnegative, in_parallel
from multidraft.verifiers.base import Acceptance, Rule


@dataclass(frozen=True)
class RRSW(Rule):
    """Recursive rejection for drafts without replacement."""

    name: ClassVar[str] = "rrsw"
    laws: ClassVar = (laws.WithoutReplacement,)

    def _acceptance(self, problem: Problem) -> Acceptance:
        if problem.law.width > 2:
            raise Refused("rrsw has an exact acceptance for one and two drafts only.")
        shape = (-1, problem.vocabulary)
        q = np.ascontiguousarray(problem.target).reshape(shape)
        p = np.ascontiguousarray(np.broadcast_to(problem.law.probs, problem.target.shape)).reshape(
            shape
        )
        counts = np.broadcast_to(problem.law.counts, problem.batch).ravel()
        out = np.empty(len(q))
        in_parallel(lambda start, stop: _two_rows(q, p, counts, out, start, stop), len(q))
        return Acceptance.exact(out, out, problem.batch)


@njit(cache=True, nogil=True)
def _two_rows(target, draft, counts, out, start, stop):
    for i in range(start, stop):
        q, p = target[i], draft[i]
        first = 0.0
        for y in range(q.size):
            first += max(q[y] - p[y], 0.0)
        out[i] = 1.0 - (first if counts[i] == 1 or first == 0.0 else _two_rejected(q, p, first))


@njit(cache=True, nogil=True)
def _two_rejected(q, p, first):
    """``sum_x (p - q)+(x) Z_2(x) / Z_1``: both tests fail."""
    ratio, targets, drafts = _tails(q, p, 1.0 + first)
    heaviest = np.argmax(p)
    out = 0.0
    for x in range(q.size):
        lost = p[x] - q[x]
        if lost > 0.0:
            rest = 1.0 - p[x] if x != heaviest else p[:x].sum() + p[x + 1 :].sum()
            if rest <= 0.0:  # the only token of the draft law: there is no second draft
                out += lost
            else:
                factor = 1.0 + first / rest
                k = np.searchsorted(ratio, factor, side="right")
                left = targets[k] - factor * drafts[k] if drafts[k] > 0.0 else targets[k]
                out += lost * left / first
    return out


@njit(cache=True, nogil=True)
def _tails(q, p, least):
    """Ratios q/p above `least` in increasing order, and the masses of q and p from each on.

    ``sum (q - c p)+`` is ``targets[k] - c drafts[k]`` with k the first ratio above c.
    """
    tokens = np.flatnonzero(q > least * p)
    ratio = np.empty(tokens.size)
    for i in range(tokens.size):
        y = tokens[i]
        ratio[i] = q[y] / p[y] if p[y] > 0.0 else np.inf
    order = argsort_nonnegative(ratio)
    targets, drafts = np.zeros(tokens.size + 1), np.zeros(tokens.size + 1)
    for i in range(tokens.size - 1, -1, -1):
        y = tokens[order[i]]
        targets[i] = targets[i + 1] + q[y]
        drafts[i] = drafts[i + 1] + p[y]
    return ratio[order], targets, drafts
