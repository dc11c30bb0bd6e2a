"""Heat maps with their numbers written in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from multidraft.errors import InputError
from multidraft.plots import canvas

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure


def heat_map(
    frame: polars.DataFrame,
    *,
    x: str,
    y: str,
    panel: str | None = None,
    value: str = "value",
    xlabel: str,
    ylabel: str,
    label: str,
    across: int = 4,
    digits: int = 2,
    height: float = 1.6,
) -> Figure:
    """Draw `value` over the values of `x` and `y`, in their order of appearance.

    Parameters
    ----------
    frame : polars.DataFrame
        At most one row per place; places without one stay white.
    x, y, panel, value : str
        Columns of `frame`.
    xlabel, ylabel, label : str
        Axes and colour bar.
    across, digits : int
        Panels in a row; decimals of the numbers in the places.
    height : float
        Of a panel, in inches.

    Raises
    ------
    InputError
        No rows, a column that does not exist, or two rows for one place.
    """
    from matplotlib.colors import Normalize

    canvas.check(frame, x, y, value, panel)
    across_names = frame[x].unique(maintain_order=True).to_list()
    down_names = frame[y].unique(maintain_order=True).to_list()
    numbers = frame[value].to_numpy()
    scale = Normalize(numbers.min(), numbers.max())
    with canvas.style():
        parts = canvas.split(frame, panel)
        figure, axes = canvas.panels(len(parts), across, height)
        for area, (title, rows) in zip(axes, parts, strict=True):
            places = _places(rows.select(x=x, y=y, value=value), across_names, down_names)
            area.imshow(places, aspect="auto", norm=scale)
            canvas.title(area, title)
            area.grid(False)
            area.set_xticks(range(len(across_names)), list(map(str, across_names)))
            area.set_yticks(range(len(down_names)), list(map(str, down_names)))
            _write_in(area, places, scale, digits)
        canvas.label_outside(axes, min(across, len(parts)), xlabel, ylabel)
        figure.colorbar(axes[0].images[0], ax=axes, label=label)
    return figure


def _places(
    rows: polars.DataFrame, across_names: list[object], down_names: list[object]
) -> np.ndarray:
    places = np.full((len(down_names), len(across_names)), np.nan)
    for a, b, number in rows.iter_rows():
        place = down_names.index(b), across_names.index(a)
        if not np.isnan(places[place]):
            raise InputError(f"two values at {a}, {b}; filter the results or name a panel column")
        places[place] = number
    return places


def _write_in(area: Axes, places: np.ndarray, scale: Normalize, digits: int) -> None:
    dark = np.asarray(scale(places)) < 0.5
    for (i, j), number in np.ndenumerate(places):
        if not np.isnan(number):
            shade = "white" if dark[i, j] else "black"
            text = f"{number:.{digits}f}"
            area.text(j, i, text, ha="center", va="center", color=shade, fontsize=6)
