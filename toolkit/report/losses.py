"""Where tokens are lost: by kind of token, by place in the text, by entropy of the target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from multidraft.report.means import mean
from multidraft.report.source import Ends
from multidraft.report.tokens import KINDS

_PARTS = 4  # of about equal size, for numbers
_OPTIMUM = ("optimum", "iid", 4)


def losses(
    ends: Mapping[Any, Ends],
    kinds: Sequence[str],
    positions: Int[np.ndarray, " N"],
    clusters: Int[np.ndarray, " N"],
) -> list[dict[str, Any]]:
    """Mean loss in groups of contexts, and the share of all losses that each group has.

    The loss of a context is one minus acceptance: with one draft (``one``), and with the optimum of
    four iid drafts (``four``). Shares are of the losses with one draft, by middles of intervals.
    """
    parts = {"one": _loss(ends["overlap",]), "four": _loss(ends[_OPTIMUM])}
    middle = (parts["one"].lower + parts["one"].upper) / 2
    total = middle.sum()
    return [
        {
            "by": by,
            "group": label,
            "contexts": int(inside.sum()),
            "share": float(middle[inside].sum() / total) if total > 0 else 0.0,
            **{name: mean(loss.rows(inside), clusters[inside]) for name, loss in parts.items()},
        }
        for by, label, inside in _groups(ends, np.array(kinds), positions)
    ]


def _loss(ends: Ends) -> Ends:
    return Ends(1 - ends.upper, 1 - ends.lower, ends.kind)


def _groups(
    ends: Mapping[Any, Ends], kinds: np.ndarray, positions: Int[np.ndarray, " N"]
) -> Iterator[tuple[str, str, Bool[np.ndarray, " N"]]]:
    for kind in KINDS:
        if (inside := kinds == kind).any():
            yield "token that follows", kind, inside
    for label, inside in _quarters(positions.astype(np.float64), 0):
        yield "tokens before it in the text", label, inside
    entropy = ends["entropy", "target"]
    least = "" if entropy.kind == "exact" else ", at least"
    for label, inside in _quarters(entropy.lower, 2):
        yield f"entropy of the target (bits{least})", label, inside


def _quarters(
    values: Float[np.ndarray, " N"], digits: int
) -> Iterator[tuple[str, Bool[np.ndarray, " N"]]]:
    """Groups between the quartiles, with their ranges as labels; equal values stay together."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _PARTS + 1), method="lower"))
    place = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(len(edges) - 2, 0))
    for part in np.unique(place):
        inside = place == part
        low, high = values[inside].min(), values[inside].max()
        label = f"{low:.{digits}f} to {high:.{digits}f}" if low < high else f"{low:.{digits}f}"
        yield label, inside
