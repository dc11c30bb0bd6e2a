"""Pieces of the page; every text that goes in is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from multidraft.report.words import error, value


class Cell(NamedTuple):
    """A number of the report: its text, its error and the key that says which number it is."""

    text: str
    error: str = ""
    key: str = ""
    marks: tuple[tuple[str, str], ...] = ()  # further attributes, for the script

    @classmethod
    def of(cls, found: Mapping[str, Any] | None, key: str, digits: int = 3) -> Cell:
        """Return the cell of a number, a dash where there is none."""
        if found is None:
            return cls("–")
        return cls(value(found, digits), error(found, digits), key)

    def attributes(self) -> str:
        """HTML attributes of the element that shows it."""
        pairs = [*([("data-key", self.key)] if self.key else []), *self.marks]
        return "".join(f' {name}="{escape(text)}"' for name, text in pairs)

    def html(self) -> str:
        """Text and error; the error takes a line of its own where it is narrow."""
        small = f" <small>± {escape(self.error)}</small>" if self.error else ""
        return escape(self.text) + small


def paragraph(text: str, kind: str = "") -> str:
    """One paragraph, of a class."""
    return f"<p{f' class={kind}' if kind else ''}>{escape(text)}</p>"


def table(
    caption: str,
    headings: Sequence[str],
    rows: Iterable[tuple[str, Sequence[Cell | str]]],
    best: str | None = None,
) -> str:
    """A table in a box that scrolls sideways; the row named `best` stands out."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in headings)
    body = "".join(
        f"<tr{' class=best' if name == best else ''}>"
        f'<th scope="row">{escape(name)}</th>{"".join(map(_cell, cells))}</tr>'
        for name, cells in rows
    )
    return (
        f'<div><p class="caption">{escape(caption)}</p>'
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></div>"
    )


def _cell(cell: Cell | str) -> str:
    if isinstance(cell, str):
        return f"<td>{escape(cell)}</td>"
    return f"<td{cell.attributes()}>{cell.html()}</td>"


def facts(pairs: Mapping[str, Cell | str]) -> str:
    """Names with values, as a grid of cards."""
    parts = []
    for name, item in pairs.items():
        cell = Cell(item) if isinstance(item, str) else item
        parts.append(f"<div><dt>{escape(name)}</dt><dd{cell.attributes()}>{cell.html()}</dd></div>")
    return f'<dl class="facts">{"".join(parts)}</dl>'


def side_by_side(parts: Iterable[str]) -> str:
    """Blocks next to each other where there is room."""
    return f'<div class="side">{"".join(parts)}</div>'
