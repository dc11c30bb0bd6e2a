r"""Recorded trees: drafted trees behind recorded contexts, with both models' raw logits, in a file.

A file holds one tree shape, the deepest; shallower trees and fewer paths are read off it. Which
tokens were drafted depends on the draft law and its temperature and truncation, so a file states
those; the target's own temperature and truncation stay free. Tensors, for N contexts and a tree of
S slots of which I have children:

============  =============  ======================================================================
``target``    ``(N, S, V)``  logits of the target after every slot, float16 or float32
``draft``     ``(N, I, V)``  logits of the draft after every slot with children, in slot order
``tokens``    ``(N, S)``     drafted tokens; -1 at the root, and where the draft law ran out
``prefix``    ``(N, T)``     tokens of the contexts, filled up with -1
``context``   ``(N,)``       row of the trace that the context is
``text``      ``(N,)``       index into the header's texts
``passage``   ``(N,)``       index into the header's passages: the clusters of error bars
============  =============  ======================================================================

The header, JSON under the key ``multidraft``, says what was asked for (trace by hash, models, tree,
draft settings, contexts, seed) and what it was made with. Logits after slots without a token are
zeros and mean nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from multidraft import tensors
from multidraft.errors import InputError
from multidraft.models import cache
from multidraft.transform import probabilities
from multidraft.trees.drafted import DraftedTree, embedding
from multidraft.trees.tree import Tree

FORMAT = 1
SHAPES = {
    "target": "NSV",
    "draft": "NIV",
    "tokens": "NS",
    "prefix": "NT",
    "context": "N",
    "text": "N",
    "passage": "N",
}
KIND = tensors.Kind("recording of trees", "record it again", FORMAT, SHAPES)
HEADER_KEYS = ("format", "request", "target", "draft", "texts", "passages", "versions")

Rows = Sequence[int] | slice | Int[np.ndarray, " B"]


class Recording:
    """Drafted trees behind N contexts; logits stay in the file until they are asked for.

    Made by :func:`open`.

    Attributes
    ----------
    tree : Tree
        The recorded shape with its draft laws.
    tokens : (N, S)
    prefix : (N, T)
    context, text, passage : (N,)
        See the module's table.
    header : dict
    """

    def __init__(self, arrays: dict[str, np.ndarray], header: dict[str, Any]) -> None:
        self.target, self.draft = arrays["target"], arrays["draft"]
        self.tokens, self.prefix = np.array(arrays["tokens"]), np.array(arrays["prefix"])
        self.context, self.text = arrays["context"], arrays["text"]
        self.passage, self.header = arrays["passage"], header
        sizes = KIND.check_sizes(arrays)
        if missing := [key for key in HEADER_KEYS if key not in header]:
            raise InputError(f"the header lacks {', '.join(missing)}.")
        try:
            self.tree = Tree(
                header["request"]["tree"]["parents"], header["request"]["tree"]["laws"]
            )
        except (KeyError, TypeError):
            raise InputError("the header names no tree.") from None
        self._inner = np.array([slot for slot, below in enumerate(self.tree.children) if below])
        self._check(sizes)

    def _check(self, sizes: dict[str, int]) -> None:
        if (sizes["S"], sizes["I"]) != (self.tree.slots, len(self._inner)):
            raise InputError(
                f"the tensors hold {sizes['S']} slots, {sizes['I']} with children, and the "
                f"header's tree {self.tree.slots} and {len(self._inner)}."
            )
        kinds = {self.target.dtype, self.draft.dtype}
        if len(kinds) != 1 or not kinds <= {np.dtype("<f2"), np.dtype("<f4")}:
            raise InputError("target and draft must both be float16 or both float32.")
        _check_ids(self.tokens, -1, self.vocabulary, "tokens")
        _check_ids(self.prefix, -1, self.vocabulary, "prefix")
        _check_ids(self.passage, 0, len(self.header["passages"]), "passage")
        _check_ids(self.text, 0, len(self.header["texts"]), "text")

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        pair = f"{self.header['target']['name']} with {self.header['draft']['name']}"
        return f"Recording({len(self)} contexts of {pair}, {self.tree})"

    @property
    def vocabulary(self) -> int:
        """Width V of the logits."""
        return self.target.shape[-1]

    @property
    def law(self) -> str:
        """Name of the draft law, see :func:`law_of`."""
        return law_of(self.tree)

    @property
    def drafting(self) -> dict[str, Any]:
        """Temperature, top_k and top_p of the draft law that the tokens were drawn from."""
        return self.header["request"]["drafting"]

    @property
    def contexts(self) -> list[Int[np.ndarray, " T"]]:
        """Tokens of every context."""
        return [row[row >= 0] for row in self.prefix]

    def drafted(
        self,
        rows: Rows = slice(None),
        tree: Tree | None = None,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> DraftedTree:
        """Drafted trees of some contexts, with the target's laws at the given settings.

        The draft laws are those that the tokens were drawn from.

        Parameters
        ----------
        rows : which contexts; two float64 tables of (rows, slots, V) are made
        tree : a smaller tree that is read off, see `DraftedTree.restrict`
        temperature, top_k, top_p : of the target, see `multidraft.transform.probabilities`

        Raises
        ------
        InputError
            The smaller tree does not fit inside, or settings out of range.
        """
        tree = self.tree if tree is None else tree
        places = np.array(embedding(tree, self.tree))
        rows = np.arange(len(self))[rows]
        tokens = self.tokens[np.ix_(rows, places)]
        target = probabilities(self.target[rows][:, places], temperature, top_k, top_p)
        draft = np.zeros_like(target)
        inner = [slot for slot, below in enumerate(tree.children) if below]
        stored = np.searchsorted(self._inner, places[inner])
        draft[:, inner] = probabilities(self.draft[rows][:, stored], **self.drafting)
        return DraftedTree.of(tree, tokens, target, draft, check=False)


def law_of(tree: Tree) -> str:
    """Name of a tree's draft law; single draws, which are iid under most laws, do not count.

    Examples
    --------
    >>> law_of(Tree([-1, 0, 0, 1], "without-replacement"))
    'without-replacement'
    """
    names = tree.law_names()
    return "+".join(sorted(names - {"iid"} or names))


def _check_ids(values: np.ndarray, least: int, size: int, name: str) -> None:
    if values.dtype != np.int64 or values.min() < least or values.max() >= size:
        raise InputError(f"{name} must hold 64-bit integers in {least}..{size - 1}.")


def open(path: str | os.PathLike[str]) -> Recording:
    """Open a file of recorded trees.

    Raises
    ------
    InputError
        No such file, a damaged or truncated one, or one of another format.
    """
    arrays, header = tensors.open(path, KIND)
    try:
        return Recording(arrays, header)
    except InputError as fault:
        raise InputError(f"{os.fspath(path)}: {fault}") from None


def folder() -> Path:
    """Where recorded trees are kept."""
    return cache.folder() / "trees"


def found(place: Path | None = None) -> list[Path]:
    """Files of recorded trees in a folder, the cache's unless given, by name."""
    return sorted((folder() if place is None else place).glob("*.safetensors"))
