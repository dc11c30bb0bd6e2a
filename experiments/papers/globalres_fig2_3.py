"""Global Resolution, Figures 2 and 3: independent against greedy drafts, and three laws more.

The paper (2511.15898) compares the optimal acceptance of iid drafts with that of greedy drafts (the
n - 1 most probable tokens and one random draw, Hu et al., 2502.18779) at the same truncation k: iid
is better by up to nearly 2 points for k >= 100 and n >= 4.

We compute both optima on recorded laws at temperature 1, and add drafts without replacement,
SpecHub's pairs (n = 2) and the deterministic top n, the default of serving engines.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from multidraft import plots, results
from multidraft.experiments.papers.common import acceptance, frames, published
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import together
from multidraft.experiments.runner import grid

if TYPE_CHECKING:
    import polars

NEEDS = "trace"
LAWS = ("iid", "greedy", "without-replacement", "hub", "top")
TOP_K, COUNTS = (10, 100, 1000, None), (2, 4, 8)

compute = acceptance.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every law, truncation and number of drafts; hub drafts are two."""
    axes = {"draft_top_k": list(TOP_K), "law": list(LAWS), "n": list(COUNTS)}
    every = grid(methods=[["optimum"]], temperature=[1.0], **axes)
    return setting.cells(
        [cell for cell in every if cell["law"] != "hub" or cell["n"] == 2], contexts=512
    )


def report(frame: polars.DataFrame) -> Page:
    """Optima by law, and their differences from iid."""
    import polars

    means = frames.means(frame, draft_top_k=TOP_K, law=LAWS, n=COUNTS)
    means = frames.as_text(means, "draft_top_k", "k")
    table = results.pivot(means, rows=["k", "law"], columns="n")
    figure = plots.lines(
        means.filter(polars.col("law") != "hub"),
        x="n",
        colour="law",
        panel="k",
        log_x=True,
        xlabel="number of drafts n",
        ylabel="optimal acceptance",
    )
    beside = published.beside(
        "globalres2025_figures",
        None,
        methods={"optimal": "optimum"},
        on={"setting": "k"},
        where={"item": ["fig2_3"]},
        show=("metric", "unit"),
    )

    def over(law: str, **where: Any) -> dict[str, results.Mean]:
        return frames.gaps(frame, {"law": law}, {"law": "iid"}, **where)

    wide: dict[str, Any] = {"draft_top_k": TOP_K[1:], "n": COUNTS[1:]}
    return Page(
        {"table": (table, "Optimal acceptance by draft law")},
        {"figure": (figure, "Optimal acceptance by draft law and truncation k, bands of 95%")},
        [
            together(
                "iid drafts beat greedy drafts for k >= 100, n >= 4",
                frames.gaps(frame, {"law": "iid"}, {"law": "greedy"}, **wide),
            ),
            together(
                "their advantage is at most 0.02",
                frames.gaps(frame, {"law": "iid"}, {"law": "greedy"}, **wide),
                low=-math.inf,
                high=0.02,
                about="models",
            ),
            together(
                "drafts without replacement beat iid drafts (ours)",
                over("without-replacement", draft_top_k=TOP_K, n=COUNTS),
            ),
            together(
                "the deterministic top n loses to iid drafts (ours)",
                over("top", draft_top_k=TOP_K, n=COUNTS),
                low=-math.inf,
                high=0.0,
            ),
        ],
        beside,
    )
