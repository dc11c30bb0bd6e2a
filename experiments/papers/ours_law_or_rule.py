"""Ours (d): what the draft law is worth, against what the rule is worth.

Serving engines draft the n most probable tokens and match a draw from the target (*top*, naive).
Papers propose rules for iid drafts. No paper weighs the two: how much acceptance comes from
drafting differently, each law with its best rule, and how much from verifying better.

The optima of five laws, and the common rule of each, on the same recorded contexts; all exact but
RRSw beyond two drafts (a mean over 1,024 paths).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multidraft import plots, results
from multidraft.experiments.papers.common import acceptance, frames
from multidraft.experiments.papers.common.page import Page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.common.verdict import Verdict, together

if TYPE_CHECKING:
    import polars

NEEDS = "trace"
CONTEXTS = 128
TEMPERATURES, COUNTS = (0.3, 0.6, 1.0), (2, 4, 8)
#: Draft law -> method -> how the page calls it.
METHODS = {
    "iid": {"rrs": "iid, RRS", "optimum": "iid, optimum"},
    "without-replacement": {
        "rrsw": "without replacement, RRSw",
        "optimum": "without replacement, optimum",
    },
    "greedy": {"greedy": "greedy, its rule = optimum"},
    "top": {"naive": "top n, naive = optimum (serving engines)"},
}
NAMES = tuple(name for names in METHODS.values() for name in names.values())
RRS, IID, RRSW, WITHOUT, GREEDY, SERVING = NAMES

compute = acceptance.compute


def cells(setting: Setting) -> list[dict[str, Any]]:
    """Every temperature, law and number of drafts."""
    every = (
        {"temperature": heat, "law": law, "n": n, "methods": list(names)}
        for heat in TEMPERATURES
        for law, names in METHODS.items()
        for n in COUNTS
    )
    return setting.cells(every, contexts=CONTEXTS, quick=12)


def report(frame: polars.DataFrame) -> Page:
    """Acceptance of each law with its rules, and what each change is worth."""
    named = frames.named(frame, METHODS)
    means = frames.means(named, temperature=TEMPERATURES, method=NAMES, n=COUNTS)
    figure = plots.dots(
        frames.as_text(frames.as_text(means, "temperature", "T ="), "n", "n ="),
        label="method",
        colour="n =",
        panel="T =",
        xlabel="acceptance",
        across=3,
    )
    table = results.pivot(means, rows=["temperature", "method"], columns="n")
    return Page(
        {"table": (table, "Acceptance by draft law and rule")},
        {"figure": (figure, "Draft laws and rules, bars of 95%")},
        _verdicts(named),
    )


def _verdicts(frame: polars.DataFrame) -> list[Verdict]:
    def worth(*gains: tuple[str, str]) -> dict[str, results.Mean]:
        """First gain (better, worse), minus the second where there are two."""
        found = {}
        for heat in TEMPERATURES:
            for n in COUNTS:
                same = {"temperature": heat, "n": n}
                sides = [
                    frames.pair(frame, {**same, "method": a}, {**same, "method": b})
                    for a, b in gains
                ]
                gained = [one - two for one, two, _ in sides]
                less = gained[1] if len(gained) > 1 else 0 * gained[0]
                label = f"T={heat:g}, n={n}"
                found[label] = results.paired_difference(gained[0], less, sides[0][2])
        return found

    return [
        together(
            "drafting without replacement is worth more than the optimal rule: RRSw beats the "
            "optimum of iid drafts",
            worth((RRSW, IID)),
        ),
        together("the optimal rule is worth something on iid drafts", worth((IID, RRS))),
        together(
            "without replacement gains more (optimum to optimum) than the optimal rule does on iid "
            "drafts",
            worth((WITHOUT, IID), (IID, RRS)),
        ),
        together(
            "the serving engines' default loses to greedy drafts, one random draft away",
            worth((GREEDY, SERVING)),
        ),
        together(
            "the serving engines' default loses to iid drafts with RRS", worth((RRS, SERVING))
        ),
    ]
