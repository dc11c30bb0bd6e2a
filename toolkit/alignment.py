"""Draft logits brought to the target's vocabulary: padded and reduced output layers."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from multidraft.arrays import Array, is_torch
from multidraft.errors import InputError


def align(
    target_logits: Float[Array, "*batch V"],
    draft_logits: Float[Array, "*batch W"],
    draft_to_target: Array | None = None,
    pad: bool = False,
) -> tuple[Float[Array, "*batch U"], Float[Array, "*batch U"]]:
    """Return target and draft logits of one width U; a token that a model lacks gets -inf.

    Equal widths are returned unchanged. Unequal ones are never guessed at: say how they differ.

    Parameters
    ----------
    target_logits : (*batch, V)
        numpy array or torch tensor of floats.
    draft_logits : (*batch, W)
        Of the same kind.
    draft_to_target : (W,) integers, optional
        Target token of each draft token: a reduced draft vocabulary, as in FR-Spec
        (arXiv:2502.14856) and EAGLE-3 (arXiv:2503.01840). Target tokens outside it can never be
        drafted.
    pad : bool
        Token ids agree and the wider output layer is padded to a round size: the narrower logits
        are filled up with -inf, and the padding columns of the wider ones set to -inf, so that
        neither model can emit a padding token. The result has the wider width.

    Raises
    ------
    InputError
        Unequal widths without either option, both options at once, logits of two kinds, or an
        index map of the wrong length, with a repetition or an id outside the target's vocabulary.
    """
    if is_torch(target_logits) != is_torch(draft_logits):
        raise InputError("target and draft logits must both be numpy arrays or both torch tensors.")
    if draft_to_target is not None and pad:
        raise InputError("pass draft_to_target for a reduced vocabulary or pad=True, not both.")
    if draft_to_target is not None:
        return target_logits, _spread(draft_logits, draft_to_target, target_logits.shape[-1])
    widths = target_logits.shape[-1], draft_logits.shape[-1]
    if widths[0] == widths[1]:
        return target_logits, draft_logits
    if not pad:
        raise InputError(
            f"target and draft have {widths[0]} and {widths[1]} logits: pass draft_to_target= for "
            "a reduced draft vocabulary, or pad=True if the wider one only has padding columns."
        )
    return _padded(target_logits, *widths), _padded(draft_logits, *widths)


def _spread(logits: Array, ids: Array, vocabulary: int) -> Array:
    index = np.asarray(ids)
    if index.shape != logits.shape[-1:] or index.dtype.kind not in "iu":
        raise InputError(
            f"draft_to_target must hold one target token id for each of {logits.shape[-1]} logits."
        )
    if index.min() < 0 or index.max() >= vocabulary or len(np.unique(index)) < len(index):
        raise InputError(f"draft_to_target must hold different token ids in 0..{vocabulary - 1}.")
    out = _empty(logits, vocabulary)
    out[..., index] = logits
    return out


def _padded(logits: Array, *widths: int) -> Array:
    shared = min(widths)
    out = _empty(logits, max(widths))
    out[..., :shared] = logits[..., :shared]
    return out


def _empty(logits: Array, width: int) -> Array:
    shape = (*logits.shape[:-1], width)
    if is_torch(logits):
        return logits.new_full(shape, -np.inf)
    return np.full(shape, -np.inf, dtype=logits.dtype)
