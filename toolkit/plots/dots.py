"""Dots on lines: many named numbers on one axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multidraft.plots import canvas
from multidraft.plots.lines import BAND

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def dots(
    frame: polars.DataFrame,
    *,
    label: str,
    colour: str,
    panel: str | None = None,
    value: str = "value",
    stderr: str = "stderr",
    xlabel: str,
    across: int = 2,
    share: bool = True,
) -> Figure:
    """Draw a line of text for every value of `label`, and a dot with its 95% bar for each number.

    Parameters
    ----------
    frame : polars.DataFrame
        One row per number; a null standard error draws no bar.
    label, colour, panel : str
        Columns whose values, in their order, choose the line, the colour and the panel.
    value, stderr : str
        Columns of numbers.
    xlabel : str
        What is measured, with its unit.
    across : int
        Panels in a row.
    share : bool
        Whether all panels have one scale.

    Raises
    ------
    InputError
        No rows, or a column that does not exist.
    """
    canvas.check(frame, label, colour, panel, value, stderr)
    names = frame[label].unique(maintain_order=True).to_list()
    hues = frame[colour].unique(maintain_order=True).to_list()
    handles: dict[str, Any] = {}
    with canvas.style():
        parts = canvas.split(frame, panel)
        figure, axes = canvas.panels(len(parts), across, 0.3 + 0.14 * len(names), share=share)
        for area, (title, rows) in zip(axes, parts, strict=True):
            canvas.title(area, title)
            for number, hue in enumerate(hues):
                points = rows.filter(rows[colour] == hue)
                places = [names.index(name) for name in points[label]]
                handles[str(hue)] = _dots(area, points.select(x=value, e=stderr), places, number)
            area.set_yticks(range(len(names)), list(map(str, names)))
            area.set_ylim(len(names) - 0.5, -0.5)
        canvas.label_outside(axes, min(across, len(parts)), xlabel, "")
        if colour != panel:  # else the titles say it
            canvas.legend_below(figure, handles)
    return figure


def _dots(area: Axes, points: polars.DataFrame, places: list[int], number: int) -> Any:
    return area.errorbar(
        points["x"].to_numpy(),
        places,
        xerr=BAND * points["e"].fill_null(0.0).to_numpy(),
        color=canvas.COLOURS[number % len(canvas.COLOURS)],
        marker=canvas.MARKERS[number % len(canvas.MARKERS)],
        linestyle="",
        elinewidth=0.8,
    )
