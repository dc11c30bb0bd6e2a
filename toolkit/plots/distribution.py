"""Distributions over contexts, such as the gap between the optimum and a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from multidraft.errors import InputError
from multidraft.plots import canvas

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def ecdf(
    frame: polars.DataFrame,
    *,
    value: str,
    colour: str,
    panel: str | None = None,
    xlabel: str,
    ylabel: str = "share of contexts",
    across: int = 4,
) -> Figure:
    """Draw the share of rows whose `value` is at most x: one curve per value of `colour`.

    Raises
    ------
    InputError
        No rows, a column that does not exist, or values that are not finite.
    """

    def draw(area: Axes, values: np.ndarray, look: dict[str, Any]) -> Any:
        area.ecdf(values, **look)
        return area.lines[-1]

    figure = _distributions(frame, value, colour, panel, (xlabel, ylabel), across, draw)
    for area in figure.axes:
        area.set_ylim(0, 1)
    return figure


def histogram(
    frame: polars.DataFrame,
    *,
    value: str,
    colour: str,
    panel: str | None = None,
    xlabel: str,
    ylabel: str = "share of contexts",
    across: int = 4,
    bins: int = 30,
) -> Figure:
    """Draw the share of rows in each of `bins` equal bins; all curves use the same bins.

    Raises
    ------
    InputError
        No rows, a column that does not exist, or values that are not finite.
    """
    canvas.check(frame, value)
    edges = np.histogram_bin_edges(frame[value].to_numpy(), bins).tolist()

    def draw(area: Axes, values: np.ndarray, look: dict[str, Any]) -> Any:
        shares = np.full(len(values), 1 / len(values))
        area.hist(values, edges, weights=shares, histtype="step", **look)
        return area.patches[-1]

    return _distributions(frame, value, colour, panel, (xlabel, ylabel), across, draw)


def _distributions(
    frame: polars.DataFrame,
    value: str,
    colour: str,
    panel: str | None,
    labels: tuple[str, str],
    across: int,
    draw: Any,
) -> Figure:
    """One panel per value of `panel`, one drawn distribution per value of `colour`."""
    canvas.check(frame, value, colour, panel)
    if not frame[value].is_finite().all():
        raise InputError(f"column {value!r} holds values that are not finite")
    names = [name for name, _ in canvas.split(frame, colour)]
    handles: dict[str, Any] = {}
    with canvas.style():
        parts = canvas.split(frame, panel)
        figure, axes = canvas.panels(len(parts), across, 1.5)
        for area, (title, rows) in zip(axes, parts, strict=True):
            canvas.title(area, title)
            for name, values in canvas.split(rows, colour):
                number = names.index(name)
                look = canvas.look(number, number)
                handles[name] = draw(area, values[value].to_numpy(), look)
        canvas.label_outside(axes, min(across, len(parts)), *labels)
        canvas.legend_below(figure, handles)
    return figure
