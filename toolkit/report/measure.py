"""All numbers of a report, as plain data: what the page shows and what ``--json`` prints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Int
from tqdm import tqdm

from multidraft import checks, partial
from multidraft.errors import InputError, Refused
from multidraft.partial import PartialTrace
from multidraft.report import deeper, explorer
from multidraft.report.advice import advice
from multidraft.report.losses import losses
from multidraft.report.means import mean
from multidraft.report.narrower import narrower
from multidraft.report.source import Ends, Sampling, Source, sources
from multidraft.traces import Trace

#: Draft laws, and the rules that are lossless for them and fast enough for a report.
RULES: dict[str, tuple[str, ...]] = {
    "iid": ("naive", "rrs", "k-seq", "gls", "interval"),
    "without-replacement": ("naive", "rrsw"),
    "greedy": ("naive", "greedy"),
    "hub": ("naive", "spechub"),
    "top": ("naive",),
}
COUNTS = (1, 2, 3, 4, 8)
_QUANTILES = 21  # points of the overlap's distribution over contexts
_BLOCK = 8  # contexts that stay together where they follow each other in a text

Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Settings:
    """What a report covers.

    Attributes
    ----------
    draft : str or None
        Name of a draft of the trace, the first unless given.
    sampling : Sampling
    contexts : int
        Most contexts that are evaluated, spread evenly over the trace.
    explored : int
        Most contexts that the page lets its reader look into.
    draft_cost : float
        Time of one call of the draft, in calls of the target.
    """

    draft: str | None = None
    sampling: Sampling = field(default_factory=Sampling)
    contexts: int = 128
    explored: int = 64
    draft_cost: float = 0.1

    def __post_init__(self) -> None:
        checks.count(self.contexts, "contexts")
        checks.count(self.explored, "explored")
        if not 0 <= self.draft_cost < math.inf:
            raise InputError(f"draft-cost is {self.draft_cost}: give a time of 0 or more.")


def measure(
    trace: Trace | PartialTrace,
    settings: Settings,
    texts: Mapping[int, str],
    *,
    progress: bool = True,
) -> dict[str, Any]:
    """Compute everything that a report says.

    Every number is ``{"low", "high", "error", "kind"}``: a mean over contexts, low < high where the
    laws are only partly known, with its standard error, clustered by text, or None where all
    contexts are from one text.

    Parameters
    ----------
    trace : Trace or PartialTrace
    settings : Settings
    texts : mapping
        Text of tokens, as far as known.
    progress : bool
        Show a progress bar when standard error is a terminal.

    Raises
    ------
    InputError
        No such draft, or a sampling that the trace cannot be evaluated at.
    """
    draft = trace.names[0] if settings.draft is None else settings.draft
    trace.draft(draft)
    rows, short = _rows(trace, draft, settings)
    facts = explorer.Facts.of(trace, rows, texts)
    wanted = explorer.chosen(len(rows), settings.explored)
    found: list[dict[Key, Ends]] = []
    pictures: list[dict[str, Any]] = []
    start = 0
    with tqdm(total=len(rows), desc="report", disable=None if progress else True) as bar:
        for part in sources(trace, draft, rows, settings.sampling):
            found.append(_ends(part))
            laws = part.shown()
            for i in wanted[(wanted >= start) & (wanted < start + len(part))].tolist():
                pictures.append(explorer.picture(laws, i - start, facts, i))
            start += len(part)
            bar.update(len(part))
    ends = {key: Ends.joined([part[key] for part in found]) for key in found[0]}
    content = {
        "pair": _pair(trace, draft, rows, short),
        "settings": {**asdict(settings), "draft": draft},
        "exact": found[0]["overlap",].kind == "exact",
        **_numbers(ends, facts, settings),
        "width": _width(trace, draft, rows, settings),
        "explorer": pictures,
    }
    return {**content, "advice": advice(content, ends, facts.clusters)}


# ------------------------------------------------------------------------------------- contexts


def _rows(
    trace: Trace | PartialTrace, draft: str, settings: Settings
) -> tuple[Int[np.ndarray, " M"], int]:
    """Contexts to evaluate, and how many say too little for the chosen top-k."""
    usable, k = np.arange(len(trace)), settings.sampling.top_k
    if isinstance(trace, PartialTrace) and k is not None:
        usable = np.flatnonzero((trace.target.top >= k) & (trace.draft(draft).top >= k))
        if len(usable) == 0:
            raise InputError(f"no context lists {k} top tokens of both models: lower --top-k.")
    count = min(settings.contexts, len(usable))
    # Positions that follow each other in a text stay together where there are any.
    block = min(_BLOCK if _consecutive(trace, usable) else 1, count)
    blocks = -(-count // block)
    starts = np.arange(blocks) * (len(usable) - block) // max(blocks - 1, 1)
    picked = np.unique((starts[:, None] + np.arange(block)).ravel())[:count]
    return usable[picked], len(trace) - len(usable)


def _consecutive(trace: Trace | PartialTrace, rows: Int[np.ndarray, " M"]) -> bool:
    """Whether most contexts are followed by the one of the next position."""
    next_to = (np.diff(trace.passage[rows]) == 0) & (np.diff(trace.position[rows]) == 1)
    return bool(next_to.mean() > 0.5) if len(next_to) else False


def _pair(
    trace: Trace | PartialTrace, draft: str, rows: Int[np.ndarray, " M"], short: int
) -> dict[str, Any]:
    """What the pair is, and what the trace holds."""
    facts = {
        "target": trace.header["target"]["name"],
        "draft": draft,
        "drafts": list(trace.names),
        "contexts": len(rows),
        "recorded": len(trace),
        "texts": len(np.unique(trace.passage[rows])),
        "short": short,
    }
    if isinstance(trace, Trace):
        return {**facts, "vocabulary": trace.vocabulary, "holds": "full logits"}
    listed = trace.target, trace.draft(draft)
    return {
        **facts,
        "vocabulary": trace.header["vocabulary"],
        "holds": f"the {min(part.top.max() for part in listed)} most probable tokens",
        **{name: trace.header[name] for name in ("temperature", "dropped", "rounded", "ambiguous")},
    }


def _width(
    trace: Trace | PartialTrace, draft: str, rows: Int[np.ndarray, " M"], settings: Settings
) -> dict[str, Any] | None:
    if isinstance(trace, Trace) or settings.sampling.top_k is not None:
        return None
    part = trace.select(rows)
    return narrower(part.target, part.draft(draft), part.passage)


# -------------------------------------------------------------------------------------- numbers


def _ends(source: Source) -> dict[Key, Ends]:
    """Every quantity of some contexts."""
    found: dict[Key, Ends] = {("overlap",): source.overlap()}
    for side in ("target", "draft"):
        found["entropy", side], found["top", side] = source.entropy(side), source.top(side)
    for law, rules in RULES.items():
        for n in (2,) if law == "hub" else COUNTS:
            with suppress(Refused):  # more sure drafts than any log lists
                found["optimum", law, n] = source.optimum(law, n)
                for rule in rules:
                    _add(found, source, rule, law, n)
    return found


def _add(found: dict[Key, Ends], source: Source, rule: str, law: str, n: int) -> None:
    if rule == "interval":  # it attains the optimum of iid drafts
        found["rule", law, n, rule] = found["optimum", law, n]
        return
    with suppress(Refused):  # no interval is known: see `_unbounded`
        found["rule", law, n, rule] = source.acceptance(rule, law, n, found["optimum", law, n])


def _numbers(ends: Mapping[Key, Ends], facts: explorer.Facts, settings: Settings) -> dict[str, Any]:
    """The means of everything, in tables of rows."""
    clusters = facts.clusters
    means = {key: mean(found, clusters) for key, found in ends.items()}
    middle = (ends["overlap",].lower + ends["overlap",].upper) / 2
    return {
        "summary": {" ".join(key): means[key] for key in means if key[0] not in _TABLES},
        "quantiles": np.quantile(middle, np.linspace(0, 1, _QUANTILES)).tolist(),
        "optimum": [
            {"law": law, "n": n, **means["optimum", law, n]} for law, n in _keys(ends, "optimum")
        ],
        "rules": [_rule_row(means, *key) for key in _keys(ends, "rule")],
        "unbounded": sorted(_unbounded(ends)),
        "losses": losses(ends, facts.kinds, facts.positions, clusters),
        "positions": deeper.position_rows(ends, clusters, facts.positions),
        "slots": deeper.slot_rows(ends, clusters),
        "trees": deeper.tree_rows(ends, clusters, settings.draft_cost),
    }


_TABLES = ("optimum", "rule")


def _keys(ends: Mapping[Key, Ends], kind: str) -> Iterator[Key]:
    return (key[1:] for key in ends if key[0] == kind)


def _rule_row(means: Mapping[Key, dict[str, Any]], law: str, n: int, rule: str) -> dict[str, Any]:
    """A rule's acceptance, and the share of the gain over one draft that it gets (exact laws)."""
    value, start, best = means["rule", law, n, rule], means["overlap",], means["optimum", law, n]
    gain = best["low"] - start["low"]
    known = "interval" not in (value["kind"], start["kind"]) and gain > 1e-9
    share = (value["low"] - start["low"]) / gain if known else None
    return {"law": law, "n": n, "rule": rule, **value, "share": share}


def _unbounded(ends: Mapping[Key, Ends]) -> set[str]:
    """Rules that partial logs say nothing about but that the optimum bounds them."""
    shown = {(law, rule) for law, _, rule in _keys(ends, "rule")}
    return {
        rule
        for law, rules in RULES.items()
        for rule in rules
        if (law, rule) not in shown and partial.refuses(rule, law)
    }
