"""Cells: what one computation is, its key and its seed, and what came of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from multidraft import results
from multidraft.errors import InputError

Cell = Mapping[str, Any]
Function = Callable[[dict[str, Any], int], list[dict[str, Any]]]

SEEDS = "seed of a cell: hexadecimal digits 17 to 31 of the SHA-256 of its canonical JSON"


def key(cell: Cell) -> str:
    """What identifies a cell: 16 hexadecimal digits of its hash."""
    return _key(results.digest(cell))


def seed(cell: Cell) -> int:
    """The seed of a cell, from other digits of the same hash; below 2**60."""
    return _seed(results.digest(cell))


def _key(digest: str) -> str:
    return digest[:16]


def _seed(digest: str) -> int:
    return int(digest[16:31], 16)


def grid(**axes: Sequence[Any]) -> list[dict[str, Any]]:
    """The cross product of the axes, as cells; the last axis varies fastest.

    Examples
    --------
    >>> grid(law=["iid"], n=[1, 2])
    [{'law': 'iid', 'n': 1}, {'law': 'iid', 'n': 2}]
    """
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


@dataclass(frozen=True)
class Outcome:
    """Rows of a cell, the seconds they took, and the sentence of its failure or None.

    The digest, of the cell, is taken by the workers, not by the one who collects.
    """

    cell: Cell
    digest: str
    rows: list[dict[str, Any]]
    seconds: float
    error: str | None

    @property
    def key(self) -> str:
        """Key of the cell."""
        return _key(self.digest)

    def stamped(self) -> Iterator[dict[str, Any]]:
        """Rows as they are written: key, seed, seconds, error, the cell, the function's columns."""
        cell = {
            name: results.canonical(value) if isinstance(value, dict | list) else value
            for name, value in self.cell.items()
        }
        stamp = {
            "key": self.key,
            "seed": _seed(self.digest),
            "seconds": self.seconds,
            "error": self.error,
        }
        return (stamp | cell | row for row in self.rows)


def attempt(function: Function, cells: Sequence[Cell]) -> list[Outcome]:
    """Compute cells one after another; an exception becomes the outcome of its cell."""
    return [_attempt(function, cell) for cell in cells]


def _attempt(function: Function, cell: Cell) -> Outcome:
    start = time.perf_counter()
    digest = results.digest(cell)
    try:
        rows, sentence = function(dict(cell), _seed(digest)), None
        _check_rows(rows, cell)
    except Exception as error:  # a failed cell is a row like any other, and can be retried
        rows, sentence = [{}], f"{type(error).__name__}: {error}"
    return Outcome(cell, digest, rows, time.perf_counter() - start, sentence)


def _check_rows(rows: list[dict[str, Any]], cell: Cell) -> None:
    if not rows:
        raise InputError("the function returned no row: nothing would show that the cell is done")
    taken = {"key", "seed", "seconds", "error", *cell}.intersection(*rows)
    if taken:
        raise InputError(f"the function returned a column {min(taken)!r} that the cell has")
