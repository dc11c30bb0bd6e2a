"""Khisti et al., Table 4 on trees: block efficiency under top-k sampling with k = 5 and 10.

The paper (2410.18234) lists block efficiency with OPT-125M drafting for OPT-13B, both sampled with
top-k at temperature 1, n = 2, 3: SpecTr reaches 97 to 98% of importance sampling (IS), SpecInfer 96
to 98%. The draft length is not stated in any readable text.

We record three iid paths of five tokens drawn under the same top-k and compute the expected block
length of each rule, the target under the same top-k.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multidraft import plots, results
from multidraft.experiments.papers.common import blocks, frames, published
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import together
from multidraft.experiments.papers.khisti_table1 import RULES

if TYPE_CHECKING:
    import polars

NEEDS = "trees"
COUNTS, TOP_K, LENGTH = (2, 3), (5, 10), 5

compute = blocks.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every truncation, number of paths and rule; a recording for each truncation."""
    every = (
        {
            "deepest": f"paths:{max(COUNTS)},{LENGTH}",
            "law": "iid",
            "top_k": k,
            "draft_top_k": k,
            "n": n,
            "tree": f"paths:{n},{LENGTH}",
            "rule": rule,
        }
        for k in TOP_K
        for n in COUNTS
        for rule in RULES
    )
    return blocks.cells(setting, every)


def report(frame: polars.DataFrame) -> Page:
    """Block efficiency by truncation, and each rule as a share of importance sampling."""
    frame = frame.with_columns(method="rule")
    means = frames.means(frame, top_k=TOP_K, method=RULES, n=COUNTS)
    figure = plots.dots(
        frames.as_text(frames.as_text(means, "top_k", "top-k"), "n", "n ="),
        label="method",
        colour="n =",
        panel="top-k",
        xlabel="tokens per target call",
    )
    beside = published.beside(
        "khisti2024_table4",
        means,
        methods={"IS": "importance", "SpecTr": "k-seq", "SpecInfer": "rrs"},
        on={"vocab_topk": "top_k", "n_drafts": "n"},
        where={"metric": ["block_efficiency"]},
    )
    every: dict[str, Any] = {"top_k": TOP_K, "n": COUNTS}
    return Page(
        {
            "table": (
                results.pivot(means, rows=["top_k", "method"], columns="n"),
                "Block efficiency",
            )
        },
        {"figure": (figure, "Block efficiency of n iid paths of five tokens, bars of 95%")},
        [
            together(
                "SpecTr reaches 96 to 99% of the block efficiency of IS",
                _shares(frame, "k-seq"),
                low=0.96,
                high=0.99,
                about="models",
            ),
            together(
                "SpecInfer reaches 95 to 99% of the block efficiency of IS",
                _shares(frame, "rrs"),
                low=0.95,
                high=0.99,
                about="models",
            ),
            together(
                "IS is more efficient than SpecTr under top-k sampling",
                frames.gaps(frame, "importance", "k-seq", **every),
            ),
        ],
        beside,
    )


def _shares(frame: polars.DataFrame, rule: str) -> dict[str, results.Mean]:
    """Block efficiency of a rule as a share of that of importance sampling."""
    found = {}
    for k in TOP_K:
        for n in COUNTS:
            same = {"top_k": k, "n": n}
            one, two = ({**same, "method": method} for method in (rule, "importance"))
            found[f"k={k}, n={n}"] = frames.ratio(*frames.pair(frame, one, two))
    return found
