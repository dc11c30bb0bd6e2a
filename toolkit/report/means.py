"""Means over contexts with their errors, in the one form that pages and JSON use."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from multidraft.report.source import Ends
from multidraft.results import clustered_mean


def mean(ends: Ends, clusters: Int[np.ndarray, " N"]) -> dict[str, Any]:
    """``{"low", "high", "error", "kind"}`` of a quantity.

    An end that is not finite is None; so is the error where all contexts are of one cluster.
    """
    parts = [_end(end, clusters) for end in (ends.lower, ends.upper)]
    errors = [error for _, error in parts if error is not None]
    return {
        "low": parts[0][0],
        "high": parts[1][0],
        "error": max(errors, default=None),
        "kind": ends.kind,
    }


def _end(
    values: Float[np.ndarray, " N"], clusters: Int[np.ndarray, " N"]
) -> tuple[float | None, float | None]:
    if not np.isfinite(values).all():
        return None, None
    if len(np.unique(clusters)) < 2:
        return float(values.mean()), None
    found = clustered_mean(values, clusters)
    return found.mean, found.stderr


def middle(found: dict[str, Any]) -> float:
    """One number for comparisons: the value, or the middle of its interval."""
    low, high = found["low"], found["high"]
    return (low + high) / 2 if low is not None and high is not None else math.nan
