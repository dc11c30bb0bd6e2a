"""Global Resolution, Figures 4 and 5: acceptance and failures from temperature 0.2 to 1.

The paper (2511.15898) draws optimal acceptance against temperature for several truncations k (below
0.8 a k beyond 10 gives little), and how often its solver fails (more often above 0.6). Its caps are
not published.

We compute the exact optimum of four iid drafts on recorded laws at both models' temperature T, the
draft truncated to its top k. Global Resolution as published (vertex masses, tau 1e-4, caps of 1,024
tokens and 200 iterations) runs on 32 contexts; it has failed when a cap is met before the gradient
is within 5 tau.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import multidraft as md
from multidraft import plots, results
from multidraft.errors import Refused
from multidraft.experiments.global_resolution_table import listed
from multidraft.experiments.papers.common import acceptance, frames
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import Verdict, judge, together
from multidraft.experiments.runner import grid

if TYPE_CHECKING:
    import polars

NEEDS = "trace"
TEMPERATURES = (0.2, 0.4, 0.6, 0.8, 1.0)
TOP_K = (10, 100, 1000, None)
#: (k, n) that are tried with the paper's solver, easy and hard.
SOLVED, SOLVED_CONTEXTS = ((10, 4), (1000, 2), (1000, 4), (None, 2)), 32


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Optima at every temperature and truncation; the solver where it can run."""
    axes = {"temperature": list(TEMPERATURES), "law": ["iid"]}
    optima = grid(n=[4], draft_top_k=list(TOP_K), methods=[["optimum"]], **axes)
    solves = [
        {**cell, "draft_top_k": k, "n": n, "methods": ["global-resolution"]}
        for cell in grid(**axes)
        for k, n in SOLVED
    ]
    return setting.cells(optima, contexts=128) + setting.cells(
        solves, contexts=SOLVED_CONTEXTS, quick=8
    )


def compute(cell: dict[str, Any], seed: int, *, path: str) -> list[dict[str, Any]]:
    """Optimal acceptance, or whether the solver failed (value 1), per context."""
    if cell["methods"] == ["optimum"]:
        return acceptance.compute(cell, seed, path=path)
    problem = acceptance.problem(cell, path)
    return [
        {**place, "method": "failure", "value": float(_fails(listed(problem[i])))}
        for i, place in enumerate(acceptance.where(cell, path))
    ]


def _fails(problem: md.Problem) -> bool:
    try:
        solution = md.solve(problem, "global-resolution", tau=1e-4, caps="middle")
    except Refused:
        return True
    plan: Any = solution.plan
    return plan.failure is not None


def report(frame: polars.DataFrame) -> Page:
    """Acceptance and failure rate against temperature."""
    import polars

    optimum = frame.filter(method="optimum")
    means = frames.means(optimum, draft_top_k=TOP_K, temperature=TEMPERATURES)
    means = frames.as_text(means, "draft_top_k", "k")
    table = results.pivot(means, rows=["k"], columns="temperature")
    failed = frames.as_text(frame.filter(method="failure"), "draft_top_k", "k")
    failed = failed.with_columns(setting=polars.format("{}, n {}", "k", "n"))
    names = [f"k {k or 'all'}, n {n}" for k, n in SOLVED]
    rates = frames.means(failed, setting=names, temperature=TEMPERATURES)
    axis = "temperature of target and draft"
    return Page(
        {
            "table": (table, "Optimal acceptance of four iid drafts"),
            "failures": (
                results.pivot(rates, rows=["setting"], columns="temperature"),
                "Share of contexts on which Global Resolution fails",
            ),
        },
        {
            "figure": (
                plots.lines(
                    means,
                    x="temperature",
                    colour="k",
                    xlabel=axis,
                    ylabel="optimal acceptance",
                ),
                "Optimal acceptance of four iid drafts, bands of 95%",
            ),
            "failed": (
                plots.lines(
                    rates,
                    x="temperature",
                    colour="setting",
                    xlabel=axis,
                    ylabel="share of failures",
                ),
                "How often Global Resolution fails, bands of 95%",
            ),
        },
        _verdicts(optimum, failed),
    )


def _verdicts(optimum: polars.DataFrame, failed: polars.DataFrame) -> list[Verdict]:
    low = {"draft_top_k": 10, "method": "optimum"}
    rates = failed.group_by("context", "passage", "temperature").agg(value=_mean("value"))
    return [
        together(
            "below temperature 0.8 a k of 100 gains less than 0.01 over 10",
            frames.gaps(optimum, {**low, "draft_top_k": 100}, low, temperature=(0.2, 0.4, 0.6)),
            low=-math.inf,
            high=0.01,
        ),
        together(
            "at temperature 1 a k of 100 gains more than 0.01 over 10",
            frames.gaps(optimum, {**low, "draft_top_k": 100}, low, temperature=(1.0,)),
            low=0.01,
        ),
        judge(
            "the solver fails more often at temperature 1 than at 0.6 (share, all settings)",
            frames.difference(rates, {"temperature": 1.0}, {"temperature": 0.6}),
        ),
    ]


def _mean(column: str) -> polars.Expr:
    import polars

    return polars.col(column).mean()
