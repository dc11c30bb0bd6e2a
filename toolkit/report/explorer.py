"""What the page shows of single contexts: tokens, the cut, the selection law, the partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

import multidraft as md
from multidraft.partial import PartialTrace
from multidraft.report.source import Known
from multidraft.report.tokens import kind, shown
from multidraft.solvers.interval import IntervalPlan
from multidraft.solvers.partition import Partition
from multidraft.traces import Trace

DRAFTS = (2, 4)  # numbers of iid drafts that are shown
TOKENS = 14  # that are listed
_SLIVER = 1e-3  # shorter pieces are not drawn by themselves
_BEFORE = 24  # tokens of the text before a context
_DIGITS = 9


@dataclass(frozen=True)
class Facts:
    """Where the evaluated contexts are from, and what follows them."""

    kinds: list[str]
    clusters: Int[np.ndarray, " N"]
    positions: Int[np.ndarray, " N"]
    following: list[str]
    places: list[str]
    before: list[str | None]
    texts: Mapping[int, str]

    @classmethod
    def of(
        cls, trace: Trace | PartialTrace, rows: Int[np.ndarray, " M"], texts: Mapping[int, str]
    ) -> Facts:
        """Collect the facts of some rows of a trace."""
        tokens = [int(token) for token in trace.next_token[rows]]
        known = [texts.get(token) for token in tokens]
        return cls(
            [kind(text) for text in known],
            trace.passage[rows],
            trace.position[rows],
            [shown(token, texts) if token >= 0 else "(not known)" for token in tokens],
            [_place(trace, int(row)) for row in rows],
            [_before(trace, int(row), texts) for row in rows],
            texts,
        )

    def row(self, i: int) -> dict[str, Any]:
        """What the page says about one context."""
        facts = {"place": self.places[i], "before": self.before[i], "next": self.following[i]}
        return {"context": i, **facts}


def _place(trace: Trace | PartialTrace, row: int) -> str:
    passage, position = int(trace.passage[row]), int(trace.position[row])
    name = f"text {passage + 1}"
    if isinstance(trace, Trace):
        facts = trace.passages[passage]
        title = trace.texts[int(trace.text[row])]["title"]
        sampled = "" if facts.temperature is None else ", continued by the target"
        name = f"{title}, passage {passage + 1}{sampled}" if title != "imported" else name
    return f"{name}, after {position} tokens"


def _before(trace: Trace | PartialTrace, row: int, texts: Mapping[int, str]) -> str | None:
    """The text before a context, where the contexts before it are in the trace."""
    start = row
    while (
        start > 0
        and row - start < _BEFORE
        and trace.passage[start - 1] == trace.passage[row]
        and trace.position[start - 1] == trace.position[start] - 1
    ):
        start -= 1
    if start == row:
        return None
    return "".join(texts.get(int(token), "\ufffd") for token in trace.next_token[start:row])


def chosen(count: int, most: int) -> Int[np.ndarray, " M"]:
    """Numbers of the contexts that the page lets its reader look into."""
    return np.arange(min(count, most)) * count // min(count, most)


def picture(laws: Known, row: int, facts: Facts, context: int) -> dict[str, Any]:
    """One context: its most probable tokens with q, p, and for each n the cut H and the law b.

    `row` is its place in `laws`, `context` its place in `facts`.
    """
    q, p = laws.target[row], laws.draft[row]
    ids = np.arange(len(q)) if laws.ids is None else laws.ids[row]
    order = np.argsort(-np.maximum(q, p), kind="stable")[:TOKENS]
    order = order[np.maximum(q, p)[order] > 0]
    plans = {n: _Plan.of(q, p, n) for n in DRAFTS}
    return {
        **facts.row(context),
        "tokens": [_name(int(ids[i]), facts.texts) for i in order],
        "target": _round(q[order]),
        "draft": _round(p[order]),
        "overlap": float(np.minimum(q, p).sum()),
        "plans": [
            {
                "n": n,
                "acceptance": float(plan.value),
                "cut": plan.cut[order].tolist(),
                "cut_target": float(q[plan.cut].sum()),
                "cut_draft": float(p[plan.cut].sum()),
                "cut_size": int(plan.cut.sum()),
                "selection": _round(plan.selection[order]),
                "pieces": _pieces(plan.partition, order),
            }
            for n, plan in plans.items()
        ],
    }


def _name(token: int, texts: Mapping[int, str]) -> str:
    return shown(token, texts) if token >= 0 else "(all that neither lists)"


def _round(values: Float[np.ndarray, " T"]) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]


@dataclass(frozen=True)
class _Plan:
    value: float
    cut: np.ndarray
    selection: Float[np.ndarray, " W"]
    partition: Partition

    @classmethod
    def of(cls, q: Float[np.ndarray, " W"], p: Float[np.ndarray, " W"], n: int) -> _Plan:
        solution = md.solve(md.Problem(q, md.IID(p, n)), "interval")
        plan = solution.plan
        assert isinstance(plan, IntervalPlan)
        cut = solution.certificate.cut
        return cls(float(solution.acceptance), cut, plan.selection, plan.partitions[0])


def _pieces(partition: Partition, order: Int[np.ndarray, " T"]) -> list[dict[str, Any]]:
    """Pieces of [0, 1] in order of time, each with the listed tokens that own it.

    Tokens of equal b/p share pieces, so a piece can have several owners. What belongs to tokens
    that are not listed, and slivers, is merged with such neighbours (no owners).
    """
    owners = _owners(partition, order)
    regions = np.repeat(np.arange(len(partition.length)), np.diff(partition.offsets))
    by_time = np.argsort(partition.rank)
    lengths, regions = partition.pieces[by_time], regions[by_time]
    drawn: list[dict[str, Any]] = []
    end = 0.0
    for length, region in zip(lengths.tolist(), regions.tolist(), strict=True):
        mine = owners[region] if length >= _SLIVER else []
        end += length
        if drawn and drawn[-1]["owners"] == mine:
            drawn[-1]["end"] = end
        else:
            drawn.append({"owners": mine, "end": end})
    return [{**piece, "end": float(f"{piece['end']:.6f}")} for piece in drawn]


def _owners(partition: Partition, order: Int[np.ndarray, " T"]) -> list[list[int]]:
    """Places in the list of the tokens that own each region."""
    owners: list[list[int]] = [[] for _ in partition.length]
    for place, token in enumerate(order.tolist()):
        if (region := int(partition.region[token])) >= 0:
            owners[region].append(place)
    return owners
