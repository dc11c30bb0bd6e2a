r"""Answers: a plan, a cut, and the certificate that recomputes both without the optimiser.

Any feasible plan is a lower bound on the optimum and any set of tokens H an upper one,
:math:`1 + q(H) - \mathrm{stay}(H)`. No solver's own word enters either number.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from multidraft.arrays import search, take
from multidraft.errors import InputError, Refused
from multidraft.problem import Problem, read_arrays, unpack, write_arrays

if TYPE_CHECKING:
    from multidraft.rational import Proof

# Largest gap or violation of a plan that is still called optimal.
TOLERANCE = 1e-9


class Status(Enum):
    """How a solve ended; the value is the sentence the user reads."""

    OPTIMAL = "optimal: plan and cut agree to 1e-9"
    INEXACT = "inexact: plan and cut are further apart than 1e-9, see the certificate"
    VALUE_ONLY = "value only: the cut gives the value, this method builds no plan"
    LIMIT = "limit: the time or size limit ended the solve early, see the certificate"
    REFUSED = "refused: the method does not take this problem"


class Plan(ABC):
    r"""A verification rule for one problem: which drafted token to keep, and what else to draw.

    A plan is a table of keep probabilities, one for each drafted token, and one residual law:

    .. math:: \pi(y \mid x) = \mathrm{keep}(y \mid x) + \big(1 - \textstyle\sum_z
              \mathrm{keep}(z \mid x)\big)\,\mathrm{residual}(y)

    It is lossless when the residual law is what the kept tokens leave of the target,
    :math:`q(y) - \sum_x P(x)\,\mathrm{keep}(y \mid x)`, normalised.
    """

    problem: Problem

    @property
    @abstractmethod
    def selection(self) -> Float[np.ndarray, "*batch V"]:
        """Selection law b: which drafted token is put to the single-draft test."""

    @abstractmethod
    def keep(self, drafts: Int[np.ndarray, "M n"]) -> Float[np.ndarray, "M n"]:
        """Probability that each drafted token is kept; repeats after the first get zero."""

    @property
    @abstractmethod
    def kept(self) -> Float[np.ndarray, "*batch V"]:
        """Mass of each token that is kept, ``sum_x P(x) keep(y | x)``."""

    @abstractmethod
    def violation(self) -> Float[np.ndarray, "*batch"]:
        """Largest violation of a constraint of the program, recomputed."""

    def row(self, i: int) -> Plan:
        """Return the plan of one row of a batch."""
        raise InputError("this plan holds one context, not a batch.")

    def value(self) -> Float[np.ndarray, "*batch"]:
        """Acceptance of the plan: the kept mass."""
        return np.asarray(self.kept.sum(-1))

    @cached_property
    def residual(self) -> Float[np.ndarray, "*batch V"]:
        """Law of the output when no draft is kept; the target when everything is kept."""
        left = np.maximum(self.problem.target - self.kept, 0.0)
        total = left.sum(-1, keepdims=True)
        # Below round-off there is nothing to draw: any law does, and the target has no surprises.
        empty = total <= 0
        return np.where(empty, self.problem.target, left / np.where(empty, 1.0, total))

    def conditional(self, drafts: Any) -> Float[np.ndarray, "*rows V"]:
        """Law of the output token given drafted ids, ``(n,)`` or ``(M, n)``; -1 pads."""
        tokens = self._tokens(drafts)
        keep = self.keep(tokens)
        rest = np.maximum(1 - keep.sum(-1, keepdims=True), 0.0)
        law = rest * self.residual
        rows = np.arange(len(tokens))[:, None]
        np.add.at(law, (rows, np.maximum(tokens, 0)), np.where(tokens >= 0, keep, 0.0))
        return law.reshape(*np.shape(drafts)[:-1], law.shape[-1])

    def sample(
        self, drafts: Any, uniforms: Float[np.ndarray, "*rows 2"]
    ) -> Int[np.ndarray, "*rows"]:
        """Draw output tokens for drafted ids ``(*rows, n)``, a pure function of the uniforms.

        The first uniform chooses the kept draft or none, the second the residual token.
        """
        tokens = self._tokens(drafts)
        uniforms = np.reshape(uniforms, (-1, 2))
        if len(uniforms) != len(tokens):
            raise InputError(f"{len(tokens)} rows of drafts need as many rows of two uniforms.")
        edges = np.cumsum(self.keep(tokens), axis=-1)
        slot = (edges <= uniforms[:, :1]).sum(-1)
        cumulative = np.cumsum(self.residual)
        other = search(cumulative, uniforms[:, 1])
        kept = np.append(tokens, other[:, None], axis=-1)[np.arange(len(tokens)), slot]
        return kept.reshape(np.shape(drafts)[:-1])

    def output_law(self) -> Float[np.ndarray, " V"]:
        """Law of the output token, by enumeration of all drafted tuples (small V)."""
        tuples, mass = self.problem.law.enumerate()
        keep = self.keep(tuples)
        held = np.bincount(
            np.maximum(tuples, 0).ravel(),
            weights=(np.where(tuples >= 0, keep, 0.0) * mass[:, None]).ravel(),
            minlength=self.problem.vocabulary,
        )
        rest = mass @ np.maximum(1 - keep.sum(-1), 0.0)
        return held + rest * self.residual

    def coupling(self) -> tuple[Int[np.ndarray, "M n"], Float[np.ndarray, "M V"]]:
        """All drafted tuples with the full plan ``C[x, y] = P(x) pi(y | x)`` (small V).

        This is the feasible point of the OTLP that a plan of its relaxation stands for: what is not
        kept is the product of the two residuals. Rows sum to P, columns to the target.
        """
        tuples, mass = self.problem.law.enumerate()
        return tuples, mass[:, None] * self.conditional(tuples)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan with its problem to one ``.npz`` file (arrays, no pickle).

        The arrays are those of :meth:`Problem.save <multidraft.Problem.save>` and

        ``selection``, ``kept``, ``residual`` (*batch, V)
            the selection law, the mass kept of each token, the law of the output when nothing is
            kept;
        ``members`` (M, n), ``flow`` (M, n)
            for one context and at most ``rational.MOST_TUPLES`` tuples: the token sets of the draft
            law, ids in increasing order, -1 pads, and the mass that each keeps of each of its
            tokens. :func:`load_plan` needs these.
        """
        from multidraft.rational import MOST_TUPLES
        from multidraft.solvers.token_sets import SetPlan

        arrays = {"selection": self.selection, "kept": self.kept, "residual": self.residual}
        if not self.problem.batch and self.problem.law.tuple_count() <= MOST_TUPLES:
            plan = SetPlan.of(self)
            arrays |= {"members": plan.sets.members, "flow": plan.flow}
        write_arrays(path, self.problem.packed() | arrays)

    def _tokens(self, drafts: Any) -> Int[np.ndarray, "M n"]:
        if self.problem.batch:
            raise Refused("this plan holds a batch: take one context first, solution[i].plan.")
        tokens = np.asarray(drafts)
        if tokens.dtype.kind not in "iu" or tokens.ndim < 1 or tokens.shape[-1] == 0:
            raise InputError("drafts are token ids, (n,) or (M, n), -1 for padding.")
        if tokens.size and not (tokens.min() >= -1 and tokens.max() < self.problem.vocabulary):
            raise InputError(f"drafts hold an id outside -1..{self.problem.vocabulary - 1}.")
        return tokens.reshape(-1, tokens.shape[-1]).astype(np.int64)


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan that :meth:`Plan.save` wrote; its problem comes with it.

    Raises
    ------
    InputError
        No such file, not such a file, damaged, or a plan that breaks a constraint.
    """
    from multidraft.solvers.token_sets import SetPlan, TokenSets

    arrays = read_arrays(path)
    problem = unpack(arrays, path)
    if "residual" in arrays and "flow" not in arrays:
        raise InputError(
            f"{os.fspath(path)} holds no table of the plan, which was too large: solve its problem "
            "again, multidraft.load reads it."
        )
    sets, flow = TokenSets.of(problem.law), arrays.get("flow")
    known = np.array_equal(arrays.get("members", ()), sets.members)
    if not known or flow is None or flow.shape != sets.members.shape or flow.dtype != np.float64:
        raise InputError(f"{os.fspath(path)} is damaged, or not a plan that save() wrote.")
    plan = SetPlan(problem, sets, flow)
    if not plan.violation() <= TOLERANCE:
        raise InputError(f"the plan in {os.fspath(path)} is not feasible for its problem.")
    return plan


class SelectionPlan(Plan):
    r"""Canonical decomposition: select one draft, then single-draft speculative sampling.

    The selected token y, of law b, is kept with probability ``min(1, q(y) / b(y))``; otherwise the
    output comes from ``(q - b)+`` normalised (Khisti et al., 2410.18234).
    """

    @abstractmethod
    def weights(self, drafts: Int[np.ndarray, "M n"]) -> Float[np.ndarray, "M n"]:
        """Probability that each draft is selected (summing to 1 over the row)."""

    @property
    def kept(self) -> Float[np.ndarray, "*batch V"]:
        return np.minimum(self.problem.target, self.selection)

    @cached_property
    def test(self) -> Float[np.ndarray, "*batch V"]:
        """Probability ``min(1, q / b)`` that a selected token is kept."""
        b = self.selection
        return self.kept / np.where(b > 0, b, 1.0)

    def keep(self, drafts: Int[np.ndarray, "M n"]) -> Float[np.ndarray, "M n"]:
        return self.weights(drafts) * take(
            np.broadcast_to(self.test, (len(drafts), self.test.shape[-1])), drafts
        )


@dataclass(frozen=True)
class Certificate:
    """What the plan and the cut prove, recomputed in float64; every array has the batch's shape.

    Attributes
    ----------
    lower : acceptance of the plan (nan without a plan).
    upper : ``1 + q(H) - stay(H)`` of the cut.
    gap : ``upper - lower``; a round-off below zero is shown as it is.
    violation : largest violation of a constraint by the plan (nan without a plan).
    cut : boolean ``(*batch, V)``, the set H.
    plan : what the lower bound was computed from.
    """

    lower: Float[np.ndarray, "*batch"]
    upper: Float[np.ndarray, "*batch"]
    violation: Float[np.ndarray, "*batch"]
    cut: Bool[np.ndarray, "*batch V"]
    plan: Plan | None = field(default=None, repr=False)

    @cached_property
    def proof(self) -> Proof | None:
        """The same bounds in rational numbers, on first access; ``str`` prints them with their gap.

        None without a plan, for a batch, and where the tuples are too many to list
        (:mod:`multidraft.rational`).
        """
        from multidraft.rational import prove

        return None if self.plan is None else prove(self.plan, self.cut)

    @property
    def proved(self) -> bool:
        """Whether the bounds hold as rationals, for a plan whose constraints were all checked."""
        return self.proof is not None

    @property
    def exact(self) -> bool:
        """Whether plan and cut have the same value as rationals."""
        return self.proof is not None and self.proof.exact

    @property
    def gap(self) -> Float[np.ndarray, "*batch"]:
        """Distance of the two bounds."""
        return np.asarray(self.upper - self.lower)


def certify(problem: Problem, plan: Plan | None, cut: Bool[np.ndarray, "*batch V"]) -> Certificate:
    """Recompute the primal value, the dual bound and every violation, without the optimiser.

    Raises
    ------
    InputError
        A cut that is no boolean array of the problem's shape.
    """
    cut = np.broadcast_to(np.asarray(cut), (*problem.batch, problem.vocabulary))
    unknown = np.full(problem.batch, np.nan)
    return Certificate(
        lower=unknown if plan is None else plan.value(),
        upper=upper_bound(problem, cut),
        violation=unknown if plan is None else np.asarray(plan.violation()),
        cut=cut,
        plan=plan,
    )


def upper_bound(problem: Problem, cut: Bool[np.ndarray, "*batch V"]) -> Float[np.ndarray, "*batch"]:
    """Bound of one set of tokens, ``q(H) + hit(complement of H)``: no plan accepts more."""
    return np.asarray(np.where(cut, problem.target, 0.0).sum(-1) + problem.law.hit(~cut))


class Solution:
    """The answer of one method to one problem, which it keeps.

    Attributes
    ----------
    problem, method : what was solved, and the name of the method.
    plan : Plan, or None for a method that only finds the value.
    seconds : wall time of the solve; the first on a machine compiles, which counts.
    """

    def __init__(
        self,
        problem: Problem,
        method: str,
        *,
        plan: Plan | None,
        cut: Bool[np.ndarray, "*batch V"],
        seconds: float,
        limited: bool = False,
    ) -> None:
        self.problem, self.method, self.plan, self.seconds = problem, method, plan, seconds
        self._cut, self._limited = cut, limited

    @cached_property
    def certificate(self) -> Certificate:
        """Bounds recomputed from the plan and the cut, on first access."""
        return certify(self.problem, self.plan, self._cut)

    @property
    def acceptance(self) -> Float[np.ndarray, "*batch"]:
        """Optimal acceptance as far as proved: the plan's, or the cut's where there is no plan."""
        certificate = self.certificate
        return certificate.upper if self.plan is None else certificate.lower

    @property
    def status(self) -> Status:
        """How far to trust the acceptance; for a batch, its worst row."""
        if self._limited:
            return Status.LIMIT
        if self.plan is None:
            return Status.VALUE_ONLY
        worst = max(np.max(np.abs(self.certificate.gap)), np.max(self.certificate.violation))
        return Status.OPTIMAL if worst <= TOLERANCE else Status.INEXACT

    def __len__(self) -> int:
        return len(self.problem)

    def __getitem__(self, i: int) -> Solution:
        """Return the answer of one row; its time is the batch's, shared evenly."""
        return Solution(
            self.problem[i],
            self.method,
            plan=None if self.plan is None else self.plan.row(i),
            cut=self.certificate.cut[i],
            seconds=self.seconds / len(self),
            limited=self._limited,
        )

    def __repr__(self) -> str:
        value = (
            f"{float(self.acceptance):.12g}"
            if not self.problem.batch
            else f"batch {self.problem.batch}"
        )
        return f"Solution({self.method}: {value}, {self.status.value})"
