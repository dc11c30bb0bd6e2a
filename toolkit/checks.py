"""Strict validation: every fault in the data is one clear sentence that names the fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from multidraft.arrays import Array, float64, is_torch
from multidraft.errors import InputError

T = TypeVar("T")

# How far from 1 the sum of a law may be, by the precision of its numbers. Solvers work in float64,
# where a law that is off by more than this has been rounded, truncated or never normalised.
TOLERANCE = {"float64": 1e-12, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}


def law(probs: Array, name: str) -> Array:
    """Check that every row of `probs` is a probability law and return it unchanged.

    Parameters
    ----------
    probs : (*batch, V)
        numpy array or torch tensor of floats.
    name : str
        What the user calls it, for the message.

    Raises
    ------
    InputError
        Wrong type or shape, no tokens, NaN or infinite entries, negative entries, or a row whose
        sum is not 1 (the sum is in the message).
    """
    kind = str(probs.dtype).removeprefix("torch.")
    if kind not in TOLERANCE:
        raise InputError(f"{name} has dtype {kind}: pass an array of floats.")
    if probs.ndim < 1 or probs.shape[-1] == 0:
        raise InputError(f"{name} has shape {tuple(probs.shape)}: pass (V,) or (B, V) with V >= 1.")
    if probs.ndim > 2 or (probs.ndim == 2 and probs.shape[0] == 0):
        raise InputError(f"{name} has shape {tuple(probs.shape)}: pass (V,) or (B, V) with B >= 1.")
    values = probs.detach() if is_torch(probs) else probs
    low, high, sums = values.min(), values.max(), _row_sums(values)
    if not (abs(float(low)) < np.inf and abs(float(high)) < np.inf):
        raise InputError(f"{name} holds NaN or infinite entries: pass finite probabilities.")
    if low < 0:
        raise InputError(f"{name} holds a negative entry, {float(low):.3g}: clip or mend it first.")
    off = np.abs(sums - 1)
    if off.max() > TOLERANCE[kind]:
        row = int(off.argmax())
        where = f" in row {row}" if sums.size > 1 else ""
        raise InputError(
            f"{name} sums to {sums[row]:.16g}{where}, not 1: pass multidraft.normalise({name}), "
            "or --normalise to a command, if that is what you want."
        )
    return probs


def _row_sums(values: Array) -> np.ndarray:
    if is_torch(values):
        import torch

        return np.atleast_1d(float64(values.sum(-1, dtype=torch.float64)))
    return np.atleast_1d(values.sum(-1, dtype=np.float64))


def as_floats(values: Any, name: str) -> Array:
    """Return a numpy array or torch tensor of floats; lists and integers become float64."""
    if is_torch(values):
        return values
    try:
        array = np.asarray(values)
        if array.dtype.kind in "iub":
            array = array.astype(np.float64)
        if array.dtype.kind != "f":
            raise TypeError
    except (ValueError, TypeError):
        raise InputError(
            f"{name} is not a rectangular array of numbers: pass (V,) or (B, V)."
        ) from None
    return array


def choice(value: str, allowed: Mapping[str, T] | tuple[str, ...], name: str) -> str:
    """Return `value` if it is one of `allowed`, else say what is allowed."""
    if value not in allowed:
        raise InputError(f"unknown {name} {value!r}: choose one of {', '.join(sorted(allowed))}.")
    return value


def count(value: Any, name: str, least: int = 1) -> int:
    """Return `value` as an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} is {value!r}: pass a whole number of at least {least}.")
    return int(value)


def broadcast(*batches: tuple[int, ...]) -> tuple[int, ...]:
    """Return the common batch shape, ``()`` or ``(B,)``."""
    try:
        return np.broadcast_shapes(*batches)
    except ValueError:
        shapes = ", ".join(str(batch) for batch in batches)
        raise InputError(
            f"batch shapes {shapes} do not match: pass one row or B rows each."
        ) from None
