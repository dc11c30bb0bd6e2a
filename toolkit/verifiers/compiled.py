"""Rules for one row of drafts, compiled: what ``rule.verify`` runs on a CPU.

The rules are defined in their own files, as keep probabilities and residuals in torch, for any
device. Here the same numbers are computed row by row in one call, without the overhead of many
small tensors, and a row ends as soon as a draft is accepted. Tests hold the two to the same tokens.

Every kernel has the signature ``(target, draft, tokens, uniforms, known, out, start, stop)``:
`known` is what the draft law says about each row (the number of drafts, or the ids of the sure
ones), `out` ``(3, B)`` receives token, draft and tested.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import njit
from torch import Tensor

from multidraft.verifiers.kernels import (
    COMPILED,
    draw,
    excess,
    mass_without,
    overlap,
    row_of,
    total,
)
from multidraft.verifiers.passes import over_rows

PASSES = 9  # most passes that the search for K-SEQ's rho makes; the residual is the tenth
ULPS = 2.0**-50  # Newton's point is moved up by this much, to end on the lossless side
NEAR = 1e-15  # a surplus this small is round-off


def run(
    kernel: Callable[..., None],
    target: Float[Tensor, "R V"],
    draft: Float[Tensor, "R2 V"],
    tokens: Int[Tensor, "B n"],
    uniforms: Float[Tensor, "B draws"],
    known: Int[Tensor, "B k"],
) -> Int[Tensor, "3 B"]:
    """Run a kernel on all rows, in threads where that pays."""
    out = np.empty((3, len(tokens)), dtype=np.int64)
    laws = target.numpy(), draft.numpy()
    rows = tokens.contiguous().numpy(), uniforms.contiguous().numpy(), known.contiguous().numpy()
    over_rows(
        lambda start, stop: kernel(*laws, *rows, out, start, stop), len(tokens), target.shape[-1]
    )
    return torch.from_numpy(out)


# ----------------------------------------------------------------------------- shared by kernels


@njit(**COMPILED)
def _ratio(above, below):
    """``min(1, above / below)``, 0 where both are 0."""
    return min(above, below) / below if below > 0.0 else 0.0


@njit(**COMPILED)
def _count(ids, token):
    """How often a token occurs (a loop: an array comparison would allocate)."""
    found = 0
    for y in ids:
        found += 1 if y == token else 0
    return found


@njit(**COMPILED)
def _holds(ids, token):
    return _count(ids, token) > 0


@njit(**COMPILED)
def _drawn(p, x, n):
    """Whether n tokens with positive mass come first and the rest is padding."""
    for k in range(x.size):
        if x[k] < -1 or x[k] >= p.size or (x[k] >= 0) != (k < n) or (x[k] >= 0 and p[x[k]] <= 0.0):
            return False
    return True


@njit(**COMPILED)
def _distinct(p, x, n):
    """Whether at most n distinct tokens with positive mass come first."""
    m = 0
    while m < x.size and x[m] >= 0:
        if _holds(x[:m], x[m]):
            return False
        m += 1
    return m <= n and _drawn(p, x, m)


@njit(**COMPILED)
def _settle(x, slot, token, out, i):
    """Write one outcome, with the first place at which the output was drafted."""
    out[0, i], out[1, i], out[2, i] = token, -1, slot
    for k in range(x.size - 1, -1, -1):
        if token >= 0 and x[k] == token:
            out[1, i] = k


# ------------------------------------------------------------------------------------------ rules


@njit(**COMPILED)
def naive(target, draft, tokens, uniforms, known, out, start, stop):
    """Match iid drafts in their order, else draw from the target off the drafts."""
    for i in range(start, stop):
        q, x = row_of(target, i), tokens[i]
        slot, token = -1, -1
        if _drawn(row_of(draft, i), x, known[i, 0]):
            kept = 0.0
            for k in range(x.size):
                if slot < 0 and x[k] >= 0 and not _holds(x[:k], x[k]):
                    kept += q[x[k]]
                    slot = k if uniforms[i, 0] < kept else -1
            token = x[slot]
            if slot < 0:
                token = draw(q, q, 0.0, 0.0, x, np.zeros(x.size), q, uniforms[i, 1])
        _settle(x, slot, token, out, i)


@njit(**COMPILED)
def with_replacement(target, draft, tokens, uniforms, known, out, start, stop):
    """Recursive rejection of iid drafts."""
    for i in range(start, stop):
        q, p, x = row_of(target, i), row_of(draft, i), tokens[i]
        slot, token = -1, -1
        if _drawn(p, x, known[i, 0]):
            slot, token = _recursive(q, p, x, uniforms[i], False)
        _settle(x, slot, token, out, i)


@njit(**COMPILED)
def without_replacement(target, draft, tokens, uniforms, known, out, start, stop):
    """Recursive rejection of drafts without replacement."""
    for i in range(start, stop):
        q, p, x = row_of(target, i), row_of(draft, i), tokens[i]
        slot, token = -1, -1
        if _distinct(p, x, known[i, 0]):
            slot, token = _recursive(q, p, x, uniforms[i], True)
        _settle(x, slot, token, out, i)


@njit(**COMPILED)
def _recursive(q, p, x, uniforms, drop):
    """Test drafts against ``(q - c p)+``; `drop` takes rejected tokens out of the draft law."""
    c, mass, rest, kept = 0.0, 1.0, 1.0, 0.0
    for k in range(x.size):
        if x[k] < 0:
            break
        if k > 0:
            mass = excess(q, p, c)
            rest = mass_without(p, x[:k]) if drop else 1.0
        left = max(np.float64(q[x[k]]) - c * np.float64(p[x[k]]), 0.0)
        kept += (1.0 - kept) * _ratio(left * rest, mass * np.float64(p[x[k]]))
        if uniforms[0] < kept:
            return k, x[k]
        c += mass / rest
    return -1, draw(q, p, c, 0.0, x[:0], np.empty(0), q, uniforms[1])


@njit(**COMPILED)
def k_seq(target, draft, tokens, uniforms, known, out, start, stop):
    """K-SEQ: find rho, then the same test for every draft."""
    for i in range(start, stop):
        q, p, x, n = row_of(target, i), row_of(draft, i), tokens[i], known[i, 0]
        slot, token = -1, -1
        if _drawn(p, x, n):
            rho, beta, tested = threshold(q, p, n)
            kept = 0.0
            for k in range(n):
                if slot < 0:
                    test = _ratio(np.float64(q[x[k]]), rho * np.float64(p[x[k]]))
                    kept += (1.0 - kept) * test
                    slot = k if uniforms[i, 0] < kept else -1
            token = x[slot]
            if slot < 0:
                share = max(rho * beta / tested - 1.0, 0.0) if tested > 0.0 else 0.0
                token = draw(q, p, rho, share, x[:0], np.empty(0), q, uniforms[i, 1])
        _settle(x, slot, token, out, i)


@njit(**COMPILED)
def threshold(q, p, n):
    """``rho, beta, tau`` of K-SEQ by bracketed Newton steps, see `kseq`."""
    low, high, rho = 1.0, np.float64(n), 1.0
    best = (np.nan, np.nan, np.nan)
    for k in range(PASSES):
        mass, slope = overlap(q, p, rho)
        beta = min(mass / rho, 1.0)
        tested = -math.expm1(n * math.log1p(-beta)) if beta < 1.0 else 1.0
        surplus = tested - mass
        if surplus <= 0.0 or rho >= n:
            best, high = (rho, beta, tested), rho
        else:
            low = rho
        near = surplus <= 0.0 and surplus >= -NEAR
        if not math.isnan(best[0]) and (near or high - low <= ULPS * n):
            break
        step = n * (1.0 - beta) ** (n - 1) * (slope - beta) / rho - slope
        rho -= surplus / (step if step != 0.0 else 1.0) - ULPS * n
        if not low < rho < high:
            rho = (low + high) / 2.0
        if k == PASSES - 2 and math.isnan(best[0]):
            rho = np.float64(n)
    return best


@njit(**COMPILED)
def greedy(target, draft, tokens, uniforms, known, out, start, stop):
    """Single-draft test of the one draft that is not sure."""
    for i in range(start, stop):
        q, p, x, sure = row_of(target, i), row_of(draft, i), tokens[i], known[i]
        slot, token = -1, -1
        if _beside(p, x, sure):
            rest = mass_without(p, sure)
            scale, kept = 1.0 / rest if rest > 0.0 else 0.0, np.empty(sure.size)
            for j in range(sure.size):
                kept[j] = q[sure[j]] if sure[j] >= 0 else 0.0
            for k in range(x.size):
                if x[k] >= 0 and not _holds(sure, x[k]):
                    test = _ratio(np.float64(q[x[k]]), np.float64(p[x[k]]) * scale)
                    slot = k if uniforms[i, 0] < test else -1
            token = x[slot]
            if slot < 0:
                token = draw(q, p, scale, 0.0, sure, kept, q, uniforms[i, 1])
        _settle(x, slot, token, out, i)


@njit(**COMPILED)
def _beside(p, x, sure):
    """Whether the drafts are the sure tokens and at most one other, of positive mass."""
    others = 0
    for k in range(x.size):
        if x[k] < -1 or x[k] >= p.size:
            return False
        if x[k] >= 0 and not _holds(sure, x[k]):
            if p[x[k]] <= 0.0:
                return False
            others += 1
    for y in sure:
        if y >= 0 and _count(x, y) != 1:
            return False
    return others <= 1


@njit(**COMPILED)
def spechub(target, draft, tokens, uniforms, known, out, start, stop):
    """Test the token beside the hub, then the hub."""
    for i in range(start, stop):
        q, p, x, hub = row_of(target, i), row_of(draft, i), tokens[i], known[i, 0]
        slot, token = -1, -1
        if _beside(p, x, known[i]):
            zero, rest = np.zeros(1), mass_without(p, known[i])
            left = total(p, q, rest, 0.0, known[i], zero) / rest if rest > 0.0 else 1.0
            place = 0 if x[0] == hub else 1  # of the hub
            other, test = x[1 - place], 0.0
            if other >= 0 and place == 1:
                test = _ratio(np.float64(q[other]), np.float64(p[other]))
            elif other >= 0:
                above = max(np.float64(q[other]) - np.float64(p[other]), 0.0)
                test = _ratio(above * rest, np.float64(p[hub]) * np.float64(p[other]))
            # The keep probabilities are laid out in the drafts' order, as in the torch form.
            at_hub = (1.0 - test) * _ratio(np.float64(q[hub]), left)
            first, second = (at_hub, test) if place == 0 else (test, at_hub)
            if uniforms[i, 0] < first:
                slot = 0
            elif uniforms[i, 0] < first + second:
                slot = 1
            token = x[slot]
            if slot < 0:
                scale = 1.0 / rest if rest > 0.0 else 0.0
                token = draw(q, p, scale, 0.0, known[i], zero, q, uniforms[i, 1])
        _settle(x, slot, token, out, i)
