r"""The explicit optimum for identical drafts, over all sets of tokens (Khisti et al., 2410.18234).

For two drafts from one law p the paper states

.. math:: \alpha^* = \min_S \; q(S) + p(S^c)^2 + 2\, p(S)\, p(S^c)

and that acceptance 1 is possible iff :math:`q(S) \ge p(S)^2` for every S. For n drafts the same
holds with :math:`\sum_{k \ge 1} \binom{n}{k} p(S^c)^k p(S)^{n-k}` and :math:`p(S)^n`, as the paper
conjectures and the formula of Hu et al. (2502.18779) shows; and the sets in question are heads of
the tokens in increasing ``q/p``, so that no vocabulary is too large.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float

from multidraft import laws
from multidraft.errors import Refused
from multidraft.problem import Problem
from multidraft.solvers import memory
from multidraft.solvers.base import Answer, Solver
from multidraft.solvers.prefix import ratios

_ROUND_OFF = 1e-14


@dataclass(frozen=True)
class Pair(Solver):
    """The explicit expression, minimised over all subsets or over prefixes; any n.

    Parameters
    ----------
    all_sets : int
        Largest vocabulary for which all 2^V sets are tried, as the paper states it; beyond, the
        V + 1 prefixes.
    """

    name: ClassVar[str] = "pair"
    all_sets: int = 12

    def reason(self, problem: Problem) -> str | None:
        if isinstance(problem.law, laws.IID):
            return None
        return (
            f"{self.name} is for drafts from one law, not {problem.law.name}: use "
            f"{memory.alternative(problem.law)}."
        )

    def answer(self, problem: Problem) -> Answer:
        from multidraft.solvers.selection import ClippedPlan

        cut, _ = self._minimum(problem)
        return Answer(ClippedPlan.of(problem, cut), cut)

    def certain(self, problem: Problem) -> bool:
        """Whether acceptance 1 is possible: ``q(S) >= p(S)^n`` for every S, up to round-off.

        Raises
        ------
        Refused
            As :meth:`solve`.
        """
        if reason := self.refuses(problem):
            raise Refused(reason)
        return self._minimum(problem)[1] >= 1 - _ROUND_OFF

    def _minimum(self, problem: Problem) -> tuple[Bool[np.ndarray, " V"], float]:
        """The minimising set and the value of the expression there."""
        small = problem.vocabulary <= self.all_sets
        least = _over_subsets if small else _over_prefixes
        return least(problem.target, problem.law.probs, problem.n)


def expression(
    target: Float[np.ndarray, " K"],
    inside: Float[np.ndarray, " K"],
    outside: Float[np.ndarray, " K"],
    n: int,
) -> Float[np.ndarray, " K"]:
    """``q(S) + sum_k C(n, k) p(S^c)^k p(S)^(n - k)``, k = 1..n, for K sets.

    Parameters
    ----------
    target, inside, outside
        Masses q(S), p(S) and p(S^c) of each set.
    n
        Number of drafts.
    """
    # One draft after another: hit already, or hit now; every term is positive.
    hit, power = np.zeros_like(inside), np.ones_like(inside)
    for _ in range(n):
        hit, power = hit * (inside + outside) + outside * power, power * inside
    return target + hit


def _over_subsets(
    q: Float[np.ndarray, " V"], p: Float[np.ndarray, " V"], n: int
) -> tuple[Bool[np.ndarray, " V"], float]:
    """Try all 2^V sets; bit y of a set's number says whether token y is in it."""
    wanted, drafted = np.zeros(1), np.zeros(1)
    for y in range(len(q)):
        wanted = np.append(wanted, wanted + q[y])
        drafted = np.append(drafted, drafted + p[y])
    values = expression(wanted, drafted, drafted[::-1], n)
    best = int(values.argmin())
    return (best >> np.arange(len(q)) & 1).astype(bool), float(values[best])


def _over_prefixes(
    q: Float[np.ndarray, " V"], p: Float[np.ndarray, " V"], n: int
) -> tuple[Bool[np.ndarray, " V"], float]:
    """Try the V + 1 heads of the tokens in increasing q/p."""
    order = np.argsort(ratios(q, p), kind="stable")
    wanted, inside = (np.append(0.0, np.cumsum(law[order])) for law in (q, p))
    outside = np.append(np.cumsum(p[order][::-1])[::-1], 0.0)
    values = expression(wanted, inside, outside, n)
    best = int(values.argmin())
    cut = np.zeros(len(q), dtype=bool)
    cut[order[:best]] = True
    return cut, float(values[best])
