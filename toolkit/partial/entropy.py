r"""Interval for the entropy of a partially known law.

The rest u comes in pieces of at most c. Entropy is concave, so it is smallest for the fewest pieces
and largest for equal pieces: with M unlisted tokens :math:`u \log_2 (M / u)`. Without the size of
the vocabulary there is no finite bound from above.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from multidraft.partial.pair import Interval, Listed


def entropy(listed: Listed, vocabulary: int | None = None) -> Interval:
    """Entropy in bits of every context, over all completions.

    Parameters
    ----------
    listed : Listed
    vocabulary : int, optional
        Number of tokens; the upper end is infinite when it is not known and a rest is left.
    """
    known = _bits(listed.probs).sum(-1)
    rest = listed.rest
    size = np.minimum(listed.cap, rest)
    count = np.floor(rest / np.where(size > 0, size, 1.0))
    least = known + count * _bits(size) + _bits(np.maximum(rest - count * size, 0.0))
    if vocabulary is None:
        return Interval(least, np.where(rest > 0, np.inf, least))
    others = np.maximum(vocabulary - (listed.ids >= 0).sum(-1), 1)
    return Interval(least, np.maximum(least, known + others * _bits(rest / others)))


def _bits(probs: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    return -probs * np.log2(np.where(probs > 0, probs, 1.0))
