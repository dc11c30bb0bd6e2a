"""Curves with bands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multidraft.plots import canvas

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAND = 1.96  # standard errors on either side: 95% when the mean is nearly normal


def lines(
    frame: polars.DataFrame,
    *,
    x: str,
    colour: str,
    dash: str | None = None,
    panel: str | None = None,
    y: str = "value",
    stderr: str = "stderr",
    xlabel: str,
    ylabel: str,
    across: int = 4,
    log_x: bool = False,
    share_x: bool = True,
    height: float = 1.5,
) -> Figure:
    """Draw `y` against `x` with 95% bands, one panel per value of `panel`.

    Parameters
    ----------
    frame : polars.DataFrame
        One row per point; a null standard error means exact and draws no band.
    x, y, stderr : str
        Columns of numbers.
    colour, dash, panel : str
        Columns whose values choose the colour, the line's dashes and the panel. Every pair of
        colour and dash is a curve and an entry of the legend.
    xlabel, ylabel : str
        With units; a probability has none, and says so by its name.
    across : int
        Panels in a row.
    log_x : bool
        Spread n = 1, 2, 4, 8 evenly.
    share_x : bool
        Whether all panels have one horizontal axis.
    height : float
        Of a panel, in inches.

    Raises
    ------
    InputError
        No rows, or a column that does not exist.
    """
    canvas.check(frame, x, y, stderr, colour, dash, panel)
    looks = _looks(frame, colour, dash)
    handles: dict[str, Any] = {}
    with canvas.style():
        parts = canvas.split(frame, panel)
        figure, axes = canvas.panels(len(parts), across, height, share_x=share_x)
        for area, (title, rows) in zip(axes, parts, strict=True):
            canvas.title(area, title)
            for (name, mark), look in looks.items():
                curve = _of(rows, {colour: name, dash: mark}).sort(x)
                if not curve.is_empty():
                    label = str(name) if mark is None else f"{name}, {mark}"
                    handles[label] = _curve(area, curve.select(x=x, y=y, e=stderr), look)
            if log_x:
                _even_ticks(area, sorted(frame[x].unique()))
            elif frame[x].dtype.is_integer():
                whole: Any = area.xaxis.get_major_locator()
                whole.set_params(integer=True)
        canvas.label_outside(axes, min(across, len(parts)), xlabel, ylabel)
        canvas.legend_below(figure, handles)
    return figure


def _looks(
    frame: polars.DataFrame, colour: str, dash: str | None
) -> dict[tuple[Any, Any], dict[str, Any]]:
    """Colour, dashes and marker of every curve, the same in all panels."""
    names = frame[colour].unique(maintain_order=True).to_list()
    marks = [None] if dash is None else frame[dash].unique(maintain_order=True).to_list()
    looks: dict[tuple[Any, Any], dict[str, Any]] = {}
    for i, name in enumerate(names):
        for j, mark in enumerate(marks):
            number = i if dash is None else j
            marker = canvas.MARKERS[number % len(canvas.MARKERS)]
            looks[name, mark] = {**canvas.look(i, number), "marker": marker}
    return looks


def _of(rows: polars.DataFrame, values: dict[str | None, Any]) -> polars.DataFrame:
    for column, value in values.items():
        if column is not None:
            rows = rows.filter(rows[column] == value)
    return rows


def _curve(area: Axes, points: polars.DataFrame, look: dict[str, Any]) -> Any:
    x, y = points["x"].to_numpy(), points["y"].to_numpy()
    band = BAND * points["e"].fill_null(0.0).to_numpy()
    area.fill_between(x, y - band, y + band, color=look["color"], alpha=0.15, linewidth=0)
    (line,) = area.plot(x, y, **look)
    return line


def _even_ticks(area: Axes, values: list[Any]) -> None:
    area.set_xscale("log", base=2)
    area.set_xticks(values, [f"{value:g}" for value in values])
    area.minorticks_off()
