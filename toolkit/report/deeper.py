r"""Wider or deeper: expected block efficiency of standard trees, and acceptance by position.

From the acceptance of one step: :math:`P[b]`, the probability that the b-th child of a node is the
accepted one, is the growth of acceptance from b - 1 drafts to b. A tree then has the estimated
block length :math:`\sum_v \prod_{u \le v} P[\mathrm{rank}(u)]` (2402.12374), bonus token included.
Both ends of an interval give ends of the estimate: in the trees here a child of lower rank never
has the smaller subtree, so more acceptance at any number of drafts makes the block longer.

The estimate assumes that acceptance does not change with depth. It does: deeper nodes follow
drafted text. `multidraft.report.depth` says by how much on a real pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from multidraft import trees
from multidraft.report.means import mean
from multidraft.report.source import Ends

POSITIONS = 5  # of a chain that are shown
WIDTH = 8  # most children of a node
_STEP = 1e-6  # of the numerical slope


class System(NamedTuple):
    """A draft law with the rule that verifies it."""

    law: str
    rule: str
    title: str


SYSTEMS = (
    System("top", "naive", "most probable tokens, match"),
    System("without-replacement", "rrsw", "without replacement, rrsw"),
    System("iid", "rrs", "iid, rrs"),
    System("iid", "interval", "iid, interval (optimal)"),
)
_Vector = Float[np.ndarray, " b"]
#: Trees by name, built from the acceptance vector of a system.
TREES: dict[str, Callable[[_Vector], trees.Tree]] = {
    "chain of 4": lambda vector: trees.chain(4),
    "2 paths of 2": lambda vector: trees.paths(2, 2),
    "4 children": lambda vector: trees.k_ary(4, 1),
    "chain of 8": lambda vector: trees.chain(8),
    "2 paths of 4": lambda vector: trees.paths(2, 4),
    "4 paths of 2": lambda vector: trees.paths(4, 2),
    "8 children": lambda vector: trees.k_ary(8, 1),
    "2 children, depth 3": lambda vector: trees.k_ary(2, 3),
    "4 paths of 4": lambda vector: trees.paths(4, 4),
    "trunk of 4, then 4 paths of 3": lambda vector: trees.delayed(4, 4, 3),
    "Sequoia, 8 tokens": lambda vector: trees.sequoia(vector[:4], 8),
    "Sequoia, 16 tokens": lambda vector: trees.sequoia(vector[:4], 16),
    "Sequoia, 32 tokens": lambda vector: trees.sequoia(vector[:4], 32),
}


def systems(ends: Mapping[Any, Ends]) -> list[System]:
    """The systems whose acceptance is known for every number of drafts."""
    return [
        system
        for system in SYSTEMS
        if all(("rule", system.law, n, system.rule) in ends for n in (1, 2, 3, 4, WIDTH))
    ]


def tree_rows(
    ends: Mapping[Any, Ends], clusters: Int[np.ndarray, " N"], cost: float
) -> list[dict[str, Any]]:
    """Estimated block efficiency and speed-up of every tree with every system.

    The speed-up is that over decoding without drafts, when a call of the target takes as long for a
    tree as for one token and every level of the tree takes one call of the draft, `cost` of it.
    Sequoia's trees are built for the middle of an interval, and only where the b-th draft of a step
    is accepted with probability P[b]: not for a rule that chooses among the drafts.
    """
    return [
        _tree_row(name, build, system, ends, clusters, cost)
        for name, build in TREES.items()
        for system in systems(ends)
        if not (name.startswith("Sequoia") and system.rule == "interval")
    ]


def _tree_row(
    name: str,
    build: Callable[[_Vector], trees.Tree],
    system: System,
    ends: Mapping[Any, Ends],
    clusters: Int[np.ndarray, " N"],
    cost: float,
) -> dict[str, Any]:
    low, high = (_accepted(ends, system, end) for end in ("lower", "upper"))
    tree = build(_growth((low.mean(0) + high.mean(0)) / 2))
    length = Ends(contributions(tree, low), contributions(tree, high), _kind(ends, system))
    found = mean(length, clusters)
    calls = 1 + tree.depth * cost
    return {
        "tree": name,
        "law": system.law,
        "rule": system.rule,
        "tokens": tree.nodes,
        "depth": tree.depth,
        "efficiency": found,
        "speedup": {
            key: None if found[key] is None else found[key] / calls
            for key in ("low", "high", "error")
        }
        | {"kind": found["kind"]},
    }


def _kind(ends: Mapping[Any, Ends], system: System) -> str:
    kinds = {ends["rule", system.law, n, system.rule].kind for n in (1, 2, 4)}
    return kinds.pop() if len(kinds) == 1 else "estimate"


def _accepted(ends: Mapping[Any, Ends], system: System, end: str) -> Float[np.ndarray, "N b"]:
    """Acceptance of 1 to 8 drafts for every context; 5 to 7 are interpolated."""
    known = (1, 2, 3, 4, WIDTH)
    columns = [getattr(ends["rule", system.law, n, system.rule], end) for n in known]
    between = np.linspace(columns[3], columns[4], WIDTH - 3)[1:-1]
    accepted = np.column_stack([*columns[:4], *between, columns[4]])
    return np.maximum.accumulate(accepted, axis=1)  # an estimate can fall by its error


def _growth(accepted: Float[np.ndarray, " b"]) -> Float[np.ndarray, " b"]:
    """Probability that each child is the accepted one."""
    return np.diff(accepted, prepend=0.0)


def contributions(tree: trees.Tree, accepted: Float[np.ndarray, "N b"]) -> Float[np.ndarray, " N"]:
    """Numbers, one per context, whose mean is the block length of the mean acceptance.

    The block length is linearised at the mean, so that their spread gives its standard error.
    """
    growth = np.diff(accepted, axis=1, prepend=0.0)
    centre = growth.mean(0)
    value = trees.estimate(tree, centre)
    slope = np.zeros(len(centre))
    for b in np.flatnonzero(centre > 0):
        shorter = trees.estimate(tree, centre * (1 - _STEP * (np.arange(len(centre)) == b)))
        slope[b] = (value - shorter) / (_STEP * centre[b])
    return value + (growth - centre) @ slope


def position_rows(
    ends: Mapping[Any, Ends], clusters: Int[np.ndarray, " N"], positions: Int[np.ndarray, " N"]
) -> list[dict[str, Any]]:
    """Acceptance at each position of a chain of single drafts, by both definitions.

    ``conditional`` is the share accepted of those whose predecessors were all accepted, ``mean``
    the share accepted of all. Both follow from one step (``basis`` "one step"), and, where the
    contexts follow each other in a text, from products along it ("along the text").
    """
    rows = []
    for title, acceptance in _single(ends):
        found = mean(acceptance, clusters)
        rows += _powers(title, found)
        starts = _starts(clusters, positions)
        if len(starts) >= POSITIONS:
            rows += _products(title, acceptance, starts, clusters)
    return rows


def _single(ends: Mapping[Any, Ends]) -> list[tuple[str, Ends]]:
    named = [("sampled draft", ends["overlap",])]
    if ("rule", "top", 1, "naive") in ends:
        named.append(("most probable token, match", ends["rule", "top", 1, "naive"]))
    return named


def _powers(title: str, found: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for position in range(1, POSITIONS + 1):
        share = {key: found[key] ** position for key in ("low", "high")}
        slope = position * found["high"] ** (position - 1)
        error = None if found["error"] is None else slope * found["error"]
        share |= {"error": error, "kind": found["kind"]}
        rows.append(_position(title, "one step", position, found, share))
    return rows


def _position(
    title: str, basis: str, position: int, conditional: dict[str, Any], share: dict[str, Any]
) -> dict[str, Any]:
    facts = {"draft": title, "basis": basis, "position": position}
    return {**facts, "conditional": conditional, "mean": share}


def _starts(
    clusters: Int[np.ndarray, " N"], positions: Int[np.ndarray, " N"]
) -> Int[np.ndarray, " M"]:
    """Contexts that are followed by those of the next positions of the same text."""
    last = len(positions) - POSITIONS + 1
    good = np.ones(max(last, 0), dtype=bool)
    for step in range(1, POSITIONS):
        good &= clusters[step : step + last] == clusters[:last]
        good &= positions[step : step + last] == positions[:last] + step
    return np.flatnonzero(good)


def _products(
    title: str, acceptance: Ends, starts: Int[np.ndarray, " M"], clusters: Int[np.ndarray, " N"]
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    lower = upper = np.ones(len(starts))
    before = {"low": 1.0, "high": 1.0}
    for step in range(POSITIONS):
        lower = lower * acceptance.lower[starts + step]
        upper = upper * acceptance.upper[starts + step]
        share = mean(Ends(lower, upper, acceptance.kind), clusters[starts])
        # The rate is a ratio of two means that move together, so its ends are ratios of ends.
        rate = {key: share[key] / before[key] if before[key] else 0.0 for key in ("low", "high")}
        rate = {"low": min(rate.values()), "high": max(rate.values())}
        rows.append(
            _position(
                title,
                "along the text",
                step + 1,
                {**rate, "error": None, "kind": acceptance.kind},
                share,
            )
        )
        before = share
    return rows


def slot_rows(ends: Mapping[Any, Ends], clusters: Int[np.ndarray, " N"]) -> list[dict[str, Any]]:
    """Acceptance of the b-th draft of one step, by both definitions, for exact laws.

    ``mean`` is P[b], the growth of acceptance with it; ``conditional`` is P[b] among the cases in
    which no earlier draft was accepted.
    """
    rows = []
    for system in systems(ends):
        if system.rule == "interval" or ends["rule", system.law, 1, system.rule].kind == "interval":
            continue
        accepted = _accepted(ends, system, "lower")[:, :4]
        for b in range(4):
            grown = accepted[:, b] - (accepted[:, b - 1] if b else 0.0)
            left = 1 - (accepted[:, b - 1].mean() if b else 0.0)
            facts = {"law": system.law, "rule": system.rule, "draft": b + 1}
            share = mean(Ends.point(grown), clusters)
            rate = {key: share[key] / left if left > 0 else 0.0 for key in ("low", "high")}
            rows.append(
                {**facts, "mean": share, "conditional": {**rate, "error": None, "kind": "exact"}}
            )
    return rows
