"""GLS: random pairs of laws on ten tokens, n = 1 to 20.

The paper (2506.05632) draws the matching probability of its list coupling and the lower bound of
its theorem for 100 random pairs of laws on ten tokens against the number of drafts; the law of the
pairs is not in any readable text.

We draw 100 pairs uniformly from the simplex and compute, for each pair and n: the bound, exact; the
matching probability, from 1,000 rounds; and, exactly, recursive rejection, K-SEQ and the optimum,
which need communication between drafter and verifier that the coupling does without.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import multidraft as md
from multidraft import plots, results
from multidraft.experiments.papers.common import acceptance, frames
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import always, together

if TYPE_CHECKING:
    import polars

NEEDS = "nothing"
PAIRS, VOCABULARY, ROUNDS = 100, 10, 1000
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 20)
MEASURED = "coupling, measured"
METHODS = ("optimum", "k-seq", "rrs", MEASURED, "list coupling")


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every number of drafts; fewer pairs and rounds in haste."""
    pairs, rounds = (10, 400) if setting.quick else (PAIRS, ROUNDS)
    return [{"n": n, "pairs": pairs, "rounds": rounds} for n in COUNTS]


def compute(cell: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """A row for every pair and method. Pairs are the same for all n, rounds are drawn by `seed`."""
    laws = np.random.default_rng(0).dirichlet(np.ones(VOCABULARY), (2, PAIRS))[:, : cell["pairs"]]
    problem = md.Problem(laws[0], md.IID(laws[1], cell["n"]))
    columns = {name: acceptance.measured(name, problem)[0]["value"] for name in METHODS[:3]}
    columns["list coupling"] = acceptance.measured("list coupling", problem)[0]["value"]
    generator = torch.Generator().manual_seed(seed)
    columns[MEASURED] = [
        _matched(problem[i], cell["rounds"], generator) for i in range(cell["pairs"])
    ]
    return [
        {"context": i, "passage": i, "method": name, "value": value}
        for name, values in columns.items()
        for i, value in enumerate(values)
    ]


def _matched(problem: md.Problem, rounds: int, generator: torch.Generator) -> float:
    """Share of rounds in which the output is one of the drafts."""
    rule = md.verifiers.get("gls")
    shape = (rounds, rule.draft_draws(problem.law))
    uniforms = torch.rand(shape, generator=generator, dtype=torch.float64)
    drafts = rule.sample_drafts(problem.target, problem.law, uniforms=uniforms)
    none = torch.empty((rounds, 0), dtype=torch.float64)
    found = rule.prepare(problem.target, problem.law).verify(drafts, uniforms=none)
    return float((found.draft >= 0).double().mean())


def report(frame: polars.DataFrame) -> Page:
    """Curves against n."""
    means = frames.means(frame, method=METHODS, n=COUNTS)
    figure = plots.lines(
        means,
        x="n",
        colour="method",
        xlabel="number of drafts n",
        ylabel="acceptance",
        log_x=True,
        height=2.0,
    )
    wide = frames.wide(frame, "n", "context")
    rounds = frame["rounds"][0]
    error = 5 * np.sqrt(0.25 / rounds)  # five standard errors of a share, at most
    more = tuple(n for n in COUNTS if n > 1)
    return Page(
        {"table": (results.pivot(means, rows=["method"], columns="n"), "Acceptance")},
        {"figure": (figure, "100 random pairs of laws on ten tokens, bands of 95% over pairs")},
        [
            always(
                "the matching probability is at least the bound (up to five standard errors)",
                (wide[MEASURED] > wide["list coupling"] - error).to_numpy(),
                "pairs and numbers of drafts",
            ),
            together(
                "more drafts match more often: n against n = 1",
                {
                    f"n={n}": frames.difference(
                        frame, {"n": n, "method": MEASURED}, {"n": 1, "method": MEASURED}
                    )
                    for n in more
                },
            ),
            together(
                "without communication it stays within 0.1 of the optimum (ours)",
                frames.gaps(frame, "optimum", MEASURED, n=more),
                low=-math.inf,
                high=0.1,
            ),
            together(
                "the coupling matches less often than RRS accepts (ours)",
                frames.gaps(frame, "rrs", MEASURED, n=more),
            ),
        ],
    )
