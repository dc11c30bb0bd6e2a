"""What all figures share: the style, panels, one legend, files with the same bytes every time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from multidraft.errors import InputError
from multidraft.files import atomic

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN, PAGE = 3.3, 6.9  # inches: one column and the full width of a two-column paper
LETTERS = 15  # of a title that fit in an inch of a row of panels, ticks and labels beside them
# Okabe and Ito's colours, told apart by colour-blind readers; yellow is too light for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
DASHES = ("-", "--", ":", "-.", (0, (4, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")  # one more than colours: pairs repeat late


@contextmanager
def style() -> Iterator[None]:
    """The project's style over matplotlib's defaults, whatever the caller had set before."""
    import matplotlib

    with matplotlib.rc_context(fname=Path(__file__).with_name("paper.mplstyle")):
        yield


def panels(
    count: int, across: int, height: float, *, share: bool = True, share_x: bool = True
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, `across` in a row, each `height` inches high.

    One panel is a column wide, more are a page wide.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across = min(across, count)
    down = -(-count // across)
    figure = Figure(figsize=(COLUMN if across == 1 else PAGE, 0.4 + height * down))
    FigureCanvasAgg(figure)
    grid = figure.subplots(down, across, sharex=share and share_x, sharey=share, squeeze=False)
    axes = list(grid.flat)
    for unused in axes[count:]:
        unused.remove()
    return figure, axes[:count]


def title(area: Axes, text: str) -> None:
    """Set a panel's title, in lines that are no wider than the panel."""
    place = area.get_subplotspec()
    assert place is not None  # panels are made by `panels`
    inches = (COLUMN if place.get_gridspec().ncols == 1 else PAGE) / place.get_gridspec().ncols
    area.set_title("\n".join(wrap(text, int(inches * LETTERS), break_on_hyphens=False)))


def look(colour: int, dash: int) -> dict[str, Any]:
    """Colour and dashes of the curve with these two numbers, told apart in grey as well."""
    return {
        "color": COLOURS[colour % len(COLOURS)],
        "linestyle": DASHES[dash % len(DASHES)],
    }


def label_outside(axes: list[Axes], across: int, x: str, y: str) -> None:
    """Label the lowest panel of each column and the first of each row."""
    for i, panel in enumerate(axes):
        if i + across >= len(axes):
            panel.set_xlabel(x)
            panel.tick_params(labelbottom=True)
        if i % across == 0:
            panel.set_ylabel(y)


def legend_below(figure: Figure, handles: Mapping[str, Any]) -> None:
    """One legend for the whole figure, in as many columns as fit."""
    longest = max(map(len, handles))
    room = int(figure.get_figwidth() * 20 / (longest + 8))
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=max(1, min(room, len(handles))),
    )


def split(frame: polars.DataFrame, column: str | None) -> list[tuple[str, polars.DataFrame]]:
    """The rows of each value of `column`, in order of appearance; all rows when it is None."""
    if column is None:
        return [("", frame)]
    parts = frame.partition_by(column, maintain_order=True, as_dict=True)
    return [(str(name), part) for (name,), part in parts.items()]


def check(frame: polars.DataFrame, *columns: str | None) -> None:
    """Refuse an empty table or one that lacks a column."""
    missing = [name for name in columns if name is not None and name not in frame.columns]
    if missing:
        raise InputError(f"no column {missing[0]!r} to plot; there are {frame.columns}")
    if frame.is_empty():
        raise InputError("there are no rows to plot; the filter left nothing")


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure to a .png or .svg file; the same figure gives the same bytes.

    Raises
    ------
    InputError
        Another suffix.
    """
    path = Path(path)
    if path.suffix not in (".png", ".svg"):
        raise InputError(f"{path.name} is neither .png nor .svg")
    varying = {"Software": None} if path.suffix == ".png" else {"Date": None, "Creator": None}
    with style(), atomic(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], metadata=varying)
