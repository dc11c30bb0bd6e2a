"""Bring your own distributions: traces from arrays of logits and from logs of serving engines.

`logits` gives a :class:`multidraft.traces.Trace`, everything can be computed from it; `top_k` a
:class:`multidraft.partial.PartialTrace`, from which every number is an interval. `open` reads both.
"""

from __future__ import annotations

import os
from pathlib import Path

from multidraft import partial, traces
from multidraft.errors import InputError
from multidraft.importers.arrays import logits
from multidraft.importers.logs import top_k

__all__ = ["logits", "open", "top_k"]


def open(path: str | os.PathLike[str]) -> traces.Trace | partial.PartialTrace:
    """Open a trace of either kind.

    Raises
    ------
    InputError
        No such file, or no trace.
    """
    place = Path(path)
    if place.suffix in (".jsonl", ".json", ".npy", ".npz"):
        raise InputError(f"{place} is no trace yet: make one with `multidraft import`.")
    return partial.open(place) if _is_partial(place) else traces.open(place)


def _is_partial(place: Path) -> bool:
    """Whether the file announces partial laws; any other file is left to the full reader."""
    try:
        with place.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            return partial.KEY.encode() in file.read(min(length, 1 << 26))
    except OSError:
        return False
