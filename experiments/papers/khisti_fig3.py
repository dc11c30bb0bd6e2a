"""Khisti et al., Figure 3: block efficiency against the draft's temperature.

The paper (2410.18234) raises the temperature of two identical drafts from 1.2 to 2.4, the target at
1 (OPT-125M for OPT-13B): importance sampling (IS) suffers least. The figure's values are not in any
readable text.

We record two iid paths of five tokens at each temperature behind the same contexts, with the same
uniforms, and compute the expected block length of each rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multidraft import plots, results
from multidraft.experiments.papers.common import blocks, frames
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import together
from multidraft.experiments.papers.khisti_table1 import RULES

if TYPE_CHECKING:
    import polars

NEEDS = "trees"
TEMPERATURES, TREE = (1.2, 1.4, 1.6, 2.0, 2.4), "paths:2,5"

compute = blocks.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every temperature of the draft and rule, on a recording each."""
    every = (
        {"deepest": TREE, "law": "iid", "tree": TREE, "draft_temperature": heat, "rule": rule}
        for heat in TEMPERATURES
        for rule in RULES
    )
    return blocks.cells(setting, every)


def report(frame: polars.DataFrame) -> Page:
    """Block efficiency against the draft's temperature."""
    frame = frame.with_columns(method="rule")
    means = frames.means(frame, method=RULES, draft_temperature=TEMPERATURES)
    figure = plots.lines(
        means,
        x="draft_temperature",
        colour="method",
        xlabel="temperature of both drafts",
        ylabel="tokens per target call",
    )
    lost = {rule: _lost(frame, rule, "importance") for rule in ("k-seq", "rrs")}
    table = results.pivot(means, rows=["method"], columns="draft_temperature")
    every: dict[str, Any] = {"draft_temperature": TEMPERATURES}
    return Page(
        {"table": (table, "Block efficiency of two iid paths of five tokens")},
        {"figure": (figure, "Block efficiency against the draft's temperature, bands of 95%")},
        [
            together("from draft temperature 1.2 to 2.4 IS loses less than the others", lost),
            together(
                "IS is more efficient than SpecTr at every draft temperature",
                frames.gaps(frame, "importance", "k-seq", **every),
            ),
            together(
                "IS is more efficient than SpecInfer at every draft temperature",
                frames.gaps(frame, "importance", "rrs", **every),
            ),
        ],
    )


def _lost(frame: polars.DataFrame, rule: str, other: str) -> results.Mean:
    """How much more a rule loses than the other from the lowest to the highest temperature."""

    def ends(method: str) -> frames.Pair:
        cold, hot = (
            {"draft_temperature": heat, "method": method}
            for heat in (TEMPERATURES[0], TEMPERATURES[-1])
        )
        return frames.pair(frame, cold, hot)

    (cold, hot, passages), (other_cold, other_hot, _) = ends(rule), ends(other)
    return results.paired_difference(cold - hot, other_cold - other_hot, passages)
