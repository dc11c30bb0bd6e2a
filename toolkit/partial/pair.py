"""Two partially known laws side by side: what a log with the K most probable tokens says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Bool, Float, Int

from multidraft.errors import InputError, Refused


class Interval(NamedTuple):
    """Smallest and largest value that a quantity can have, arrays of one number per context."""

    lower: Float[np.ndarray, " N"]
    upper: Float[np.ndarray, " N"]

    @property
    def width(self) -> Float[np.ndarray, " N"]:
        """Distance of the two ends."""
        return self.upper - self.lower

    def where(self, known: Bool[np.ndarray, " N"]) -> Interval:
        """Return the interval, widened to [0, 1] in the contexts that are not known."""
        return Interval(np.where(known, self.lower, 0.0), np.where(known, self.upper, 1.0))

    def within(self, floor: float = 0.0, ceiling: float = 1.0) -> Interval:
        """Return the interval without what round-off puts outside of [floor, ceiling]."""
        ends = (np.clip(end, floor, ceiling) for end in self)
        return Interval(*ends)


@dataclass(frozen=True)
class Listed:
    """The tokens that a log lists for each of N contexts, most probable first.

    Attributes
    ----------
    ids : (N, K)
        Token ids, -1 after the last one of a context.
    probs : (N, K)
        Their probabilities, decreasing; 0 after the last one.
    cap : (N,)
        No unlisted token is more probable than this; at a tie the listed one counts as first.

    Raises
    ------
    InputError
        Shapes or numbers that fit no log.
    """

    ids: Int[np.ndarray, "N K"]
    probs: Float[np.ndarray, "N K"]
    cap: Float[np.ndarray, " N"]

    def __post_init__(self) -> None:
        if self.ids.ndim != 2 or self.ids.shape != self.probs.shape:
            raise InputError("ids and probs must both be (N, K).")
        if self.cap.shape != self.ids.shape[:1]:
            raise InputError("cap must be one number per context, (N,).")
        # A comparison with NaN is false.
        if not ((self.probs >= 0).all() and (self.cap >= 0).all()):
            raise InputError("listed probabilities and caps must not be negative or NaN.")
        if (self.probs[self.ids < 0] > 0).any() or (self.probs.sum(-1) > 1 + 1e-12).any():
            raise InputError("padding must have probability 0 and a row at most the sum 1.")
        if (np.diff(self.probs, axis=-1) > 0).any():
            raise InputError("listed probabilities must decrease along a row.")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def rest(self) -> Float[np.ndarray, " N"]:
        """Probability of all unlisted tokens together."""
        return np.maximum(1 - self.probs.sum(-1), 0.0)

    @property
    def top(self) -> Int[np.ndarray, " N"]:
        """How many leading tokens are known to be the most probable ones.

        Tokens after them are listed for another reason: servers add the token that follows.
        """
        return ((self.probs >= self.cap[:, None]) & (self.ids >= 0)).sum(-1)

    def rows(self, index: Sequence[int] | Int[np.ndarray, " M"] | slice) -> Listed:
        """Return some contexts."""
        return Listed(self.ids[index], self.probs[index], self.cap[index])

    def first(self, k: int) -> Listed:
        """Return what a log of the k most probable tokens would have said.

        Raises
        ------
        Refused
            A context with fewer tokens that are known to be on top.
        """
        if (self.top < k).any():
            raise Refused(
                f"the log lists {self.top.min()} top tokens in some contexts: k is at most that, "
                f"not {k}."
            )
        return Listed(self.ids[:, :k], self.probs[:, :k], self.probs[:, k - 1])


@dataclass(frozen=True)
class Pair:
    """Target and draft of N contexts on the W tokens that either of them lists.

    Attributes
    ----------
    ids : (N, W)
        Token ids, -1 after the last one of a context.
    target, draft : (N, W)
        Listed probabilities, 0 where the token is not listed on that side.
    in_target, in_draft : (N, W)
        Which side lists the token.
    target_rest, draft_rest : (N,)
        Probability of the unlisted tokens together.
    target_cap, draft_cap : (N,)
        Bound on the probability of each of them, at most the rest.
    draft_top : (N,)
        How many of the most probable draft tokens are known.
    """

    ids: Int[np.ndarray, "N W"]
    target: Float[np.ndarray, "N W"]
    draft: Float[np.ndarray, "N W"]
    in_target: Bool[np.ndarray, "N W"]
    in_draft: Bool[np.ndarray, "N W"]
    target_rest: Float[np.ndarray, " N"]
    draft_rest: Float[np.ndarray, " N"]
    target_cap: Float[np.ndarray, " N"]
    draft_cap: Float[np.ndarray, " N"]
    draft_top: Int[np.ndarray, " N"]

    @classmethod
    def of(cls, target: Listed, draft: Listed) -> Self:
        """Match two lists of the same contexts by token id (never by place in the list)."""
        if len(target) != len(draft):
            raise InputError(f"{len(target)} target rows do not match {len(draft)} draft rows.")
        ids = _union(target.ids, draft.ids)
        q, in_target = _spread(ids, target)
        p, in_draft = _spread(ids, draft)
        return cls(
            ids,
            target=q,
            draft=p,
            in_target=in_target,
            in_draft=in_draft,
            target_rest=target.rest,
            draft_rest=draft.rest,
            target_cap=np.minimum(target.cap, target.rest),
            draft_cap=np.minimum(draft.cap, draft.rest),
            draft_top=draft.top,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def both(self) -> Bool[np.ndarray, "N W"]:
        """Tokens whose probabilities are known on both sides."""
        return self.in_target & self.in_draft

    @property
    def target_only(self) -> Bool[np.ndarray, "N W"]:
        """Tokens that only the target lists."""
        return self.in_target & ~self.in_draft

    @property
    def draft_only(self) -> Bool[np.ndarray, "N W"]:
        """Tokens that only the draft lists."""
        return self.in_draft & ~self.in_target

    def rows(self, index: Int[np.ndarray, " M"] | slice) -> Pair:
        """Return some contexts."""
        return Pair(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    def knows_top(self, n: int) -> Bool[np.ndarray, " N"]:
        """Contexts whose n most probable draft tokens are listed (or all tokens there are).

        Raises
        ------
        Refused
            There is no such context.
        """
        known = (self.draft_top >= n) | (self.draft_rest <= 0)
        if not known.any():
            raise Refused(
                f"the draft's log lists at most {self.draft_top.max()} top tokens, which does not "
                f"say what its {n} most probable tokens are: lower n, or log more of them."
            )
        return known

    def top_drafts(self, n: int) -> Bool[np.ndarray, "N W"]:
        """Mark the n most probable listed draft tokens, ties to the lowest id."""
        order = np.lexsort((self.ids, -self.draft), axis=-1)
        rank = np.argsort(order, axis=-1)
        return (rank < n) & self.in_draft & (self.draft > 0)


def _union(first: Int[np.ndarray, "N K"], second: Int[np.ndarray, "N L"]) -> np.ndarray:
    """Ids of each row of both, increasing, -1 at the end."""
    big = np.iinfo(np.int64).max
    joined = np.hstack([first, second])
    ids = np.sort(np.where(joined < 0, big, joined), -1)
    ids[:, 1:][ids[:, 1:] == ids[:, :-1]] = big
    ids = np.sort(ids, -1)
    width = max(1, int((ids < big).sum(-1).max()))
    return np.where(ids == big, -1, ids)[:, :width]


def _spread(
    ids: Int[np.ndarray, "N W"], listed: Listed
) -> tuple[Float[np.ndarray, "N W"], Bool[np.ndarray, "N W"]]:
    """Probabilities of the tokens `ids` in a list, and which of them it holds."""
    probs, held = np.zeros(ids.shape), np.zeros(ids.shape, dtype=bool)
    for i, (row, wanted) in enumerate(zip(ids, listed.ids, strict=True)):
        known = wanted >= 0
        places = np.searchsorted(row[row >= 0], wanted[known])
        probs[i, places], held[i, places] = listed.probs[i, known], True
    return probs, held
