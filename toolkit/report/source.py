"""One interface to contexts whose laws are known, and to those of which only the top is.

Every quantity is one pair of numbers per context: equal where the laws are known, an interval over
all completions where they are not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

import multidraft as md
from multidraft import partial
from multidraft.errors import InputError
from multidraft.partial import PartialTrace
from multidraft.traces import Trace

_CHUNK = 32  # contexts at once: 2 x 32 x 150,000 numbers are 80 MB


@dataclass(frozen=True)
class Sampling:
    """How target and draft are sampled; None keeps everything."""

    temperature: float = 1.0
    draft_temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None


@dataclass(frozen=True)
class Ends:
    """Lower and upper end of a quantity for each context, and where it comes from."""

    lower: Float[np.ndarray, " N"]
    upper: Float[np.ndarray, " N"]
    kind: str = "exact"

    def rows(self, inside: Any) -> Ends:
        """The quantity for some contexts."""
        return Ends(self.lower[inside], self.upper[inside], self.kind)

    @classmethod
    def point(cls, values: Float[np.ndarray, " N"], kind: str = "exact") -> Ends:
        """A quantity that is known."""
        return cls(values, values, kind)

    @classmethod
    def joined(cls, parts: list[Ends]) -> Ends:
        """The same quantity over more contexts."""
        kinds = {part.kind for part in parts}
        kind = kinds.pop() if len(kinds) == 1 else "estimate"
        lower, upper = (
            np.concatenate([getattr(p, end) for p in parts]) for end in ("lower", "upper")
        )
        return cls(lower, upper, kind)


class Source(ABC):
    """Target and draft laws of some contexts."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of contexts."""

    @abstractmethod
    def overlap(self) -> Ends:
        """Single-draft acceptance."""

    @abstractmethod
    def optimum(self, law: str, n: int) -> Ends:
        """Optimal acceptance of n drafts of a law."""

    @abstractmethod
    def acceptance(self, rule: str, law: str, n: int, best: Ends) -> Ends:
        """Acceptance of a rule, given the optimum of its drafts."""

    @abstractmethod
    def entropy(self, side: str) -> Ends:
        """Entropy in bits of the ``target`` or the ``draft``."""

    @abstractmethod
    def top(self, side: str) -> Ends:
        """Probability of the most probable token."""

    @abstractmethod
    def shown(self) -> Known:
        """Complete laws that stand for the contexts in pictures."""


class Known(Source):
    """Laws that are known.

    Parameters
    ----------
    target, draft : (N, W)
    ids : (N, W), optional
        Token of each column, -1 for a bucket of many; the columns are the tokens when not given.
    """

    def __init__(
        self,
        target: Float[np.ndarray, "N W"],
        draft: Float[np.ndarray, "N W"],
        ids: Int[np.ndarray, "N W"] | None = None,
    ) -> None:
        self.target, self.draft, self.ids = target, draft, ids

    def __len__(self) -> int:
        return len(self.target)

    def problem(self, law: str, n: int) -> md.Problem:
        """The problem of n drafts of a law."""
        spec = {"law": law, "short": "pad"} | ({} if law == "hub" else {"n": n})
        return md.Problem(self.target, md.laws.make(spec, self.draft))

    def overlap(self) -> Ends:
        return Ends.point(np.minimum(self.target, self.draft).sum(-1))

    def optimum(self, law: str, n: int) -> Ends:
        return Ends.point(md.optimal_acceptance(self.problem(law, n)))

    def acceptance(self, rule: str, law: str, n: int, best: Ends) -> Ends:
        found = md.verifiers.get(rule).acceptance(self.problem(law, n))
        if found.kind == "bound":
            return Ends(found.lower, found.upper, found.kind)
        return Ends.point(found.value, found.kind)

    def entropy(self, side: str) -> Ends:
        law = getattr(self, side)
        with np.errstate(divide="ignore", invalid="ignore"):
            return Ends.point(-np.where(law > 0, law * np.log2(law), 0.0).sum(-1))

    def top(self, side: str) -> Ends:
        return Ends.point(getattr(self, side).max(-1))

    def shown(self) -> Known:
        return self


class Logged(Source):
    """Laws of which a log lists the top."""

    def __init__(self, target: partial.Listed, draft: partial.Listed, vocabulary: int | None):
        self.target, self.draft, self.vocabulary = target, draft, vocabulary
        self.pair = partial.Pair.of(target, draft)

    def __len__(self) -> int:
        return len(self.pair)

    def overlap(self) -> Ends:
        return Ends(*partial.overlap(self.pair), "interval")

    def optimum(self, law: str, n: int) -> Ends:
        return Ends(*partial.optimum(self.pair, law, n), "interval")

    def acceptance(self, rule: str, law: str, n: int, best: Ends) -> Ends:
        found = partial.acceptance(
            self.pair, rule, law, n, partial.Interval(best.lower, best.upper)
        )
        return Ends(*found, "interval")

    def entropy(self, side: str) -> Ends:
        return Ends(*partial.entropy(getattr(self, side), self.vocabulary), "interval")

    def top(self, side: str) -> Ends:
        listed: partial.Listed = getattr(self, side)
        return Ends(listed.probs[:, 0], np.maximum(listed.probs[:, 0], listed.cap), "interval")

    def shown(self) -> Known:
        ids = np.pad(self.pair.ids, ((0, 0), (0, 2)), constant_values=-1)
        return Known(*partial.nearest(self.pair), ids)


def sources(
    trace: Trace | PartialTrace, draft: str, rows: Int[np.ndarray, " M"], sampling: Sampling
) -> Iterator[Source]:
    """The chosen contexts of a trace, a few at a time.

    Raises
    ------
    InputError
        A sampling that logs of the top K cannot be evaluated at.
    """
    if isinstance(trace, PartialTrace):
        yield _logged(trace.select(rows), draft, sampling)
        return
    for start in range(0, len(rows), _CHUNK):
        yield _known(trace, draft, rows[start : start + _CHUNK], sampling)


def _known(trace: Trace, draft: str, rows: np.ndarray, sampling: Sampling) -> Known:
    problem = md.Problem.from_logits(
        np.asarray(trace.target[rows]),
        np.asarray(trace.draft(draft)[rows]),
        md.IID,
        n=1,
        temperature=sampling.temperature,
        draft_temperature=sampling.draft_temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
    )
    return Known(problem.target, problem.law.probs)


def _logged(trace: PartialTrace, draft: str, sampling: Sampling) -> Source:
    recorded = trace.header["temperature"]
    asked = sampling.temperature, sampling.draft_temperature, sampling.top_p
    if asked not in ((recorded, None, None), (recorded, recorded, None)):
        raise InputError(
            f"logs of the top K tokens say nothing about another temperature than the recorded "
            f"{recorded:g} or about top-p: leave these options out, or record full logits."
        )
    target, listed = trace.target, trace.draft(draft)
    if sampling.top_k is None:
        return Logged(target, listed, trace.header["vocabulary"])
    pair = partial.Pair.of(target.first(sampling.top_k), listed.first(sampling.top_k))
    return Known(*partial.truncated(target, listed, sampling.top_k), pair.ids)
