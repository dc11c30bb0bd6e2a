"""Global Resolution, Figure 1: optimal acceptance against k and n.

The paper (2511.15898) draws the optimal acceptance of iid drafts from the top k tokens of the draft
(Llama-3 70B/8B, Gemma-2 27B/2B): from about .80 at k = 10 to .95 at k = 1000, flat beyond 1000 to
10000. n and the base temperature of the curve are not readable.

We compute the exact optimum on recorded laws at temperature 1; the draft is truncated, the target
is not.
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
TOP_K, COUNTS = (10, 100, 1000, 10000, None), (1, 2, 4, 8, 10)

compute = acceptance.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every truncation and number of drafts."""
    axes = {"draft_top_k": list(TOP_K), "n": list(COUNTS), "temperature": [1.0]}
    return setting.cells(grid(law=["iid"], methods=[["optimum"]], **axes))


def report(frame: polars.DataFrame) -> Page:
    """The optimum against n for every k."""
    import polars

    means = frames.as_text(frames.means(frame, draft_top_k=TOP_K, n=COUNTS), "draft_top_k", "k")
    table = results.pivot(means, rows=["k"], columns="n")
    figure = plots.lines(
        means,
        x="n",
        colour="k",
        xlabel="number of drafts n",
        ylabel="optimal acceptance",
    )
    spread = frames.as_text(means, "n", "n =")
    other = plots.lines(
        spread.with_columns(x=polars.col("draft_top_k").fill_null(49152)),
        x="x",
        colour="n =",
        log_x=True,
        xlabel="tokens of the draft law k (all of 49,152 at the right)",
        ylabel="optimal acceptance",
    )
    beside = published.beside(
        "globalres2025_figures",
        None,
        methods={"optimal": "optimum"},
        on={"vocab_topk": "draft_top_k"},
        where={"item": ["fig1"]},
        show=("metric",),
    )

    def step(high: int | None, low: int) -> dict[str, results.Mean]:
        return frames.gaps(frame, {"draft_top_k": high}, {"draft_top_k": low}, n=COUNTS[1:])

    return Page(
        {"table": (table, "Optimal acceptance")},
        {
            "figure": (other, "Optimal acceptance against the truncation of the draft"),
            "drafts": (figure, "Optimal acceptance against the number of drafts"),
        },
        [
            together("more tokens help up to k = 1000: k = 1000 against 10", step(1000, 10)),
            together(
                "beyond k = 1000 the curve is flat: all tokens gain less than 0.01 over 1000",
                step(None, 1000),
                low=-math.inf,
                high=0.01,
            ),
            together(
                "k = 1000 gains 0.15 over k = 10 (0.1 to 0.2)",
                step(1000, 10),
                low=0.1,
                high=0.2,
                about="models",
            ),
        ],
        beside,
    )
