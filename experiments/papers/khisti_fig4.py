"""Khisti et al., Figure 4: two drafts of different temperatures.

The paper (2410.18234) drafts twice from OPT-125M, once at temperature 1.2 and once at 1.2 to 2.4,
for OPT-13B at temperature 1: importance sampling (IS) for non-identical drafts still gains over one
draft, SpecInfer less. The curves show block efficiency.

We compute the acceptance of one step on recorded laws: IS and recursive rejection (RRS) for
independent drafts of two laws, and the optimum of two different laws, which no paper computes at
full vocabulary (by branch and bound, gap at most 1e-12).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from multidraft import plots, results
from multidraft.experiments.papers.common import acceptance, frames
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import together
from multidraft.experiments.runner import grid

if TYPE_CHECKING:
    import polars

NEEDS = "trace"
CONTEXTS = 128
METHODS = ("optimum", "importance", "rrs", "first draft alone")
FIRST, SECOND = 1.2, (1.2, 1.4, 1.6, 2.0, 2.4)


def cells(setting: Setting) -> list[dict[str, Any]]:
    """One cell for each temperature of the second draft."""
    axes = {"law": ["independent"], "n": [2], "temperature": [1.0], "second": list(SECOND)}
    return setting.cells(grid(methods=[list(METHODS)], **axes), contexts=CONTEXTS, quick=12)


def compute(cell: dict[str, Any], seed: int, *, path: str) -> list[dict[str, Any]]:
    """Acceptance with drafts at the temperatures `FIRST` and ``second``."""
    both = {**cell, "draft_temperature": [FIRST, cell["second"]]}
    return acceptance.compute(both, seed, path=path)


def report(frame: polars.DataFrame) -> Page:
    """Curves against the second temperature, and what the second draft adds."""
    means = frames.means(frame, method=METHODS, second=SECOND)
    table = results.pivot(means, rows=["method"], columns="second")
    figure = plots.lines(
        means,
        x="second",
        colour="method",
        xlabel="temperature of the second draft",
        ylabel="acceptance",
    )
    return Page(
        {"table": (table, "Mean acceptance of two drafts, the first at temperature 1.2")},
        {"figure": (figure, "Two drafts of different temperatures, bands of 95%")},
        [
            together(
                "with IS the second draft gains at every temperature",
                frames.gaps(frame, "importance", "first draft alone", second=SECOND),
            ),
            together(
                "IS accepts more than SpecInfer (RRS) at every temperature",
                frames.gaps(frame, "importance", "rrs", second=SECOND),
            ),
            together(
                "IS is within 0.02 of the optimum at every temperature (ours)",
                frames.gaps(frame, "optimum", "importance", second=SECOND),
                low=-math.inf,
                high=0.02,
            ),
        ],
        notes="The figure's values are not in any readable text of the paper. Where both laws are "
        "the same (1.2), the optimum is that of identical drafts.",
    )
