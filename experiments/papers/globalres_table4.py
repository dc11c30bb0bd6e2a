"""Global Resolution, Table 4: four paths of eight tokens with each rule.

The paper (2511.15898) plugs its solver into SpecTr's multi-step scheme, L = 8, K = 4, with
Gemma-2 27B/2B: 1.98 times autoregressive speed; block efficiencies are not readable.

We record four iid paths of eight tokens behind each context and compute the expected block length
with each token rule at every node from the root on, with the exact optimum at every node (what
Global Resolution approximates), and with rules that look at whole paths. Speed is not measured
here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multidraft import plots, results
from multidraft.experiments.papers.common import blocks, frames, published
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import together, untestable

if TYPE_CHECKING:
    import polars

NEEDS = "trees"
DEEPEST, LENGTHS = "paths:4,8", (2, 4, 8)
#: Line of the table -> number of paths and rule.
LINES = {
    "one path, token by token": (1, "rrs"),
    "one path, block": (1, "block"),
    "SpecInfer (RRS)": (4, "rrs"),
    "SpecTr (K-SEQ)": (4, "k-seq"),
    "optimum at every node": (4, "interval"),
    "traversal": (4, "traversal"),
    "greedy multi-path": (4, "greedy-multipath"),
}

compute = blocks.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every line at three lengths, on one recording."""
    every = (
        {
            "deepest": DEEPEST,
            "law": "iid",
            "length": length,
            "method": line,
            "tree": f"paths:{n},{length}",
            "rule": rule,
        }
        for length in LENGTHS
        for line, (n, rule) in LINES.items()
    )
    return blocks.cells(setting, every)


def report(frame: polars.DataFrame) -> Page:
    """Block efficiency of every line."""
    means = frames.means(frame, method=tuple(LINES), length=LENGTHS)
    figure = plots.lines(
        means,
        x="length",
        colour="method",
        xlabel="length of the paths L",
        ylabel="tokens per target call",
        log_x=True,
        height=2.6,
    )
    beside = published.beside(
        "globalres2025_table4",
        None,
        methods={"SpecTr with Global Resolution": ""},
        on={"n_drafts": "n"},
        show=("target_model", "draft_model", "metric", "unit", "setting"),
    )
    optimum = "optimum at every node"
    return Page(
        {"table": (results.pivot(means, rows=["method"], columns="length"), "Block efficiency")},
        {"figure": (figure, "Block efficiency of four iid paths, bands of 95%")},
        [
            together(
                "the optimum at every node is more efficient than K-SEQ at L = 4 and 8",
                frames.gaps(frame, optimum, "SpecTr (K-SEQ)", length=(4, 8)),
            ),
            together(
                "and than recursive rejection",
                frames.gaps(frame, optimum, "SpecInfer (RRS)", length=(4, 8)),
            ),
            together(
                "traversal, which looks at whole paths, is more efficient still (ours)",
                frames.gaps(frame, "traversal", optimum, length=(4, 8)),
            ),
            untestable(
                "1.98 times autoregressive speed at L = 8, K = 4",
                "a time on other models and another machine",
            ),
        ],
        beside,
    )
