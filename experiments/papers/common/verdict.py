"""Verdicts: a claim of a paper in words, what we measured, and what follows.

The rule is the same for all: a claim gives a range for a number; the number has a 95% interval,
from differences paired by context and clustered by passage. The claim is confirmed when the
interval lies inside the range, contradicted when it lies outside, and else not resolved. The
smallest difference that the run could have detected, 2.8 standard errors (power 80% at 5%), says
what "not resolved" is worth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
from jaxtyping import Bool

from multidraft.results import Mean

#: What a claim is about: a method, a paper's models and numbers, or mathematics.
About = Literal["methods", "models", "mathematics"]


class Outcome(StrEnum):
    """What follows for a claim."""

    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    UNRESOLVED = "not resolved at this size"
    UNTESTABLE = "not testable here"


@dataclass(frozen=True)
class Verdict:
    """A claim and what follows from our numbers.

    Attributes
    ----------
    claim : str
        In words.
    outcome : Outcome
    about : what the claim is about; numbers of other models are at most of the same direction.
    size : str
        What was measured, with its sign and standard error; or why nothing was.
    detectable : str
        The smallest difference that would have been seen; empty for exact statements.
    brief : str
        What was measured in a few words, where there are many settings; else empty.
    """

    claim: str
    outcome: Outcome
    about: About
    size: str
    detectable: str = ""
    brief: str = ""

    @property
    def words(self) -> str:
        """The verdict as pages print it."""
        if self.about == "mathematics" or self.outcome in _WITHOUT_PAIR:
            return str(self.outcome)
        if self.about == "models" and self.outcome is Outcome.CONFIRMED:
            return "same direction on our pair"
        return f"{self.outcome} on our pair"


_WITHOUT_PAIR = (Outcome.UNRESOLVED, Outcome.UNTESTABLE)


def judge(
    claim: str,
    found: Mean,
    *,
    low: float = 0.0,
    high: float = math.inf,
    about: About = "methods",
    digits: int = 3,
) -> Verdict:
    """Compare a number with the open range ``(low, high)`` that a claim gives for it.

    Examples
    --------
    >>> judge("A beats B", Mean(0.02, 0.004, 32)).words
    'confirmed on our pair'
    >>> judge("A beats B", Mean(0.002, 0.004, 32)).words
    'not resolved at this size'
    """
    size = _size(found, digits)
    detectable = _error(found.detectable, digits)
    return Verdict(claim, _outcome(found, low, high), about, size, detectable)


def together(
    claim: str,
    found: Mapping[str, Mean],
    *,
    low: float = 0.0,
    high: float = math.inf,
    about: About = "methods",
    digits: int = 3,
) -> Verdict:
    """Judge a claim about several settings: all must confirm it, one contradicts it."""
    outcomes = [_outcome(mean, low, high) for mean in found.values()]
    outcome = Outcome.UNRESOLVED
    if Outcome.CONTRADICTED in outcomes:
        outcome = Outcome.CONTRADICTED
    elif set(outcomes) == {Outcome.CONFIRMED}:
        outcome = Outcome.CONFIRMED
    size = "; ".join(f"{label}: {_size(mean, digits)}" for label, mean in found.items())
    worst = max(mean.detectable for mean in found.values())
    brief = ""
    if len(found) > 2:
        means = sorted(mean.mean for mean in found.values())
        ends = f"{means[0]:+.{digits}f} to {means[-1]:+.{digits}f}"
        most = _error(max(mean.stderr for mean in found.values()), digits)
        brief = f"{ends} in {len(found)} settings, ± at most {most}"
    return Verdict(claim, outcome, about, size, _error(worst, digits), brief)


def _outcome(found: Mean, low: float, high: float) -> Outcome:
    lower, upper = found.interval()
    if low < lower and upper < high:
        return Outcome.CONFIRMED
    return Outcome.CONTRADICTED if upper <= low or lower >= high else Outcome.UNRESOLVED


def _size(found: Mean, digits: int) -> str:
    return f"{found.mean:+.{digits}f} ± {_error(found.stderr, digits)}"


def _error(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return f"{value:.0e}" if float(text) == 0 < value else text


def always(
    claim: str,
    holds: Bool[np.ndarray, " N"],
    what: str,
    *,
    about: About = "mathematics",
) -> Verdict:
    """Judge a statement about every instance: one exception contradicts it.

    Parameters
    ----------
    claim : str
    holds : (N,)
        Whether it holds in each instance.
    what : str
        What the instances are, in the plural.
    about : what the claim is about.
    """
    exceptions = int((~holds).sum())
    if not len(holds):
        return untestable(claim, f"none of the {what} meets the condition")
    outcome = Outcome.CONTRADICTED if exceptions else Outcome.CONFIRMED
    size = f"holds in {len(holds) - exceptions:,} of {len(holds):,} {what}"
    return Verdict(claim, outcome, about, size)


def untestable(claim: str, reason: str) -> Verdict:
    """Say why a claim cannot be tested with what there is."""
    return Verdict(claim, Outcome.UNTESTABLE, "models", reason)
