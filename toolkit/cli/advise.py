"""``multidraft advise``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from multidraft import advise, models, traces
from multidraft.cli.output import Flag, Json, print_json, print_table
from multidraft.cli.record import default_trace
from multidraft.errors import InputError
from multidraft.trees import named, recorded
from multidraft.trees.tree import Tree

if TYPE_CHECKING:
    from multidraft.advise import Advice, Costs, Evidence

_SHOWN = 12  # options in the table
#: Trees on which rules are timed, by draft law.
_TIMED = {"iid": "paths:4,2", "without-replacement": "k-ary:4,2", "hub": "k-ary:2,2"}


def command(
    *,
    target: str = "smollm2",
    draft: str = "skip-8",
    budget: int = advise.BUDGET,
    costs: Path | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    trace: Path | None = None,
    folder: Path | None = None,
    fresh: Flag = False,
    json: Json = False,
) -> None:
    """Say which tree, draft law and rule give the most tokens per second.

    From recorded trees of the pair (`multidraft trees record`); where there are none, from a trace,
    by an estimate that takes acceptance to be the same at every depth. Model calls are timed on
    this machine once, unless --costs says what they take.

    Parameters
    ----------
    target
        A name from `multidraft models`, or a folder.
    draft
        Name of the draft model.
    budget
        Most drafted tokens per target call.
    costs
        JSON: {"format": 1, "target": {"slots": [1, 8, 32], "seconds": [0.04, 0.08, 0.10]},
        "draft": the same, "verification": {"rrs": 0.004}}; seconds of one call by its number of
        slots, the root included, and of verification by rule.
    temperature
        Of both models.
    top_k, top_p
        Truncation of both models.
    trace
        For the estimate; what `multidraft record` wrote last for the target, unless given.
    folder
        Where recorded trees are; in the cache unless given.
    fresh
        Time the model calls again.
    """
    sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    given = None if costs is None else advise.load(costs)
    evidence = _evidence(target, draft, sampling, trace, folder)
    found = advise.advise(evidence, given or _timed(target, draft, evidence, fresh), budget=budget)
    if json:
        print_json(found.as_data())
    else:
        _print(found)


def _evidence(
    target: str, draft: str, sampling: dict, trace: Path | None, folder: Path | None
) -> Evidence:
    if trace is None and (files := _recordings(target, draft, sampling, folder)):
        return advise.FromRecordings(files, **sampling)
    place = default_trace(target) if trace is None else trace
    if not place.is_file():
        raise InputError(
            f"there are no recorded trees and no trace {place}: run `multidraft record` and "
            "`multidraft trees record`."
        )
    return advise.FromTrace(traces.open(place), draft, **sampling)


def _recordings(target: str, draft: str, sampling: dict, folder: Path | None) -> list[Path]:
    """Recordings of the pair at these settings, of those contexts of which there are the most."""
    groups: dict[tuple, list[Path]] = {}
    for place in recorded.found(folder):
        recording = recorded.open(place)
        request = recording.header["request"]
        same = (request["target"], request["draft"]) == (Path(target).name, draft)
        if same and recording.drafting == sampling:
            key = request["trace"], tuple(recording.context.tolist())
            groups.setdefault(key, []).append(place)
    return max(groups.values(), key=len, default=[])


def _timed(target: str, draft: str, evidence: Evidence, fresh: bool) -> Costs:
    loaded = models.load(target)
    rules: dict[str, Tree] = {}
    for law, rule in evidence.systems:
        tree = "chain:4" if rule == "block" else _TIMED.get(law, "paths:4,2")
        rules.setdefault(rule, named.parse(tree, law))
    if fresh:
        print("timing model calls", file=sys.stderr)
    return advise.measured(loaded, models.load(draft, loaded), rules, fresh=fresh)


def _print(found: Advice) -> None:
    for sentence in found.sentences:
        print(sentence)
    print()
    headings = ("tree", "drafts", "law", "rule", "tokens per call", "ms", "tokens per second")
    rows = [
        (
            option.name,
            option.candidate.tree.nodes,
            option.candidate.law,
            option.candidate.rule,
            f"{option.efficiency.mean:.3f} ± {option.efficiency.stderr:.3f}",
            f"{1000 * option.seconds:.0f}",
            f"{option.speed.mean:.2f} ± {option.speed.stderr:.2f}",
        )
        for option in found.options[:_SHOWN]
    ]
    print_table(headings, rows)
    if found.marginals:
        print()
        _print_marginals(found)


def _print_marginals(found: Advice) -> None:
    """What one more draft adds to the fastest tree."""
    rows = [
        (
            marginal.depth,
            "deeper" if marginal.deeper else "wider",
            f"{marginal.tokens.mean:.4f} ± {marginal.tokens.stderr:.4f}",
            f"{marginal.speed.mean:+.3f} ± {marginal.speed.stderr:.3f}",
        )
        for marginal in found.marginals
    ]
    headings = ("one more draft at depth", "makes it", "tokens per call", "tokens per second")
    print_table(headings, rows)
