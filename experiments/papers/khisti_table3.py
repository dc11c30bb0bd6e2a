"""Khisti et al., Table 3: acceptance of importance sampling, SpecTr and SpecInfer.

The paper (2410.18234) lists mean acceptance with OPT-125M drafting for OPT-13B at target
temperature 1 and n = 2, 4, 8 identical drafts: the optimum, truncated importance sampling (IS,
s = 5), SpecTr (K-SEQ) and SpecInfer (recursive rejection, RRS). It does not say the draft's
temperature, nor whether the alphabet of 40 tokens of its other tables holds here too.

We compute the same four on recorded laws, at full vocabulary and with both models cut to their 40
most probable tokens, at the draft temperatures 1 and 1.2, context by context. The optimum, K-SEQ
and RRS are exact; IS is exact but for lucky draws of the residual, a mean over 4,096 drafted tuples
per context.
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING, Any

from multidraft import plots, results
from multidraft.experiments.papers.common import acceptance, frames, published
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import Verdict, together
from multidraft.experiments.runner import grid

if TYPE_CHECKING:
    import polars

NEEDS = "trace"
METHODS = ("optimum", "importance", "k-seq", "rrs")
COUNTS, HEATS, TOP_K = (2, 4, 8), (1.0, 1.2), (None, 40)

compute = acceptance.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Both truncations and draft temperatures, and three numbers of drafts."""
    axes = {"top_k": list(TOP_K), "draft_temperature": list(HEATS), "n": list(COUNTS)}
    return setting.cells(grid(law=["iid"], temperature=[1.0], methods=[list(METHODS)], **axes))


def report(frame: polars.DataFrame) -> Page:
    """Means by method and n, and the order of the rules at every n."""
    import polars

    means = frames.means(frame, top_k=TOP_K, draft_temperature=HEATS, method=METHODS, n=COUNTS)
    shown = means.with_columns(polars.col("top_k").cast(polars.String).fill_null("all"))
    table = results.pivot(shown, rows=["top_k", "draft_temperature", "method"], columns="n")
    worded = frames.as_text(means, "top_k", "top-k")
    figure = plots.lines(
        frames.as_text(worded, "draft_temperature", "draft temperature").with_columns(
            panel=polars.format("{}, {}", "top-k", "draft temperature")
        ),
        x="n",
        colour="method",
        panel="panel",
        log_x=True,
        across=2,
        xlabel="number of drafts n",
        ylabel="acceptance",
    )
    caption = "Acceptance against the number of drafts, bands of 95%"
    beside = published.beside(
        "khisti2024_table3",
        means.filter(polars.col("top_k").is_null(), draft_temperature=1.0),
        methods={"optimal": "optimum", "IS": "importance", "SpecTr": "k-seq", "SpecInfer": "rrs"},
        on={"n_drafts": "n"},
    )
    return Page(
        {"table": (table, "Mean acceptance")},
        {"figure": (figure, caption)},
        [verdict for k, heat in product(TOP_K, HEATS) for verdict in _verdicts(frame, k, heat)],
        beside,
        "Shown beside the published numbers are ours at full vocabulary and draft temperature 1.",
    )


def _verdicts(frame: polars.DataFrame, top_k: int | None, heat: float) -> list[Verdict]:
    at = f"({'full vocabulary' if top_k is None else f'top-k {top_k}'}, draft temperature {heat:g})"
    same: dict[str, Any] = {"top_k": top_k, "draft_temperature": heat, "n": COUNTS}
    return [
        together(
            f"IS accepts more than SpecTr {at}", frames.gaps(frame, "importance", "k-seq", **same)
        ),
        together(
            f"SpecTr accepts more than SpecInfer {at}", frames.gaps(frame, "k-seq", "rrs", **same)
        ),
        together(
            f"IS is within 0.01 of the optimum {at}",
            frames.gaps(frame, "optimum", "importance", **same),
            low=-math.inf,
            high=0.01,
            about="models",
        ),
    ]
