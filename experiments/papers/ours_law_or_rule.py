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
CONTEXTS = 512
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
    cold, hot = TEMPERATURES[:-1], TEMPERATURES[-1:]
    return [
        together(
            "at temperature 0.3 and 0.6 the law is worth more than the rule: RRSw, on drafts "
            "without replacement, beats the optimum of iid drafts",
            _gaps(frame, RRSW, IID, cold),
        ),
        together(
            "at temperature 1 the rule is worth more: the optimum of iid drafts beats RRSw",
            _gaps(frame, IID, RRSW, hot),
        ),
        together(
            "on iid drafts the optimal rule gains over RRS at every temperature",
            _gaps(frame, IID, RRS, TEMPERATURES),
        ),
        together(
            "both together gain more than either: the optimum without replacement beats RRSw and "
            "the optimum of iid drafts",
            {
                f"over {name}, {label}": gap
                for name, other in (("RRSw", RRSW), ("iid", IID))
                for label, gap in _gaps(frame, WITHOUT, other, TEMPERATURES).items()
            },
        ),
        together(
            "the serving engines' default loses to greedy drafts, one random draft away",
            _gaps(frame, GREEDY, SERVING, TEMPERATURES),
        ),
        together(
            "at temperature 1 the serving engines' default loses to iid drafts with RRS",
            _gaps(frame, RRS, SERVING, hot),
        ),
        together(
            "at temperature 0.3 it beats iid drafts with RRS",
            _gaps(frame, SERVING, RRS, TEMPERATURES[:1]),
        ),
    ]


def _gaps(
    frame: polars.DataFrame, first: str, second: str, temperatures: tuple[float, ...]
) -> dict[str, results.Mean]:
    return frames.gaps(frame, first, second, temperature=temperatures, n=COUNTS)
