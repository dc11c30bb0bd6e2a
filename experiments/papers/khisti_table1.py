"""Khisti et al., Table 1: block efficiency of two to six iid paths.

The paper (2410.18234) measures block efficiency with OPT-125M at temperature 1.2 drafting for
OPT-13B at temperature 1 on Dolly, n = 2 to 6 drafts: importance sampling (IS) 2.13 to 2.28, SpecTr
1.77 to 2.08, SpecInfer 1.76 to 2.04. The draft length is not stated in any readable text.

We record six iid paths of five tokens behind each context and read off n = 2 to 6: each rule at
every node from the root on, and the exact optimum of each node (interval partition).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multidraft import plots, results
from multidraft.experiments.papers.common import blocks, frames, published
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import together

if TYPE_CHECKING:
    import polars

NEEDS = "trees"
COUNTS, LENGTH = (2, 3, 4, 5, 6), 5
RULES = ("interval", "importance", "k-seq", "rrs")

compute = blocks.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every number of paths and rule, on one recording."""
    every = (
        {
            "deepest": f"paths:{max(COUNTS)},{LENGTH}",
            "law": "iid",
            "draft_temperature": 1.2,
            "n": n,
            "tree": f"paths:{n},{LENGTH}",
            "rule": rule,
        }
        for n in COUNTS
        for rule in RULES
    )
    return blocks.cells(setting, every)


def report(frame: polars.DataFrame) -> Page:
    """Block efficiency against n."""
    frame = frame.with_columns(method="rule")
    means = frames.means(frame, method=RULES, n=COUNTS)
    figure = plots.lines(
        means,
        x="n",
        colour="method",
        xlabel="number of paths n",
        ylabel="tokens per target call",
    )
    beside = published.beside(
        "khisti2024_table1",
        means,
        methods={"IS": "importance", "SpecTr": "k-seq", "SpecInfer": "rrs"},
        on={"n_drafts": "n"},
    )
    return Page(
        {"table": (results.pivot(means, rows=["method"], columns="n"), "Block efficiency")},
        {"figure": (figure, "Block efficiency of n iid paths of five tokens, bands of 95%")},
        [
            together(
                "IS is more efficient than SpecTr",
                frames.gaps(frame, "importance", "k-seq", n=COUNTS),
            ),
            together(
                "IS is more efficient than SpecInfer",
                frames.gaps(frame, "importance", "rrs", n=COUNTS),
            ),
            together(
                "IS is at least 10% more efficient than SpecInfer (the paper: 12 to 21%)",
                frames.gaps(frame, "importance", "rrs", factor=1.1, n=COUNTS),
                about="models",
            ),
            together(
                "the optimum at every node is more efficient than IS (ours)",
                frames.gaps(frame, "interval", "importance", n=COUNTS),
            ),
        ],
        beside,
    )
