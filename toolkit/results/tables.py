"""Tables for papers: pivot rows, write Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multidraft.errors import InputError

if TYPE_CHECKING:
    import polars

_MISSING = "–"


@dataclass(frozen=True)
class Entry:
    """One number of a table; a standard error of None means that the number is exact."""

    value: float
    stderr: float | None

    def text(self, digits: int, plus_minus: str, exact: str) -> str:
        """Format as ``0.613 ± 0.004``, or ``0.613 (exact)``."""
        number = f"{self.value:.{digits}f}"
        if self.stderr is None:
            return f"{number} {exact}"
        error = f"{self.stderr:.{digits}f}"
        if float(error) == 0 < self.stderr:
            error = f"{self.stderr:.0e}"  # an error that rounds to zero would read as "exact"
        return f"{number} {plus_minus} {error}"


@dataclass(frozen=True)
class Table:
    """A pivoted table.

    Attributes
    ----------
    labels : tuple of str
        Names of the row columns, on the left.
    columns : tuple of str
        Headings of the value columns.
    rows : tuple of (labels, entries)
        Row labels and, for every value column, an `Entry` or None.
    digits : int
        Decimals shown.
    """

    labels: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[Entry | None, ...]], ...]
    digits: int = 3

    def markdown(self) -> str:
        """Return the table in Markdown, values aligned to the right."""
        lines = [
            [*self.labels, *self.columns],
            [*("---" for _ in self.labels), *("---:" for _ in self.columns)],
            *([*names, *self._texts(entries, "±", "(exact)")] for names, entries in self.rows),
        ]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def latex(self) -> str:
        """Return a ``tabular`` that needs the package booktabs."""
        body = [
            [*map(_escape, names), *self._texts(entries, r"$\pm$", "(exact)")]
            for names, entries in self.rows
        ]
        heading = [_escape(name) for name in (*self.labels, *self.columns)]
        shape = "l" * len(self.labels) + "r" * len(self.columns)
        lines = [
            rf"\begin{{tabular}}{{{shape}}}",
            r"\toprule",
            " & ".join(heading) + r" \\",
            r"\midrule",
            *(" & ".join(line) + r" \\" for line in body),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        return "\n".join(lines).replace(_MISSING, "--") + "\n"

    def csv(self) -> str:
        """Return comma-separated values at full precision; the error of an exact value is empty."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        pairs = [name for column in self.columns for name in (column, f"{column} stderr")]
        writer.writerow([*self.labels, *pairs])
        for names, entries in self.rows:
            writer.writerow([*names, *(cell for entry in entries for cell in _pair(entry))])
        return stream.getvalue()

    def _texts(self, entries: Sequence[Entry | None], plus_minus: str, exact: str) -> list[str]:
        return [
            entry.text(self.digits, plus_minus, exact) if entry is not None else _MISSING
            for entry in entries
        ]


def pivot(
    frame: polars.DataFrame,
    *,
    rows: Sequence[str],
    columns: str,
    value: str = "value",
    stderr: str = "stderr",
    digits: int = 3,
) -> Table:
    """Spread rows of results over a table.

    Parameters
    ----------
    frame : polars.DataFrame
        One row per number; rows and columns of the table keep its order.
    rows : sequence of str
        The columns of `frame` that label the table's rows.
    columns : str
        The column of `frame` whose values become the table's columns, as ``name=value``.
    value, stderr : str
        The columns with the number and its standard error; a null error means exact.
    digits : int
        Decimals shown.

    Raises
    ------
    InputError
        A column that does not exist, or two numbers for one place of the table.
    """
    missing = sorted({*rows, columns, value, stderr} - set(frame.columns))
    if missing:
        raise InputError(f"no column {missing[0]!r} in these results; there are {frame.columns}")
    places: dict[tuple[Any, ...], dict[Any, Entry]] = {}
    headings: dict[Any, None] = {}  # a set that keeps the order
    for row in frame.iter_rows(named=True):
        place = places.setdefault(tuple(row[name] for name in rows), {})
        if row[columns] in place:
            raise InputError(
                f"two numbers for {[row[name] for name in rows]} at {columns}={row[columns]}; "
                "name more row columns or filter the results first"
            )
        headings[row[columns]] = None
        place[row[columns]] = Entry(row[value], row[stderr])
    return Table(
        tuple(rows),
        tuple(f"{columns}={heading}" for heading in headings),
        tuple(
            (tuple(map(_label, labels)), tuple(place.get(heading) for heading in headings))
            for labels, place in places.items()
        ),
        digits,
    )


def _label(value: Any) -> str:
    return _MISSING if value is None else str(value)


def _pair(entry: Entry | None) -> tuple[str, str]:
    if entry is None:
        return "", ""
    return repr(entry.value), "" if entry.stderr is None else repr(entry.stderr)


def _escape(text: str) -> str:
    for character in "&%$#_{}":
        text = text.replace(character, "\\" + character)
    return text
