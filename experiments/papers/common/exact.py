"""Small instances whose optimum is known twice: by a linear program, and by a formula."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float

import multidraft as md

#: A linear program over all tuples, and the formula, differ by less.
TOLERANCE = 1e-9


def room(target: Float[np.ndarray, " V"], draft: Float[np.ndarray, " V"], n: int) -> float:
    """Least ``q(S) - p(S)^n`` over all sets S of tokens, by listing them; zero for the empty one.

    The conjecture of Khisti et al. (2410.18234) for n > 2: acceptance 1 iff it is not negative.
    """
    inside = np.array(list(product([0.0, 1.0], repeat=len(target))))
    return float((inside @ target - (inside @ draft) ** n).min())


def both(
    target: Sequence[float] | np.ndarray, draft: Sequence[float] | np.ndarray, n: int
) -> dict[str, Any]:
    """Optimum by the linear program over all tuples, and the formula ``1 + min_S q(S) - p(S)^n``.

    ``distance`` is that between the two in double precision; ``agrees`` says whether both or none
    find acceptance 1.
    """
    target, draft = np.asarray(target, dtype=np.float64), np.asarray(draft, dtype=np.float64)
    value = float(md.solve(md.Problem(target, md.IID(draft, n)), "full-lp").acceptance)
    formula = 1 + min(0.0, room(target, draft, n))
    return {
        "value": value,
        "formula": formula,
        "distance": abs(value - formula),
        "full": value > 1 - TOLERANCE,
        "agrees": (value > 1 - TOLERANCE) == (formula > 1 - TOLERANCE),
    }
