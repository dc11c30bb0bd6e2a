r"""The passes over the vocabulary that all rules share, fused on CPU, plain torch elsewhere.

A rule's test and its residual need sums of :math:`(q - c\,p)_+` and draws from

.. math:: w(y) = a\,q(y) + (q(y) - c\,p(y))_+ ,

with other weights for a few named tokens. On CPU a numba loop reads q and p once, sums in float64
by blocks and allocates nothing of the vocabulary's length; on other devices the same sums are torch
expressions. A draw is a block sum and one search, clamped to the last token with positive weight,
never ``torch.multinomial``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numba import njit
from torch import Tensor

from multidraft.arrays import search
from multidraft.solvers.prefix import in_parallel

_BLOCK = 512  # tokens per partial sum: the second look at a drawn token reads one block
_TINY = 2.0**-1074  # the smallest float64: keeps a division by zero out of an unused branch
_SERIAL = 1 << 19  # below this many entries starting threads costs more than it saves


def excess(
    target: Float[Tensor, "R V"], draft: Float[Tensor, "R2 V"], factor: Float[Tensor, " B"]
) -> Float[Tensor, " B"]:
    """Sum of ``(q - c p)+`` for each row's factor c, one pass.

    `target` and `draft` have one row for all factors or one row each; sums are float64.
    """
    if not _fused(target):
        return (
            (target - factor[:, None].to(target.dtype) * draft).relu_().sum(-1, dtype=torch.float64)
        )
    q, p, c = target.numpy(), draft.numpy(), factor.numpy()
    out = np.empty(len(c))
    _over_rows(lambda start, stop: _excess_rows(q, p, c, out, start, stop), len(c), q.shape[-1])
    return torch.from_numpy(out)


def overlap(
    target: Float[Tensor, "R V"], draft: Float[Tensor, "R2 V"], factor: Float[Tensor, " B"]
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Sum of ``min(q, c p)`` and its slope in c, the draft mass of ``{q > c p}``, one pass."""
    if not _fused(target):
        scaled = factor[:, None].to(target.dtype) * draft
        mass = torch.minimum(target, scaled).sum(-1, dtype=torch.float64)
        return mass, (draft * (target > scaled)).sum(-1, dtype=torch.float64)
    q, p, c = target.numpy(), draft.numpy(), factor.numpy()
    out = np.empty((2, len(c)))
    _over_rows(lambda start, stop: _overlap_rows(q, p, c, out, start, stop), len(c), q.shape[-1])
    return torch.from_numpy(out[0]), torch.from_numpy(out[1])


def excess_and_rest(
    target: Float[Tensor, "R V"],
    draft: Float[Tensor, "R2 V"],
    factor: Float[Tensor, " B"],
    ids: Int[Tensor, "B k"],
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """`excess`, and the draft mass of all tokens but the distinct `ids`, in the same pass."""
    if not _fused(target):
        return excess(target, draft, factor), mass_without(draft, ids)
    arrays = target.numpy(), draft.numpy(), factor.numpy(), ids.numpy()
    out = np.empty((2, len(ids)))
    _over_rows(
        lambda start, stop: _rest_rows(*arrays, out, start, stop), len(ids), target.shape[-1]
    )
    return torch.from_numpy(out[0]), torch.from_numpy(out[1])


def mass_without(probs: Float[Tensor, "R V"], ids: Int[Tensor, "B k"]) -> Float[Tensor, " B"]:
    """Mass of all tokens but the distinct `ids` (-1: none), summed, never as ``1 - p(ids)``."""
    zeros = torch.zeros(ids.shape, dtype=torch.float64, device=ids.device)
    return Weights(probs, named=ids, instead=zeros).total()


def at(probs: Float[Tensor, "R V"], tokens: Int[Tensor, "M n"]) -> Float[Tensor, "M n"]:
    """Probability of each token in float64, zero for padding."""
    found = probs.expand(len(tokens), -1).gather(-1, tokens.clamp(min=0))
    return found.double().masked_fill(tokens < 0, 0.0)


@dataclass(frozen=True)
class Weights:
    """Unnormalised law ``w = a q + (q - c p)+``, with other weights for a few named tokens.

    Attributes
    ----------
    target : (R, V), R = 1 or B
    draft, factor : (R, V) and (B,), or None for ``w = q``
    share : (B,) the number a, or None for 0
    named, instead : (B, k) token ids (-1: none) and (B, k) their weights, float64
    """

    target: Float[Tensor, "R V"]
    draft: Float[Tensor, "R2 V"] | None = None
    factor: Float[Tensor, " B"] | None = None
    share: Float[Tensor, " B"] | None = None
    named: Int[Tensor, "B k"] | None = None
    instead: Float[Tensor, "B k"] | None = None

    @property
    def rows(self) -> int:
        """Number of laws B."""
        small = (self.factor, self.share, self.named, self.target)
        return max(len(part) for part in small if part is not None)

    def dense(self) -> Float[Tensor, "B V"]:
        """All weights, in the target's precision."""
        weights = self.target.expand(self.rows, -1)
        if self.draft is not None and self.factor is not None:
            low = self.factor[:, None].to(weights.dtype) * self.draft
            low = (weights - low).relu_()
            share = None if self.share is None else self.share[:, None].to(weights.dtype)
            weights = low if share is None else share * weights + low
        if self.named is None or self.instead is None:
            return weights
        ids = torch.where(self.named < 0, weights.shape[-1], self.named)
        padded = torch.nn.functional.pad(weights, (0, 1))
        return padded.scatter(-1, ids, self.instead.to(weights.dtype))[:, :-1]

    def at(self, tokens: Int[Tensor, "M n"]) -> Float[Tensor, "M n"]:
        """Weight of each token in float64, zero for padding."""
        found = at(self.target, tokens)
        if self.draft is not None and self.factor is not None:
            low = (found - self.factor[:, None] * at(self.draft, tokens)).relu_()
            found = low if self.share is None else self.share[:, None] * found + low
        if self.named is None or self.instead is None:
            return found
        same = tokens[:, :, None] == self.named[:, None, :]
        replaced = (same * self.instead[:, None, :]).amax(-1)
        return torch.where(same.any(-1), replaced, found).masked_fill(tokens < 0, 0.0)

    def law(self) -> Float[Tensor, "B V"]:
        """All weights normalised in float64; the target where they are all zero."""
        weights = self.dense().double()
        total = weights.sum(-1, keepdim=True)
        return torch.where(total > 0, weights / total.clamp(min=_TINY), self.target.double())

    def total(self) -> Float[Tensor, " B"]:
        """Sum of the weights, one pass."""
        if not _fused(self.target):
            return self.dense().sum(-1, dtype=torch.float64)
        unused = torch.zeros(self.rows, dtype=torch.float64)
        return self._fused(unused, np.ones(self.rows, dtype=np.bool_))[1]

    def draw(self, uniforms: Float[Tensor, " B"], wanted: Bool[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Draw one token per row that is wanted (-1 may stand in the others), one pass.

        A row whose weights are all zero stands for round-off: it draws from the target.
        """
        if self.rows < len(uniforms):
            return search(self.law().cumsum(-1), uniforms[None, :])[0]
        if not _fused(self.target):
            return search(self.law().cumsum(-1), uniforms[:, None])[:, 0]
        return self._fused(uniforms, wanted.numpy())[0]

    def _fused(self, uniforms: Tensor, wanted: np.ndarray) -> tuple[Tensor, Tensor]:
        rows = self.rows
        q = self.target.numpy()
        p = q[:1] if self.draft is None else self.draft.numpy()
        c = np.zeros(rows) if self.factor is None else self.factor.numpy()
        a = np.zeros(rows) if self.share is None else self.share.numpy()
        named = np.empty((rows, 0), dtype=np.int64) if self.named is None else self.named.numpy()
        instead = np.empty((rows, 0)) if self.instead is None else self.instead.numpy()
        tokens, totals = np.full(rows, -1), np.zeros(rows)
        arrays = (q, p, c, a, named, instead, uniforms.numpy(), wanted, tokens, totals)
        _over_rows(lambda start, stop: _draw_rows(*arrays, start, stop), rows, q.shape[-1])
        return torch.from_numpy(tokens), torch.from_numpy(totals)


def _fused(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"


def _over_rows(work: Callable[[int, int], None], rows: int, vocabulary: int) -> None:
    if rows * vocabulary < _SERIAL:
        work(0, rows)
    else:
        in_parallel(work, rows)


# ------------------------------------------------------------------------------------- kernels
#
# Re-association lets the compiler sum in vector registers; partial sums stay float64.


@njit(cache=True, nogil=True, inline="always")
def _row(array, i):
    return array[i if array.shape[0] > 1 else 0]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _block_excess(q, p, c, a, start, stop):
    above, all_of_it = 0.0, 0.0
    for y in range(start, stop):
        d = q[y] - c * p[y]
        above += d if d > 0.0 else 0.0
        all_of_it += q[y]
    return above + a * all_of_it


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _block_above(q, p, c, start, stop):
    above = 0.0
    for y in range(start, stop):
        d = q[y] - c * p[y]
        above += d if d > 0.0 else 0.0
    return above


@njit(cache=True, nogil=True)
def _excess_rows(target, draft, factor, out, start, stop):
    for i in range(start, stop):
        q, p, total = _row(target, i), _row(draft, i), 0.0
        for first in range(0, q.size, _BLOCK):
            total += _block_above(q, p, factor[i], first, min(first + _BLOCK, q.size))
        out[i] = total


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _block_overlap(q, p, c, start, stop):
    common, slope = 0.0, 0.0
    for y in range(start, stop):
        low = c * p[y]
        common += low if q[y] > low else q[y]
        slope += p[y] if q[y] > low else 0.0
    return common, slope


@njit(cache=True, nogil=True)
def _overlap_rows(target, draft, factor, out, start, stop):
    for i in range(start, stop):
        q, p, common, slope = _row(target, i), _row(draft, i), 0.0, 0.0
        for first in range(0, q.size, _BLOCK):
            more = _block_overlap(q, p, factor[i], first, min(first + _BLOCK, q.size))
            common += more[0]
            slope += more[1]
        out[0, i], out[1, i] = common, slope


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _block_both(q, p, c, start, stop):
    above, mass = 0.0, 0.0
    for y in range(start, stop):
        d = q[y] - c * p[y]
        above += d if d > 0.0 else 0.0
        mass += p[y]
    return above, mass


@njit(cache=True, nogil=True)
def _rest_rows(target, draft, factor, ids, out, start, stop):
    for i in range(start, stop):
        q, p, total, rest = _row(target, i), _row(draft, i), 0.0, 0.0
        for first in range(0, q.size, _BLOCK):
            last = min(first + _BLOCK, q.size)
            above, mass = _block_both(q, p, factor[i], first, last)
            total += above
            if ((ids[i] >= first) & (ids[i] < last)).any():
                mass = 0.0
                for y in range(first, last):
                    mass += 0.0 if (ids[i] == y).any() else p[y]
            rest += mass
        out[0, i], out[1, i] = total, rest


@njit(cache=True, nogil=True)
def _weight(q, p, c, a, named, instead, y):
    for j in range(named.size):
        if named[j] == y:
            return instead[j]
    d = q[y] - c * p[y]
    return a * q[y] + (d if d > 0.0 else 0.0)


@njit(cache=True, nogil=True)
def _block_sums(q, p, c, a, named, instead):
    """Sum of the weights of every block; blocks with a named token are summed token by token."""
    sums = np.empty((q.size + _BLOCK - 1) // _BLOCK)
    for k in range(sums.size):
        first, last = k * _BLOCK, min((k + 1) * _BLOCK, q.size)
        if a == 0.0:
            sums[k] = _block_above(q, p, c, first, last)
        else:
            sums[k] = _block_excess(q, p, c, a, first, last)
    for token in named:
        if token >= 0:
            k, exact = token // _BLOCK, 0.0
            for y in range(k * _BLOCK, min((k + 1) * _BLOCK, q.size)):
                exact += _weight(q, p, c, a, named, instead, y)
            sums[k] = exact
    return sums


@njit(cache=True, nogil=True)
def _find(q, p, c, a, named, instead, sums, goal):
    """First token whose cumulative weight exceeds `goal`, else the last of positive weight."""
    k, done = 0, 0.0
    while k < sums.size - 1 and done + sums[k] <= goal:
        done += sums[k]
        k += 1
    while sums[k] <= 0.0:  # round-off ran past the last weight
        k, goal = k - 1, np.inf
    token = -1
    for y in range(k * _BLOCK, min((k + 1) * _BLOCK, q.size)):
        w = _weight(q, p, c, a, named, instead, y)
        if w > 0.0:
            token = y
            done += w
            if done > goal:
                break
    return token


@njit(cache=True, nogil=True)
def _draw_rows(
    target, draft, factor, share, named, instead, uniforms, wanted, tokens, totals, start, stop
):
    for i in range(start, stop):
        if wanted[i]:
            q, p, c, a = _row(target, i), _row(draft, i), factor[i], share[i]
            sums = _block_sums(q, p, c, a, named[i], instead[i])
            totals[i] = sums.sum()
            if totals[i] > 0.0:
                goal = uniforms[i] * totals[i]
                tokens[i] = _find(q, p, c, a, named[i], instead[i], sums, goal)
            else:
                sums = _block_sums(q, p, 0.0, 0.0, named[i, :0], instead[i, :0])
                goal = uniforms[i] * sums.sum()
                tokens[i] = _find(q, p, 0.0, 0.0, named[i, :0], instead[i, :0], sums, goal)
