"""SpecTr: the guarantee of K-SEQ, and how much better it does.

The paper (2310.15141) proves that K-SEQ accepts at least 1 - (1 - 1/K)^K of the optimum of K iid
drafts, and measures block efficiency with PaLM 2 on LM1B at L = 4 and 8.

We compare K-SEQ's exact acceptance with the optimum and the guarantee in every recorded context, at
full vocabulary, K = 2, 4, 8, at temperatures 0.6 and 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multidraft import plots, results
from multidraft.experiments.papers.common import acceptance, frames
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import always, together
from multidraft.experiments.runner import grid

if TYPE_CHECKING:
    import polars

NEEDS = "trace"
METHODS = ("optimum", "k-seq", "rrs", "k-seq guarantee")
COUNTS, TEMPERATURES = (2, 4, 8), (0.6, 1.0)

compute = acceptance.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Two temperatures and three numbers of drafts."""
    axes = {"temperature": list(TEMPERATURES), "n": list(COUNTS)}
    return setting.cells(grid(law=["iid"], methods=[list(METHODS)], **axes))


def report(frame: polars.DataFrame) -> Page:
    """Means, and the share of the optimum in every context."""
    import polars

    means = frames.means(frame, temperature=TEMPERATURES, method=METHODS, n=COUNTS)
    wide = frames.wide(frame, "temperature", "n", "context", value="tested")
    optimum = frames.wide(frame, "temperature", "n", "context")["optimum"]
    least = 1 - (1 - 1 / wide["n"]) ** wide["n"]
    share = wide.with_columns(share=wide["k-seq"] / optimum, curve=polars.format("K = {}", "n"))
    figure = plots.ecdf(
        frames.as_text(share, "temperature", "temperature"),
        value="share",
        colour="curve",
        panel="temperature",
        xlabel="acceptance of K-SEQ / optimum",
        across=2,
    )
    every: dict[str, Any] = {"temperature": TEMPERATURES, "n": COUNTS}
    return Page(
        {
            "table": (
                results.pivot(means, rows=["temperature", "method"], columns="n"),
                "Acceptance, and the guarantee",
            )
        },
        {"figure": (figure, "Share of the optimum that K-SEQ reaches, over contexts")},
        [
            always(
                "K-SEQ accepts at least 1 - (1 - 1/K)^K of the optimum",
                (wide["k-seq"] >= least * optimum - frames.ROUND_OFF).to_numpy(),
                "contexts and settings",
            ),
            together(
                "on average it accepts more than 0.9 of the optimum (guaranteed at K = 8: 0.66)",
                frames.gaps(frame, "k-seq", "optimum", factor=0.9, **every),
            ),
            together(
                "K-SEQ accepts more than recursive rejection (RRS)",
                frames.gaps(frame, "k-seq", "rrs", **every),
            ),
        ],
        notes="Block efficiency on recorded trees is not in this item.",
    )
