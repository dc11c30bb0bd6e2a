"""How wide the intervals of partial logs are, what is behind that, and what would narrow them."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int

import multidraft as md
from multidraft import partial
from multidraft.report.means import mean
from multidraft.report.source import Ends

_GOAL = 0.02  # width of a mean that decides most questions
_DRAFTS = 4


def narrower(
    target: partial.Listed, draft: partial.Listed, clusters: Int[np.ndarray, " N"]
) -> dict[str, Any]:
    """Widths by length of the list, and the length that would bring them to `_GOAL`.

    Returns
    -------
    dict
        ``rows``: for K, K/2, K/4: unlisted probability on both sides, the interval of the overlap
        and of the optimum of four iid drafts, and that optimum if one samples with top-k = K, which
        is exact. ``k`` and ``goal``: the list that would do if the widths keep falling as fast, or
        None.
    """
    top = np.minimum(target.top, draft.top)
    longest = int(np.median(top))
    rows = []
    for k in dict.fromkeys(max(1, longest // step) for step in (4, 2, 1)):
        rows.append(_row(target, draft, clusters, top >= k, k))
    return {"rows": rows, "goal": _GOAL, "k": _needed(rows)}


def _row(
    target: partial.Listed,
    draft: partial.Listed,
    clusters: Int[np.ndarray, " N"],
    long: Any,
    k: int,
) -> dict[str, Any]:
    rows = np.flatnonzero(long)
    first, second = target.rows(rows).first(k), draft.rows(rows).first(k)
    pair, inside = partial.Pair.of(first, second), clusters[rows]
    q, p = partial.truncated(first, second, k)
    exact = md.optimal_acceptance(md.Problem(q, md.IID(p, _DRAFTS)))
    return {
        "k": k,
        "contexts": len(rows),
        "target_rest": float(first.rest.mean()),
        "draft_rest": float(second.rest.mean()),
        "overlap": mean(Ends(*partial.overlap(pair), "interval"), inside),
        "optimum": mean(Ends(*partial.optimum(pair, "iid", _DRAFTS), "interval"), inside),
        "truncated": mean(Ends.point(exact), inside),
    }


def _needed(rows: list[dict[str, Any]]) -> int | None:
    """Length of list at which the optimum's width reaches the goal, on the line of the last two."""
    widths = [row["optimum"]["high"] - row["optimum"]["low"] for row in rows]
    if widths[-1] <= _GOAL:
        return rows[-1]["k"]
    if len(rows) < 2 or widths[-1] >= widths[-2]:
        return None
    power = np.log(widths[-2] / widths[-1]) / np.log(rows[-1]["k"] / rows[-2]["k"])
    return int(np.ceil(rows[-1]["k"] * (widths[-1] / _GOAL) ** (1 / power)))
