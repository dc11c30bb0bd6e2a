"""SpecHub against the draft's largest probability: where it wins and where it loses.

The paper (2411.05289) proves that SpecHub beats recursive rejection under conditions on the top
token's probability p(a). Their wording is not in any readable text; what holds is that
p(a)/(1 - p(a)) >= 1 - alpha, alpha the acceptance of one draft, implies at least RRS, and
p(a) >= TV(p, q) = 1 - alpha implies at least RRSw. There is no unconditional win.

We test both conditions in every recorded context at temperatures 0.6 and 1, and draw SpecHub's
advantage over RRS, RRSw and two optima against p(a).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import polars
from jaxtyping import Bool

from multidraft import plots, results
from multidraft.experiments.papers.common import acceptance, frames
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import Verdict, always, judge, untestable
from multidraft.experiments.papers.spechub_temperature import METHODS

NEEDS = "trace"
CONTEXTS, TEMPERATURES = 256, (0.6, 1.0)
FACTS = ("draft's top probability", "single draft")
RIVALS = ("RRS", "RRSw", "optimum, iid", "optimum, without replacement")
PEAKED, FLAT = 0.5, 0.1
EDGES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)

compute = acceptance.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every law at two temperatures; what the conditions need comes with the hub law."""
    return setting.cells(
        (
            {
                "temperature": heat,
                "law": law,
                "n": 2,
                "methods": [*names, *(FACTS if law == "hub" else ())],
            }
            for heat in TEMPERATURES
            for law, names in METHODS.items()
        ),
        contexts=CONTEXTS,
        quick=12,
    )


def report(frame: polars.DataFrame) -> Page:
    """Advantage by bins of the top probability, and both conditions."""
    labels = {**METHODS, "hub": {**METHODS["hub"], **{fact: fact for fact in FACTS}}}
    wide = frames.wide(frames.named(frame, labels), "temperature", "context", "passage")
    binned = _binned(wide)
    figure = plots.lines(
        frames.as_text(binned, "temperature", "temperature"),
        x="p(a)",
        colour="rival",
        panel="temperature",
        xlabel="draft's largest probability p(a), mean of the bin",
        ylabel="SpecHub - rival",
        across=2,
    )
    table = results.pivot(binned, rows=["temperature", "bin"], columns="rival")
    return Page(
        {"table": (table, "Mean advantage of SpecHub, by bins of p(a)")},
        {"figure": (figure, "Advantage of SpecHub in acceptance of two drafts, bands of 95%")},
        _verdicts(wide),
    )


def _binned(wide: polars.DataFrame) -> polars.DataFrame:
    """Mean advantage over each rival in bins of p(a) that hold at least two passages."""
    bins = np.searchsorted(EDGES[1:-1], wide[FACTS[0]].to_numpy())
    names = [f"{low:g} to {high:g}" for low, high in pairwise(EDGES)]
    rows = []
    for heat in TEMPERATURES:
        for rival in RIVALS:
            for i, name in enumerate(names):
                part = wide.filter((bins == i) & (wide["temperature"].to_numpy() == heat))
                if part["passage"].n_unique() > 1:
                    gain = (part["SpecHub"] - part[rival]).to_numpy().astype(float)
                    found = results.clustered_mean(gain, part["passage"].to_numpy())
                    place = {"temperature": heat, "rival": rival, "bin": name}
                    middle = {"p(a)": part[FACTS[0]].mean(), "contexts": len(part)}
                    rows.append(place | middle | {"value": found.mean, "stderr": found.stderr})
    return polars.DataFrame(rows)


def _verdicts(wide: polars.DataFrame) -> list[Verdict]:
    top, alone = (wide[fact].to_numpy().astype(float) for fact in FACTS)
    hub = wide["SpecHub"].to_numpy()

    def implied(condition: Bool[np.ndarray, " N"], rival: str) -> Bool[np.ndarray, " M"]:
        return (hub >= wide[rival].to_numpy() - frames.ROUND_OFF)[condition]

    with np.errstate(divide="ignore"):
        odds = top / (1 - top)
    peaked, flat = wide.filter(top >= PEAKED), wide.filter(top <= FLAT)
    what = "contexts that meet the condition"
    return [
        always(
            "p(a)/(1 - p(a)) >= 1 - alpha implies that SpecHub accepts at least as much as RRS",
            implied(odds >= 1 - alone, "RRS"),
            what,
        ),
        always(
            "p(a) >= TV(p, q) implies that SpecHub accepts at least as much as RRSw",
            implied(top >= 1 - alone, "RRSw"),
            what,
        ),
        always(
            "SpecHub accepts at least as much as RRSw in every context (nobody claims it)",
            implied(top >= 0, "RRSw"),
            "contexts",
            about="methods",
        ),
        _exceeds(f"with p(a) >= {PEAKED}", peaked),
        _exceeds(f"with p(a) <= {FLAT}", flat),
    ]


def _exceeds(where: str, part: polars.DataFrame) -> Verdict:
    """Whether SpecHub exceeds the optimum of iid drafts in some contexts."""
    claim = f"{where} SpecHub exceeds the optimum of iid drafts"
    if part["passage"].n_unique() < 2:
        return untestable(claim, "fewer than two passages have such contexts")
    hub, best = (part[name].to_numpy() for name in ("SpecHub", "optimum, iid"))
    return judge(claim, results.paired_difference(hub, best, part["passage"].to_numpy()))
