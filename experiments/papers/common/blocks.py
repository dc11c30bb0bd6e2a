"""The one computation of items on recorded trees: expected block lengths, context by context.

A cell names a recording, by ``deepest`` (a tree as text), ``law``, ``draft_temperature`` and
``draft_top_k``, and what is read off it: ``tree``, ``rule``, and the target's ``temperature`` and
``top_k``. Block efficiency is the mean over contexts of the expected block length given the drafted
tree, which is exact; all rules and trees of a recording see the same drafts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import multidraft as md
from multidraft.errors import InputError
from multidraft.experiments.papers.common.setting import Setting
from multidraft.trees import efficiency, named, recorded, rules
from multidraft.trees.recording import Recorder

CONTEXTS = 128
SETTINGS = {"temperature": 1.0, "top_k": None, "draft_temperature": 1.0, "draft_top_k": None}


def cells(
    setting: Setting,
    settings: Iterable[Mapping[str, Any]],
    *,
    contexts: int = CONTEXTS,
    quick: int = 2,
) -> list[dict[str, Any]]:
    """Every setting on the same recorded contexts; see :meth:`Setting.cells`.

    Raises
    ------
    InputError
        Some texts were chosen: trees are recorded at contexts of all of them.
    """
    if setting.texts:
        raise InputError("--texts chooses contexts of a trace; recorded trees are of all texts.")
    count = setting.count(contexts, quick)
    pair = {name: setting.pair[name] for name in ("trace", "draft")}
    return [{**pair, "contexts": count, **SETTINGS, **one} for one in settings]


def record(wanted: Iterable[Mapping[str, Any]], path: str) -> None:
    """Record the trees of all cells that are not there yet, one after another."""
    for cell in wanted:
        _recording(cell, path)


def compute(cell: dict[str, Any], seed: int, *, path: str) -> list[dict[str, Any]]:
    """A row for every context; nothing is drawn, `seed` is not used."""
    recording = _recording(cell, path)
    tree = named.parse(cell["tree"], cell["law"])
    case = efficiency.Case(tree, rules.parse(cell["rule"]))
    found = efficiency.lengths(
        recording, {"": case}, temperature=cell["temperature"], top_k=cell["top_k"]
    )
    places = zip(recording.context.tolist(), recording.passage.tolist(), strict=True)
    return [
        {"context": context, "passage": passage, "value": float(length), "nodes": tree.nodes}
        for (context, passage), length in zip(places, found[""], strict=True)
    ]


def _recording(cell: Mapping[str, Any], path: str) -> recorded.Recording:
    drafting = {"temperature": cell["draft_temperature"], "top_k": cell["draft_top_k"]}
    tree = named.parse(cell["deepest"], cell["law"])
    return _recorder(path, cell["contexts"]).record(cell["draft"], tree, **drafting)


@lru_cache(maxsize=1)  # keeps the models
def _recorder(path: str, contexts: int) -> Recorder:
    return Recorder(path, md.traces.open(path).header["target"]["name"], contexts=contexts)
