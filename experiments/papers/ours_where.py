"""Ours (c): where the optimum is worth it.

Papers report means. The optimum's advantage over the common rules differs from context to context:
by the target's entropy, the overlap of the two laws, the draft's largest probability, and by what
kind of token follows in the text (a word's start or inside, number, punctuation, space).

Four iid drafts at temperature 1, full vocabulary, everything exact; groups are quarters of the
contexts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import multidraft as md
from multidraft import plots, results
from multidraft.experiments.papers.common import acceptance, frames
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import Verdict, judge
from multidraft.report import tokens

if TYPE_CHECKING:
    import polars

NEEDS = "trace"
CONTEXTS, PARTS = 512, 4
FACTS = ("target's entropy", "single draft", "draft's top probability")
#: What a quantity of the laws is called on the page.
WORDS = {
    "target's entropy": "entropy of the target (bits)",
    "single draft": "overlap with the draft",
    "draft's top probability": "top probability of the draft",
}
KIND = "token that follows"
RULES = ("rrs", "k-seq")


def cells(setting: Setting) -> list[dict[str, Any]]:
    """One setting on every context."""
    methods = ["optimum", *RULES, *FACTS]
    only = {"law": "iid", "n": 4, "temperature": 1.0, "methods": methods}
    return setting.cells([only], contexts=CONTEXTS)


def compute(cell: dict[str, Any], seed: int, *, path: str) -> list[dict[str, Any]]:
    """Acceptances and quantities of the laws, with the kind of token that follows."""
    trace = md.traces.open(path)
    texts = tokens.of(trace)
    rows = acceptance.compute(cell, seed, path=path)
    kinds = {
        r["context"]: tokens.kind(texts.get(int(trace.next_token[r["context"]]))) for r in rows
    }
    return [{**row, "follows": kinds[row["context"]]} for row in rows]


def report(frame: polars.DataFrame) -> Page:
    """Mean gap by groups of contexts."""
    import polars

    wide = frames.wide(frame, "context", "passage", "follows")
    grouped = _grouped(wide)
    curves = grouped.filter(polars.col("by") != KIND)
    figure = plots.lines(
        curves,
        x="middle",
        colour="rule",
        panel="by",
        xlabel="mean of the quarter",
        ylabel="optimum - rule",
        across=3,
        share_x=False,
    )
    kinds = plots.dots(
        grouped.filter(by=KIND), label="group", colour="rule", xlabel="optimum - rule"
    )
    table = results.pivot(grouped, rows=["by", "group", "contexts"], columns="rule", digits=4)
    return Page(
        {"table": (table, "Mean gap to the optimum, four iid drafts at temperature 1")},
        {
            "figure": (figure, "Gap of two rules against what the laws are like, bands of 95%"),
            "kinds": (kinds, "Gap by the kind of token that follows in the text, bars of 95%"),
        },
        _verdicts(wide),
    )


def _grouped(wide: polars.DataFrame) -> polars.DataFrame:
    """Mean gap of every rule in quarters of each quantity, and by kind of token."""
    import polars

    rows: list[dict[str, Any]] = []
    parts = max(1, min(PARTS, wide["passage"].n_unique() // 2))
    for fact in FACTS:
        values = wide[fact].to_numpy().astype(float)
        place = np.searchsorted(np.quantile(values, np.linspace(0, 1, parts + 1)[1:-1]), values)
        for part in range(parts):
            if (place == part).any():
                inside = values[place == part]
                label = f"{inside.min():.2f} to {inside.max():.2f}"
                rows += _rows(wide.filter(place == part), WORDS[fact], label, inside.mean())
    for kind in tokens.KINDS:
        rows += _rows(wide.filter(follows=kind), KIND, kind, None)
    return polars.DataFrame(rows, infer_schema_length=None)


def _rows(
    part: polars.DataFrame, by: str, group: str, middle: float | None
) -> list[dict[str, Any]]:
    """Mean gap of every rule over some contexts; none where these are of one passage."""
    found: list[dict[str, Any]] = []
    for rule in RULES if part["passage"].n_unique() > 1 else ():
        gap = results.paired_difference(
            part["optimum"].to_numpy(), part[rule].to_numpy(), part["passage"].to_numpy()
        )
        place = {"by": by, "group": group, "middle": middle, "contexts": len(part), "rule": rule}
        found.append({**place, "value": gap.mean, "stderr": gap.stderr})
    return found


def _verdicts(wide: polars.DataFrame) -> list[Verdict]:
    def slope(fact: str) -> results.Mean:
        """Gap per unit of a quantity, times its spread: the gap between plus and minus one sd."""
        x, gap = (
            part.to_numpy().astype(float) for part in (wide[fact], wide["optimum"] - wide["k-seq"])
        )
        centred = (x - x.mean()) / x.std()
        line = (centred * gap).mean()
        score = centred * (gap - gap.mean() - line * centred)
        error = results.clustered_mean(score, wide["passage"].to_numpy())
        return results.Mean(2 * line, 2 * error.stderr, error.clusters)

    below = -np.inf
    return [
        judge(
            "the gap of K-SEQ grows with the target's entropy (over two standard deviations)",
            slope("target's entropy"),
            digits=4,
        ),
        judge(
            "it grows as the draft overlaps the target less",
            slope("single draft"),
            low=below,
            high=0.0,
            digits=4,
        ),
        judge(
            "it grows as the draft is flatter (smaller top probability)",
            slope("draft's top probability"),
            low=below,
            high=0.0,
            digits=4,
        ),
    ]
