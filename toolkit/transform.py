"""From logits to the law that is sampled: temperature, then top-k, then top-p, in one place.

Whatever a draft is drawn from is what it is verified against, so drafting, verification, traces and
trees all come through :func:`probabilities`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from multidraft import checks
from multidraft.arrays import Array, is_torch, largest
from multidraft.errors import InputError


def probabilities(
    logits: Any,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Array:
    """Turn logits into the law that is sampled.

    Parameters
    ----------
    logits : (*batch, V)
        Raw logits, numpy (result float64) or torch (result in at least float32). Half precision is
        raised before the softmax. ``-inf`` marks a token that cannot occur.
    temperature : float
        Logits are divided by it; 0 gives the one-hot law of the largest logit, ties to the lowest
        id.
    top_k : int, optional
        Keep the k largest, ties to the lowest id; None or k >= V keeps all.
    top_p : float, optional
        Keep the smallest set of most probable tokens with mass at least `top_p`.

    Returns
    -------
    (*batch, V) probabilities.

    Raises
    ------
    InputError
        NaN or +inf logits, a row without a finite logit, or a parameter out of range.

    Examples
    --------
    >>> probabilities(np.log([0.5, 0.3, 0.2]), top_k=2)
    array([0.625, 0.375, 0.   ])
    """
    if not (isinstance(temperature, int | float) and 0 <= temperature < np.inf):
        raise InputError(f"temperature is {temperature!r}: pass a finite number, 0 or larger.")
    if top_k is not None:
        checks.count(top_k, "top_k")
    if top_p is not None and not 0 < top_p <= 1:
        raise InputError(f"top_p is {top_p!r}: pass a number in (0, 1].")
    scores = _raise(checks.as_floats(logits, "logits"))
    if scores.ndim < 1 or scores.shape[-1] == 0:
        raise InputError(
            f"logits have shape {tuple(scores.shape)}: pass (V,) or (B, V) with V >= 1."
        )
    high = scores.max(-1).values[..., None] if is_torch(scores) else scores.max(-1, keepdims=True)
    # A comparison with NaN is false, so this one test finds NaN, +inf and rows of -inf.
    if not bool((abs(high) < np.inf).all()) or bool((scores != scores).any()):
        raise InputError("logits hold NaN, +inf, or a row without a finite entry.")
    if temperature == 0:
        return _one_hot(scores)
    probs = _softmax((scores - high) / temperature)
    if top_k is not None and top_k < scores.shape[-1]:
        probs = _keep(probs, largest(scores, top_k))
    if top_p is not None and top_p < 1:
        probs = _nucleus(probs, top_p)
    return probs


def _raise(logits: Array) -> Array:
    if is_torch(logits):
        import torch

        return logits.to(torch.promote_types(logits.dtype, torch.float32))
    return logits.astype(np.float64)


def _softmax(scores: Array) -> Array:
    weights = scores.exp() if is_torch(scores) else np.exp(scores)
    return weights / weights.sum(-1)[..., None]


def _one_hot(scores: Array) -> Array:
    """All mass on the largest score (a flat law, of which one token is kept)."""
    flat = scores.new_ones(scores.shape) if is_torch(scores) else np.ones_like(scores)
    return _keep(flat, largest(scores, 1))


def _keep(probs: Array, ids: Array) -> Array:
    """Set all but the tokens `ids` to zero and renormalise."""
    if is_torch(probs):
        import torch

        kept = torch.zeros_like(probs).scatter_(-1, ids, probs.gather(-1, ids))
    else:
        kept = np.zeros_like(probs)
        np.put_along_axis(kept, ids, np.take_along_axis(probs, ids, -1), axis=-1)
    return kept / kept.sum(-1)[..., None]


def _nucleus(probs: Array, top_p: float) -> Array:
    """Drop every token whose more probable tokens already hold `top_p`."""
    if is_torch(probs):
        order = probs.argsort(dim=-1, descending=True, stable=True)
        ranked = probs.gather(-1, order)
        kept = ranked * ((ranked.cumsum(-1) - ranked) < top_p)
        kept = probs.new_zeros(probs.shape).scatter_(-1, order, kept)
    else:
        order = np.argsort(-probs, axis=-1, kind="stable")
        ranked = np.take_along_axis(probs, order, -1)
        ranked = ranked * ((np.cumsum(ranked, -1) - ranked) < top_p)
        kept = np.zeros_like(probs)
        np.put_along_axis(kept, order, ranked, axis=-1)
    return kept / kept.sum(-1)[..., None]
