"""Khisti et al., Table 3: acceptance of importance sampling, SpecTr and SpecInfer.

The paper (2410.18234) lists mean acceptance with OPT-125M drafting for OPT-13B at target
temperature 1 and n = 2, 4, 8 identical drafts: the optimum, truncated importance sampling (IS,
s = 5), SpecTr (K-SEQ) and SpecInfer (recursive rejection, RRS). It does not say the draft's
temperature.

We compute the same four on recorded laws at full vocabulary, at the draft temperatures 1 and 1.2,
context by context. The optimum, K-SEQ and RRS are exact; IS is exact but for lucky draws of the
residual, a mean over 4,096 drafted tuples per context.
"""

from __future__ import annotations

import math
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
COUNTS = (2, 4, 8)

compute = acceptance.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Both draft temperatures and three numbers of drafts."""
    axes = {"temperature": [1.0], "draft_temperature": [1.0, 1.2], "n": list(COUNTS)}
    return setting.cells(grid(law=["iid"], methods=[list(METHODS)], **axes))


def report(frame: polars.DataFrame) -> Page:
    """Means by method and n, and the order of the rules at every n."""
    means = frames.means(frame, draft_temperature=None, method=METHODS, n=COUNTS)
    table = results.pivot(means, rows=["draft_temperature", "method"], columns="n")
    figure = plots.lines(
        frames.as_text(means, "draft_temperature", "draft temperature"),
        x="n",
        colour="method",
        panel="draft temperature",
        log_x=True,
        across=2,
        xlabel="number of drafts n",
        ylabel="acceptance",
    )
    caption = "Acceptance against the number of drafts, full vocabulary, bands of 95%"
    beside = published.beside(
        "khisti2024_table3",
        means.filter(draft_temperature=1.0),
        methods={"optimal": "optimum", "IS": "importance", "SpecTr": "k-seq", "SpecInfer": "rrs"},
        on={"n_drafts": "n"},
    )
    return Page(
        {"table": (table, "Mean acceptance")},
        {"figure": (figure, caption)},
        [verdict for heat in (1.0, 1.2) for verdict in _verdicts(frame, heat)],
        beside,
    )


def _verdicts(frame: polars.DataFrame, heat: float) -> list[Verdict]:
    at = f"(draft temperature {heat:g})"
    same: dict[str, Any] = {"draft_temperature": heat, "n": COUNTS}
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
