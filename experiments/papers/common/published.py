"""Published numbers beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars

FOLDER = Path(__file__).parents[2] / "published"


def read(name: str) -> polars.DataFrame:
    """Rows of one published table; all columns are text, values as they are printed."""
    import polars

    return polars.read_csv(FOLDER / f"{name}.csv", infer_schema=False)


def beside(
    name: str,
    ours: polars.DataFrame | None,
    *,
    methods: Mapping[str, str],
    on: Mapping[str, str],
    where: Mapping[str, Sequence[str]] | None = None,
    show: tuple[str, ...] = ("target_model", "draft_model", "dataset"),
    digits: int = 3,
) -> str:
    """Markdown table of published numbers, as printed, and our means of the same setting.

    Parameters
    ----------
    name : str
        File in the folder of published numbers.
    ours : polars.DataFrame or None
        Columns method, those of `on`, value, stderr; None where nothing of ours compares.
    methods : mapping
        Label of the paper -> our method; other labels are left out.
    on : mapping
        Column of the paper -> our column with the same meaning; what does not match shows as "–".
    where : mapping, optional
        Column of the paper -> the values whose rows are shown.
    show : tuple of str
        Further columns of the paper to show.
    digits : int
    """
    rows = read(name)
    for column, values in {**(where or {}), "method": methods}.items():
        rows = rows.filter(rows[column].is_in(list(values)))
    labels = [*show, *on, "method"]
    head = [*labels, "published", "provenance", *([] if ours is None else ["ours"])]
    lines = [head, ["---"] * len(head)]
    for row in rows.iter_rows(named=True):
        value = row["value"] + (f" ± {row['uncertainty']}" if row["uncertainty"] else "")
        line = [*(row[column] or "–" for column in labels), value, row["provenance"]]
        if ours is not None:
            keys = {our: _number(row[theirs]) for theirs, our in on.items()}
            line.append(_ours(ours, {**keys, "method": methods[row["method"]]}, digits))
        lines.append(line)
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = [note for note in rows["note"].unique(maintain_order=True).to_list() if note]
    return "\n".join([table, "", *(f"- Note in the source: {note}." for note in notes)])


def _number(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _ours(ours: polars.DataFrame, keys: dict[str, Any], digits: int) -> str:
    for name, value in keys.items():
        ours = ours.filter(ours[name] == value) if value is not None else ours.clear()
    if len(ours) != 1:
        return "–"
    value, error = ours["value"][0], ours["stderr"][0]
    return f"{value:.{digits}f} " + ("(exact)" if error is None else f"± {error:.{digits}f}")
