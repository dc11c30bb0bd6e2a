"""SpecHub on binary and ternary trees: tokens per target call.

The logs of the paper (2411.05289) give tokens per step on binary trees of depth 1 to 4 and, without
SpecHub, on ternary trees, for Llama-68M drafting for Llama-2-7B: SpecHub gains .05 to .27 over
recursive rejection with (RRS) and .02 to .16 over that without replacement (RRSw).

We read the same trees off recorded ones, at temperature 0.6 and 1 of both models, and compute the
expected block length of each rule. The laws see the same contexts, not the same drafts.
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
TEMPERATURES, BINARY, TERNARY = (0.6, 1.0), (1, 2, 3, 4), (1, 2, 3)

compute = blocks.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Binary trees at both temperatures, ternary ones at 1."""
    binary = [
        {"deepest": _deepest(law, heat), "law": law, "method": label, "rule": rule, "branching": 2}
        | {"temperature": heat, "draft_temperature": heat}
        | {"depth": depth, "tree": f"k-ary:2,{depth}"}
        for heat in TEMPERATURES
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
    return blocks.cells(setting, binary) + blocks.cells(setting, ternary, contexts=64)


def _deepest(law: str, temperature: float) -> str:
    """The recorded tree: at temperature 1 that of the tree table, which other pages use too."""
    return deepest_text(law) if temperature == 1 else f"k-ary:2,{max(BINARY)}"


def report(frame: polars.DataFrame) -> Page:
    """Tokens per call against depth."""
    import polars

    means = frames.means(
        frame, temperature=TEMPERATURES, branching=(2, 3), method=METHODS, depth=BINARY
    )
    panels = polars.format("{} children, T = {}", "branching", "temperature")
    figure = plots.lines(
        means.with_columns(panel=panels),
        x="depth",
        colour="method",
        panel="panel",
        xlabel="depth of the tree",
        ylabel="tokens per target call",
        across=3,
    )
    marked = means.with_columns(tree=polars.format("{}^{}", "branching", means["depth"] + 1))
    both = [
        published.beside(
            f"spechub2024_llama7b_{kind}",
            marked,
            methods={label: label for label in METHODS},
            on={"tree": "tree", "target_temperature": "temperature"},
            where={"metric": ["batch_efficiency"]},
            show=("target_model", "draft_model", "dataset"),
        )
        for kind in ("binary", "ternary")
    ]
    binary: dict[str, Any] = {"branching": 2, "temperature": TEMPERATURES, "depth": BINARY}
    return Page(
        {
            "table": (
                results.pivot(means, rows=["temperature", "branching", "method"], columns="depth"),
                "Tokens per target call",
            )
        },
        {"figure": (figure, "Binary and ternary trees, bands of 95%")},
        [
            together(
                "SpecHub yields more tokens per call than RRS on binary trees",
                frames.gaps(frame, "SpecHub", "RRS", **binary),
            ),
            together(
                "SpecHub yields more tokens per call than RRSw on binary trees",
                frames.gaps(frame, "SpecHub", "RRSw", **binary),
            ),
            together(
                "without replacement yields more than with it on ternary trees",
                frames.gaps(frame, "RRSw", "RRS", branching=3, depth=TERNARY),
            ),
        ],
        "\n\n".join(both),
    )
