"""Hu et al.: trees of two drafts and four steps, and of four drafts and three.

The paper (2502.18779) compares rules on MT-bench with EAGLE at temperature 0.6 on trees of 2 drafts
x 4 steps and 4 x 3: on the first, without replacement (RRSw) 3.518, SpecHub 3.519 and greedy 3.520
tokens per call, so no difference to speak of.

We record such trees by three draft laws, at temperature 0.6 for both models, and compute the
expected block length of each rule. The laws see the same contexts, not the same drafts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multidraft import plots, results
from multidraft.experiments.papers.common import blocks, frames, published
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import judge

if TYPE_CHECKING:
    import polars

NEEDS = "trees"
TEMPERATURE = 0.6
#: Name -> tree and number of contexts.
TREES = {"2 drafts x 4 steps": ("k-ary:2,4", 64), "4 drafts x 3 steps": ("k-ary:4,3", 32)}
#: Label of the paper -> draft law and rule.
METHODS = {
    "RRS": ("iid", "rrs"),
    "RRSw": ("without-replacement", "rrsw"),
    "SpecHub": ("hub", "spechub"),
    "greedy": ("greedy", "greedy"),
}

compute = blocks.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every tree and law, a recording each; hub drafts are two."""
    return [
        cell
        for name, (shape, contexts) in TREES.items()
        for cell in blocks.cells(setting, _settings(name, shape), contexts=contexts)
    ]


def _settings(name: str, shape: str) -> list[dict[str, Any]]:
    same = {"deepest": shape, "tree": shape, "shape": name}
    same |= {"temperature": TEMPERATURE, "draft_temperature": TEMPERATURE}
    return [
        {**same, "law": law, "rule": rule, "method": label}
        for label, (law, rule) in METHODS.items()
        if law != "hub" or shape.startswith("k-ary:2")
    ]


def report(frame: polars.DataFrame) -> Page:
    """Tokens per call by tree and rule."""
    means = frames.means(frame, method=METHODS, shape=tuple(TREES))
    figure = plots.dots(means, label="method", colour="shape", xlabel="tokens per target call")
    beside = published.beside(
        "hu2025_mtbench",
        means,
        methods={label: label for label in METHODS},
        on={"tree": "shape"},
        show=("dataset", "target_temperature"),
    )
    binary, wide = TREES

    def over(first: str, second: str, shape: str) -> results.Mean:
        one, two = ({"shape": shape, "method": method} for method in (first, second))
        return frames.difference(frame, one, two)

    return Page(
        {"table": (results.pivot(means, rows=["method"], columns="shape"), "Tokens per call")},
        {"figure": (figure, "Tokens per target call at temperature 0.6, bars of 95%")},
        [
            judge(
                "on 2 x 4 trees greedy and RRSw differ by less than 0.1",
                over("greedy", "RRSw", binary),
                low=-0.1,
                high=0.1,
                about="models",
            ),
            judge(
                "on 2 x 4 trees SpecHub and RRSw differ by less than 0.1",
                over("SpecHub", "RRSw", binary),
                low=-0.1,
                high=0.1,
                about="models",
            ),
            judge(
                "on 4 x 3 trees without replacement yields more than with it",
                over("RRSw", "RRS", wide),
            ),
        ],
        beside,
    )
