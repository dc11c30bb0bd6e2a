"""Estimated memory, checked before a program is built; too large is refused with a way out."""

from __future__ import annotations

import math

from multidraft import laws
from multidraft.solvers import token_sets

MOST = 4e9  # bytes that a solver may take by default

# Measured peaks, rounded up (results/solvers): bytes per drafted number while tuples are listed and
# merged, per variable of a program in HiGHS, and per arc of the flow network.
_LISTED = 50.0
COLUMN = 1200.0
_ARC = 100.0


def listing(law: laws.Law, tuples: float | None = None) -> float:
    """Bytes for listing the tuples of a law and merging them by token set."""
    tuples = law.tuple_count() if tuples is None else tuples
    if tuples > laws.MOST_TUPLES:
        return math.inf
    return _LISTED * tuples * law.width


def flow(law: laws.Law) -> float:
    """Bytes for the integer flow on the token sets of a law."""
    return listing(law) + _ARC * token_sets.count(law) * law.width


def refusal(method: str, law: laws.Law, needed: float, most: float) -> str | None:
    """Return the sentence of a solver that would need too much, or None."""
    if needed <= most:
        return None
    if math.isinf(needed):
        return (
            f"{method} would list {law.tuple_count():.2g} tuples, more than "
            f"{laws.MOST_TUPLES:.0g}: use {alternative(law)}."
        )
    return (
        f"{method} needs about {needed / 1e9:.2g} GB here, more than its limit of "
        f"{most / 1e9:.2g} GB (option memory): use {alternative(law)}."
    )


def alternative(law: laws.Law) -> str:
    """Name of a method that takes the law at this size."""
    if flow(law) <= MOST:
        return "max-flow"
    return "submodular" if isinstance(law, laws.Independent) else "subset"
