"""Matrices that tests record and the test report prints, under one core or several.

``cell(record_property, title, row, column, value)`` in a test; `pytest_terminal_summary` collects
the cells of all tests that ran.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_KEY = "matrix"


def cell(record: Callable[[str, Any], None], title: str, row: str, column: str, value: str) -> None:
    """Record one cell from a test, with its fixture `record_property`."""
    record(_KEY, (title, row, column, value))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print every matrix of which a cell was recorded."""
    tables: dict[str, dict[str, dict[str, str]]] = {}
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties if report.when == "call" else ():
            if name == _KEY:
                title, row, column, text = value
                tables.setdefault(title, {}).setdefault(row, {})[column] = text
    for title, rows in sorted(tables.items()):
        terminalreporter.section(title)
        for line in _lines(rows):
            terminalreporter.line(line)


def _lines(rows: dict[str, dict[str, str]]) -> list[str]:
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    table = [["", *columns]]
    table += [[row, *(cells.get(column, "") for column in columns)] for row, cells in rows.items()]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in table]
