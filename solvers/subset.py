r"""Subset selection in closed form: the set that minimises ``q(H) - stay(H)``, any size.

For iid drafts and for drafts without replacement a minimiser is a prefix of the tokens in
increasing ``q/p``; for laws with one random draft it is read off token by token. Only the iid case
comes with a selection law (the clipped one), hence with a lower bound of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool

from multidraft import laws
from multidraft.problem import Problem
from multidraft.solvers import memory, prefix
from multidraft.solvers.base import Answer, Solver

_CLOSED_FORMS = (laws.IID, laws.WithoutReplacement, laws.SureAndLast)


@dataclass(frozen=True)
class Subset(Solver):
    """The minimising set of tokens by the prefix rule or in closed form, batched.

    Time O(V log V) per context at most (without replacement: times a few dozen quadrature nodes).
    """

    name: ClassVar[str] = "subset"
    batched: ClassVar[bool] = True

    def reason(self, problem: Problem) -> str | None:
        if isinstance(problem.law, _CLOSED_FORMS):
            return None
        return (
            f"{self.name} has no closed form for {problem.law.name} drafts: use "
            f"{memory.alternative(problem.law)}."
        )

    def answer(self, problem: Problem) -> Answer:
        cut = minimising_set(problem)
        plan = None
        if isinstance(problem.law, laws.IID):
            from multidraft.solvers.selection import ClippedPlan

            plan = ClippedPlan.of(problem, cut)
        return Answer(plan, cut)


def minimising_set(problem: Problem) -> Bool[np.ndarray, "*batch V"]:
    """Return a set H that minimises ``q(H) - stay(H)`` for a law with a closed form."""
    law = problem.law
    if isinstance(law, laws.SureAndLast):
        # The sure drafts, and each other token that is drafted more often than wanted.
        return _members(law.sure(), problem.target.shape) | (problem.target < law.last())
    optimum = (
        prefix.iid_optimum if isinstance(law, laws.IID) else prefix.without_replacement_optimum
    )
    return optimum(problem.target, law.probs, law.n)[1]


def _members(ids: np.ndarray, shape: tuple[int, ...]) -> Bool[np.ndarray, "*batch V"]:
    """Return the boolean set of the given ids, padding left out."""
    ids = np.broadcast_to(ids, (*shape[:-1], ids.shape[-1]))
    mask = np.zeros((*shape[:-1], shape[-1] + 1), dtype=bool)
    np.put_along_axis(mask, np.where(ids < 0, shape[-1], ids), True, axis=-1)
    return mask[..., :-1]
