"""Interpolated Kneser-Ney n-gram models over a target's tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from multidraft.checks import count
from multidraft.errors import InputError
from multidraft.models.base import Tokenizer, tokenizer_hash


class NGram:
    r"""Interpolated Kneser-Ney model of order n over V tokens (Kneser and Ney 1995).

    With c the counts and h' the history h without its first token,

    .. math::

       p(w \mid h) = \frac{\max(c(hw) - D, 0)}{c(h)}
                     + \frac{D \, N_{1+}(h\,\cdot)}{c(h)} \; p(w \mid h').

    Below the highest order, c(hw) is the number of different tokens seen before hw. The recursion
    ends in the uniform law, so every token has positive probability. A history that was never seen
    passes on to h'. One discount D per order, :math:`n_1 / (n_1 + 2 n_2)`.

    Parameters
    ----------
    order : int
        n: the law depends on the last n - 1 tokens.
    documents : sequence of (T,) integer arrays
        Training tokens; no n-gram crosses from one document to the next.
    vocabulary : int
        V.
    tokenizer : Tokenizer
        The target's.
    name : str
        What tables call it.

    Raises
    ------
    InputError
        No document is as long as the order, or a token id is outside the vocabulary.
    """

    def __init__(
        self,
        order: int,
        documents: Sequence[Int[np.ndarray, " _"]],
        vocabulary: int,
        tokenizer: Tokenizer,
        name: str,
    ):
        self.order = count(order, "the order of an n-gram model")
        self.name = name
        self.vocabulary = vocabulary
        self.tokenizer = tokenizer
        documents = [np.asarray(document, dtype=np.int64) for document in documents]
        _check(documents, self.order, vocabulary)
        self._corpus = hashlib.sha256(b"|".join(item.tobytes() for item in documents)).hexdigest()
        self._levels = _levels(documents, self.order)
        self._unigram = self._levels[0].refine((), np.full(vocabulary, 1 / vocabulary))

    @property
    def start(self) -> list[int]:
        """No token: the law of the first one is the unigram law."""
        return []

    def probabilities(self, history: Sequence[int]) -> Float[np.ndarray, " V"]:
        """Return the law of the token after `history`, float64; its sum is 1 within rounding."""
        law = self._unigram
        for used in range(1, min(self.order - 1, len(history)) + 1):
            law = self._levels[used].refine(tuple(history[len(history) - used :]), law)
        return law

    def logits(
        self, tokens: Int[np.ndarray, "*batch T"], positions: Int[np.ndarray, " m"] | None = None
    ) -> Float[np.ndarray, "*batch m V"]:
        """Return float32 log-probabilities after each prefix; see `multidraft.models.Model`."""
        rows = np.atleast_2d(tokens).tolist()
        ends = range(len(rows[0])) if positions is None else positions
        laws = [[self.probabilities(row[: end + 1]) for end in ends] for row in rows]
        out = np.log(np.asarray(laws)).astype(np.float32)
        return out if np.ndim(tokens) == 2 else out[0]

    def step(
        self, tokens: Int[np.ndarray, "B T"], state: Any = None
    ) -> tuple[Float[np.ndarray, "B V"], Any]:
        """Return log-probabilities after `tokens`; the state is the last n - 1 tokens."""
        seen = tokens if state is None else np.concatenate([state, tokens], axis=1)
        after = self.logits(seen, np.array([seen.shape[1] - 1]))[:, 0]
        return after, seen[:, max(0, seen.shape[1] - self.order + 1) :]

    def identity(self) -> dict[str, Any]:
        """Return name, kind, order and the hashes of training tokens and tokenizer."""
        tokenizer = tokenizer_hash(self.tokenizer)
        facts = {"kind": "ngram", "order": self.order, "corpus": self._corpus}
        return {"name": self.name, **facts, "tokenizer": tokenizer}


class _Level:
    """Discounted masses and back-off weights of all histories of one length."""

    def __init__(self, grams: Int[np.ndarray, "G k"], counts: Int[np.ndarray, " G"]):
        discount = _discount(counts)
        edges = np.flatnonzero(np.any(grams[1:, :-1] != grams[:-1, :-1], axis=1)) + 1
        starts = np.concatenate([[0], edges]).astype(np.int64)
        lengths = np.diff(np.append(starts, len(grams)))
        totals = np.add.reduceat(counts, starts)
        self._tokens = grams[:, -1]
        self._masses = (counts - discount) / np.repeat(totals, lengths)
        self._weights = discount * lengths / totals
        self._starts = np.append(starts, len(grams))
        self._rows = {tuple(gram[:-1]): row for row, gram in enumerate(grams[starts].tolist())}

    def refine(self, history: tuple[int, ...], lower: Float[np.ndarray, " V"]) -> np.ndarray:
        """Return the law after `history`, given the law after the history one shorter."""
        row = self._rows.get(history)
        if row is None:
            return lower
        seen = slice(self._starts[row], self._starts[row + 1])
        law = self._weights[row] * lower
        law[self._tokens[seen]] += self._masses[seen]
        return law


def _check(documents: Sequence[Int[np.ndarray, " _"]], order: int, vocabulary: int) -> None:
    if not any(len(document) >= order for document in documents):
        raise InputError(f"no training text has {order} tokens: give the n-gram model more text.")
    for document in documents:
        if len(document) and not 0 <= document.min() <= document.max() < vocabulary:
            raise InputError(f"training tokens must lie in 0..{vocabulary - 1}: use one tokenizer.")


def _levels(documents: Sequence[Int[np.ndarray, " _"]], order: int) -> list[_Level]:
    grams = np.concatenate([_windows(document, order) for document in documents])
    grams, counts = np.unique(grams, axis=0, return_counts=True)
    levels = [_Level(grams, counts)]
    for _ in range(order - 1):
        # Continuation counts: each different (k+1)-gram counts once for the k-gram that ends it.
        grams, counts = np.unique(grams[:, 1:], axis=0, return_counts=True)
        levels.insert(0, _Level(grams, counts))
    return levels


def _windows(document: Int[np.ndarray, " T"], order: int) -> Int[np.ndarray, "W n"]:
    if len(document) < order:
        return np.empty((0, order), dtype=np.int64)
    return np.lib.stride_tricks.sliding_window_view(document, order)


def _discount(counts: Int[np.ndarray, " G"]) -> float:
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    # Without n-grams seen once the estimate is 0 and unseen tokens would lose all their mass.
    return once / (once + 2 * twice) if once and twice else 0.5
