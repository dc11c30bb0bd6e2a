"""How commands print: coloured tables on a terminal, aligned text in a pipe, JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cyclopts import Parameter

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

Flag = Annotated[bool, Parameter(show_default=False)]
Json = Annotated[Flag, Parameter(name="--json", help="Print JSON instead of text.")]


def print_json(content: Any) -> None:
    """Print one JSON document; arrays become lists, NaN becomes null."""
    print(json.dumps(_plain(content), indent=1, allow_nan=False))


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print names and values, one per line; on a terminal long values fold to its width."""
    if (console := terminal()) is not None:
        console.print(_grid(("", ""), fields.items(), header=False))
        return
    width = max(map(len, fields))
    for name, value in fields.items():
        print(f"{name:<{width}}  {_text(value)}")


def print_table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print aligned columns; on a terminal they fold to its width."""
    if (console := terminal()) is not None:
        console.print(_grid(headings, rows, header=True))
        return
    lines = [list(headings), *([_text(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (f"{text:<{width}}" for text, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def terminal() -> Console | None:
    """The terminal that output goes to, or None for a pipe or a file.

    `NO_COLOR` takes the colours away, `FORCE_COLOR` makes any output a terminal.
    """
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    return console if console.is_terminal else None


def _grid(headings: Sequence[str], rows: Iterable[Sequence[Any]], *, header: bool) -> RichTable:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=header, header_style="bold", padding=(0, 2, 0, 0))
    for i, heading in enumerate(headings):
        table.add_column(heading, style="cyan" if i == 0 else "", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_text(value)) for value in row))
    return table


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.12g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{_text(part)} {name}" for name, part in value.items()) or "-"
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value)) or "-"
    return str(value)


def _plain(content: Any) -> Any:
    """The same content without numpy and without NaN, which JSON does not have."""
    if isinstance(content, Mapping):
        return {name: _plain(value) for name, value in content.items()}
    if isinstance(content, np.ndarray | np.generic):
        return _plain(content.tolist())
    if isinstance(content, list | tuple):
        return [_plain(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
