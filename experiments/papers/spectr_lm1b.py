"""SpecTr: block efficiency of eight paths of four and eight tokens.

The paper (2310.15141) measures PaLM 2 Gecko drafting for Bison on LM1B: one path 2.4 and 2.9 tokens
per call at L = 4 and 8, K-SEQ with K = 8 paths 3.1 and 4.0.

We record eight iid paths of eight tokens behind each context, at temperature 1, and read off both
lengths.
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
PATHS, LENGTHS, CONTEXTS = 8, (4, 8), 64
#: Label of the paper -> number of paths and rule.
LINES = {"speculative decoding": (1, "rrs"), "SpecTr": (PATHS, "k-seq")}
OURS = {"RRS, 8 paths": (PATHS, "rrs"), "optimum at every node, 8 paths": (PATHS, "interval")}

compute = blocks.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Both lengths of every line, on one recording."""
    every = (
        {"deepest": f"paths:{PATHS},{max(LENGTHS)}", "law": "iid", "method": line}
        | {"length": length, "tree": f"paths:{n},{length}", "rule": rule}
        for length in LENGTHS
        for line, (n, rule) in {**LINES, **OURS}.items()
    )
    return blocks.cells(setting, every, contexts=CONTEXTS)


def report(frame: polars.DataFrame) -> Page:
    """Block efficiency at both lengths."""
    import polars

    means = frames.means(frame, method=(*LINES, *OURS), length=LENGTHS)
    figure = plots.dots(
        frames.as_text(means, "length", "L ="),
        label="method",
        colour="L =",
        xlabel="tokens per target call",
    )
    beside = published.beside(
        "spectr2023_lm1b",
        means.with_columns(setting=polars.format("L={}", "length")),
        methods={line: line for line in LINES},
        on={"setting": "setting"},
        where={"metric": ["block_efficiency"]},
    )
    one, many = LINES
    return Page(
        {"table": (results.pivot(means, rows=["method"], columns="length"), "Block efficiency")},
        {"figure": (figure, "Block efficiency of one and of eight paths, bars of 95%")},
        [
            together(
                "eight paths are more efficient than one, at L = 4 and 8",
                frames.gaps(frame, many, one, length=LENGTHS),
            ),
            together(
                "by 0.7 tokens or more (the paper: 0.7 and 1.1)",
                frames.gaps(frame, many, one, length=LENGTHS),
                low=0.7,
                about="models",
            ),
            together(
                "SpecTr is more efficient than recursive rejection (RRS)",
                frames.gaps(frame, many, "RRS, 8 paths", length=LENGTHS),
            ),
        ],
        beside,
    )
