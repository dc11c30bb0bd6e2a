r"""Only the half of the network that a drafted tuple needs.

The baseline of Global Resolution (Thomas and Pal, 2511.15898).

With a minimising set H known, the optimal flow falls apart. Tuples inside H fill the tokens of H,
tuples that leave H send all their mass to tokens outside. To verify one drafted tuple, one of the
two systems is enough, and it is smaller than the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

from multidraft.problem import Problem
from multidraft.solution import Plan
from multidraft.solvers import memory
from multidraft.solvers.base import Answer, Solver
from multidraft.solvers.max_flow import maximum_flow
from multidraft.solvers.priority import winner
from multidraft.solvers.submodular import Submodular, nearest
from multidraft.solvers.subset import Subset, minimising_set
from multidraft.solvers.token_sets import SetPlan, TokenSets


@dataclass(frozen=True)
class OptimisedMaxFlow(Solver):
    """A minimising set first, then the inner and the outer flow.

    The set comes from the prefix rule or a closed form where there is one, else from the
    minimum-norm point. ``answer`` solves both flows; the verifier of one drafted tuple wants only
    :meth:`plan`, which solves a flow when a tuple asks for it.

    Parameters
    ----------
    memory : float
        Bytes that the solve may take.
    """

    name: ClassVar[str] = "optimised-max-flow"
    memory: float = memory.MOST

    def reason(self, problem: Problem) -> str | None:
        return memory.refusal(self.name, problem.law, memory.flow(problem.law), self.memory)

    def answer(self, problem: Problem) -> Answer:
        plan = self.plan(problem)
        plan.value()
        return Answer(plan, plan.cut)

    def plan(self, problem: Problem) -> SplitPlan:
        """Return the plan with the set found and no flow solved yet."""
        return SplitPlan(problem, _minimising_set(problem))


def _minimising_set(problem: Problem) -> Bool[np.ndarray, " V"]:
    if Subset().reason(problem) is None:
        return minimising_set(problem)
    options = Submodular()
    return nearest(
        problem.target, winner(problem.law), gap=options.gap, iterations=options.iterations
    ).cut


class SplitPlan(Plan):
    """The plans of tuples inside and outside a set H, each solved when first needed.

    Parameters
    ----------
    problem : Problem
    cut : (V,)
        The set H; any set gives a lossless plan, a minimising one the optimum.
    """

    def __init__(self, problem: Problem, cut: Bool[np.ndarray, " V"]) -> None:
        self.problem, self.cut = problem, cut

    @cached_property
    def _sets(self) -> TokenSets:
        return TokenSets.of(self.problem.law)

    @cached_property
    def inner(self) -> SetPlan:
        """Tuples inside H, which fill the tokens of H."""
        return self._part(self._sets.inside(self.cut))

    @cached_property
    def outer(self) -> SetPlan:
        """Tuples that leave H, by their tokens outside."""
        return self._part(self._sets.restricted(~self.cut))

    def _part(self, sets: TokenSets) -> SetPlan:
        flow = maximum_flow(sets, self.problem.target).flow
        return SetPlan.repaired(self.problem, sets, flow)

    @property
    def kept(self) -> Float[np.ndarray, " V"]:
        return self.inner.kept + self.outer.kept

    @property
    def selection(self) -> Float[np.ndarray, " V"]:
        return self.inner.selection + self.outer.selection

    def keep(self, drafts: Int[np.ndarray, "M n"]) -> Float[np.ndarray, "M n"]:
        inside = np.append(self.cut, True)[drafts].all(-1)
        out = np.zeros(drafts.shape)
        if inside.any():
            out[inside] = self.inner.keep(drafts[inside])
        if not inside.all():
            leaving = drafts[~inside]
            free = np.append(~self.cut, False)[leaving]
            out[~inside] = self.outer.keep(np.where(free, leaving, -1))
        return out

    def violation(self) -> Float[np.ndarray, ""]:
        return np.asarray(max(float(self.inner.violation()), float(self.outer.violation())))
