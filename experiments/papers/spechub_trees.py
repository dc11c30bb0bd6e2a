"""SpecHub on binary and ternary trees: tokens per target call.

The logs of the paper (2411.05289) give tokens per step on binary trees of depth 1 to 4 and, without
SpecHub, on ternary trees, for Llama-68M drafting for Llama-2-7B: SpecHub gains .05 to .27 over
recursive rejection with (RRS) and .02 to .16 over that without replacement (RRSw).

We read the same trees off recorded ones at temperature 1 and compute the expected block length of
each rule. The laws see the same contexts, not the same drafts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multidraft import plots, results
from multidraft.experiments.papers.common import blocks, frames, published
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import together
from multidraft.experiments.tree_table import deepest_text

if TYPE_CHECKING:
    import polars

NEEDS = "trees"
#: Label of the paper -> draft law and rule.
METHODS = {
    "RRS": ("iid", "rrs"),
    "RRSw": ("without-replacement", "rrsw"),
    "SpecHub": ("hub", "spechub"),
}
BINARY, TERNARY = (1, 2, 3, 4), (1, 2, 3)

compute = blocks.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Binary trees off the recordings of the tree table, ternary ones off their own."""
    binary = [
        {"deepest": deepest_text(law), "law": law, "method": label, "rule": rule, "branching": 2}
        | {"depth": depth, "tree": f"k-ary:2,{depth}"}
        for label, (law, rule) in METHODS.items()
        for depth in BINARY
    ]
    ternary = [
        {"deepest": "k-ary:3,3", "law": law, "method": label, "rule": rule, "branching": 3}
        | {"depth": depth, "tree": f"k-ary:3,{depth}"}
        for label, (law, rule) in METHODS.items()
        if label != "SpecHub"
        for depth in TERNARY
    ]
    return blocks.cells(setting, binary) + blocks.cells(setting, ternary, contexts=32)


def report(frame: polars.DataFrame) -> Page:
    """Tokens per call against depth."""
    import polars

    means = frames.means(frame, branching=(2, 3), method=METHODS, depth=BINARY)
    figure = plots.lines(
        frames.as_text(means, "branching", "children"),
        x="depth",
        colour="method",
        panel="children",
        xlabel="depth of the tree",
        ylabel="tokens per target call",
        across=2,
    )
    marked = means.with_columns(tree=polars.format("{}^{}", "branching", means["depth"] + 1))
    both = [
        published.beside(
            f"spechub2024_llama7b_{kind}",
            marked,
            methods={label: label for label in METHODS},
            on={"tree": "tree"},
            where={"metric": ["batch_efficiency"], "target_temperature": ["1.0"]},
            show=("target_model", "draft_model", "dataset"),
        )
        for kind in ("binary", "ternary")
    ]

    return Page(
        {
            "table": (
                results.pivot(means, rows=["branching", "method"], columns="depth"),
                "Tokens per target call at temperature 1",
            )
        },
        {"figure": (figure, "Binary and ternary trees, bands of 95%")},
        [
            together(
                "SpecHub yields more tokens per call than RRS on binary trees",
                frames.gaps(frame, "SpecHub", "RRS", branching=2, depth=BINARY),
            ),
            together(
                "SpecHub yields more tokens per call than RRSw on binary trees",
                frames.gaps(frame, "SpecHub", "RRSw", branching=2, depth=BINARY),
            ),
            together(
                "without replacement yields more than with it on ternary trees",
                frames.gaps(frame, "RRSw", "RRS", branching=3, depth=TERNARY),
            ),
        ],
        "\n\n".join(both),
    )
