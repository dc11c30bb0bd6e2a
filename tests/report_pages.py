"""Reports on small traces, and what a reader of the page finds in them."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from log_files import POSITIONS, TEXTS, VOCABULARY, WORDS, laws, vllm

from multidraft import importers
from multidraft.partial import PartialTrace
from multidraft.report import Sampling, Settings, measure, page
from multidraft.traces import Trace

TEXT = dict(enumerate(WORDS))
SETTINGS = Settings(sampling=Sampling(temperature=0.8), explored=6, draft_cost=0.2)
K = 6


def full(folder: Path) -> Trace:
    """A trace of full logits at the positions of four texts."""
    given = laws()
    arrays = {name: np.log(given[name]).reshape(-1, VOCABULARY) for name in ("target", "draft")}
    passage = np.repeat(np.arange(TEXTS), POSITIONS)
    position = np.tile(np.arange(1, POSITIONS + 1), TEXTS)
    path = folder / "full.npz"
    columns = {"ids": given["tokens"].ravel(), "passage": passage, "position": position}
    np.savez(path, **arrays, **columns)
    return importers.logits(path, {"draft": path}, name="<b>large</b>")


def logged(folder: Path) -> PartialTrace:
    """A trace of logs of six tokens at the same positions."""
    given = laws()
    target, draft = (
        vllm(folder / f"{name}.jsonl", given[name], given["tokens"], K)
        for name in ("target", "draft")
    )
    return importers.top_k(target, {"draft": draft}, name="<b>large</b>", vocabulary=VOCABULARY)


def report(trace: Trace | PartialTrace, settings: Settings = SETTINGS) -> tuple[dict, str]:
    """Content and page."""
    content = measure(trace, settings, TEXT, progress=False)
    return content, page(content)


class Reader(HTMLParser):
    """Collects numbers by key, the elements, and what is in scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.numbers: dict[str, str] = {}
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._key: str | None = None
        self._inside: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        found = dict(attrs)
        self.elements.append((tag, found))
        self._inside.append(tag)
        self._key = found.get("data-key") or (self._key if tag == "small" else None)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "dd"):
            self._key = None
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._inside and self._inside[-1] == "script":
            self.scripts[-1] += data
        elif self._inside and self._inside[-1] != "style":
            self.text += data
            if self._key is not None:
                self.numbers[self._key] = self.numbers.get(self._key, "") + data

    @property
    def data(self) -> dict[str, Any]:
        """What the page's script reads."""
        return json.loads(self.scripts[0])
