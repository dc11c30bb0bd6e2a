"""SpecHub: acceptance of the first and the second draft.

The paper (2411.05289) and its logs give the probability that the draft in each slot is the accepted
one, for recursive rejection with (RRS) and without replacement (RRSw) and SpecHub, with Llama-68M
and 160M drafting for Llama-2-7B at temperatures 0.3, 0.6 and 1: the second draft of SpecHub is
accepted more often (.10 to .17).

We compute the same probabilities exactly on recorded laws. The slots of SpecHub are the order in
which the pair is drawn: a hub drawn first is slot 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import multidraft as md
from multidraft import plots, results
from multidraft.experiments.papers.common import acceptance, frames, published
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import together
from multidraft.experiments.runner import grid

if TYPE_CHECKING:
    import polars

NEEDS = "trace"
CONTEXTS = 256
TEMPERATURES = (0.3, 0.6, 1.0)
#: Label of the paper -> draft law and rule.
METHODS = {
    "RRS": ("iid", "rrs"),
    "RRSw": ("without-replacement", "rrsw"),
    "SpecHub": ("hub", "spechub"),
}
SLOTS = ("slot=1", "slot=2")


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every temperature and rule."""
    every = (
        {**cell, "law": METHODS[cell["label"]][0], "n": 2}
        for cell in grid(temperature=list(TEMPERATURES), label=list(METHODS))
    )
    return setting.cells(every, contexts=CONTEXTS, quick=8)


def compute(cell: dict[str, Any], seed: int, *, path: str) -> list[dict[str, Any]]:
    """Acceptance of each slot, per context; nothing is drawn."""
    problem = acceptance.problem(cell, path)
    rule = md.verifiers.get(METHODS[cell["label"]][1])
    both = rule.acceptance(problem).value
    if isinstance(problem.law, md.Hub):
        first = np.array([_first_slot(rule, problem[i]) for i in range(len(problem))])
    else:  # the first draft is drawn from p, and tested as if it were alone
        first = np.minimum(problem.target, problem.law.probs).sum(-1)
    return [
        {**place, "method": cell["label"], "slot": slot, "value": float(value[i])}
        for slot, value in zip(SLOTS, (first, both - first), strict=True)
        for i, place in enumerate(acceptance.where(cell, path))
    ]


def _first_slot(rule: md.verifiers.Rule, problem: md.Problem) -> float:
    """Probability that the draft in the first slot is accepted, over all pairs."""
    tuples, mass = problem.law.enumerate()
    keep, _ = rule.prepare(problem.target, problem.law).terms(torch.from_numpy(tuples))
    return float(mass @ keep[:, 0].numpy())


def report(frame: polars.DataFrame) -> Page:
    """Both slots at every temperature."""
    means = frames.means(frame, temperature=TEMPERATURES, method=METHODS, slot=SLOTS)
    table = results.pivot(means, rows=["temperature", "method"], columns="slot")
    figure = plots.dots(
        frames.as_text(means, "temperature", "temperature"),
        label="method",
        colour="slot",
        panel="temperature",
        xlabel="acceptance of the slot",
        across=3,
    )
    beside = published.beside(
        "spechub2024_hub_accept_rates",
        means,
        methods={label: label for label in METHODS},
        on={"target_temperature": "temperature", "setting": "slot"},
        where={"setting": SLOTS},
        show=("target_model", "draft_model", "draft_law"),
    )

    def second(over: str) -> dict[str, results.Mean]:
        return frames.gaps(frame, "SpecHub", over, slot="slot=2", temperature=TEMPERATURES)

    return Page(
        {"table": (table, "Acceptance of each slot")},
        {"figure": (figure, "Acceptance of the first and the second draft, bars of 95%")},
        [
            together(
                "the second draft of SpecHub is accepted more often than RRS's", second("RRS")
            ),
            together(
                "the second draft of SpecHub is accepted more often than RRSw's", second("RRSw")
            ),
            together(
                "over RRSw the second slot gains 0.01 to 0.05",
                second("RRSw"),
                low=0.01,
                high=0.05,
                about="models",
            ),
            together(
                "both slots together, SpecHub accepts more than RRSw",
                frames.gaps(_sums(frame), "SpecHub", "RRSw", temperature=TEMPERATURES),
            ),
        ],
        beside,
    )


def _sums(frame: polars.DataFrame) -> polars.DataFrame:
    import polars

    return frame.group_by("temperature", "method", "context", "passage").agg(
        polars.col("value").sum()
    )
