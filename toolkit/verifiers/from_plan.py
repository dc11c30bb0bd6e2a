r"""Any solver's plan as a rule: interval, entropic, global-resolution, and every exact program.

A plan is a table of keep probabilities and one residual law, the common form of all rules; so there
is nothing to add. Solving is the preparation. What the plan certifies is what is reported: its kept
mass is the tests' acceptance, and the cut bounds the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from multidraft import laws, solvers
from multidraft.arrays import take
from multidraft.errors import Refused
from multidraft.problem import Problem, normalise
from multidraft.solution import TOLERANCE, Plan, SelectionPlan, Solution
from multidraft.solvers.partition import Partition
from multidraft.solvers.selection import ClippedPlan
from multidraft.verifiers.base import Acceptance, Prepared, Rule
from multidraft.verifiers.context import Context, shared
from multidraft.verifiers.passes import Weights


@dataclass(frozen=True)
class FromPlan(Rule):
    """The rule that a solver's plan is.

    Parameters
    ----------
    solver : str
        A name from ``multidraft.solvers.names()``.
    options : mapping
        Options of the solver.
    """

    name: ClassVar[str] = "from-plan"
    laws: ClassVar = (laws.Law,)
    solver: str = "relaxed-lp"
    options: Mapping[str, Any] = field(default_factory=dict)

    def refuses(self, law: laws.Law) -> str | None:
        if self.solver not in solvers.names():
            return f"the solver {self.solver} is not installed: see multidraft.solvers.names()."
        return super().refuses(law)

    def on(self, context: Context) -> PreparedPlan:
        return PreparedPlan(
            context, [_plan(solution) for solution in self.solve(_problem(context))]
        )

    def solve(self, problem: Problem) -> list[Solution]:
        """Solve a problem: one solution, or one per context where the solver is not vectorised."""
        solver = solvers.get(self.solver, **self.options)
        if not problem.batch or solver.batched:
            return [solver.solve(problem)]
        return [solver.solve(problem[i]) for i in range(len(problem))]

    def _acceptance(self, problem: Problem) -> Acceptance:
        bounds = [solution.certificate for solution in self.solve(problem)]
        lower, upper = (
            np.stack([getattr(bound, side) for bound in bounds]).reshape(problem.batch)
            for side in ("lower", "upper")
        )
        if (upper - lower).max() <= TOLERANCE:
            return Acceptance.exact(lower, lower, problem.batch)
        return Acceptance(lower, lower, "bound", lower, upper, np.zeros(problem.batch))


@dataclass(frozen=True)
class IntervalRule(FromPlan):
    """Interval partition: optimal for iid drafts at any vocabulary size."""

    name: ClassVar[str] = "interval"
    laws: ClassVar = (laws.IID,)
    solver: str = "interval"


@dataclass(frozen=True)
class EntropicRule(FromPlan):
    """Entropic weights: the smooth optimum for product laws."""

    name: ClassVar[str] = "entropic"
    laws: ClassVar = (laws.IID, laws.Independent, laws.WithoutReplacement)
    solver: str = "entropic"


@dataclass(frozen=True)
class GlobalResolutionRule(FromPlan):
    """Global Resolution (2511.15898) as published, within its stated error of the target."""

    name: ClassVar[str] = "global-resolution"
    laws: ClassVar = (laws.IID,)
    solver: str = "global-resolution"


class PreparedPlan(Prepared):
    """One plan per context, or one for all where the solver is vectorised."""

    def __init__(self, context: Context, plans: list[Plan]) -> None:
        super().__init__(context)
        self.plans = plans
        self.residual = _residual(context, plans)

    @cached_property
    def partition(self) -> Partition:
        """Partitions of a vectorised plan, laid end to end."""
        (plan,) = self.plans
        assert isinstance(plan, ClippedPlan)
        return _joined(plan.partitions)

    def terms(self, tokens: Int[Tensor, "M n"]) -> tuple[Float[Tensor, "M n"], Weights]:
        drafts = tokens.cpu().numpy()
        return torch.from_numpy(self._keep(drafts)).to(tokens.device), self.residual

    def _keep(self, drafts: Int[np.ndarray, "M n"]) -> Float[np.ndarray, "M n"]:
        plan = self.plans[0]
        if isinstance(plan, ClippedPlan) and plan.problem.batch:
            rows = np.arange(len(drafts))[:, None] * self.context.vocabulary
            weights = self.partition.weights(np.where(drafts < 0, -1, drafts + rows))
            return weights * take(plan.test, drafts)
        if len(self.plans) == 1:
            return plan.keep(drafts)
        rows = zip(self.plans, drafts, strict=True)
        return np.concatenate([one.keep(row[None]) for one, row in rows])


def _residual(context: Context, plans: list[Plan]) -> Weights:
    """Residual laws of the plans; where a plan selects, ``(q - b)+`` without a copy."""
    device = context.target.device
    if isinstance(plan := plans[0], SelectionPlan) and len(plans) == 1:
        arrays = (plan.problem.target, plan.selection)
        q, b = (shared(np.atleast_2d(part)).to(device) for part in arrays)
        return Weights(q, b, context.ones())
    rows = np.concatenate([np.atleast_2d(plan.residual) for plan in plans])
    return Weights(torch.from_numpy(rows).to(device))


def _plan(solution: Solution) -> Plan:
    if solution.plan is None:
        raise Refused(f"{solution.method} finds the value of this problem but no plan.")
    return solution.plan


def _problem(context: Context) -> Problem:
    """Return the same contexts in float64, normalised after the rounding of a shorter format."""
    law = context.law.numpy()
    if isinstance(law, laws.Independent):
        law = laws.Independent([normalise(part) for part in law.parts], short=law.short)
    elif isinstance(law, laws.Explicit):
        law = laws.Explicit(law.tuples, normalise(law.probs), vocabulary=law.vocabulary)
    else:
        law = type(law)(normalise(law.probs), law.n, short=law.short)
    target = normalise(context.target)
    single = context.size == 1
    return Problem(target[0] if single else target, law[0] if single and law.batch else law)


def _joined(partitions: list[Partition]) -> Partition:
    """One partition for the tokens of all contexts, those of context i shifted by i V."""
    regions = np.cumsum([0] + [len(part.length) for part in partitions])
    pieces = np.cumsum([0] + [len(part.rank) for part in partitions])
    region = [
        np.where(part.region < 0, -1, part.region + first)
        for part, first in zip(partitions, regions, strict=False)
    ]
    offsets = [part.offsets[:-1] + first for part, first in zip(partitions, pieces, strict=False)]
    return Partition(
        np.concatenate(region).astype(np.int32),
        np.concatenate([*offsets, pieces[-1:]]).astype(np.int32),
        np.concatenate([part.rank for part in partitions]),
        np.concatenate([part.survival for part in partitions]),
        np.concatenate([part.length for part in partitions]),
        partitions[0].n,
    )
