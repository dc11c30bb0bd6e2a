"""Hu et al.: the optimum with and without replacement, and how far rules stay below it.

The paper (2502.18779) computes optimal acceptance for drafts with and without replacement and for
its greedy law (LLaMA-7B/68M, OPT-6.7B/125M, Vicuna and Qwen2 with EAGLE; temperature 0.7, three
drafts): existing rules are 0.1 to 3.3 points below the optimum; drafting without replacement gains
3 to 4 points over drafting with it; greedy beats RRSw at low temperature and loses its advantage at
1; greedy equals SpecHub at n = 2.

We compute the same optima and rules on recorded laws at temperatures 0.2 to 1 and n = 2, 3, 4.
RRSw beyond two drafts is a mean of exact conditional laws over 1,024 paths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from multidraft import plots, results
from multidraft.experiments.papers.common import acceptance, frames, published
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import Verdict, always, judge, together

if TYPE_CHECKING:
    import polars

NEEDS = "trace"
CONTEXTS = 256
TEMPERATURES, COUNTS = (0.2, 0.4, 0.7, 1.0), (2, 3, 4)
BASE = {"temperature": 0.7, "n": 3}  # the paper's setting
#: Draft law -> method -> how the page calls it.
METHODS = {
    "iid": {"optimum": "optimum, iid", "rrs": "RRS", "k-seq": "K-SEQ"},
    "without-replacement": {"optimum": "optimum, without replacement", "rrsw": "RRSw"},
    "greedy": {"greedy": "greedy"},
    "hub": {"spechub": "SpecHub"},
}
NAMES = tuple(name for names in METHODS.values() for name in names.values())

compute = acceptance.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every temperature, law and number of drafts; hub drafts are two."""
    every = (
        {"temperature": heat, "law": law, "n": n, "methods": list(names)}
        for heat in TEMPERATURES
        for law, names in METHODS.items()
        for n in (COUNTS if law != "hub" else (2,))
    )
    return setting.cells(every, contexts=CONTEXTS, quick=12)


def report(frame: polars.DataFrame) -> Page:
    """Means, and the claims at the paper's setting."""
    import polars

    named_ = frames.named(frame, METHODS)
    means = frames.means(named_, temperature=TEMPERATURES, method=NAMES, n=COUNTS)
    figure = plots.lines(
        frames.as_text(means.filter(polars.col("method") != "SpecHub"), "n", "n ="),
        x="temperature",
        colour="method",
        panel="n =",
        xlabel="temperature of target and draft",
        ylabel="acceptance",
        across=3,
        height=2.0,
    )
    percent = means.filter(temperature=0.7, n=3).with_columns(
        *(polars.col(name) * 100 for name in ("value", "stderr"))
    )
    laws = {name: law for law, names in METHODS.items() for name in names.values()}
    percent = percent.with_columns(
        law=percent["method"].replace_strict(laws),
        method=percent["method"].replace(dict.fromkeys(NAMES[::3], "optimum")),
    )
    beside = published.beside(
        "hu2025_acceptance_rates",
        percent,
        methods={name: name for name in ("optimum", "RRS", "RRSw", "greedy")}
        | {"optimal": "optimum"},
        on={"draft_law": "law"},
        show=("target_model", "draft_model", "unit"),
        digits=1,
    )
    return Page(
        {
            "table": (
                results.pivot(means, rows=["temperature", "method"], columns="n"),
                "Acceptance",
            )
        },
        {"figure": (figure, "Optima and rules against temperature, bands of 95%")},
        _verdicts(named_),
        f"Ours at temperature 0.7 and three drafts, in %.\n\n{beside}",
    )


def _verdicts(frame: polars.DataFrame) -> list[Verdict]:
    greedy, hub, _ = frames.pair(
        frame.filter(n=2), {"method": "greedy"}, {"method": "SpecHub"}, over=("temperature",)
    )
    below = {
        rule: frames.difference(frame, {**BASE, "method": best}, {**BASE, "method": rule})
        for best, rule in (
            ("optimum, iid", "RRS"),
            ("optimum, iid", "K-SEQ"),
            ("optimum, without replacement", "RRSw"),
        )
    }
    return [
        together(
            "rules are 0.001 to 0.033 below the optimum of their law (T = 0.7, n = 3)",
            below,
            low=0.001,
            high=0.033,
            about="models",
        ),
        judge(
            "drafting without replacement moves the optimum by 0.03 to 0.04 (T = 0.7, n = 3)",
            frames.difference(
                frame,
                {**BASE, "method": "optimum, without replacement"},
                {**BASE, "method": "optimum, iid"},
            ),
            low=0.03,
            high=0.04,
            about="models",
        ),
        together(
            "greedy accepts more than RRSw at low temperature",
            frames.gaps(frame, "greedy", "RRSw", temperature=(0.2, 0.4), n=COUNTS),
        ),
        together("its advantage over RRSw is smaller at temperature 1 than at 0.4", _fading(frame)),
        always(
            "greedy equals SpecHub at n = 2",
            np.abs(greedy - hub) < frames.ROUND_OFF,
            "contexts and temperatures",
        ),
    ]


def _fading(frame: polars.DataFrame) -> dict[str, results.Mean]:
    """Advantage of greedy over RRSw at temperature 0.4 minus that at 1."""
    found = {}
    for n in COUNTS:
        cold, hot = (
            frames.pair(
                frame,
                {"temperature": heat, "n": n, "method": "greedy"},
                {"temperature": heat, "n": n, "method": "RRSw"},
            )
            for heat in (0.4, 1.0)
        )
        found[f"n={n}"] = results.paired_difference(cold[0] - cold[1], hot[0] - hot[1], cold[2])
    return found
