"""Models behind contexts as drafting takes them: the laws after paths, at one temperature.

`multidraft.trees.draw_tokens` asks a function for the laws after the paths drafted so far. Here a
language model becomes such a function, which also follows the contexts as they grow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from multidraft.errors import InputError
from multidraft.models.base import Model
from multidraft.models.ngram import NGram
from multidraft.models.transformer import Transformer
from multidraft.models.tree_cache import TreeCache
from multidraft.transform import probabilities
from multidraft.trees.drawing import law_table

Path = tuple[int, ...]


class TreeLaws(ABC):
    """A model behind B contexts: a function from drafted paths to the laws of the next token.

    Made by :meth:`of`. Calls leave the contexts as they are; :meth:`commit` appends to them.

    Examples
    --------
    Draft four paths of two tokens behind two contexts, and look at them with the target:

    >>> def draft_trees(target, draft, contexts, uniforms):
    ...     tree = md.trees.paths(4, 2)
    ...     drafter = TreeLaws.of(draft, contexts, temperature=0.8)
    ...     tokens, draft_laws = md.trees.draw_tokens(tree, drafter, uniforms)
    ...     parents = np.tile(tree.parents, (len(tokens), 1))
    ...     target_laws = TreeLaws.of(target, contexts, temperature=0.8).at(parents, tokens)
    ...     return md.trees.DraftedTree.of(tree, tokens, target_laws, draft_laws)
    """

    shape: dict[str, Any]

    @staticmethod
    def of(
        model: Model,
        contexts: Sequence[Int[np.ndarray, " _"]],
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> TreeLaws:
        """Put a model behind contexts.

        Parameters
        ----------
        model : Model
            A transformer keeps keys and values, and answers each question in one call; any other
            model reads its whole history again, an n-gram model the end that matters.
        contexts : sequence of B integer arrays (T_b,)
            At least one token each.
        temperature, top_k, top_p : see `multidraft.transform.probabilities`
        """
        if isinstance(model, Transformer):
            laws = _CachedLaws(model, contexts)
        else:
            laws = _HistoryLaws(model, contexts)
        laws.shape = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        return laws

    def __call__(self, paths: Int[np.ndarray, "B M d"]) -> Float[np.ndarray, "B M V"]:
        """Laws after M paths of d drafted tokens behind every context, float64."""
        return probabilities(self.logits(paths), **self.shape)

    def logits(self, paths: Int[np.ndarray, "B M d"]) -> Float[np.ndarray, "B M V"]:
        """Raw float32 logits after M paths of d drafted tokens behind every context."""
        return self._logits([list(map(tuple, row)) for row in paths.tolist()])

    def at(
        self, parents: Int[np.ndarray, "B S"], tokens: Int[np.ndarray, "B S"]
    ) -> Float[np.ndarray, "B S V"]:
        """Laws after every slot of drafted trees, in one call of a transformer.

        Parameters
        ----------
        parents, tokens : (B, S)
            As in `multidraft.trees.DraftedTree`: slot 0 is the root; a slot without a token gets
            zeros.

        Raises
        ------
        InputError
            No memory for the laws, or what the model refuses.
        """
        return self.shaped(tokens, self.logits_at(parents, tokens))

    def shaped(
        self, tokens: Int[np.ndarray, "B S"], logits: Float[np.ndarray, "B S V"]
    ) -> Float[np.ndarray, "B S V"]:
        """Laws from what :meth:`logits_at` returned, at this temperature and truncation."""
        table, live = law_table(tokens, logits.shape[-1]), tokens >= 0
        live[:, 0] = True
        table[live] = probabilities(logits[live], **self.shape)
        return table

    def logits_at(
        self, parents: Int[np.ndarray, "B S"], tokens: Int[np.ndarray, "B S"]
    ) -> Float[np.ndarray, "B S V"]:
        """Raw float32 logits after every slot, in one call; zeros at slots without a token."""
        asked = [_paths(*row) for row in zip(parents.tolist(), tokens.tolist(), strict=True)]
        return self._logits(asked)

    @property
    @abstractmethod
    def batch(self) -> int:
        """Number of contexts B."""

    @abstractmethod
    def _logits(self, asked: Sequence[Sequence[Path | None]]) -> Float[np.ndarray, "B M V"]:
        """Logits after each row's paths; zeros where a row asks for None or for fewer."""

    @abstractmethod
    def commit(self, tokens: Int[np.ndarray, "B K"]) -> None:
        """Append tokens to the contexts, -1 filling up short rows; forget all other paths."""

    @abstractmethod
    def select(self, rows: Int[np.ndarray, " b"]) -> None:
        """Go on with some of the contexts, in the given order."""


class _CachedLaws(TreeLaws):
    """A transformer with its cache.

    A context's last tokens may still be pending: not read yet, because the next question can be
    answered in the same call. Slots of the cache are found by the tokens that lead to them, so
    equal paths are computed once.
    """

    def __init__(self, model: Transformer, contexts: Sequence[Int[np.ndarray, " _"]]) -> None:
        self.cache = TreeCache(model, contexts)
        self._pending: list[Path] = [tuple(map(int, context[-1:])) for context in contexts]
        self._slots: list[dict[Path, int]] = [{} for _ in contexts]

    @property
    def batch(self) -> int:
        return len(self._pending)

    def _logits(self, asked: Sequence[Sequence[Path | None]]) -> Float[np.ndarray, "B M V"]:
        calls = [_Call(*row) for row in zip(asked, self._pending, self._slots, strict=True)]
        for call in calls:
            call.plan(self.cache.drafted)
        tokens, parents = (
            _filled(getattr(call, name) for call in calls) for name in ("tokens", "parents")
        )
        found = self.cache.extend(tokens, parents)
        places = _filled(call.answers for call in calls)
        logits = np.take_along_axis(found, np.maximum(places, 0)[..., None], axis=1)
        logits[places < 0] = 0.0
        return logits

    def commit(self, tokens: Int[np.ndarray, "B K"]) -> None:
        kept: list[list[int]] = []
        for b, row in enumerate(tokens.tolist()):
            whole = (*self._pending[b], *(token for token in row if token >= 0))
            ways = (whole[:end] for end in range(1, len(whole)))  # one token stays pending
            kept.append([self._slots[b][way] for way in ways if way in self._slots[b]])
            self._pending[b], self._slots[b] = whole[len(kept[b]) :], {}
        self.cache.keep(_filled(kept))

    def select(self, rows: Int[np.ndarray, " b"]) -> None:
        self.cache.select(rows)
        self._pending = [self._pending[row] for row in rows]
        self._slots = [{} for _ in rows]


class _Call:
    """One row's part of a call: tokens to append, their parents, and where the answers will be."""

    def __init__(self, asked: Sequence[Path | None], pending: Path, known: dict[Path, int]):
        self.asked, self.pending, self.known = asked, pending, known
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.answers: list[int] = []

    def plan(self, first: int) -> None:
        """Number the slots from `first` on; ways that are not known yet are appended as well."""
        here: dict[Path, int] = {}
        for path in self.asked:
            if path is None:
                self.answers.append(-1)
                continue
            whole = (*self.pending, *path)
            for end in range(1, len(whole)):
                if whole[:end] not in self.known:
                    here[whole[:end]] = self._append(whole[:end], first)
            if whole not in here:
                here[whole] = self._append(whole, first)
            self.answers.append(here[whole] - first)

    def _append(self, way: Path, first: int) -> int:
        slot = first + len(self.tokens)
        self.tokens.append(way[-1])
        self.parents.append(self.known[way[:-1]] if len(way) > 1 else -1)
        self.known.setdefault(way, slot)
        return slot


class _HistoryLaws(TreeLaws):
    """A model without a cache: it reads the history of every path, equal ones once."""

    def __init__(self, model: Model, contexts: Sequence[Int[np.ndarray, " _"]]) -> None:
        self.model = model
        self._contexts: list[Path] = [tuple(np.asarray(context).tolist()) for context in contexts]
        if not self._contexts or not all(self._contexts):
            raise InputError("every context holds at least one token: give a prompt.")
        self._memory = max(model.order - 1, 1) if isinstance(model, NGram) else 0

    @property
    def batch(self) -> int:
        return len(self._contexts)

    def _logits(self, asked: Sequence[Sequence[Path | None]]) -> Float[np.ndarray, "B M V"]:
        logits = np.zeros((len(asked), max(map(len, asked)), self.model.vocabulary), np.float32)
        places: dict[Path, list[tuple[int, int]]] = {}
        for b, row in enumerate(asked):
            for m, path in enumerate(row):
                if path is not None:
                    # A slice from -0 on is the whole history.
                    history = (*self._contexts[b], *path)[-self._memory :]
                    places.setdefault(history, []).append((b, m))
        for length in {len(history) for history in places}:
            histories = [history for history in places if len(history) == length]
            found = self.model.logits(np.array(histories), np.array([length - 1]))[:, 0]
            for history, row in zip(histories, found, strict=True):
                logits[tuple(np.transpose(places[history]))] = row
        return logits

    def commit(self, tokens: Int[np.ndarray, "B K"]) -> None:
        for b, row in enumerate(tokens.tolist()):
            self._contexts[b] += tuple(token for token in row if token >= 0)

    def select(self, rows: Int[np.ndarray, " b"]) -> None:
        self._contexts = [self._contexts[row] for row in rows]


def _filled(rows: Iterable[Sequence[int]]) -> Int[np.ndarray, "B M"]:
    """Rows of different lengths as one array, filled up with -1."""
    rows = list(rows)
    table = np.full((len(rows), max(map(len, rows))), -1)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


def _paths(parents: Sequence[int], tokens: Sequence[int]) -> list[Path | None]:
    """Drafted tokens down to every slot of a tree; None at slots without a token."""
    paths: list[Path | None] = [()]
    for parent, token in zip(parents[1:], tokens[1:], strict=True):
        above = paths[parent] if token >= 0 else None
        paths.append(None if above is None else (*above, token))
    return paths
