"""Global Resolution, Tables 1 and 2: what an optimal rule costs per token.

The paper (2511.15898) times the linear program, two max-flow solvers and its own solver on iid
drafts from the top k tokens of the draft law, and reports milliseconds, success rates and the best
acceptance within 10 and 100 ms.

The rows are those of `multidraft bench global-resolution` where its results are there (they take 20
minutes, so `reproduce all` does not make them again; `--fresh` does). This page holds the verdicts;
the published numbers are on [its page](../../global-resolution/README.md).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from multidraft import plots, results
from multidraft.experiments import global_resolution_table as bench
from multidraft.experiments.papers.common import frames
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import Verdict, always, together

if TYPE_CHECKING:
    import polars

NEEDS = "trace"
ALONE = True
SOURCE = "global-resolution/global-resolution.parquet"
TAUS = {"GR tau 1e-3": 1e-3, "GR tau 1e-4": 1e-4}

compute = bench.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """The cells of the benchmark; without the ablation, and the fast settings alone, in haste."""
    contexts = setting.count(32, quick=4)
    every = bench.cells(setting.pair["trace"], setting.draft, contexts)
    if not setting.quick:
        return every
    fast = ((10, 2), (100, 2), (None, 2))
    skipped = ("full-lp", "entropic")
    table = (cell for cell in every if cell["table"] == "methods")
    return [c for c in table if (c["top_k"], c["n"]) in fast and c["column"] not in skipped]


def report(frame: polars.DataFrame) -> Page:
    """Times by setting and method, and the claims about them."""
    import polars

    rows = frame.filter(polars.col("table") == "methods", polars.col("milliseconds").is_not_null())
    rows = frames.as_text(rows.with_columns(method="column"), "top_k", "k")
    # A mean over one passage has no standard error.
    several = polars.col("passage").n_unique().over("k", "n", "method") > 1
    rows = rows.filter(several)
    k = [f"k {k or 'all'}" for k, _ in (*bench.SETTINGS, *bench.BEYOND)]
    means = frames.means(rows, "milliseconds", k=dict.fromkeys(k), n=None, method=bench.METHODS)
    means = means.with_columns(setting=polars.format("{}, n = {}", "k", "n"))
    figure = plots.dots(
        means.with_columns(value=means["value"].log10(), stderr=polars.lit(None, polars.Float64)),
        label="setting",
        colour="method",
        xlabel="log10 of milliseconds per token",
    )
    return Page(
        {"table": (results.pivot(means, rows=["k", "n"], columns="method"), "Milliseconds")},
        {"figure": (figure, "Mean time of a solve, one thread")},
        _verdicts(rows),
    )


def _verdicts(rows: polars.DataFrame) -> list[Verdict]:
    import polars

    solved = rows.filter(polars.col("method").is_in(list(TAUS)), polars.col("success"))
    tau = solved["method"].replace_strict(TAUS).to_numpy()
    found = {
        f"k={k}, n={n}": results.clustered_mean(
            part["milliseconds"].to_numpy().astype(float), part["passage"].to_numpy()
        )
        for k, n in ((10, 2), (10, 4), (10, 5), (100, 2), (1000, 2))
        if len(part := rows.filter(top_k=k, n=n, method="GR tau 1e-4"))
    }
    hard = rows.filter(polars.col("top_k").is_null(), method="GR tau 1e-4")
    return [
        together(
            "the solver needs less than 100 ms per token in the settings of Table 1",
            found,
            low=-math.inf,
            high=100.0,
            about="models",
        ),
        always(
            "where it succeeds the output law is within 15 tau (L1)",
            solved["deviation"].to_numpy() <= 15 * tau,
            "solves",
        ),
        always(
            "where it succeeds acceptance is within 10 tau of the optimum",
            np.abs(solved["gap"].to_numpy()) <= 10 * tau,
            "solves",
        ),
        always(
            "it solves the full vocabulary within its caps (ours: the paper stops at k = 1000)",
            hard["success"].to_numpy(),
            "solves",
            about="methods",
        ),
    ]
