"""Khisti et al.: the targets that identical drafts always cover, for two and three tokens.

The paper (2410.18234) proves for two identical drafts that acceptance 1 is possible exactly when
q(S) >= p(S)^2 for every set S of tokens, and draws the region of such targets in the simplex of
two and three tokens; more drafts enlarge it.

We solve the linear program over all drafted tuples on a grid of the simplex for n = 2, 3, 4 and
compare the region with the condition q(S) >= p(S)^n. Two tokens: every draft law on the horizontal
axis. Three tokens: a uniform draft and a peaked one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from multidraft import results
from multidraft.experiments.papers.common import exact
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import always
from multidraft.experiments.runner import grid
from multidraft.plots import canvas

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NEEDS = "nothing"
COUNTS = (2, 3, 4)
#: Panel -> draft law; two tokens take every law of the grid.
DRAFTS = {
    "two tokens": None,
    "uniform draft": (1 / 3, 1 / 3, 1 / 3),
    "peaked draft": (0.6, 0.3, 0.1),
}
STEPS = {"two tokens": 32, "uniform draft": 30, "peaked draft": 30}


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every panel and number of drafts, coarser when quick."""
    coarse = 5 if setting.quick else 1
    return [
        {**cell, "steps": STEPS[cell["panel"]] // coarse}
        for cell in grid(panel=list(DRAFTS), n=list(COUNTS))
    ]


def compute(cell: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """A row for every target of the grid; nothing is drawn.

    ``x`` and ``y`` are the first two target probabilities, for two tokens p(1) and q(1).
    """
    draft, steps = DRAFTS[cell["panel"]], cell["steps"]
    marks = np.arange(steps + 1) / steps
    rows = []
    for x, y in ((x, y) for x in marks for y in marks):
        if draft is None:
            rows.append({"x": x, "y": y, **exact.both((y, 1 - y), (x, 1 - x), cell["n"])})
        elif x + y <= 1 + 1e-12:
            target = (x, y, max(1 - x - y, 0.0))
            rows.append({"x": x, "y": y, **exact.both(target, draft, cell["n"])})
    return rows


def report(frame: polars.DataFrame) -> Page:
    """Regions, and the share of the grid inside."""
    import polars

    rank = list(DRAFTS)
    shares = frame.group_by("panel", "n").agg(
        value=polars.col("full").mean(), stderr=polars.lit(None, dtype=polars.Float64)
    )
    shares = shares.sort(
        polars.col("panel").replace_strict({p: i for i, p in enumerate(rank)}), "n"
    )
    table = results.pivot(shares, rows=["panel"], columns="n")
    nested = frame.pivot("n", index=["panel", "x", "y"], values="full")
    columns = [nested[str(n)].to_numpy() for n in COUNTS]
    verdicts = [
        always(
            "acceptance is 1 exactly where q(S) >= p(S)^n for every S, for n = 2, 3, 4",
            frame["agrees"].to_numpy(),
            "grid points",
        ),
        always(
            "elsewhere the optimum is 1 + min_S (q(S) - p(S)^n)",
            frame["distance"].to_numpy() < 1e-8,
            "grid points",
        ),
        always(
            "more drafts enlarge the region",
            np.logical_and.reduce([a <= b for a, b in pairwise(columns)]),
            "grid points",
        ),
    ]
    caption = (
        "Where acceptance is 1: inside the curves of n drafts. Left: two tokens; middle and right: "
        "targets on three tokens, with the draft marked"
    )
    return Page(
        {"table": (table, "Share of the grid where acceptance is 1 (by the linear program)")},
        {"figure": (_figure(frame), caption)},
        verdicts,
    )


def _figure(frame: polars.DataFrame) -> Figure:
    """Filled points where the program finds acceptance 1, smallest n on top."""
    handles: dict[str, Any] = {}
    with canvas.style():
        figure, axes = canvas.panels(len(DRAFTS), 3, 2.0, share=False)
        for area, (panel, draft) in zip(axes, DRAFTS.items(), strict=True):
            rows = frame.filter(panel=panel)
            for i, n in reversed(list(enumerate(COUNTS))):
                handles[f"n = {n}"] = _points(area, rows.filter(n=n, full=True), i)
            area.set_title(panel)
            area.set(xlabel="q(1)", ylabel="q(2)", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
            if draft is None:
                area.set(xlabel="draft probability p(1)", ylabel="target probability q(1)")
            else:
                handles["draft"] = area.plot(*draft[:2], "k*", markersize=5)[0]
        canvas.legend_below(figure, dict(sorted(handles.items(), reverse=True)))
    return figure


def _points(area: Axes, rows: polars.DataFrame, number: int) -> Any:
    style: dict[str, Any] = {
        "color": canvas.COLOURS[number],
        "marker": canvas.MARKERS[number],
        "linestyle": "",
    }
    return area.plot(rows["x"], rows["y"], markersize=2.6 - 0.4 * number, **style)[0]
