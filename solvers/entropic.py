r"""Entropic weights: the smooth optimal verifier for iid, independent and distinct drafts.

Every token has a weight w. A drafted tuple that leaves the minimising cut H selects one of its
tokens outside H with probability ``w_x / sum w``; a tuple inside H selects one of its tokens with
probability ``w_x / (1 + sum w)``, and is rejected otherwise. The weights solve two convex problems
whose gradients are one-dimensional integrals (two-dimensional for three or more distinct drafts),
never sums over tuples: see docs/entropic-weights. For independent drafts from different laws and
for drafts without replacement no other exact rule is known at such sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

from multidraft import laws
from multidraft.arrays import take
from multidraft.problem import Problem
from multidraft.solution import SelectionPlan
from multidraft.solvers.base import Answer, Solver
from multidraft.solvers.branch_and_bound import independent_optimum
from multidraft.solvers.subset import minimising_set

if TYPE_CHECKING:
    from multidraft.solvers.entropic_dual import Block

# Tokens times drafts, for three or more drafts without replacement: 2 GB of coefficients.
MOST_ENTRIES = 262_144


@dataclass(frozen=True)
class Entropic(Solver):
    """Entropic weights by the two convex duals: L-BFGS-B, then Newton's method on the gradient.

    A batch is solved context by context: every context has nodes and steps of its own, and its sums
    over the vocabulary keep all cores busy.

    Parameters
    ----------
    finish : bool
        False stops after L-BFGS-B, whose line search stalls on the round-off of the value.
    tolerance : float
        L1 norm of the gradient at which a block is solved; the gap is at most the sum over blocks.
    iterations : int
        Most iterations of either method; a block that needs more ends with status ``LIMIT``.
    device : str
        Torch device of the sums over the vocabulary.
    """

    name: ClassVar[str] = "entropic"
    batched: ClassVar[bool] = True
    finish: bool = True
    tolerance: float = 1e-11
    iterations: int = 500
    device: str = "cpu"

    def reason(self, problem: Problem) -> str | None:
        law = problem.law
        if not isinstance(law, laws.IID | laws.Independent | laws.WithoutReplacement):
            return (
                f"{self.name} takes iid, independent and without-replacement drafts, "
                f"not {law.name}: use subset."
            )
        n = int(law.counts.max())
        if isinstance(law, laws.WithoutReplacement) and n > 2:
            support, most = int(np.count_nonzero(law.probs, axis=-1).max()), MOST_ENTRIES // n
            if support > most:
                return (
                    f"{self.name} takes {n} drafts without replacement from at most {most} "
                    f"tokens, not {support}: truncate the draft with draft_top_k."
                )
        return None

    def answer(self, problem: Problem) -> Answer:
        if not problem.batch:
            plan, solved = self._context(problem)
            return Answer(plan, plan.cut, limited=self.finish and not solved)
        plans, solved = zip(*(self._context(row) for row in problem), strict=True)
        plan = EntropicPlan.stack(problem, plans)
        return Answer(plan, plan.cut, limited=self.finish and not all(solved))

    def _context(self, problem: Problem) -> tuple[EntropicPlan, bool]:
        """The plan of one context, and whether its blocks reached the tolerance."""
        from multidraft.solvers import entropic_descent

        cut = minimising_cut(problem)
        logs, solved = np.full(problem.vocabulary, -np.inf), True
        for block in blocks(problem, cut, device=self.device):
            found, residual = entropic_descent.minimise(
                block, tolerance=self.tolerance, iterations=self.iterations, finish=self.finish
            )
            logs[block.free] = found.cpu().numpy()
            solved &= residual <= self.tolerance
        return EntropicPlan(problem, cut, logs, realised(problem, cut, logs)), solved


def minimising_cut(problem: Problem) -> Bool[np.ndarray, " V"]:
    """Return a set H that minimises ``q(H) - stay(H)``, with every drafted token of q = 0."""
    law = problem.law
    if isinstance(law, laws.Independent):
        cut = independent_optimum(problem.target, law.parts).cut
    else:
        cut = minimising_set(problem)
    return cut | ((problem.target == 0) & _drafted(law))


def _drafted(law: laws.Law) -> Bool[np.ndarray, " V"]:
    parts = law.parts if isinstance(law, laws.Independent) else (law.probs,)
    return np.any([part > 0 for part in parts], axis=0)


def blocks(
    problem: Problem, cut: Bool[np.ndarray, " V"], *, refine: int = 1, device: str = "cpu"
) -> list[Block]:
    """Return the outer and the inner block of a problem, those of them that hold tokens.

    `refine` divides the step of the integral over arrival times.
    """
    from multidraft.solvers.entropic_dual import Block
    from multidraft.solvers.entropic_laws import generating

    psi = generating(problem.law, refine=refine)
    target, live = problem.target, _drafted(problem.law) & (problem.target > 0)
    sides = [
        (live & ~cut, cut, False),
        (live & cut, cut & (target == 0), True),
    ]
    return [
        Block(psi, target, free, ones, reject=reject, device=device)
        for free, ones, reject in sides
        if free.any()
    ]


def realised(
    problem: Problem, cut: Bool[np.ndarray, " V"], logs: Float[np.ndarray, " V"], *, refine: int = 2
) -> Float[np.ndarray, " V"]:
    """Selection law of given log-weights, by quadrature with the solver's steps over `refine`."""
    import torch

    from multidraft.solvers.entropic_dual import STEP

    b = np.zeros(problem.vocabulary)
    for block in blocks(problem, cut, refine=refine):
        point = block.at(torch.tensor(logs[block.free]), STEP / refine)
        b[block.free] = point.marginals().numpy()
    return np.maximum(b, 0.0)


class EntropicPlan(SelectionPlan):
    r"""Selection by weights, with a reject option inside the cut.

    The law `selection` of the selected token is realised by quadrature; what is missing to 1 is
    the probability of a rejection. The test ``min(1, q / b)`` is made at this b, so that the output
    has law q whatever the weights are.

    Parameters
    ----------
    problem : Problem
    cut : (*batch, V) boolean
        The set H.
    logs : (*batch, V)
        Log-weights, ``-inf`` for tokens that are never selected.
    selection : (*batch, V)
        Selection law of these weights, see :func:`realised`.
    """

    def __init__(
        self,
        problem: Problem,
        cut: Bool[np.ndarray, "*batch V"],
        logs: Float[np.ndarray, "*batch V"],
        selection: Float[np.ndarray, "*batch V"],
    ) -> None:
        self.problem, self.cut, self.logs, self._selection = problem, cut, logs, selection

    @classmethod
    def stack(cls, problem: Problem, plans: Sequence[EntropicPlan]) -> EntropicPlan:
        """Make one plan of those of the rows of a batch."""
        parts = ((plan.cut, plan.logs, plan.selection) for plan in plans)
        return cls(problem, *map(np.stack, zip(*parts, strict=True)))

    def row(self, i: int) -> EntropicPlan:
        return EntropicPlan(self.problem[i], self.cut[i], self.logs[i], self.selection[i])

    @property
    def selection(self) -> Float[np.ndarray, "*batch V"]:
        return self._selection

    @cached_property
    def quadrature_error(self) -> Float[np.ndarray, "*batch"]:
        """Largest change of b on doubling the number of nodes, a bound for the error of b."""
        if self.problem.batch:
            return np.stack([self.row(i).quadrature_error for i in range(len(self.problem))])
        coarse = realised(self.problem, self.cut, self.logs, refine=1)
        return np.asarray(np.abs(self.selection - coarse).max())

    def violation(self) -> Float[np.ndarray, "*batch"]:
        """Estimate of the error of `selection`, by which the output law may miss the target."""
        return np.asarray(self.quadrature_error)

    def weights(self, drafts: Int[np.ndarray, "M n"]) -> Float[np.ndarray, "M n"]:
        """Probability that each draft is selected; the rest of a row is rejected.

        Drafts of a batch are one tuple for each of its contexts.
        """
        there = drafts >= 0
        shape = (len(drafts), self.logs.shape[-1])
        inside = take(np.broadcast_to(self.cut, shape), drafts)
        outside = there & ~inside
        leaves = outside.any(-1, keepdims=True)
        logs = np.take_along_axis(np.broadcast_to(self.logs, shape), np.maximum(drafts, 0), -1)
        logs = np.where(leaves & ~outside, -np.inf, np.where(there, logs, -np.inf))
        # Relative to the largest weight of the row, the reject option's included.
        high = np.maximum(logs.max(-1, keepdims=True), np.where(leaves, -np.inf, 0.0))
        shares = np.exp(logs - np.where(np.isfinite(high), high, 0.0))
        reject = np.where(leaves, 0.0, np.exp(-high))
        total = shares.sum(-1, keepdims=True) + reject
        return shares / np.where(total > 0, total, 1.0)
