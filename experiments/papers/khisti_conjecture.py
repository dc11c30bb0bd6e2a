"""Khisti et al.: the conjecture for more than two identical drafts, on random instances.

The paper (2410.18234) proves that two identical drafts reach acceptance 1 exactly when
q(S) >= p(S)^2 for every S, and conjectures the exponent n for n > 2. It follows from the optimum
as Hu et al. (2502.18779) state it, 1 + min_S (q(S) - p(S)^n): the minimum is zero exactly when no
set violates the condition.

We solve the linear program over all drafted tuples on random laws with two to five tokens and two
to four drafts. Half of the targets are laws of a token chosen at random among the drafts, so that
acceptance 1 is possible and often only just.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

import multidraft as md
from multidraft import plots, results
from multidraft.experiments.papers.common import exact
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import always
from multidraft.experiments.runner import grid

if TYPE_CHECKING:
    import polars

NEEDS = "nothing"
VOCABULARIES, COUNTS = (2, 3, 4, 5), (2, 3, 4)
INSTANCES = 100  # per cell


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every vocabulary, number of drafts and kind of target."""
    axes = {"vocabulary": list(VOCABULARIES), "n": list(COUNTS), "target": ["random", "covered"]}
    return grid(instances=[4 if setting.quick else INSTANCES], **axes)


def compute(cell: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """A row for every instance, drawn from `seed`."""
    generator = np.random.default_rng(seed)
    rows = []
    for i in range(cell["instances"]):
        draft = generator.dirichlet(np.ones(cell["vocabulary"]))
        target = generator.dirichlet(np.ones(cell["vocabulary"]))
        if cell["target"] == "covered":
            target = _covered(draft, cell["n"], generator)
        rows.append({"instance": i, **exact.both(target, draft, cell["n"])})
    return rows


def _covered(
    draft: Float[np.ndarray, " V"], n: int, generator: np.random.Generator
) -> Float[np.ndarray, " V"]:
    """Law of the drafted token that a random order of the tokens, or a mixture of two, prefers."""
    tuples, mass = md.IID(draft, n).enumerate()
    target = np.zeros_like(draft)
    share = generator.choice([1.0, generator.random()])  # a vertex, or a point of an edge
    for weight in (share, 1 - share):
        rank = generator.permutation(len(draft))
        first = tuples[np.arange(len(tuples)), rank[tuples].argmin(-1)]
        np.add.at(target, first, weight * mass)
    return target


def report(frame: polars.DataFrame) -> Page:
    """The optimum by program and formula, instance by instance."""
    import polars

    shares = frame.group_by("target", "n").agg(
        value=polars.col("full").mean(), stderr=polars.lit(None, dtype=polars.Float64)
    )
    table = results.pivot(shares.sort("target", "n"), rows=["target"], columns="n")
    larger = frame.filter(polars.col("n") > 2)
    verdicts = [
        always(
            "for n = 3, 4 acceptance is 1 exactly where q(S) >= p(S)^n for every S",
            larger["agrees"].to_numpy(),
            "random instances",
        ),
        always(
            "for n = 2 the same (the theorem)",
            frame.filter(n=2)["agrees"].to_numpy(),
            "random instances",
        ),
        always(
            "the optimum is 1 + min_S (q(S) - p(S)^n)",
            frame["distance"].to_numpy() < 1e-8,
            "random instances",
        ),
    ]
    open_ = frame.filter(polars.col("target") == "random").sort("n")
    figure = plots.ecdf(
        open_.with_columns(curve=polars.format("n = {}", "n"), lost=1 - open_["value"]),
        value="lost",
        colour="curve",
        across=1,
        xlabel="1 - optimal acceptance",
        ylabel="share of instances",
    )
    caption = "Random laws on two to five tokens: how much the optimum misses"
    return Page(
        {"table": (table, "Share of instances with acceptance 1")},
        {"figure": (figure, caption)},
        verdicts,
    )
