"""Target and draft law of a batch of contexts, as tensors; which drafts a law can have drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from multidraft import checks, laws
from multidraft.arrays import is_torch
from multidraft.errors import InputError
from multidraft.verifiers.passes import at, largest


@dataclass(frozen=True)
class Context:
    """What a rule is given besides the drafts.

    Attributes
    ----------
    target : (R, V), R = 1 or C
    law : the draft law on tensors of the target's dtype and device
    size : number of contexts C
    """

    target: Float[Tensor, "R V"]
    law: laws.Law
    size: int

    @classmethod
    def of(cls, target: Any, law: laws.Law, *, check: bool = True) -> Self:
        """Collect a target ``(V,)`` or ``(B, V)`` and its draft law, numpy or torch.

        Half precision is raised to float32; nothing else is converted or copied.

        Raises
        ------
        InputError
            Vocabularies, batches or devices that differ; under ``check``, a target that is no law.
        """
        if check:
            checks.law(checks.as_floats(target, "target"), "target")
        rows = _rows(_tensor(target))
        if rows.shape[-1] != law.vocabulary:
            raise InputError(
                f"target has {rows.shape[-1]} tokens and draft {law.vocabulary}: "
                "see multidraft.align."
            )
        sizes = {rows.shape[0], _contexts(law)} - {1} or {1}
        if len(sizes) > 1:
            raise InputError(f"target and draft hold {sizes} contexts: pass one or as many each.")
        return cls(rows, _on_tensors(law, rows), sizes.pop())

    def row(self, i: int) -> Context:
        """Return one context."""
        target = self.target[i : i + 1] if len(self.target) > 1 else self.target
        return Context(target, self.law[i] if self.law.batch else self.law, 1)

    @property
    def vocabulary(self) -> int:
        """Number of tokens V."""
        return self.target.shape[-1]

    @cached_property
    def draft(self) -> Float[Tensor, "R2 V"]:
        """Draft probabilities of a law that has one, (1, V) or (C, V)."""
        return _rows(self.law.probs)

    @property
    def drafts(self) -> list[Float[Tensor, "R2 V"]]:
        """Draft probabilities of each of n independent drafts."""
        if isinstance(self.law, laws.Independent):
            return [_rows(part) for part in self.law.parts]
        return [self.draft] * self.law.width

    @cached_property
    def counts(self) -> Int[Tensor, " C"]:
        """Number of drafts of each context."""
        device = self.target.device
        if isinstance(self.law.n, int):
            return torch.full((self.size,), self.law.n, device=device)
        counts = np.broadcast_to(self.law.counts, (self.size,)).copy()
        return torch.from_numpy(counts).to(device)

    @cached_property
    def sure(self) -> Int[Tensor, "C k"]:
        """Ids that the law drafts with certainty, -1 where there are fewer."""
        assert isinstance(self.law, laws.SureAndLast)
        if self.target.device.type == "cpu":
            random = 0 if isinstance(self.law, laws.Top) else 1
            return largest(self.draft, self.counts - random, self.law.width - random)
        sure = self.law.sure()
        return sure.expand(self.size, sure.shape[-1])

    def ones(self) -> Float[Tensor, " C"]:
        """Return a one per context, float64 on the target's device."""
        return torch.ones(self.size, dtype=torch.float64, device=self.target.device)

    def tokens(self, drafts: Int[Tensor, "M n"]) -> Int[Tensor, "M n"]:
        """Check the shape of drafted ids: one row per context, or any number for one context."""
        if drafts.ndim != 2 or drafts.shape[-1] != self.law.width:
            raise InputError(
                f"drafts have shape {tuple(drafts.shape)}: "
                f"{self.law.name} needs (B, {self.law.width})."
            )
        if self.size not in (1, len(drafts)):
            raise InputError(f"{len(drafts)} rows of drafts do not fit {self.size} contexts.")
        return drafts

    def require(self, tokens: Int[Tensor, "M n"]) -> None:
        """Raise `InputError` for rows of drafts that the law cannot have drawn."""
        bad = self.impossible(tokens, thorough=True)
        if bool(bad.any()):
            raise InputError(
                f"row {int(bad.nonzero()[0])} holds drafts that {self.law.name} cannot have drawn: "
                "verify against the law that they were drawn from."
            )

    def impossible(self, tokens: Int[Tensor, "M n"], *, thorough: bool) -> Bool[Tensor, " M"]:
        """Rows that the law draws with probability zero.

        `thorough` also finds rows that stop short of the drafts there were, for one more pass.
        """
        known = (tokens >= -1) & (tokens < self.vocabulary)
        tokens = torch.where(known, tokens, -1)
        test = next(test for kind, test in _POSSIBLE.items() if isinstance(self.law, kind))
        return ~(known.all(-1) & test(self, tokens, thorough))


def _contexts(law: laws.Law) -> int:
    """Number of contexts of a law (its `batch`, which is dear to ask for)."""
    if isinstance(law, laws.Independent) or not isinstance(law.n, int):
        return law.batch[0] if law.batch else 1
    return law.probs.shape[0] if law.probs.ndim == 2 else 1


def _tensor(array: Any) -> Tensor:
    if not is_torch(array):
        array = shared(np.asarray(array))
    if array.requires_grad:
        array = array.detach()
    if array.dtype in (torch.float32, torch.float64):
        return array
    return array.to(torch.promote_types(array.dtype, torch.float32))


def shared(array: np.ndarray) -> Tensor:
    """Share the memory of an array; torch wants it writable, which broadcast views are not."""
    base = array
    while not base.flags.writeable and isinstance(base.base, np.ndarray):
        base = base.base
    same = (base.shape, base.strides, base.dtype) == (array.shape, array.strides, array.dtype)
    found = base if same and base.flags.writeable else array.copy()
    return torch.from_numpy(np.ascontiguousarray(found))


def _rows(array: Tensor) -> Tensor:
    rows = array if array.ndim == 2 else array.reshape(-1, array.shape[-1])
    return rows if rows.is_contiguous() else rows.contiguous()


def _on_tensors(law: laws.Law, like: Tensor) -> laws.Law:
    """Return the same law on tensors of one dtype and device, unchecked."""

    def tensor(probs: Any) -> Tensor:
        probs = _tensor(probs)
        if probs.device != like.device:
            raise InputError(f"target is on {like.device} and draft on {probs.device}: move one.")
        return probs.to(like.dtype)

    if isinstance(law, laws.Independent):
        parts = [tensor(part) for part in law.parts]
        return laws.Independent(parts, short=law.short, check=False)
    if (probs := tensor(law.probs)) is law.probs:
        return law
    if isinstance(law, laws.Explicit):
        return laws.Explicit(law.tuples, probs, vocabulary=law.vocabulary, check=False)
    return type(law)(probs, law.n, short=law.short, check=False)


# ------------------------------------------------------------------- drafts that a law can draw


def _repeated(context: Context, tokens: Tensor, thorough: bool) -> Tensor:
    """Independent drafts: as many as the law says, each of positive mass."""
    wanted = _wanted(context, tokens)
    mass = torch.cat(
        [at(part, tokens[:, k : k + 1]) for k, part in enumerate(context.drafts)], dim=-1
    )
    return ((mass > 0) == wanted).all(-1) & ((tokens >= 0) == wanted).all(-1)


def _distinct(context: Context, tokens: Tensor, thorough: bool) -> Tensor:
    """Drafts without replacement: distinct, and no fewer than the support allows."""
    drawn, wanted = tokens >= 0, _wanted(context, tokens)
    gap = ~drawn[:, :-1] & drawn[:, 1:]
    good = ((at(context.draft, tokens) > 0) == drawn).all(-1) & (drawn <= wanted).all(-1)
    good &= ~gap.any(-1)
    same = (tokens[:, :, None] == tokens[:, None, :]) & drawn[:, :, None]
    good &= same.sum((-1, -2)) == drawn.sum(-1)
    if thorough:
        support = (context.draft > 0).sum(-1)
        good &= drawn.sum(-1) == torch.minimum(wanted.sum(-1), support)
    return good


def _wanted(context: Context, tokens: Tensor) -> Tensor:
    places = torch.arange(tokens.shape[-1], device=tokens.device)
    return (places < context.counts[:, None]).expand(tokens.shape)


def _top(context: Context, tokens: Tensor, thorough: bool) -> Tensor:
    return (tokens == context.sure).all(-1)


def _greedy(context: Context, tokens: Tensor, thorough: bool) -> Tensor:
    """Greedy drafts: the sure tokens, then another one of positive mass."""
    return (tokens[:, :-1] == context.sure).all(-1) & _last(context, tokens[:, -1:], thorough)


def _hub(context: Context, tokens: Tensor, thorough: bool) -> Tensor:
    """Hub drafts: one of the two is the hub."""
    hub = tokens == context.sure
    other = tokens.masked_fill(hub, -1).amax(-1, keepdim=True)
    return (hub.sum(-1) == 1) & _last(context, other, thorough)


def _last(context: Context, last: Tensor, thorough: bool) -> Tensor:
    good = (at(context.draft, last)[:, 0] > 0) & (last != context.sure).all(-1)
    padding = last[:, 0] < 0
    if thorough:  # padding stands for a draft only where no other token has mass
        padding = padding & ((context.draft > 0).sum(-1) <= (context.sure >= 0).sum(-1))
    return good | padding


def _explicit(context: Context, tokens: Tensor, thorough: bool) -> Tensor:
    assert isinstance(context.law, laws.Explicit)
    table = torch.from_numpy(context.law.tuples).to(tokens.device)
    return ((tokens[:, None, :] == table).all(-1) & (context.law.probs > 0)).any(-1)


_POSSIBLE: dict[type[laws.Law], Callable[[Context, Tensor, bool], Tensor]] = {
    laws.IID: _repeated,
    laws.Independent: _repeated,
    laws.WithoutReplacement: _distinct,
    laws.Top: _top,
    laws.Greedy: _greedy,
    laws.Hub: _hub,
    laws.Explicit: _explicit,
}
