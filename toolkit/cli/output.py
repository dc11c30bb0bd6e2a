"""How commands print: aligned text for people, JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

Flag = Annotated[bool, Parameter(show_default=False)]
Json = Annotated[Flag, Parameter(name="--json", help="Print JSON instead of text.")]


def print_json(content: Any) -> None:
    """Print one JSON document; arrays become lists, NaN becomes null."""
    print(json.dumps(_plain(content), indent=1, allow_nan=False))


def print_fields(fields: Mapping[str, Any]) -> None:
    """Print names and values, one per line."""
    width = max(map(len, fields))
    for name, value in fields.items():
        print(f"{name:<{width}}  {_text(value)}")


def print_table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print aligned columns; the last one is not padded."""
    lines = [list(headings), *([_text(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        padded = (f"{text:<{width}}" for text, width in zip(line, widths, strict=True))
        print("  ".join(padded).rstrip())


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.12g}"
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
