"""Theory against measurement, and whether the differences are as large as chance makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from multidraft.errors import InputError
from multidraft.plots import canvas

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RANGE = 3.5  # of the standardised differences that the right panel shows


def calibration(
    frame: polars.DataFrame,
    *,
    measured: str,
    theory: str,
    count: str,
    colour: str,
    xlabel: str,
    ylabel: str,
) -> Figure:
    """Draw measured rates against exact probabilities, and the quantiles of their differences.

    Left: a point per row, and the line on which both agree. Right: the sorted differences in
    standard errors ``sqrt(theory (1 - theory) / count)`` against quantiles of the normal law; a
    correct theory lies on the line, in the band that holds 95% of each order statistic.

    Parameters
    ----------
    frame : polars.DataFrame
        One row per measurement.
    measured, theory, count, colour : str
        Columns: rate, exact probability, number of trials, and what chooses the colour.
    xlabel, ylabel : str
        Of the left panel.

    Raises
    ------
    InputError
        No rows, a column that does not exist, or no exact value strictly between 0 and 1.
    """
    canvas.check(frame, measured, theory, count, colour)
    handles: dict[str, Any] = {}
    with canvas.style():
        figure, (left, right) = canvas.panels(2, 2, 2.4, share=False)
        for number, (name, rows) in enumerate(canvas.split(frame, colour)):
            dots = {"color": canvas.look(number, 0)["color"], "linestyle": "", "markersize": 2.5}
            dots["marker"] = canvas.MARKERS[number % len(canvas.MARKERS)]
            (handles[name],) = left.plot(rows[theory], rows[measured], alpha=0.6, **dots)
        left.plot([0, 1], [0, 1], color="black", linewidth=0.6, zorder=0)
        left.set(xlabel=xlabel, ylabel=ylabel)
        _quantiles(
            right, _standardised(*(frame[name].to_numpy() for name in (measured, theory, count)))
        )
        canvas.legend_below(figure, handles)
    return figure


def _standardised(measured: np.ndarray, theory: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Differences in standard errors, sorted, of the rows where chance plays a part."""
    open_ = (theory > 1e-9) & (theory < 1 - 1e-9)
    if not open_.any():
        raise InputError("every exact value is 0 or 1: nothing can be calibrated.")
    error = np.sqrt(theory * (1 - theory) / count)
    return np.sort((measured[open_] - theory[open_]) / error[open_])


def _quantiles(area: Axes, scores: np.ndarray) -> None:
    """Sorted scores against normal quantiles, with the band of each order statistic."""
    from scipy import stats

    rank = np.arange(1, len(scores) + 1)
    expected = stats.norm.ppf((rank - 0.5) / len(scores))
    low, high = (
        stats.norm.ppf(stats.beta.ppf(level, rank, len(scores) + 1 - rank))
        for level in (0.025, 0.975)
    )
    area.fill_between(expected, low, high, color="black", alpha=0.15, linewidth=0)
    area.plot([-RANGE, RANGE], [-RANGE, RANGE], color="black", linewidth=0.6)
    area.plot(expected, scores, color=canvas.COLOURS[0], marker=".", markersize=3, linestyle="")
    area.set(xlabel="normal quantile", ylabel="difference in standard errors")
