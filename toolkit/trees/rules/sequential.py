"""Any draft law as a sequence of single draws: the law of the next child, given its siblings."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from multidraft.laws import Spec


def next_law(
    spec: Spec, probs: Float[np.ndarray, "k V"], drawn: Int[np.ndarray, "k j"]
) -> Float[np.ndarray, "k V"]:
    """Law of child j of a node, given the tokens of the children before it.

    Parameters
    ----------
    spec : draft law of the node's n children
    probs : (k, V) the node's draft probabilities p
    drawn : (k, j) tokens of the first j children, -1 for none

    Returns
    -------
    (k, V); a row of zeros where no token is left to draw.
    """
    if spec["law"] == "iid":
        return probs
    left = probs.copy()
    for column in drawn.T:
        left[np.flatnonzero(column >= 0), column[column >= 0]] = 0.0
    position = drawn.shape[1]
    if spec["law"] == "without-replacement":
        return _shares(left)
    if spec["law"] == "hub":
        return probs if position == 0 else _beside_hub(probs, left, drawn[:, 0])
    sure = spec["law"] == "top" or position < spec["n"] - 1  # else greedy's one random draft
    return _largest(left) if sure else _shares(left)


def _shares(left: Float[np.ndarray, "k V"]) -> Float[np.ndarray, "k V"]:
    total = left.sum(-1, keepdims=True)
    return left / np.where(total > 0, total, 1.0)


def _largest(left: Float[np.ndarray, "k V"]) -> Float[np.ndarray, "k V"]:
    """All mass on the most probable token left, ties to the lowest id."""
    law = np.zeros_like(left)
    law[np.arange(len(left)), left.argmax(-1)] = left.max(-1) > 0
    return law


def _beside_hub(
    probs: Float[np.ndarray, "k V"], left: Float[np.ndarray, "k V"], first: Int[np.ndarray, " k"]
) -> Float[np.ndarray, "k V"]:
    """The hub follows any other token; after the hub comes a draw from the rest."""
    return np.where((first == probs.argmax(-1))[:, None], _shares(left), _largest(probs))
