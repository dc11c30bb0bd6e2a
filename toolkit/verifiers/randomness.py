"""Counter-based uniforms: row i depends on its seed alone, on any device, in any batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from multidraft.errors import InputError

# SplitMix64 (Steele, Lea and Flood, 2014) in wrapping 64-bit integers.
_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX = ((30, 0xBF58476D1CE4E5B9 - (1 << 64)), (27, 0x94D049BB133111EB - (1 << 64)))


def uniforms(
    seeds: Sequence[int] | np.ndarray | Tensor, draws: int, *, stream: int = 0
) -> Float[Tensor, "B draws"]:
    """Uniform numbers in [0, 1), a pure function of seed, stream and position.

    Parameters
    ----------
    seeds : (B,) integers
        One per row. A row's numbers do not depend on the other rows.
    draws : int
        Numbers per row.
    stream : int
        Streams of one seed are independent. Whatever must be independent needs its own: the drafts
        and their verification, and every round of a decoding loop.

    Returns
    -------
    (B, draws) float64, on the device of the seeds.

    Raises
    ------
    InputError
        Seeds that are no row of integers.

    Examples
    --------
    >>> uniforms([7, 8], 2).shape
    torch.Size([2, 2])
    """
    keys = seeds if isinstance(seeds, Tensor) else torch.as_tensor(np.asarray(seeds))
    if keys.ndim != 1 or keys.dtype.is_floating_point or keys.dtype == torch.bool:
        raise InputError("seeds are a row of integers, (B,).")
    keys = _mixed(_mixed(keys.long()) + _wrapped(stream * _MIX[0][1]))
    places = torch.arange(1, draws + 1, device=keys.device) * _STEP
    bits = _mixed(keys[:, None] + places)
    return _shifted(bits, 11).double() * 2.0**-53


def _mixed(bits: Tensor) -> Tensor:
    for shift, factor in _MIX:
        bits = (bits ^ _shifted(bits, shift)) * factor
    return bits ^ _shifted(bits, 31)


def _shifted(bits: Tensor, places: int) -> Tensor:
    """Shift right without copying the sign."""
    return (bits >> places) & ((1 << (64 - places)) - 1)


def _wrapped(number: int) -> int:
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
