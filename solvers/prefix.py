"""Minimising cuts over the tokens in increasing ``q/p``: compiled, full vocabulary, float64.

Every single-token verifier that draws its drafts from one law ``p`` accepts at most

    alpha* = min_H { q(H) + hit(V - H) },      hit(U) = Pr[some draft lies in U],

and for drafts that are iid or drawn without replacement a minimiser is a *prefix* of the tokens
ordered by increasing ``q/p`` (arXiv 2511.15898 for iid; docs/mathematics for both).  ``q(H)`` and
``hit`` are sums of non-negative numbers, so the value keeps its relative accuracy whether the
optimum is close to zero or to one; no power of a number close to one is ever subtracted from one.

The iid search needs no sort.  One pass drops the tokens into buckets of ``q/p`` that are 1/64 of
an octave wide, the bucket boundaries are evaluated, and only the buckets whose lower bound beats
the best boundary are sorted.  Between two boundaries ``q`` is convex in ``p`` with slopes inside
the bucket, hence at least the larger of two lines; ``q - p^n`` is concave on each line, so the
bound is attained where the lines cross.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numba
import numpy as np
from jaxtyping import Bool, Float, Int
from numba import njit

# Division by zero gives infinity or nan as in numpy; threads run in parallel.
COMPILED = {"cache": True, "nogil": True, "error_model": "numpy"}

Reals: TypeAlias = Float[np.ndarray, " _"]
Keys: TypeAlias = Int[np.ndarray, " _"]
Flags: TypeAlias = Bool[np.ndarray, " _"]
Rows: TypeAlias = Float[np.ndarray, "B V"]
Marks: TypeAlias = Bool[np.ndarray, "B V"]
Scalar: TypeAlias = Any  # an element of an array, which numba knows to be a number

_SHIFT = 46  # keep sign, exponent and six bits of the mantissa: 64 buckets per octave
_LOWEST = int(np.float64(2.0**-40).view(np.int64)) >> _SHIFT  # smaller ratios share bucket 0
_CHUNK = 256  # partial sums: the error of a sum grows with V / _CHUNK + _CHUNK, not with V
_ROUND_OFF = 8 * float(np.finfo(np.float64).eps)
_TAYLOR = 2.0**-5  # below this argument eight terms give expm1 to the last digit
_QUADRATURE = 1e-15  # error of the arrival-time integral, relative to the hit probability


def iid_optimum(
    target: Float[np.ndarray, "*#batch V"],
    draft: Float[np.ndarray, "*#batch V"],
    n: int | Int[np.ndarray, "*#batch"],
) -> tuple[Float[np.ndarray, "*batch"], Bool[np.ndarray, "*batch V"]]:
    r"""Optimal acceptance of ``n`` iid drafts and the token set that proves it.

    .. math:: \alpha^* = \min_H\; q(H) + 1 - p(H)^n
              = \min_H\; q(H) - \mathrm{expm1}(n\,\mathrm{log1p}(-p(V \setminus H)))

    Parameters
    ----------
    target, draft
        Laws q and p, ``(*batch, V)``, broadcast against each other; trusted to be probabilities.
    n
        Number of drafts, one integer or one per batch element.

    Returns
    -------
    value, cut
        The optimum ``(*batch,)`` and a minimiser H ``(*batch, V)``.  Tokens with p = 0 are never in
        H (with q > 0 they would cost, with q = 0 they are neutral), tokens of equal q/p are on one
        side, and H is empty when the optimum is 1 up to round-off.
    """
    return _over_rows(_iid_rows, target, draft, n)


def without_replacement_optimum(
    target: Float[np.ndarray, "*#batch V"],
    draft: Float[np.ndarray, "*#batch V"],
    n: int | Int[np.ndarray, "*#batch"],
) -> tuple[Float[np.ndarray, "*batch"], Bool[np.ndarray, "*batch V"]]:
    r"""Optimal acceptance of ``n`` drafts without replacement and the token set that proves it.

    Tokens arrive at independent exponential times with rates ``p``; the drafts are the first ``n``.
    U is hit when fewer than n tokens of H precede its first arrival:

    .. math:: \mathrm{hit}(U) = \sum_{j<n} \int_0^\infty p(U) e^{-p(U) t}
              \Pr[j \text{ tokens of } H \text{ arrived by } t]\, dt

    The terms j = 0 and 1 are closed forms, so n = 1 and 2 need no quadrature; the others are one
    trapezoid sum in log t whose polynomial coefficients are updated token by token.

    Parameters
    ----------
    target, draft
        Laws q and p, ``(*batch, V)``, broadcast against each other; trusted to be probabilities.
    n
        Number of drafts, one integer or one per batch element; a law with fewer supported tokens
        drafts all of them.

    Returns
    -------
    value, cut
        As in `iid_optimum`.
    """
    return _over_rows(_without_replacement_rows, target, draft, n)


def without_replacement_stay(
    draft: Float[np.ndarray, " V"], mask: Bool[np.ndarray, " V"], n: int
) -> float:
    """Probability that ``n`` drafts without replacement from ``draft`` all lie in ``mask``.

    The complement of the hit probability of `without_replacement_optimum`, absolute error about
    1e-15; exactly 1 when the mask holds the support and 0 when it holds fewer than n of its tokens.
    """
    p = np.ascontiguousarray(draft, dtype=np.float64)
    inside = np.ascontiguousarray(mask, dtype=np.bool_)
    n = min(n, int(np.count_nonzero(p)))
    if not (p[~inside] > 0).any():
        return 1.0
    if np.count_nonzero(p[inside]) < n:
        return 0.0
    times, weights = _arrival_nodes(p, n)
    return max(0.0, 1.0 - _hit_outside(p, inside, n, times, weights))


# ------------------------------------------------------------------------------------- batches


def _over_rows(
    rows: Callable[..., None],
    target: Float[np.ndarray, "*#batch V"],
    draft: Float[np.ndarray, "*#batch V"],
    n: int | Int[np.ndarray, "*#batch"],
) -> tuple[Float[np.ndarray, "*batch"], Bool[np.ndarray, "*batch V"]]:
    target, draft = np.broadcast_arrays(target, draft)
    batch, vocabulary = target.shape[:-1], target.shape[-1]
    counts = np.broadcast_to(np.asarray(n, dtype=np.int64), batch).reshape(-1)
    q = np.ascontiguousarray(target, dtype=np.float64).reshape(-1, vocabulary)
    p = np.ascontiguousarray(draft, dtype=np.float64).reshape(-1, vocabulary)
    value, cut = np.empty(len(q)), np.empty(q.shape, dtype=np.bool_)
    in_parallel(lambda start, stop: rows(q, p, counts, value, cut, start, stop), len(q))
    return value.reshape(batch), cut.reshape((*batch, vocabulary))


def in_parallel(work: Callable[[int, int], None], rows: int) -> None:
    """Run ``work(start, stop)`` on slices of ``rows`` in as many threads as numba may use.

    The kernels release the interpreter lock; numba's own parallel loops are avoided because their
    default threading layer must not be entered from two Python threads.
    """
    threads = min(rows, numba.get_num_threads())
    if threads <= 1:
        work(0, rows)
        return
    edges = [rows * i // threads for i in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, edges[:-1], edges[1:]))


# ----------------------------------------------------------------------------------- iid drafts


@njit(**COMPILED)
def hit_probability(mass: Scalar, n: int) -> float:
    """``1 - (1 - mass)^n``, accurate for small and large ``mass``."""
    if mass >= 1.0:
        return 1.0
    return -math.expm1(n * math.log1p(-mass))


@njit(**COMPILED)
def ratios(q: Reals, p: Reals) -> Reals:
    """``q/p``, infinite where p = 0."""
    out = np.empty(q.size)
    for y in range(q.size):
        out[y] = q[y] / p[y] if p[y] > 0.0 else np.inf
    return out


@njit(**COMPILED)
def argsort_nonnegative(values: Reals) -> Keys:
    """Stable increasing order of non-negative floats: radix sort of their bit patterns."""
    size = values.size
    keys, order = values.view(np.int64).copy(), np.arange(size)
    other_keys, other_order = np.empty_like(keys), np.empty_like(order)
    counts = np.zeros((8, 256), dtype=np.int64)
    for i in range(size):
        for digit in range(8):
            counts[digit, (keys[i] >> (8 * digit)) & 255] += 1
    for digit in range(8):
        if counts[digit].max() == size:  # all keys agree in this digit
            continue
        place = np.cumsum(counts[digit]) - counts[digit]
        for i in range(size):
            slot = (keys[i] >> (8 * digit)) & 255
            other_keys[place[slot]] = keys[i]
            other_order[place[slot]] = order[i]
            place[slot] += 1
        keys, other_keys = other_keys, keys
        order, other_order = other_order, order
    return order


@njit(**COMPILED)
def _iid_rows(
    target: Rows,
    draft: Rows,
    counts: Keys,
    value: Reals,
    cut: Marks,
    start: int,
    stop: int,
) -> None:
    for row in range(start, stop):
        q, p, n = target[row], draft[row], counts[row]
        keys = ratios(q, p).view(np.int64)
        limit = _iid_limit(q, p, n, keys)
        cut[row] = keys < limit
        outside = chunked_sum(p, ~cut[row])
        value[row] = 1.0 if limit == 0 else chunked_sum(q, cut[row]) + hit_probability(outside, n)


@njit(**COMPILED)
def chunked_sum(values: Reals, member: Flags) -> float:
    """Sum over the member tokens, in chunks."""
    total = 0.0
    for start in range(0, values.size, _CHUNK):
        part = 0.0
        for y in range(start, min(start + _CHUNK, values.size)):
            if member[y]:
                part += values[y]
        total += part
    return total


@njit(**COMPILED)
def _iid_limit(q: Reals, p: Reals, n: int, keys: Keys) -> int:
    """Bit pattern of a ratio such that the tokens below it are a minimising set."""
    top = last_bucket(n)  # a ratio of n or more never pays
    targets, drafts = bucket_masses(q, p, keys, p > 0.0, top)
    below, above = np.zeros(top + 1), tails(drafts)
    below[1:] = np.cumsum(targets)[:-1]
    best, limit = 1.0 - _ROUND_OFF, 0
    for k in range(1, top + 1):
        if above[k] != above[k - 1]:
            here = below[k] + hit_probability(above[k], n)
            if here < best:
                best, limit = here, (k + _LOWEST) << _SHIFT
    suspect = _suspects(n, targets, drafts, below, above, best)
    if suspect.any():
        limit = _refine(q, p, n, keys, below, above, suspect, best, limit)
    return limit


@njit(**COMPILED)
def _bits(x: float) -> int:
    return np.array([x]).view(np.int64)[0]


@njit(**COMPILED)
def last_bucket(n: int) -> int:
    """Number of the bucket that holds every ratio of ``n`` or more."""
    return (_bits(float(n)) >> _SHIFT) - _LOWEST + 1


@njit(**COMPILED)
def bucket_of(key: Scalar, top: int) -> int:
    """Bucket of a ratio, given as its bit pattern."""
    return min(max((key >> _SHIFT) - _LOWEST, 0), top)


@njit(**COMPILED)
def bucket_edges(top: int) -> Reals:
    """Smallest ratio of every bucket, and of one more."""
    edges = ((np.arange(top + 2) + _LOWEST) << _SHIFT).view(np.float64)
    edges[0] = 0.0
    return edges


@njit(**COMPILED)
def bucket_masses(q: Reals, p: Reals, keys: Keys, member: Flags, top: int) -> tuple[Reals, Reals]:
    """Target and draft mass of the member tokens in every bucket."""
    masses = np.zeros((2, top + 1))
    for y in range(q.size):
        if member[y]:
            k = bucket_of(keys[y], top)
            masses[0, k] += q[y]
            masses[1, k] += p[y]
    return masses[0], masses[1]


@njit(**COMPILED)
def sorted_tokens(keys: Keys, member: Flags, wanted: Flags) -> Keys:
    """Member tokens of the wanted buckets, in increasing order of their ratio."""
    top, tokens, count = wanted.size - 1, np.empty(keys.size, dtype=np.int64), 0
    for y in range(keys.size):
        if member[y] and wanted[bucket_of(keys[y], top)]:
            tokens[count] = y
            count += 1
    tokens = tokens[:count]
    return tokens[argsort_nonnegative(keys[tokens].view(np.float64))]


@njit(**COMPILED)
def tails(values: Reals) -> Reals:
    """Sums of ``values[k:]``, one longer than the values."""
    out = np.zeros(values.size + 1)
    for k in range(values.size - 1, -1, -1):
        out[k] = out[k + 1] + values[k]
    return out


@njit(**COMPILED)
def _suspects(
    n: int, targets: Reals, drafts: Reals, below: Reals, above: Reals, best: Scalar
) -> Flags:
    """Buckets inside which a cut could still beat ``best`` by more than round-off."""
    suspect, edges = np.zeros(below.size, dtype=np.bool_), bucket_edges(below.size - 1)
    for k in range(below.size - 1):
        if drafts[k] > 0.0:
            low, high = edges[k], edges[k + 1]
            taken = (high * drafts[k] - targets[k]) / (high - low)  # where the two lines cross
            taken = min(max(taken, 0.0), drafts[k])
            outside = above[k + 1] + (drafts[k] - taken)
            bound = below[k] + low * taken + hit_probability(outside, n)
            suspect[k] = bound < best * (1.0 - _ROUND_OFF)
    return suspect


@njit(**COMPILED)
def _refine(
    q: Reals,
    p: Reals,
    n: int,
    keys: Keys,
    below: Reals,
    above: Reals,
    suspect: Flags,
    best: Scalar,
    limit: Scalar,
) -> int:
    """Walk the tokens of the suspect buckets from the largest ratio down."""
    top = suspect.size - 1
    tokens = sorted_tokens(keys, p > 0.0, suspect)
    current, inside, outside = -1, 0.0, 0.0
    for i in range(tokens.size - 1, -1, -1):
        y = tokens[i]
        k = bucket_of(keys[y], top)
        if k != current:
            current, inside, outside = k, below[k + 1], above[k + 1]
        inside -= q[y]
        outside += p[y]
        here = inside + hit_probability(outside, n)
        if here < best:  # never inside a run of equal ratios: the value is concave along it
            best, limit = here, keys[y]
    return limit


# ------------------------------------------------------------------ drafts without replacement
#
# With `heavy` the n-1 most probable tokens, `rest` the mass of the others, k = e^{-p t} and
# w = e^{p t} - 1, the integrand of the j-th term is
#     p(U) e^{-rest t} prod_{heavy in U} k
#          [z^j] prod_{heavy in H} (k + z (1-k)) prod_{light in H} (1 + z w).
# Light tokens cost one multiply-add per coefficient, nothing overflows (the light mass is `rest`),
# and the decay rate, hence the range of t, is `rest`.


def _arrival_nodes(
    p: Float[np.ndarray, " V"], n: int
) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " nodes"]]:
    """Trapezoid nodes in log t and their weights ``h t e^{-rest t}``; none for n < 3."""
    if n < 3:
        return np.empty(0), np.empty(0)
    rest = float(np.sort(np.partition(p, p.size - n + 1)[: p.size - n + 1]).sum())
    step = _trapezoid_step(n)
    low = math.log(2e-6)  # the terms j >= 2 start like t^3
    high = math.log((40.0 + 4 * n) / rest)
    times = np.exp(np.arange(low, high + step, step))
    return times, step * times * np.exp(-rest * times)


def _trapezoid_step(n: int) -> float:
    """Largest step that integrates ``t^(n-1) e^{-t}`` over log t to `_QUADRATURE`.

    The error of the trapezoid rule is ``2 |Gamma(n + i y)| / Gamma(n)`` at ``y = 2 pi / step``.
    """
    goal = math.log(_QUADRATURE / math.sqrt(8 * math.pi)) + math.lgamma(n)
    y = 2.0 * n
    while (n - 0.5) * math.log(y) - math.pi * y / 2 > goal:  # Stirling's |Gamma(n + i y)|
        y += 0.25
    return 2 * math.pi / y


def _without_replacement_rows(
    q: Rows,
    p: Rows,
    counts: Keys,
    value: Reals,
    cut: Marks,
    start: int,
    stop: int,
) -> None:
    for row in range(start, stop):
        n = min(int(counts[row]), int(np.count_nonzero(p[row])))
        times, weights = _arrival_nodes(p[row], n)
        value[row] = _without_replacement_row(q[row], p[row], n, times, weights, cut[row])


@njit(**COMPILED)
def _without_replacement_row(
    q: Reals, p: Reals, n: int, times: Reals, weights: Reals, cut: Flags
) -> float:
    ratio = ratios(q, p)
    order = argsort_nonnegative(ratio)
    order = order[p[order] > 0.0]
    hits = _hits_along(p, order, n, times, weights)
    best, size, inside = 1.0 - _ROUND_OFF, 0, 0.0
    for i in range(order.size):
        inside += q[order[i]]
        last = i + 1 == order.size or ratio[order[i + 1]] != ratio[order[i]]
        if last and inside + hits[i] < best:  # equal ratios stay together
            best, size = inside + hits[i], i + 1
    cut[:] = False
    cut[order[:size]] = True
    return best if size > 0 else 1.0


@njit(**COMPILED)
def _hit_outside(p: Reals, inside: Flags, n: int, times: Reals, weights: Reals) -> float:
    tokens = np.flatnonzero(p > 0.0)
    order = np.concatenate((tokens[inside[tokens]], tokens[~inside[tokens]]))
    size = np.count_nonzero(inside[tokens])
    return _hits_along(p, order, n, times, weights)[size - 1]


@njit(**COMPILED)
def _hits_along(p: Reals, order: Keys, n: int, times: Reals, weights: Reals) -> Reals:
    """Hit probability of the complement of every prefix of ``order`` (the whole support)."""
    outside, others = _mass_after(p, order), _mass_of_others(p, order)
    total = others[0] + p[order[0]]
    heavy = np.zeros(p.size, dtype=np.bool_)
    heavy[order[argsort_nonnegative(p[order])[order.size - n + 1 :]]] = True
    arrived = np.zeros((n, times.size))  # coefficient of z^j at every time
    arrived[0] = 1.0
    decay = _decay(p, order, heavy, times, weights)
    hits, second, later = np.empty(order.size), 0.0, 0.0
    for i in range(order.size):
        y = order[i]
        if n > 1 and others[i] > 0.0:
            second += p[y] / others[i]
        if n > 2:
            if heavy[y]:
                _arrive_heavy(arrived, times, p[y])
                decay = _decay(p, order[i + 1 :], heavy, times, weights)
            else:
                _arrive_light(arrived, times, p[y])
            later = _later(arrived, decay)
        hits[i] = min(1.0, outside[i] * ((1.0 + second) / total + later))
    return hits


@njit(**COMPILED)
def _mass_after(p: Reals, order: Keys) -> Reals:
    """Draft mass of the tokens after each position, summed from the end."""
    out, mass = np.empty(order.size), 0.0
    for i in range(order.size - 1, -1, -1):
        out[i] = mass
        mass += p[order[i]]
    return out


@njit(**COMPILED)
def _mass_of_others(p: Reals, order: Keys) -> Reals:
    """``sum(p) - p(y)`` at each position; the largest token's is summed over the others."""
    largest = np.argmax(p[order])
    rest = p[order[:largest]].sum() + p[order[largest + 1 :]].sum()
    total = rest + p[order[largest]]
    out = total - p[order]
    out[largest] = rest
    return out


@njit(**COMPILED)
def _decay(p: Reals, outside: Keys, heavy: Flags, times: Reals, weights: Reals) -> Reals:
    """Quadrature weights times the probability that no heavy token outside has arrived."""
    out = weights.copy()
    for y in outside:
        if heavy[y]:
            out *= np.exp(-p[y] * times)
    return out


@njit(**COMPILED)
def _arrive_heavy(arrived: Rows, times: Reals, mass: Scalar) -> None:
    """Multiply the polynomials by ``k + z (1 - k)``, k = exp(-mass t)."""
    for m in range(times.size):
        yes = -math.expm1(-mass * times[m])
        no = math.exp(-mass * times[m])
        for j in range(arrived.shape[0] - 1, 0, -1):
            arrived[j, m] = no * arrived[j, m] + yes * arrived[j - 1, m]
        arrived[0, m] *= no


@njit(**COMPILED)
def _arrive_light(arrived: Rows, times: Reals, mass: Scalar) -> None:
    """Multiply the polynomials by ``1 + z w``, w = expm1(mass t)."""
    w = np.empty(times.size)
    short = np.searchsorted(times, _TAYLOR / mass)
    for m in range(short):
        x = mass * times[m]
        w[m] = x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * (1 + x / 7))))))
    for m in range(short, times.size):
        w[m] = math.expm1(mass * times[m])
    for j in range(arrived.shape[0] - 1, 0, -1):
        for m in range(times.size):
            arrived[j, m] += w[m] * arrived[j - 1, m]


@njit(**COMPILED, fastmath={"reassoc", "contract"})
def _later(arrived: Rows, decay: Reals) -> float:
    """Integral of the terms j >= 2: two or more tokens precede the first hit."""
    out = 0.0
    for j in range(2, arrived.shape[0]):
        for m in range(decay.size):
            out += decay[m] * arrived[j, m]
    return out
