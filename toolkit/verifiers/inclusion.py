r"""How often a token drawn from the target is among the drafts, for every draft law.

:math:`\sum_y q(y) \Pr[y \in S(x)]` is a sum of closed forms for all laws but drafts without
replacement of three or more tokens. There the drafts are the first n arrivals of independent
exponential clocks with rates p, and with :math:`k_j = e^{-p_j t}`

.. math:: \sum_y q(y) \Pr[y \in S] = \int_0^\infty \sum_{j<n} [z^j]\,
          \sum_y q(y)\,p_y k_y \prod_{i \ne y} \big(k_i + z (1 - k_i)\big)\,dt ,

whose coefficients are updated token by token.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from numba import njit

from multidraft import laws
from multidraft.problem import Problem
from multidraft.solvers import prefix
from multidraft.solvers.prefix import argsort_nonnegative, hit_probability, in_parallel


def matched(problem: Problem) -> Float[np.ndarray, "*batch"]:
    """Probability that an independent draw from the target is one of the drafts.

    Returns
    -------
    Array of the problem's batch shape, float64, exact up to round-off.
    """
    law = problem.law
    if isinstance(law, laws.SureAndLast):
        return _sure_and_last(problem.target, law)
    if isinstance(law, laws.Explicit):
        return _explicit(problem.target, law)
    if isinstance(law, laws.Independent):
        missed = np.ones(())
        for part in law.parts:
            missed = missed * (1 - part)
        return (problem.target * (1 - missed)).sum(-1)
    work = _iid_rows if isinstance(law, laws.IID) else _without_replacement_rows
    return _over_rows(work, problem)


def _sure_and_last(target: np.ndarray, law: laws.SureAndLast) -> np.ndarray:
    from multidraft.arrays import take

    sure = law.sure()
    sure = np.broadcast_to(sure, (*target.shape[:-1], sure.shape[-1]))
    return take(target, sure).sum(-1) + (target * law.last()).sum(-1)


def _explicit(target: np.ndarray, law: laws.Explicit) -> np.ndarray:
    from multidraft.solvers.token_sets import distinct

    sets = distinct(law.tuples)
    inside = np.where(sets >= 0, target[..., np.maximum(sets, 0)], 0.0).sum(-1)
    return (inside * law.probs).sum(-1)


def _over_rows(work: Callable[..., None], problem: Problem) -> np.ndarray:
    shape = (-1, problem.vocabulary)
    q = np.ascontiguousarray(problem.target).reshape(shape)
    p = np.ascontiguousarray(np.broadcast_to(problem.law.probs, problem.target.shape)).reshape(
        shape
    )
    counts = np.broadcast_to(problem.law.counts, problem.batch).ravel().astype(np.int64)
    out = np.empty(len(q))
    in_parallel(lambda start, stop: work(q, p, counts, out, start, stop), len(q))
    return out.reshape(problem.batch)


@njit(cache=True, nogil=True)
def _iid_rows(q, p, counts, out, start, stop):
    for i in range(start, stop):
        total = 0.0
        for y in range(q.shape[1]):
            if q[i, y] > 0.0 and p[i, y] > 0.0:
                total += q[i, y] * hit_probability(p[i, y], counts[i])
        out[i] = total


def _without_replacement_rows(q, p, counts, out, start, stop):
    for i in range(start, stop):
        n = min(int(counts[i]), int(np.count_nonzero(p[i])))
        times, weights = prefix._arrival_nodes(p[i], n)
        out[i] = _without_replacement(q[i], p[i], n, times, weights)


@njit(cache=True, nogil=True)
def _without_replacement(q, p, n, times, weights):
    """Terms of zero and one earlier arrival in closed form, the others by quadrature.

    ``sum_y q_y p_y`` and ``sum_y q_y p_y sum_{i != y} p_i / (1 - p_i)``.
    """
    order = np.flatnonzero(p > 0.0)
    others = prefix._mass_of_others(p, order)
    total = others[0] + p[order[0]]
    odds = 0.0
    for i in range(order.size):
        odds += p[order[i]] / others[i] if others[i] > 0.0 else 0.0
    out = 0.0
    for i in range(order.size):
        y = order[i]
        if n > 1 and others[i] > 0.0:
            out += q[y] * p[y] * (1.0 + odds - p[y] / others[i]) / total
        else:
            out += q[y] * p[y] / total
    return out + _later_arrivals(q, p, order, n, times, weights) if n > 2 else out


@njit(cache=True, nogil=True)
def _later_arrivals(q, p, order, n, times, weights):
    """Integral of the terms with two or more earlier arrivals."""
    heavy = np.zeros(p.size, dtype=np.bool_)
    heavy[order[argsort_nonnegative(p[order])[order.size - n + 1 :]]] = True
    before = np.zeros((n, times.size))  # coefficients of the product over all tokens so far
    before[0] = 1.0
    one_out = np.zeros((n, times.size))  # the same with one token y left out, times q_y p_y k_y
    for y in order:
        rate = q[y] * p[y]
        if heavy[y]:
            prefix._arrive_heavy(one_out, times, p[y])
            one_out += rate * np.exp(-p[y] * times) * before
            prefix._arrive_heavy(before, times, p[y])
        else:  # the factor k_y of every light token is in the weights
            prefix._arrive_light(one_out, times, p[y])
            one_out += rate * before
            prefix._arrive_light(before, times, p[y])
    return prefix._later(one_out, weights)
