"""Ours (b): theory against measurement.

Every acceptance in these tables is computed, not measured. Here the rules verify drafts that were
drawn with real uniforms, 400 rounds in each of 64 recorded contexts, and the frequency with which
the output is one of the drafts is compared with the exact acceptance: calibration of the
standardised differences, coverage of their 95% intervals, and coverage of the intervals that are
clustered by passage when whole passages are drawn again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy import stats

import multidraft as md
from multidraft import plots, results
from multidraft.experiments.papers.common import acceptance, frames
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import Verdict, judge, together

if TYPE_CHECKING:
    import polars

NEEDS = "trace"
CONTEXTS, ROUNDS, BATCH = 64, 400, 50
#: Draft law, number of drafts, rule: exact acceptances only.
CASES = (
    ("iid", 4, "naive"),
    ("iid", 4, "rrs"),
    ("iid", 4, "k-seq"),
    ("iid", 4, "interval"),
    ("without-replacement", 2, "rrsw"),
    ("greedy", 4, "greedy"),
    ("hub", 2, "spechub"),
    ("top", 4, "naive"),
)
DRAWN = 2000  # samples of passages for the coverage of clustered intervals


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every case at temperature 1."""
    return setting.cells(
        (
            {"law": law, "n": n, "rule": rule, "temperature": 1.0, "rounds": ROUNDS}
            for law, n, rule in CASES
        ),
        contexts=CONTEXTS,
        quick=6,
    )


def compute(cell: dict[str, Any], seed: int, *, path: str) -> list[dict[str, Any]]:
    """Exact acceptance and the measured rate, per context; rounds are drawn from `seed`."""
    problem, rule = acceptance.problem(cell, path), md.verifiers.get(cell["rule"])
    exact = rule.acceptance(problem).value
    generator = torch.Generator().manual_seed(seed)
    return [
        {
            **place,
            "method": f"{cell['law']}: {cell['rule']}",
            "value": float(exact[i]),
            "measured": _measured(rule, problem[i], cell["rounds"], generator),
        }
        for i, place in enumerate(acceptance.where(cell, path))
    ]


def _measured(
    rule: md.verifiers.Rule, problem: md.Problem, rounds: int, generator: torch.Generator
) -> float:
    """Share of rounds in which the output is a draft."""
    prepared, hits = rule.prepare(problem.target, problem.law), 0
    for first in range(0, rounds, BATCH):
        rows = min(BATCH, rounds - first)
        shape = (rows, rule.draft_draws(problem.law))
        uniforms = torch.rand(shape, generator=generator, dtype=torch.float64)
        drafts = rule.sample_drafts(problem.target, problem.law, uniforms=uniforms)
        hits += int((prepared.verify(drafts, generator=generator).draft >= 0).sum())
    return hits / rounds


def report(frame: polars.DataFrame) -> Page:
    """Calibration, and both coverages."""
    figure = plots.calibration(
        frame,
        measured="measured",
        theory="value",
        count="rounds",
        colour="method",
        xlabel="exact acceptance",
        ylabel="measured rate",
    )
    covered = _covered(frame)
    names = [f"{law}: {rule}" for law, _, rule in CASES]
    table = results.pivot(
        frames.means(covered, method=names, column=None), rows=["method"], columns="column"
    )
    return Page(
        {"table": (table, "Mean acceptance, exact and measured, and coverage of the intervals")},
        {"figure": (figure, "Measured rates against exact acceptance, and their differences")},
        _verdicts(frame, covered),
    )


def _covered(frame: polars.DataFrame) -> polars.DataFrame:
    """Rows of three kinds: the exact value, the measured rate, whether the interval covers."""
    import polars

    low, high = _interval(frame["measured"].to_numpy(), frame["rounds"].to_numpy())
    value = frame["value"].to_numpy()
    covers = (low <= value + frames.ROUND_OFF) & (value - frames.ROUND_OFF <= high)
    key = frame.select("context", "passage", "method")
    parts = {"exact": value, "measured": frame["measured"].to_numpy(), "95% covers": covers}
    return polars.concat(
        key.with_columns(value=polars.Series(part.astype(float)), column=polars.lit(name))
        for name, part in parts.items()
    )


def _interval(rate: np.ndarray, rounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exact 95% interval of a binomial rate (Clopper and Pearson)."""
    hits = np.rint(rate * rounds)
    with np.errstate(invalid="ignore"):
        low = np.nan_to_num(stats.beta.ppf(0.025, hits, rounds - hits + 1), nan=0.0)
        high = np.nan_to_num(stats.beta.ppf(0.975, hits + 1, rounds - hits), nan=1.0)
    return low, high


def _verdicts(frame: polars.DataFrame, covered: polars.DataFrame) -> list[Verdict]:
    inside = covered.filter(column="95% covers")
    rate = results.clustered_mean(inside["value"].to_numpy(), inside["passage"].to_numpy())
    gaps = {
        method: results.paired_difference(
            part["measured"].to_numpy(), part["value"].to_numpy(), part["passage"].to_numpy()
        )
        for (method,), part in sorted(frame.partition_by("method", as_dict=True).items())
    }
    share = _clustered_coverage(frame)
    return [
        together(
            "measured rates agree with exact acceptance (within 0.02 for every rule)",
            gaps,
            low=-0.02,
            high=0.02,
            digits=4,
        ),
        judge(
            "intervals of 95% cover the exact value in 93% of the contexts or more "
            "(binomial intervals are conservative)",
            rate,
            low=0.93,
            high=1.01,
        ),
        judge(
            "intervals clustered by passage cover in 90 to 98% when passages are drawn again",
            share,
            low=0.90,
            high=0.98,
        ),
    ]


def _clustered_coverage(frame: polars.DataFrame) -> results.Mean:
    """Share of samples of half as many passages, with replacement, whose interval covers."""
    one = frames.chosen(frame, method="iid: rrs")
    values, passages = one["value"].to_numpy().astype(float), one["passage"].to_numpy()
    groups = [values[passages == passage] for passage in np.unique(passages)]
    generator = np.random.default_rng(0)
    size = max(2, len(groups) // 2)
    hits = []
    for _ in range(DRAWN):
        drawn = [groups[i] for i in generator.integers(len(groups), size=size)]
        labels = np.repeat(np.arange(size), [len(group) for group in drawn])
        low, high = results.clustered_mean(np.concatenate(drawn), labels).interval()
        hits.append(low <= values.mean() <= high)
    return results.clustered_mean(np.array(hits, dtype=float), np.arange(DRAWN))
