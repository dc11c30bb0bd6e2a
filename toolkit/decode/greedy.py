"""At temperature 0 a decoded text is the target's greedy text; this checks it with the target."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from multidraft.decode.pair import load
from multidraft.decode.result import Decoded

#: Two best logits that are closer than this may change places with the size of a batch.
CLOSE = 1e-3


def assert_greedy(decoded: Decoded, target: Any) -> list[str]:
    """Assert that every text is the target's greedy text up to the first close call.

    Each token must be the one with the largest logit after the tokens before it, all read in one
    plain pass without a cache. A place where the two best logits are closer than 1e-3 ends the
    comparison, since the order of such logits depends on how the network's sums are rounded.

    Parameters
    ----------
    decoded : Decoded
        Of a run at temperature 0.
    target : as of `generate`

    Returns
    -------
    list of str
        One sentence per row: how far the texts are equal, and why no further.

    Raises
    ------
    AssertionError
        A token is not the greedy one; the sentence names row, place and both tokens.
    """
    model = load(target, decoded.tokenizer)
    sentences = []
    for row, (prompt, tokens) in enumerate(zip(decoded.prompts, decoded.tokens, strict=True)):
        places = np.arange(len(prompt) - 1, len(prompt) + len(tokens) - 1)
        logits = model.logits(np.array([*prompt, *tokens]), places)
        sentences.append(f"row {row}: {_agreement(logits, tokens)}")
    return sentences


def _agreement(logits: Float[np.ndarray, "N V"], tokens: list[int]) -> str:
    for place, (scores, token) in enumerate(zip(logits, tokens, strict=True)):
        best, second = np.argsort(-scores, kind="stable")[:2].tolist()
        margin = float(scores[best] - scores[second])
        if margin < CLOSE:
            return (
                f"equal to greedy decoding for {place} of {len(tokens)} tokens; at the next the "
                f"two best logits are {margin:.1e} apart, closer than {CLOSE:g}."
            )
        if token != best:
            raise AssertionError(
                f"token {place} is {token}, and greedy decoding gives {best}, whose logit is "
                f"{margin:.3g} above the second."
            )
    return f"equal to greedy decoding for all {len(tokens)} tokens."
