"""Khisti et al., Table 2: how much truncation importance sampling needs, and what it costs.

The paper (2410.18234) varies the restricted alphabet (10, 20, 40, 50 tokens, at s = 5) and s (5,
10, 15 tokens inside the linear program, at alphabet 40) with OPT-125M drafting for OPT-13B, and
reports block efficiency and the change of the token rate: alphabet 40 is best, s = 5 is enough and
fastest.

We compute acceptance of two drafts at draft temperature 1.2 on recorded laws, and the time to
prepare the rule and verify one drafted pair (the fastest of five runs). The unrestricted
alphabet and the exact optimum (interval partition) are added.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import multidraft as md
from multidraft import plots, results
from multidraft.experiments.papers.common import acceptance, frames, published
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import always, together

if TYPE_CHECKING:
    import polars

NEEDS = "trace"
ALONE = True
CONTEXTS = 128
#: Line of the table -> rule and its options, the paper's settings first.
LINES: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"alphabet {a}, s = 5": ("importance", {"alphabet": a, "s": 5}) for a in (10, 20, 40, 50)},
    **{f"alphabet 40, s = {s}": ("importance", {"alphabet": 40, "s": s}) for s in (10, 15)},
    "all tokens, s = 5": ("importance", {"s": 5}),
    "exact optimum": ("interval", {}),
}
BASE = "alphabet 40, s = 5"


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every line of the table on every chunk of contexts."""
    base = {"law": "iid", "n": 2, "temperature": 1.0, "draft_temperature": 1.2}
    return setting.cells([{**base, "method": name} for name in LINES], contexts=CONTEXTS, quick=8)


def compute(cell: dict[str, Any], seed: int, *, path: str) -> list[dict[str, Any]]:
    """Acceptance, milliseconds, and loss against the optimum with its bound, per context."""
    name, options = LINES[cell["method"]]
    problem = acceptance.problem(cell, path)
    rule: Any = md.verifiers.get(name, **options)
    columns, _ = acceptance.measured(name, problem, seed, **options)
    optimum = md.optimal_acceptance(problem)
    bound = rule.truncation(problem) if name == "importance" else np.zeros(len(problem))
    drafts = torch.from_numpy(problem.law.sample(1, np.random.default_rng(seed))[:, 0])
    return [
        {
            **place,
            "value": columns["value"][i],
            "tested": columns["tested"][i],
            "loss": float(optimum[i] - columns["tested"][i]),
            "bound": float(bound[i]),
            "milliseconds": _milliseconds(rule, problem[i], drafts[i : i + 1]),
        }
        for i, place in enumerate(acceptance.where(cell, path))
    ]


def _milliseconds(rule: Any, problem: md.Problem, tokens: torch.Tensor) -> float:
    """Time to prepare the rule and verify one tuple, the fastest of five."""
    drafts = md.verifiers.Drafts(tokens)
    uniforms = torch.full((1, rule.draws(2)), 0.5, dtype=torch.float64)
    spent = []
    for _ in range(5):
        start = time.perf_counter()
        rule.prepare(problem.target, problem.law).verify(drafts, uniforms=uniforms)
        spent.append(time.perf_counter() - start)
    return 1e3 * min(spent)


def report(frame: polars.DataFrame) -> Page:
    """Acceptance and time of every line."""
    import polars

    value = frames.means(frame, method=LINES).with_columns(column=polars.lit("acceptance"))
    spent = frames.means(frame, "milliseconds", method=LINES)
    both = polars.concat([value, spent.with_columns(column=polars.lit("milliseconds"))])
    table = results.pivot(both, rows=["method"], columns="column")
    figure = plots.dots(
        both,
        label="method",
        colour="column",
        panel="column",
        xlabel="mean over contexts",
        share=False,
    )
    beside = published.beside(
        "khisti2024_table2",
        None,
        methods={"IS": "importance"},
        on={"setting": "setting"},
        show=("target_model", "draft_model", "metric", "unit"),
    )
    return Page(
        {"table": (table, "Acceptance, and milliseconds to prepare and verify")},
        {"figure": (figure, "What truncation costs in acceptance, and what it saves; bars of 95%")},
        _verdicts(frame),
        beside,
        "Block efficiency and token rate are of another machine and pair; times here are of ours.",
    )


def _verdicts(frame: polars.DataFrame) -> list[Any]:
    def against(others: list[str], value: str = "value") -> dict[str, results.Mean]:
        return {
            other: frames.difference(frame, {"method": other}, {"method": BASE}, value)
            for other in others
        }

    larger = ["alphabet 40, s = 10", "alphabet 40, s = 15"]
    smaller = ["alphabet 10, s = 5", "alphabet 20, s = 5"]
    inside = frame.filter(frame["bound"] > 0)
    return [
        together(
            "s = 5 is enough: larger s gains less than 0.01",
            against(larger),
            low=-math.inf,
            high=0.01,
        ),
        together("s = 5 is faster than s = 10 and 15 (ms)", against(larger, "milliseconds")),
        together(
            "alphabets of 10 and 20 accept less than 40", against(smaller), low=-math.inf, high=0.0
        ),
        together(
            "an alphabet of 50 accepts no more than 40",
            against(["alphabet 50, s = 5"]),
            low=-math.inf,
            high=0.0,
            about="models",
        ),
        always(
            "truncation loses at most the mass sum (q - p^2)+ outside the program",
            (inside["loss"] <= inside["bound"] + 1e-6).to_numpy(),
            "contexts and settings",
        ),
    ]
