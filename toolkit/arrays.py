"""The few array operations that draft laws and verifiers share, for numpy and torch alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int

# A numpy array or a torch tensor: laws keep whichever they are given.
Array = Any


def is_torch(array: Array) -> bool:
    """Whether `array` is a torch tensor, without importing torch."""
    return type(array).__module__.split(".")[0] == "torch"


def float64(array: Array) -> np.ndarray:
    """Return `array` as float64 numpy (a copy only when it has to be one)."""
    if is_torch(array):
        array = array.detach().cpu()
        array = array.double().numpy()
    return np.asarray(array, dtype=np.float64)


def search(cumulative: Array, uniforms: Array) -> Array:
    """Invert a cumulative sum at `uniforms`.

    Parameters
    ----------
    cumulative : (*batch, V)
        Running sums of non-negative masses; the last entry is the total, of any size.
    uniforms : (*batch, S)
        Numbers in [0, 1).

    Returns
    -------
    (*batch, S) integers
        The first token whose cumulative mass exceeds ``u * total``. A product that rounds up to
        the total goes to the last token with positive mass, never to one without.
    """
    total = cumulative[..., -1:]
    goal = uniforms * total
    last = _first(cumulative, total, right=False)
    return _minimum(_first(cumulative, goal, right=True), last)


def _first(cumulative: Array, goal: Array, *, right: bool) -> Array:
    if is_torch(cumulative):
        import torch

        return torch.searchsorted(cumulative.contiguous(), goal.contiguous(), right=right)
    side = "right" if right else "left"
    rows = cumulative.reshape(-1, cumulative.shape[-1])
    goals = goal.reshape(len(rows), goal.shape[-1])
    found = [
        np.searchsorted(row, wanted, side=side) for row, wanted in zip(rows, goals, strict=True)
    ]
    return np.stack(found).reshape(goal.shape)


def _minimum(found: Array, last: Array) -> Array:
    return found.minimum(last) if is_torch(found) else np.minimum(found, last)


def largest(probs: Array, n: int) -> Array:
    """Ids of the `n` largest entries of each row, largest first, ties to the lowest id.

    Shapes: ``(*batch, V)`` to ``(*batch, n)``. One partial selection, never a sort of the row.
    """
    if is_torch(probs):
        return _largest_torch(probs, n)
    vocabulary = probs.shape[-1]
    n = min(n, vocabulary)
    rows = probs.reshape(-1, vocabulary)
    return np.stack([_largest_row(row, n) for row in rows]).reshape(*probs.shape[:-1], n)


def _largest_row(row: Float[np.ndarray, " V"], n: int) -> Int[np.ndarray, " n"]:
    if n == 0:
        return np.empty(0, dtype=np.int64)
    # Negated, since numpy's selection near the end of a row is slow when most entries are equal.
    bound = -np.partition(-row, n - 1)[n - 1]
    above = np.flatnonzero(row > bound)
    ties = np.flatnonzero(row == bound)[: n - len(above)]
    ids = np.concatenate([above, ties])
    return ids[np.lexsort((ids, -row[ids]))]


def _largest_torch(probs: Array, n: int) -> Array:
    import torch

    n = min(n, probs.shape[-1])
    if n == 0:
        return torch.empty(*probs.shape[:-1], 0, dtype=torch.int64, device=probs.device)
    bound = probs.topk(n, dim=-1).values[..., -1:]
    above, tie = probs > bound, probs == bound
    room = n - above.sum(-1, keepdim=True)
    kept = above | (tie & (tie.cumsum(-1) <= room))
    ids = kept.nonzero()[:, -1].reshape(*probs.shape[:-1], n)
    order = probs.gather(-1, ids).argsort(dim=-1, descending=True, stable=True)
    return ids.gather(-1, order)


def take(rows: Array, ids: Array) -> Array:
    """``rows[..., ids]`` along the last axis; an id of -1 (padding) reads 0."""
    if is_torch(rows):
        return rows.gather(-1, ids.clamp(min=0)) * (ids >= 0)
    return np.take_along_axis(rows, np.maximum(ids, 0), axis=-1) * (ids >= 0)
