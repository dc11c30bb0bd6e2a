"""Keys and values of a transformer behind contexts of different lengths, and below them of trees.

Every row keeps its committed tokens in the first columns of the cache and its drafted slots in the
columns after the longest row's, in the order in which they came. What a slot may look at - its
row's committed tokens, its ancestors, itself - is the attention mask, and its position is its depth
behind the committed tokens, so rows of any length and trees of any shape share one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from multidraft.errors import InputError, Refused
from multidraft.models.transformer import Transformer


class TreeCache:
    """A transformer's cache behind B contexts, and calls on the trees that hang below them.

    The last token of a context is not committed: it is the root of the first tree, so one call on
    (last token, drafted tokens) gives the target's logits at the root and at every drafted slot.

    Parameters
    ----------
    model : Transformer
        With full attention in every layer.
    contexts : sequence of B integer arrays (T_b,)
        At least one token each.

    Attributes
    ----------
    lengths : (B,) integers
        Committed tokens of every row.

    Raises
    ------
    Refused
        The model's cache cannot be cut back to one path of a tree.
    InputError
        No contexts, an empty one, one longer than the model's positions, or ids out of range.
    """

    lengths: Int[np.ndarray, " B"]

    def __init__(self, model: Transformer, contexts: Sequence[Int[np.ndarray, " _"]]) -> None:
        if reason := refuses(model):
            raise Refused(reason)
        self.model, self._cache = model, _empty(model)
        self.lengths = np.array([len(context) - 1 for context in contexts], dtype=np.int64)
        self._check_contexts()
        self._width = 0
        self._clear()
        if self.lengths.max() > 0:
            self._prefill(contexts)

    def _check_contexts(self) -> None:
        if self.lengths.size == 0 or self.lengths.min() < 0:
            raise InputError("every context holds at least one token: give a prompt.")
        check_prompt(self.model, int(self.lengths.max()) + 1)

    def _clear(self) -> None:
        """Forget every drafted slot: parents, depths, and what each may look at."""
        batch = len(self.lengths)
        self._parents = np.empty((batch, 0), dtype=np.int64)
        self._depths = np.empty((batch, 0), dtype=np.int64)
        self._live = np.empty((batch, 0), dtype=bool)
        self._above = np.empty((batch, 0, 0), dtype=bool)

    def _prefill(self, contexts: Sequence[Int[np.ndarray, " _"]]) -> None:
        """Read all but the last tokens; short rows are filled up behind, where nobody looks."""
        self._width = int(self.lengths.max())
        tokens = np.zeros((len(contexts), self._width), dtype=np.int64)
        for row, context in zip(tokens, contexts, strict=True):
            row[: len(context) - 1] = context[:-1]
        causal = np.tile(np.tri(self._width, dtype=bool), (len(tokens), 1, 1))
        self._call(tokens, causal, np.tile(np.arange(self._width), (len(tokens), 1)), logits=1)

    def _call(
        self,
        tokens: Int[np.ndarray, "B M"],
        seen: Bool[np.ndarray, "B M C"],
        places: Int[np.ndarray, "B M"],
        logits: int = 0,
    ) -> Float[np.ndarray, "B m V"]:
        """Append tokens; return the last `logits` rows of logits, or all of them for 0."""
        module = self.model.module
        # An additive mask is understood by every attention of transformers, a boolean one not.
        hidden = torch.full(seen.shape, torch.finfo(module.dtype).min, dtype=module.dtype)
        mask = hidden.masked_fill_(torch.as_tensor(seen), 0.0)[:, None]
        with torch.inference_mode():
            out = module(
                input_ids=self.model.ids(tokens).to(module.device),
                attention_mask=mask.to(module.device),
                position_ids=torch.as_tensor(places).to(module.device),
                use_cache=True,
                logits_to_keep=logits,
                **{self.model.cache_argument: self._cache},
            )
        return out.logits.float().cpu().numpy()

    @property
    def drafted(self) -> int:
        """Number of slots appended since the last :meth:`keep`."""
        return self._parents.shape[1]

    @property
    def nbytes(self) -> int:
        """Memory of the keys and values, in bytes."""
        layers = [layer for layer in self._cache.layers if layer.is_initialized]
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in layers)

    def extend(
        self, tokens: Int[np.ndarray, "B M"], parents: Int[np.ndarray, "B M"]
    ) -> Float[np.ndarray, "B M V"]:
        """Append M drafted slots to every row and return the logits after each of them.

        Parameters
        ----------
        tokens : (B, M)
            -1 marks an absent slot.
        parents : (B, M)
            Number of each slot's parent, -1 for a slot directly behind the committed tokens. Slots
            are numbered on from those of the calls since the last :meth:`keep`, parents come first.

        Returns
        -------
        (B, M, V) float32 as of `Transformer.logits`; zeros at absent slots.

        Raises
        ------
        InputError
            Wrong shapes, a parent that is no earlier slot of its row, ids out of range, or a tree
            that is deeper than the positions that the model has left.
        """
        if tokens.shape != parents.shape or tokens.shape[:1] != self.lengths.shape:
            raise InputError(
                f"tokens have shape {tokens.shape} and parents {parents.shape}: pass (B, M) each "
                f"for {len(self.lengths)} contexts."
            )
        before = self.drafted
        self._hang(tokens >= 0, np.where(tokens >= 0, parents, -1))
        committed = np.arange(self._width) < self.lengths[:, None, None]
        shape = (*tokens.shape, self._width)
        seen = np.append(np.broadcast_to(committed, shape), self._above[:, before:], axis=-1)
        places = self.lengths[:, None] + self._depths[:, before:]
        logits = self._call(np.maximum(tokens, 0), seen, places)
        logits[tokens < 0] = 0.0
        return logits

    def _hang(self, live: Bool[np.ndarray, "B M"], parents: Int[np.ndarray, "B M"]) -> None:
        """Enter new slots below their parents."""
        before, rows = self.drafted, np.arange(len(parents))
        total = before + parents.shape[1]
        known = np.append(self._live, live, axis=-1)
        depths = np.append(self._depths, np.zeros_like(parents), axis=-1)
        above = np.zeros((len(parents), total, total), dtype=bool)
        above[:, :before, :before] = self._above
        for slot, parent in enumerate(parents.T, start=before):
            below = parent >= 0
            if (parent >= slot).any() or not known[rows[below], parent[below]].all():
                raise InputError(f"slot {slot} hangs below a slot that is absent or comes later.")
            above[:, slot] = above[rows, parent] & below[:, None]
            above[:, slot, slot] = True
            depths[:, slot] = np.where(below, depths[rows, parent] + 1, 0)
        self._check_depth(depths)
        self._parents = np.append(self._parents, parents, axis=-1)
        self._live, self._depths, self._above = known, depths, above

    def _check_depth(self, depths: Int[np.ndarray, "B D"]) -> None:
        needed, most = int((self.lengths[:, None] + depths).max()) + 1, positions(self.model)
        if most is not None and needed > most:
            raise InputError(
                f"a tree that reaches position {needed} is deeper than the {most} positions of "
                f"{self.model.name}: use a shallower tree or a shorter prompt."
            )

    def keep(self, slots: Int[np.ndarray, "B K"]) -> None:
        """Commit one path per row and forget every other drafted slot.

        Parameters
        ----------
        slots : (B, K)
            The slots of each row's path from directly behind the committed tokens on, each the
            parent of the next; -1 fills up short rows.

        Raises
        ------
        InputError
            The slots of a row are no such path.
        """
        self._check_path(slots)
        counts = (slots >= 0).sum(-1)
        if counts.any():
            self._gather(slots[:, : counts.max()])
        self.lengths = self.lengths + counts
        self._width = int(self.lengths.max())
        for layer in self._cache.layers:
            if layer.is_initialized:
                layer.keys = layer.keys[..., : self._width, :]
                layer.values = layer.values[..., : self._width, :]
        self._clear()

    def _check_path(self, slots: Int[np.ndarray, "B K"]) -> None:
        if len(slots) != len(self.lengths):
            raise InputError(
                f"slots have shape {slots.shape}: pass one path for each of {len(self.lengths)} "
                "contexts."
            )
        rows = np.arange(len(slots))
        last = np.full(len(slots), -1)
        ended = np.zeros(len(slots), dtype=bool)
        for step in slots.T:
            on = step >= 0
            valid = ~ended & (step < self.drafted)
            valid[valid & on] = self._is_child(rows, step, last)[valid & on]
            if not valid[on].all():
                raise InputError("the slots to keep are no path behind the committed tokens.")
            ended, last = ~on, np.where(on, step, last)

    def _is_child(self, rows: np.ndarray, slots: np.ndarray, parents: np.ndarray) -> np.ndarray:
        inside = np.clip(slots, 0, self.drafted - 1)
        return self._live[rows, inside] & (self._parents[rows, inside] == parents)

    def _gather(self, slots: Int[np.ndarray, "B K"]) -> None:
        """Move the kept columns to the end of every row's committed ones.

        What short rows write lies behind their last token, where nobody looks.
        """
        source = torch.tensor(self._width + np.maximum(slots, 0))
        goal = torch.tensor(self.lengths[:, None] + np.arange(slots.shape[1]))
        with torch.inference_mode():
            for layer in self._cache.layers:
                for part in (layer.keys, layer.values):
                    shape = (len(slots), part.shape[1], slots.shape[1], part.shape[3])
                    here, there = (
                        index.to(part.device)[:, None, :, None].expand(shape)
                        for index in (source, goal)
                    )
                    part.scatter_(2, there, part.gather(2, here))

    def select(self, rows: Int[np.ndarray, " b"]) -> None:
        """Go on with some of the rows, in the given order; drafted slots are forgotten."""
        self._cache.batch_select_indices(torch.as_tensor(rows).to(self.model.module.device))
        self.lengths = self.lengths[rows]
        self.keep(np.empty((len(self.lengths), 0), dtype=np.int64))


def refuses(model: Transformer) -> str | None:
    """Why a model's cache cannot be cut back to one path of a tree, or None."""
    from transformers.cache_utils import DynamicLayer

    kinds = {type(layer) for layer in _empty(model).layers} - {DynamicLayer}
    if kinds:
        found = " and ".join(sorted(kind.__name__ for kind in kinds))
        return (
            f"{model.name} is a {type(model.module).__name__} whose cache has layers of the kind "
            f"{found}, which cannot be cut back to one path of a tree: use a model with full "
            "attention in every layer."
        )
    if not model.places_tokens:
        return (
            f"{model.name} is a {type(model.module).__name__}, which takes no position ids, so "
            "its tokens cannot be put into a tree: use a model that takes them."
        )
    return None


def positions(model: Transformer) -> int | None:
    """Most tokens that a context of the model can hold; None when there is no bound."""
    config = model.module.config.get_text_config(decoder=True)
    return getattr(config, "max_position_embeddings", None)


def check_prompt(model: Transformer, tokens: int) -> None:
    """Raise InputError when a prompt of so many tokens does not fit into the model's positions."""
    most = positions(model)
    if most is not None and tokens > most:
        raise InputError(
            f"a prompt of {tokens} tokens is longer than the {most} positions of {model.name}: "
            "shorten it."
        )


def _empty(model: Transformer) -> Any:
    from transformers import DynamicCache

    return DynamicCache(config=model.module.config)
