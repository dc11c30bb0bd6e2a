"""Ours (a): all rules and all optima on one chart, and the share of the possible gain.

No paper puts every rule beside the optimum of its own draft law. For each of five draft laws, the
possible gain is the law's optimum minus the acceptance of one draft; a rule's share is its own gain
divided by that (ratio of means, error by linearisation). A share is left out where the law's
optimum gains nothing over one draft. IS (importance) is exact but for lucky draws of the residual;
RRSw beyond two drafts is a mean over 1,024 paths; *list coupling* is a lower bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multidraft import plots, results
from multidraft.experiments.papers.common import acceptance, frames
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import Verdict, together

if TYPE_CHECKING:
    import polars

NEEDS = "trace"
CONTEXTS = 256
TEMPERATURES, COUNTS = (0.6, 1.0), (2, 4, 8)
METHODS: dict[str, tuple[str, ...]] = {
    "iid": ("optimum", "k-seq", "rrs", "importance", "list coupling", "naive"),
    "without-replacement": ("optimum", "rrsw", "naive"),
    "greedy": ("optimum", "greedy", "naive"),
    "hub": ("optimum", "spechub", "greedy", "naive"),
    "top": ("optimum", "naive"),
}
ALONE_ = "single draft"
LEAST = 0.005  # of a possible gain that shares are taken of

compute = acceptance.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every temperature, law and number of drafts; hub drafts are two."""
    every = (
        {"temperature": heat, "law": law, "n": n, "methods": [*methods, ALONE_]}
        for heat in (TEMPERATURES[1:] if setting.quick else TEMPERATURES)
        for law, methods in METHODS.items()
        for n in (COUNTS if law != "hub" else (2,))
    )
    return setting.cells(every, contexts=CONTEXTS, quick=12)


def report(frame: polars.DataFrame) -> Page:
    """Everything in one chart, and the shares."""
    import polars

    rules = {name for methods in METHODS.values() for name in methods[1:-1]}
    names = ("optimum", *sorted(rules), "naive")
    means = frames.means(frame, temperature=None, law=tuple(METHODS), method=names, n=COUNTS)
    line = polars.format("{}: {}", "law", "method").alias("line")
    shares = _shares(frame)
    chart = frames.as_text(frames.as_text(means, "temperature", "temperature"), "n", "n =")
    return Page(
        {
            "table": (
                results.pivot(shares, rows=["temperature", "law", "method"], columns="n"),
                "Share of the possible gain over one draft",
            ),
            "acceptance": (
                results.pivot(means, rows=["temperature", "law", "method"], columns="n"),
                "Acceptance",
            ),
        },
        {
            "figure": (
                plots.dots(
                    chart.with_columns(line),
                    label="line",
                    colour="n =",
                    panel="temperature",
                    xlabel="acceptance",
                ),
                "All rules and all optima, bars of 95%",
            ),
            "share": (
                plots.heat_map(
                    frames.as_text(shares.with_columns(line), "temperature", "temperature"),
                    x="n",
                    y="line",
                    panel="temperature",
                    xlabel="number of drafts n",
                    ylabel="",
                    label="share of the possible gain",
                    across=2,
                    height=2.2,
                ),
                "Share of the possible gain over one draft that each rule gets",
            ),
        },
        _verdicts(frame),
    )


def _verdicts(frame: polars.DataFrame) -> list[Verdict]:
    heats = tuple(frame["temperature"].unique().sort())
    every: dict[str, Any] = {"temperature": heats, "n": COUNTS, "law": "iid"}
    return [
        together(
            "with iid drafts K-SEQ stays below the optimum of the law",
            frames.gaps(frame, "optimum", "k-seq", **every),
        ),
        together(
            "matching a draw from the target (naive) accepts less than one tested draft "
            "at temperature 1, n = 2, iid",
            frames.gaps(frame, ALONE_, "naive", temperature=(1.0,), n=(2,), law="iid"),
        ),
        together(
            "with n = 2 SpecHub gets the whole possible gain of its law",
            frames.gaps(frame, "optimum", "spechub", law="hub", n=(2,), temperature=heats),
            low=-1e-6,
            high=1e-6,
        ),
        together(
            "importance sampling accepts at least as much as RRS at n = 8",
            frames.gaps(frame, "importance", "rrs", law="iid", n=(8,), temperature=heats),
        ),
    ]


def _shares(frame: polars.DataFrame) -> polars.DataFrame:
    """Gain over one draft by the possible gain of the law, for every rule."""
    import polars

    rows = []
    for heat in frame["temperature"].unique().sort():
        for law, methods in METHODS.items():
            for method in methods[1:]:
                for n in COUNTS if law != "hub" else (2,):
                    same = {"temperature": heat, "law": law, "n": n}
                    alone = {**same, "method": ALONE_}
                    gain, base, _ = frames.pair(frame, {**same, "method": method}, alone)
                    best, _, passages = frames.pair(frame, {**same, "method": "optimum"}, alone)
                    if (best - base).mean() > LEAST:
                        share = frames.ratio(gain - base, best - base, passages)
                        found = {"value": share.mean, "stderr": share.stderr}
                        rows.append({**same, "method": method, **found})
    return polars.DataFrame(rows)
