"""Khisti et al., Table 4: top-k sampling with k = 5 and 10.

The paper (2410.18234) lists block efficiency with OPT-125M drafting for OPT-13B, both sampled with
top-k at temperature 1, n = 2, 3: the other rules reach 96 to 98% of importance sampling (IS).

We compute the acceptance of one step on recorded laws under the same sampling, where it is exact;
the table's block efficiency, over several steps, is not in this item.
"""

from __future__ import annotations

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
METHODS = ("optimum", "importance", "k-seq", "rrs", "single draft")
COUNTS, TOP_K = (2, 3), (5, 10)

compute = acceptance.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Two truncations and two numbers of drafts."""
    axes = {"temperature": [1.0], "top_k": list(TOP_K), "n": list(COUNTS)}
    return setting.cells(grid(law=["iid"], methods=[list(METHODS)], **axes))


def report(frame: polars.DataFrame) -> Page:
    """Means, and each rule against importance sampling."""
    means = frames.means(frame, top_k=TOP_K, method=METHODS, n=COUNTS)
    table = results.pivot(means, rows=["top_k", "method"], columns="n")
    figure = plots.dots(
        frames.as_text(frames.as_text(means, "top_k", "top-k"), "n", "n ="),
        label="method",
        colour="n =",
        panel="top-k",
        xlabel="acceptance",
    )
    beside = published.beside(
        "khisti2024_table4",
        None,
        methods={"IS": "importance", "SpecTr": "k-seq", "SpecInfer": "rrs"},
        on={"vocab_topk": "top_k", "n_drafts": "n"},
        where={"metric": ["block_efficiency"]},
        show=("target_model", "draft_model", "dataset", "unit"),
    )
    same: dict[str, Any] = {"top_k": TOP_K, "n": COUNTS}
    return Page(
        {"table": (table, "Mean acceptance of one step")},
        {"figure": (figure, "Acceptance under top-k sampling, bars of 95%")},
        [
            together(
                "under top-k sampling IS accepts more than SpecTr",
                frames.gaps(frame, "importance", "k-seq", **same),
            ),
            together(
                "under top-k sampling IS accepts more than SpecInfer",
                frames.gaps(frame, "importance", "rrs", **same),
            ),
            together(
                "SpecTr reaches at least 96% of IS (the paper: 96 to 98% of block efficiency)",
                frames.gaps(frame, "k-seq", "importance", factor=0.96, **same),
                about="models",
            ),
        ],
        beside,
        "Block efficiency counts tokens per target call over several steps, acceptance one step: "
        "the published numbers are shown, not compared.",
    )
