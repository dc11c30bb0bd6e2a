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
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numba import njit
from torch import Tensor

from multidraft.arrays import search
from multidraft.solvers.prefix import in_parallel
from multidraft.verifiers import kernels
from multidraft.verifiers.kernels import row_of

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
    over_rows(lambda start, stop: _excess_rows(q, p, c, out, start, stop), len(c), q.shape[-1])
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
    over_rows(lambda start, stop: _overlap_rows(q, p, c, out, start, stop), len(c), q.shape[-1])
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
    over_rows(lambda start, stop: _rest_rows(*arrays, out, start, stop), len(ids), target.shape[-1])
    return torch.from_numpy(out[0]), torch.from_numpy(out[1])


def mass_without(probs: Float[Tensor, "R V"], ids: Int[Tensor, "B k"]) -> Float[Tensor, " B"]:
    """Mass of all tokens but the distinct `ids` (-1: none), summed, never as ``1 - p(ids)``."""
    zeros = torch.zeros(ids.shape, dtype=torch.float64, device=ids.device)
    return Weights(probs, named=ids, instead=zeros).total()


def at(probs: Float[Tensor, "R V"], tokens: Int[Tensor, "M n"]) -> Float[Tensor, "M n"]:
    """Probability of each token in float64, zero for padding."""
    found = probs.expand(len(tokens), -1).gather(-1, tokens.clamp(min=0))
    return found.double().masked_fill(tokens < 0, 0.0)


def largest(
    probs: Float[Tensor, "R V"], counts: Int[Tensor, " C"], width: int
) -> Int[Tensor, "C k"]:
    """Ids of each row's largest probabilities (as many as it counts), -1 where mass runs out.

    For tensors on the CPU; ties to the lowest id.
    """
    p, n = probs.numpy(), counts.numpy()
    out = np.full((len(n), width), -1)
    over_rows(lambda start, stop: _largest_rows(p, n, out, start, stop), len(n), p.shape[-1])
    return torch.from_numpy(out)


@dataclass(frozen=True)
class Weights:
    """Unnormalised law ``w = a q + (q - c p)+``, with other weights for a few named tokens.

    Attributes
    ----------
    target : (R, V), R = 1 or B
    draft, factor : (R, V) and (B,), or None for ``w = q``
    share : (B,) the number a, or None for 0
    named, instead : (B, k) token ids (-1: none) and (B, k) their weights, float64
    spare : (R, V), drawn from where all weights are zero, which is round-off; None: the target
    """

    target: Float[Tensor, "R V"]
    draft: Float[Tensor, "R2 V"] | None = None
    factor: Float[Tensor, " B"] | None = None
    share: Float[Tensor, " B"] | None = None
    named: Int[Tensor, "B k"] | None = None
    instead: Float[Tensor, "B k"] | None = None
    spare: Float[Tensor, "R3 V"] | None = None

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
        """All weights normalised in float64; the spare law where they are all zero."""
        weights = self.dense().double()
        total = weights.sum(-1, keepdim=True)
        spare = self.target if self.spare is None else self.spare
        return torch.where(total > 0, weights / total.clamp(min=_TINY), spare.double())

    def total(self) -> Float[Tensor, " B"]:
        """Sum of the weights, one pass."""
        if not _fused(self.target):
            return self.dense().sum(-1, dtype=torch.float64)
        arrays, totals = self._arrays(), np.empty(self.rows)
        over_rows(
            lambda start, stop: _total_rows(*arrays, totals, start, stop),
            self.rows,
            self.target.shape[-1],
        )
        return torch.from_numpy(totals)

    def draw(self, uniforms: Float[Tensor, " B"], wanted: Bool[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Draw one token per row that is wanted (-1 may stand in the others), one pass."""
        if self.rows < len(uniforms):
            return search(self.law().cumsum(-1), uniforms[None, :])[0]
        if not _fused(self.target):
            return search(self.law().cumsum(-1), uniforms[:, None])[:, 0]
        arrays, tokens = self._arrays(), np.full(self.rows, -1)
        spare = arrays[0] if self.spare is None else self.spare.numpy()
        rows = spare, uniforms.numpy(), wanted.numpy(), tokens
        over_rows(
            lambda start, stop: _draw_rows(*arrays, *rows, start, stop),
            self.rows,
            self.target.shape[-1],
        )
        return torch.from_numpy(tokens)

    def _arrays(self) -> tuple[Any, Any, Any, Any, Any, Any]:
        """The fields as the kernels take them, ``w = q`` being the case c = a = 0."""
        rows, q = self.rows, self.target.numpy()
        p = q[:1] if self.draft is None else self.draft.numpy()
        c = np.zeros(rows) if self.factor is None else self.factor.numpy()
        a = np.zeros(rows) if self.share is None else self.share.numpy()
        named = np.empty((rows, 0), dtype=np.int64) if self.named is None else self.named.numpy()
        instead = np.empty((rows, 0)) if self.instead is None else self.instead.numpy()
        return q, p, c, a, named, instead


def _fused(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"


def over_rows(work: Callable[[int, int], None], rows: int, vocabulary: int) -> None:
    """Run ``work(start, stop)`` on slices of the rows, in threads where that pays."""
    if rows * vocabulary < _SERIAL:
        work(0, rows)
    else:
        in_parallel(work, rows)


@njit(**kernels.COMPILED)
def _excess_rows(target, draft, factor, out, start, stop):
    for i in range(start, stop):
        out[i] = kernels.excess(row_of(target, i), row_of(draft, i), factor[i])


@njit(**kernels.COMPILED)
def _overlap_rows(target, draft, factor, out, start, stop):
    for i in range(start, stop):
        out[0, i], out[1, i] = kernels.overlap(row_of(target, i), row_of(draft, i), factor[i])


@njit(**kernels.COMPILED)
def _rest_rows(target, draft, factor, ids, out, start, stop):
    for i in range(start, stop):
        p = row_of(draft, i)
        out[0, i] = kernels.excess(row_of(target, i), p, factor[i])
        out[1, i] = kernels.mass_without(p, ids[i])


@njit(**kernels.COMPILED)
def _largest_rows(probs, counts, out, start, stop):
    for i in range(start, stop):
        kernels.largest(row_of(probs, i), out[i, : counts[i]])


@njit(**kernels.COMPILED)
def _total_rows(target, draft, factor, share, named, instead, totals, start, stop):
    for i in range(start, stop):
        q, p = row_of(target, i), row_of(draft, i)
        totals[i] = kernels.total(q, p, factor[i], share[i], named[i], instead[i])


@njit(**kernels.COMPILED)
def _draw_rows(
    target, draft, factor, share, named, instead, spare, uniforms, wanted, tokens, start, stop
):
    for i in range(start, stop):
        if wanted[i]:
            q, p = row_of(target, i), row_of(draft, i)
            weights = (q, p, factor[i], share[i], named[i], instead[i])
            tokens[i] = kernels.draw(*weights, row_of(spare, i), uniforms[i])
