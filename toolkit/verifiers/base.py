r"""The contract of a verification rule, and what all rules share.

Every rule but the coupled one has one form. Given the drafted tokens x it keeps draft k with
probability :math:`\mathrm{keep}_k(x)`, the outcome of its tests, else it draws from a residual law:

.. math:: \pi(y \mid x) = \sum_{k : x_k = y} \mathrm{keep}_k(x)
          + \big(1 - \sum_k \mathrm{keep}_k(x)\big)\,\mathrm{residual}(y \mid x)

A rule states those two; drawing, conditional laws and output laws follow from them in one place.
Two figures must be kept apart: *accepted by a test*, and *output is one of the drafts*, which a
residual draw may be too. The second is the acceptance that the optimum bounds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from multidraft import laws
from multidraft.errors import InputError, Refused
from multidraft.problem import Problem
from multidraft.verifiers import compiled
from multidraft.verifiers.context import Context
from multidraft.verifiers.passes import Weights


@dataclass(frozen=True)
class Drafts:
    """Drafted tokens, and the shared noise of a coupled rule.

    Attributes
    ----------
    tokens : (B, n) ids, -1 for padding
    noise : (B, n, V), or None for every rule but gls
    """

    tokens: Int[Tensor, "B n"]
    noise: Float[Tensor, "B n V"] | None = None


@dataclass(frozen=True)
class Outcome:
    """Result of one verification step, each ``(B,)``.

    Attributes
    ----------
    token : the output
    draft : first position at which the output was drafted, else -1
    tested : position that a test accepted, else -1
    """

    token: Int[Tensor, " B"]
    draft: Int[Tensor, " B"]
    tested: Int[Tensor, " B"]


@dataclass(frozen=True)
class Acceptance:
    """Acceptance of a rule, arrays of the problem's batch shape.

    Attributes
    ----------
    value : Pr[output is one of the drafts]
    tested : Pr[a test accepts]
    kind : "exact"; "bound" (value is its lower end); "estimate" (a mean with a standard error)
    lower, upper : what is certain about `value`; both equal to it when exact
    stderr : standard error of `value`, zero unless an estimate
    """

    value: Float[np.ndarray, "*batch"]
    tested: Float[np.ndarray, "*batch"]
    kind: Literal["exact", "bound", "estimate"]
    lower: Float[np.ndarray, "*batch"]
    upper: Float[np.ndarray, "*batch"]
    stderr: Float[np.ndarray, "*batch"]

    @classmethod
    def exact(cls, value: Any, tested: Any, batch: tuple[int, ...]) -> Self:
        """Return an exact acceptance from two arrays or tensors of one number per context."""
        value, tested = (np.asarray(part, np.float64).reshape(batch) for part in (value, tested))
        return cls(value, tested, "exact", value, value, np.zeros(batch))

    def __float__(self) -> float:
        return float(self.value)


# A kernel of `compiled`, the draft probabilities (R, V), and what it knows about each row (C, k).
Kernel = tuple[Callable[..., None], Tensor, Tensor]


class Rule(ABC):
    """A configured verification rule. Subclasses are frozen dataclasses: options are their fields.

    Attributes
    ----------
    name : name in the registry.
    laws : draft laws for which the rule is lossless.
    """

    name: ClassVar[str]
    laws: ClassVar[tuple[type[laws.Law], ...]]

    def refuses(self, law: laws.Law) -> str | None:
        """Why this rule is not lossless for a draft law, in one sentence; None when it is."""
        if isinstance(law, self.laws):
            return None
        wanted = ", ".join(kind.name for kind in self.laws)
        return f"{self.name} is lossless for {wanted} drafts only, not for {law.name}."

    def require(self, law: laws.Law) -> None:
        """Raise `Refused` when the rule does not take the law."""
        if reason := self.refuses(law):
            raise Refused(reason)

    def draws(self, n: int) -> int:
        """How many uniforms one verification takes: one for the tests, one for the residual."""
        return 2

    def draft_draws(self, law: laws.Law) -> int:
        """How many uniforms :meth:`sample_drafts` takes."""
        return law.draws

    def sample_drafts(
        self, target: Any, law: laws.Law, *, uniforms: Float[Tensor, "B draws"]
    ) -> Drafts:
        """Draw drafts from the law, a pure function of the uniforms.

        Draw these uniforms from another stream than those of the verification.

        Parameters
        ----------
        target : (V,) or (B, V)
        law : Law on ``(V,)`` or ``(B, V)``
        uniforms : (B, draft_draws) float64 in [0, 1)
        """
        self.require(law)
        context = Context.of(target, law, check=False)
        if not context.law.batch:
            return Drafts(context.law.draw(uniforms))
        return Drafts(context.law.draw(uniforms[:, None, :])[:, 0])

    def prepare(self, target: Any, law: laws.Law, *, check: bool = True) -> Prepared:
        """Do once per context what does not depend on the drafts; may loop over contexts.

        Raises
        ------
        Refused
            With the sentence of :meth:`refuses`.
        InputError
            Under ``check``, see :meth:`Context.of`.
        """
        self.require(law)
        return self.on(Context.of(target, law, check=check))

    @abstractmethod
    def on(self, context: Context) -> Prepared:
        """Return the rule on checked contexts."""

    def verify(
        self,
        target: Any,
        law: laws.Law,
        drafts: Drafts,
        *,
        uniforms: Float[Tensor, "B draws"] | None = None,
        generator: torch.Generator | None = None,
        check: bool = True,
    ) -> Outcome:
        """Verify drafts in one call: :meth:`prepare`, then :meth:`Prepared.verify`.

        Parameters
        ----------
        target : (V,) or (B, V)
            Target probabilities; numpy or torch. float16 and bfloat16 are raised to float32.
        law : Law on ``(V,)`` or ``(B, V)``
            The law that the drafts were drawn from.
        drafts : Drafts
            ``(B, n)`` token ids, -1 for padding.
        uniforms, generator, check
            As in :meth:`Prepared.verify`.
        """
        self.require(law)
        context = Context.of(target, law, check=check)
        return self.verify_on(context, drafts, uniforms=uniforms, generator=generator, check=check)

    def verify_on(
        self,
        context: Context,
        drafts: Drafts,
        *,
        uniforms: Float[Tensor, "B draws"] | None = None,
        generator: torch.Generator | None = None,
        check: bool = True,
    ) -> Outcome:
        """:meth:`verify` on a context that was collected, and accepted, before."""
        kernel = self.kernel(context) if context.target.device.type == "cpu" else None
        if kernel is None or context.size != drafts.tokens.shape[0]:
            prepared = self.on(context)
            return prepared.verify(drafts, uniforms=uniforms, generator=generator, check=check)
        tokens = context.tokens(drafts.tokens)
        if check:
            context.require(tokens)
        run, draft, known = kernel
        draws = self.draws(tokens.shape[-1])
        filled = filled_uniforms(context, len(tokens), draws, uniforms, generator)
        return Outcome(*compiled.run(run, context.target, draft, tokens, filled, known))

    def kernel(self, context: Context) -> Kernel | None:
        """Compiled form of the rule for CPUs, if it has one: kernel, draft law, `known`."""
        return None

    def passes(self, n: int) -> int | None:
        """How often the definition looks at the whole vocabulary; None where it is not stated.

        ``multidraft bench verifiers`` times the rules that state it.
        """
        return None

    def acceptance(self, problem: Problem) -> Acceptance:
        """Both acceptance figures for every context of a problem, in float64.

        Raises
        ------
        Refused
            With the sentence of :meth:`refuses`.
        """
        self.require(problem.law)
        return self._acceptance(problem)

    def _acceptance(self, problem: Problem) -> Acceptance:
        """Sum over all drafted tuples where they are few, else an estimate: see `listed`."""
        from multidraft.verifiers import listed

        return listed.acceptance(self, problem)

    def output_law(self, problem: Problem) -> Float[np.ndarray, " V"]:
        """Law of the output by enumeration of all drafted tuples (one context, small V).

        It equals the target: that is what losslessness means.
        """
        tuples, mass = problem.law.enumerate()
        conditional = self.prepare(problem.target, problem.law).conditional(
            torch.from_numpy(tuples)
        )
        return mass @ conditional.numpy()


class Prepared(ABC):
    """A rule on fixed contexts: C of them with one row of drafts each, or one with any number."""

    draws: ClassVar[int] = 2  # uniforms per row of drafts

    def __init__(self, context: Context) -> None:
        self.context = context

    @abstractmethod
    def terms(self, tokens: Int[Tensor, "M n"]) -> tuple[Float[Tensor, "M n"], Weights]:
        """Probability that each draft is kept, and the residual law (one row or M)."""

    def verify(
        self,
        drafts: Drafts,
        *,
        uniforms: Float[Tensor, "M draws"] | None = None,
        generator: torch.Generator | None = None,
        check: bool = True,
    ) -> Outcome:
        """Accept a draft or draw from the residual, a pure function of the uniforms.

        Parameters
        ----------
        drafts : Drafts
        uniforms : (M, draws) float64 in [0, 1)
        generator : torch.Generator
            Fills the uniforms when they are not given.
        check : bool
            True raises on drafts that the law cannot have drawn; False returns -1 for them and
            never synchronises with the device.

        Raises
        ------
        InputError
            Shapes that do not fit, neither uniforms nor generator, or impossible drafts.
        """
        tokens, bad = self._checked(drafts, check)
        uniforms = filled_uniforms(self.context, len(tokens), self.draws, uniforms, generator)
        keep, residual = self.terms(tokens)
        slot = (keep.cumsum(-1) <= uniforms[:, :1]).sum(-1)
        missed = slot == tokens.shape[-1]
        token = torch.where(
            missed,
            residual.draw(uniforms[:, 1], missed),
            tokens.gather(-1, slot[:, None].clamp(max=tokens.shape[-1] - 1))[:, 0],
        )
        return outcome(tokens, token, bad, slot.masked_fill(missed, -1))

    def conditional(self, tokens: Int[Tensor, "M n"]) -> Float[Tensor, "M V"]:
        """Law of the output given the drafts, in float64.

        Raises
        ------
        InputError
            Drafts that the law cannot have drawn.
        """
        tokens, _ = self._checked(Drafts(tokens), True)
        keep, residual = self.terms(tokens)
        law = residual.law() * (1 - keep.sum(-1, keepdim=True)).clamp(min=0.0)
        return law.scatter_add(-1, tokens.clamp(min=0), keep)

    def _checked(self, drafts: Drafts, check: bool) -> tuple[Tensor, Tensor]:
        """Return the tokens, with padding for impossible rows, and which rows those are."""
        tokens = self.context.tokens(drafts.tokens)
        if check:
            self.context.require(tokens)
        bad = self.context.impossible(tokens, thorough=False)
        return tokens.masked_fill(bad[:, None], -1), bad


def filled_uniforms(
    context: Context, rows: int, draws: int, uniforms: Any, generator: torch.Generator | None
) -> Float[Tensor, "M draws"]:
    """Return the uniforms that were passed, checked, or draw them from the generator."""
    device = context.target.device
    if generator is not None and uniforms is None:
        options: Any = {"dtype": torch.float64, "device": generator.device}
        return torch.rand((rows, draws), generator=generator, **options).to(device)
    if uniforms is None:
        raise InputError("pass uniforms= (see multidraft.uniforms) or generator=.")
    if tuple(uniforms.shape) != (rows, draws):
        raise InputError(f"uniforms have shape {tuple(uniforms.shape)}: pass ({rows}, {draws}).")
    return torch.as_tensor(uniforms, dtype=torch.float64, device=device)


def outcome(
    tokens: Int[Tensor, "M n"],
    token: Int[Tensor, " M"],
    bad: Bool[Tensor, " M"],
    tested: Int[Tensor, " M"] | None = None,
) -> Outcome:
    """Collect an outcome: find the output among the drafts, which is the test unless one is given.

    Rows marked bad come out as -1.
    """
    here = tokens == token[:, None]
    draft = torch.where(here.any(-1), here.byte().argmax(-1), -1)
    tested = draft if tested is None else tested
    return Outcome(*(part.masked_fill(bad, -1) for part in (token, draft, tested)))


def in_turn(accept: Float[Tensor, "M n"]) -> Float[Tensor, "M n"]:
    """Keep probabilities of tests made one after another, each only when those before failed."""
    failed = (1 - accept).cumprod(-1)
    return accept * torch.cat([torch.ones_like(failed[:, :1]), failed[:, :-1]], -1)


def fresh(tokens: Int[Tensor, "M n"]) -> Bool[Tensor, "M n"]:
    """Whether each draft is a token that stands nowhere further left."""
    seen = [(tokens[:, :k] == tokens[:, k : k + 1]).any(-1) for k in range(tokens.shape[-1])]
    return ~torch.stack(seen, -1) & (tokens >= 0)


def ratio(above: Tensor, below: Tensor) -> Tensor:
    """``min(1, above / below)``, 0 where both are 0 (padding, or a draft without mass)."""
    whole = torch.where(below > 0, below, 1.0)
    return torch.minimum(above, whole) / whole
