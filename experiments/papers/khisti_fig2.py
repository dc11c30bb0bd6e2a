"""Khisti et al., Figure 2: three tokens, two drafts, exact.

The paper (2410.18234) draws acceptance for a uniform draft on three tokens and two targets, q =
(1/3, x, 2/3 - x) and q = (1/6, x, 5/6 - x): the optimum, SpecTr (K-SEQ) and SpecInfer (recursive
rejection). It prints no values.

We compute the same curves exactly, with one draft and the paper's own rule (importance sampling,
which for three tokens is not truncated) beside them, and compare with values that were recomputed
independently from the paper's formulas.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

import multidraft as md
from multidraft import plots, results
from multidraft.experiments.papers.common import acceptance, frames, published
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import always
from multidraft.experiments.runner import grid

if TYPE_CHECKING:
    import polars

NEEDS = "nothing"
FIRST = {"left": 3, "right": 6}  # panel -> the denominator of q(1)
STEPS = 8
#: Our name of a curve -> the label in the recomputed values.
METHODS = {
    "optimum": "optimal",
    "importance": None,
    "k-seq": "SpecTr",
    "rrs": "SpecInfer",
    "single draft": "single-draft",
}
TOLERANCE = 1e-9  # the recomputed values have ten digits


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every panel at every place of the recomputed curves."""
    return grid(panel=list(FIRST), step=list(range(STEPS + 1)))


def compute(cell: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Acceptance of every method at one abscissa; nothing is drawn."""
    first = Fraction(1, FIRST[cell["panel"]])
    x = (1 - first) * Fraction(cell["step"], STEPS)
    target = np.array([[float(first), float(x), float(1 - first - x)]])
    problem = md.Problem(target, md.IID(np.full((1, 3), 1 / 3), 2))
    known = _recomputed(cell["panel"], str(x))
    rows = []
    for method in METHODS:
        value = acceptance.measured(method, problem)[0]["value"][0]
        distance = abs(value - known[method]) if method in known else None
        rows.append({"x": float(x), "method": method, "value": value, "distance": distance})
    return rows


def _recomputed(panel: str, x: str) -> dict[str, float]:
    """Independent values at one abscissa, by our names."""
    rows = published.read("khisti2024_fig2")
    here = rows.filter(rows["setting"].str.contains(rf"^panel={panel};.*;q2={x}$"))
    values = dict(zip(here["method"], map(float, here["value"]), strict=True))
    return {ours: values[label] for ours, label in METHODS.items() if label is not None}


def report(frame: polars.DataFrame) -> Page:
    """Both panels, and the distance from the recomputed values."""
    import polars

    rank = {name: i for i, name in enumerate(METHODS)}
    exact = frame.with_columns(stderr=polars.lit(None, dtype=polars.Float64))
    exact = exact.sort("panel", polars.col("method").replace_strict(rank), "x")
    figure = plots.lines(
        exact.with_columns(
            panel=polars.format("q(1) = 1/{}", exact["panel"].replace_strict(FIRST))
        ),
        x="x",
        colour="method",
        panel="panel",
        across=2,
        xlabel="target probability q(2)",
        ylabel="acceptance",
    )
    table = results.pivot(
        exact.with_columns(x=exact["x"].round(3)), rows=["panel", "x"], columns="method"
    )
    known = frame.filter(frame["distance"].is_not_null())
    best = frames.wide(frame, "panel", "x")
    verdicts = [
        always(
            "the curves of the optimum, SpecTr and SpecInfer are those of the formulas",
            known["distance"].to_numpy() < TOLERANCE,
            "recomputed values",
        ),
        always(
            "the optimum lies on or above both rules",
            np.asarray(best["optimum"] > best[["k-seq", "rrs"]].max_horizontal() - 1e-6),
            "abscissas",
        ),
        always(
            "importance sampling attains the optimum on three tokens",
            np.asarray((best["optimum"] - best["importance"]).abs() < 1e-6),
            "abscissas",
        ),
    ]
    caption = "Acceptance of two drafts from a uniform draft on three tokens (exact)"
    return Page({"table": (table, "Acceptance")}, {"figure": (figure, caption)}, verdicts)
