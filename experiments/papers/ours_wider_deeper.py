"""Ours (e): wider or deeper.

Given a budget of drafted tokens, more paths or longer ones? No paper compares them on the same
drafts. Trees of iid drafts with the exact optimum at every node, read off one recording at
temperature 1; all trees of a budget are paired by context.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multidraft import plots, results
from multidraft.experiments.papers.common import blocks, frames
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import Verdict, together
from multidraft.experiments.tree_table import deepest_text

if TYPE_CHECKING:
    import polars

NEEDS = "trees"
#: Drafted tokens -> trees with so many, the deepest first.
BUDGETS = {
    4: ("chain:4", "paths:2,2", "paths:4,1"),
    6: ("chain:6", "paths:2,3", "paths:3,2", "k-ary:2,2"),
    8: ("paths:2,4", "paths:4,2"),
    12: ("paths:3,4", "paths:4,3"),
}
RULE = "interval"  # the optimum of every node

compute = blocks.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every tree of every budget, on one recording."""
    every = (
        {"deepest": deepest_text("iid"), "law": "iid", "rule": RULE, "tree": tree}
        | {"budget": budget, "method": tree}
        for budget, trees in BUDGETS.items()
        for tree in trees
    )
    return blocks.cells(setting, every)


def report(frame: polars.DataFrame) -> Page:
    """Tokens per call by budget and tree."""
    trees = tuple(tree for trees in BUDGETS.values() for tree in trees)
    means = frames.means(frame, budget=tuple(BUDGETS), method=trees)
    figure = plots.dots(
        frames.as_text(means, "budget", "drafted tokens"),
        label="method",
        colour="drafted tokens",
        xlabel="tokens per target call",
    )
    table = results.pivot(means.with_columns(tree="method"), rows=["tree"], columns="budget")
    return Page(
        {"table": (table, "Tokens per target call")},
        {"figure": (figure, "Trees by budget, the optimum at every node; bars of 95%")},
        [verdict for budget in BUDGETS for verdict in _verdicts(frame, budget)],
    )


def _verdicts(frame: polars.DataFrame, budget: int) -> list[Verdict]:
    deepest, *others = BUDGETS[budget]
    gaps = {
        f"{deepest} - {other}": frames.difference(
            frame, {"budget": budget, "method": deepest}, {"budget": budget, "method": other}
        )
        for other in others
    }
    return [together(f"with {budget} drafted tokens the deepest tree ({deepest}) is best", gaps)]
