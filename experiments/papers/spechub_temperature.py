"""SpecHub, temperature sweep: one step from temperature 0.1 to 1.

The paper (2411.05289) sweeps the temperature for Llama-68M drafting for Llama-2-7B on a binary
tree: SpecHub above recursive rejection with (RRS) and without replacement (RRSw) throughout. It
argues that SpecHub may exceed the optimum of iid drafts where the draft is peaked.

We compute one step with two drafts on recorded laws, exactly, with the optima of iid drafts and of
drafts without replacement; SpecHub attains the optimum of its own law.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multidraft import plots, results
from multidraft.experiments.papers.common import acceptance, frames
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import together

if TYPE_CHECKING:
    import polars

NEEDS = "trace"
CONTEXTS = 256
TEMPERATURES = tuple(round(0.1 * i, 1) for i in range(1, 11))
#: Draft law -> method -> how the page calls it.
METHODS = {
    "iid": {"rrs": "RRS", "optimum": "optimum, iid"},
    "without-replacement": {"rrsw": "RRSw", "optimum": "optimum, without replacement"},
    "hub": {"spechub": "SpecHub"},
}
NAMES = tuple(name for names in METHODS.values() for name in names.values())

compute = acceptance.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every temperature and draft law; every third temperature in haste."""
    every = (
        {"temperature": heat, "law": law, "n": 2, "methods": list(names)}
        for heat in (TEMPERATURES[::3] if setting.quick else TEMPERATURES)
        for law, names in METHODS.items()
    )
    return setting.cells(every, contexts=CONTEXTS, quick=12)


def report(frame: polars.DataFrame) -> Page:
    """Curves against the temperature."""
    named = frames.named(frame, METHODS)
    means = frames.means(named, method=NAMES, temperature=TEMPERATURES)
    figure = plots.lines(
        means,
        x="temperature",
        colour="method",
        xlabel="temperature of target and draft",
        ylabel="acceptance of two drafts",
        height=2.6,
    )
    heats = tuple(means["temperature"].unique().sort())
    every: dict[str, Any] = {"temperature": heats}
    cold = tuple(heat for heat in heats if heat < 0.35)
    hot = tuple(heat for heat in heats if heat > 0.85)
    return Page(
        {"table": (results.pivot(means, rows=["method"], columns="temperature"), "Acceptance")},
        {"figure": (figure, "Two drafts, one step: acceptance against temperature, bands of 95%")},
        [
            together(
                "SpecHub accepts more than RRS at every temperature",
                frames.gaps(named, "SpecHub", "RRS", **every),
            ),
            together(
                "SpecHub accepts more than RRSw at every temperature",
                frames.gaps(named, "SpecHub", "RRSw", **every),
            ),
            together(
                "at low temperature SpecHub exceeds the optimum of iid drafts",
                frames.gaps(
                    named,
                    "SpecHub",
                    "optimum, iid",
                    temperature=cold,
                ),
            ),
            together(
                "at temperatures from 0.9 it exceeds it as well (the paper claims no such thing)",
                frames.gaps(
                    named,
                    "SpecHub",
                    "optimum, iid",
                    temperature=hot,
                ),
            ),
        ],
    )
