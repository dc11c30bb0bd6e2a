"""About 300 kB of public-domain English of many genres, shipped with the package.

Every work is an excerpt of up to 19 kB, with its source and licence in ``catalogue.toml``. The
first half of each is for contexts (`Work.contexts`), the second half (`Work.held_out`) for training
n-gram drafts, so that no draft has seen a passage it is measured on.

>>> from multidraft import texts
>>> len(texts.works()), texts.works()[0].title
(16, "Alice's Adventures in Wonderland")
"""

from __future__ import annotations

import functools
import hashlib
import tomllib
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Work:
    """One text with its provenance.

    Attributes
    ----------
    id : str
        Short name, also the file's.
    title, author, year, genre, source, licence : str
        As in the catalogue.
    text : str
        The excerpt.
    """

    id: str
    title: str
    author: str
    year: str
    genre: str
    source: str
    licence: str
    text: str

    @property
    def contexts(self) -> str:
        """The half from which passages are recorded: up to the paragraph end nearest the middle."""
        return self.text[: self._middle]

    @property
    def held_out(self) -> str:
        """The other half, on which n-gram drafts are trained."""
        return self.text[self._middle :]

    @property
    def sha256(self) -> str:
        """Hash of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def _middle(self) -> int:
        half = len(self.text) // 2
        return self.text.rfind("\n", 0, half) + 1 or half


@functools.cache
def works() -> tuple[Work, ...]:
    """Return every shipped work, in the order of the catalogue."""
    files = resources.files(__name__)
    catalogue = tomllib.loads(files.joinpath("catalogue.toml").read_text(encoding="utf-8"))
    return tuple(
        Work(id=name, text=files.joinpath(f"{name}.txt").read_text(encoding="utf-8"), **facts)
        for name, facts in catalogue.items()
    )
