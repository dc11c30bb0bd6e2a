"""On what an item is computed: a pair, its recorded trace, and which contexts of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

import multidraft as md
from multidraft.errors import InputError
from multidraft.experiments.first_light import fingerprint

CONTEXTS = 256  # of an item, unless it says otherwise
CHUNK = 32  # contexts per cell: 25 MB of laws at V = 49,152


@dataclass(frozen=True)
class Setting:
    """The pair and the contexts that the user chose.

    Attributes
    ----------
    trace : Path
        The recorded trace.
    draft : str
        Name of a draft in the trace.
    contexts : int or None
        Most contexts of an item; None leaves it to the item.
    texts : tuple of str
        Ids of the texts whose contexts count; empty for all.
    quick : bool
        Fewer settings, draws and instances, to see that everything works.
    """

    trace: Path
    draft: str
    contexts: int | None = None
    texts: tuple[str, ...] = ()
    quick: bool = False

    @cached_property
    def pair(self) -> dict[str, Any]:
        """What identifies the laws: the content of the trace, the draft, the texts."""
        trace = md.traces.open(self.trace)
        trace.draft(self.draft)
        return {
            "trace": fingerprint(self.trace),
            "draft": self.draft,
            "texts": sorted(self.texts),
        }

    def count(self, wanted: int = CONTEXTS, quick: int = CONTEXTS) -> int:
        """How many contexts an item gets that wants so many, and no more than `quick` in haste."""
        held = len(_candidates(md.traces.open(self.trace), self.texts))
        wanted = min(wanted, quick) if self.quick else wanted
        return min(wanted if self.contexts is None else self.contexts, held)

    def cells(
        self,
        settings: Iterable[Mapping[str, Any]],
        *,
        contexts: int = CONTEXTS,
        quick: int = CONTEXTS,
    ) -> list[dict[str, Any]]:
        """Every setting on every chunk of contexts; the settings of a chunk follow each other.

        Parameters
        ----------
        settings : iterable of mappings
            What the cells differ in besides their contexts.
        contexts, quick : int
            How many contexts the item wants, and at most in haste.
        """
        count, settings = self.count(contexts, quick), list(settings)
        return [
            {**self.pair, "contexts": count, "first": first, "last": min(first + CHUNK, count) - 1}
            | dict(setting)
            for first in range(0, count, CHUNK)
            for setting in settings
        ]


def _candidates(trace: md.traces.Trace, texts: Iterable[str]) -> Int[np.ndarray, " M"]:
    """Contexts from the texts with these ids, all where none is named."""
    wanted = set(texts)
    known = [text["id"] for text in trace.texts]
    if unknown := wanted - set(known):
        raise InputError(f"the trace has no text {min(unknown)!r}: choose from {', '.join(known)}.")
    if not wanted:
        return np.arange(len(trace))
    return np.flatnonzero(np.isin(trace.text, [known.index(text) for text in wanted]))


@lru_cache(maxsize=8)
def _picked(path: str, contexts: int, texts: tuple[str, ...]) -> Int[np.ndarray, " M"]:
    """So many contexts, spread evenly over the passages."""
    candidates = _candidates(md.traces.open(path), texts)
    return candidates[np.linspace(0, len(candidates) - 1, contexts).astype(int)]


def rows(cell: Mapping[str, Any], path: str) -> Int[np.ndarray, " M"]:
    """Indices into the trace of the contexts of a cell."""
    picked = _picked(path, cell["contexts"], tuple(cell["texts"]))
    return picked[cell["first"] : cell["last"] + 1]
