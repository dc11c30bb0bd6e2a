r"""Global Resolution as published (Thomas and Pal, 2511.15898), for iid drafts.

A tuple that leaves the minimising set H selects among its tokens outside H, with weights that give
these tokens the masses b of a vertex of the polymatroid; a tuple inside H selects among its tokens
and a reject option, with weights that use up the target there. Each set of weights minimises a
convex function, a sum over the sets that can be drafted from a truncated list T of tokens:

.. math:: \Phi_T(a) = \sum_{x \in (H \cup T)^n \setminus H^n} P(x) \log
              \sum_{i \in S(x) \setminus H} e^{a_i} - \sum_{i \in T} b_i a_i, \qquad
          \Theta_T(a) = \sum_{x \in T^n} P(x) \log \Big(1 + \sum_{i \in S(x)} e^{a_i}\Big)
              - \sum_{i \in T} q_i a_i

T is the smallest list whose truncation error is below tau, and L-BFGS-B stops when the L1 norm of
the gradient is at most 5 tau; both together bound the error of the output law by 15 tau (L1) and of
the acceptance by 10 tau. A run that meets a cap on the list or on the iterations has failed.

The weights, lists and caps are the paper's; what it leaves open is stated at the code: how a tuple
without a listed token is decided, and what a failed run outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize

from multidraft import laws
from multidraft.arrays import take
from multidraft.problem import Problem
from multidraft.solution import Plan
from multidraft.solvers import drafted_sets, prefix
from multidraft.solvers.base import Answer, Solver
from multidraft.solvers.selection import clipped_selection
from multidraft.solvers.token_sets import repeats

STOP = 5.0  # L1 norm of the gradient at which a descent stops, in units of tau
MOST_SETS = 30_000_000  # listed sets of drafts: 240 MB of masses
_RANGE = 60.0  # bound on log-weights: a truncated sum often has no minimum


class Caps(NamedTuple):
    """Limits of one run: tokens in a list T, and iterations of L-BFGS-B."""

    tokens: int
    iterations: int


CAPS = {"tight": Caps(64, 50), "middle": Caps(1024, 200), "wide": Caps(8192, 1000)}


class System(NamedTuple):
    """One of the two sets of weights, on the tokens of its list T.

    Attributes
    ----------
    tokens : (k,) ids.
    logs : (k,) log-weights a.
    selected : (V,) mass with which each token is selected, over all tuples, listed or not.
    gradient : L1 norm of the gradient at which the descent ended.
    failure : why the run counts as failed, or None.
    """

    tokens: Int[np.ndarray, " k"]
    logs: Float[np.ndarray, " k"]
    selected: Float[np.ndarray, " V"]
    gradient: float
    failure: str | None


@dataclass(frozen=True)
class GlobalResolution(Solver):
    """Global Resolution (2511.15898) as published: truncated lists, enumeration, L-BFGS-B.

    Parameters
    ----------
    tau : float
        Truncation error of the lists, and unit of the stopping rule.
    caps : {"tight", "middle", "wide"}
        Limits on list and iterations; the paper does not state its own.
    masses : {"vertex", "clipped"}
        Target masses outside H: the paper's vertex of the polymatroid, or the clipped law, which
        is inside the polymatroid wherever it can be.
    gradient : {"enumeration", "integral"}
        How gradients are summed: over the listed sets of drafts, as published, or by the integral
        of docs/entropic-weights over all tokens, which needs no list and hence no cap on it. A
        token that is drafted twice then counts twice.
    realised : bool
        False outputs the selected token, as published, within 15 tau of the target. True puts it to
        the single-draft test at the law that the weights realise, which is lossless.
    """

    name: ClassVar[str] = "global-resolution"
    tau: float = 1e-4
    caps: Literal["tight", "middle", "wide"] = "wide"
    masses: Literal["vertex", "clipped"] = "vertex"
    gradient: Literal["enumeration", "integral"] = "enumeration"
    realised: bool = False

    def reason(self, problem: Problem) -> str | None:
        if not isinstance(problem.law, laws.IID):
            return f"{self.name} takes iid drafts only, not {problem.law.name}: use entropic."
        return None

    def answer(self, problem: Problem) -> Answer:
        q, p, n = problem.target, problem.law.probs, int(problem.n)
        cut = prefix.iid_optimum(q, p, n)[1]
        goal = vertex(q, p, n, cut)
        if self.masses == "clipped":
            goal = np.where(cut, 0.0, clipped_selection(q, p, n, cut).law)
        if self.gradient == "integral":
            outer = self._unlisted(problem.law, goal, ~cut, cut, reject=False)
            inner = self._unlisted(problem.law, q, cut, np.zeros_like(cut), reject=True)
        else:
            outer, inner = self._listed(goal, q, p, n, cut)
        plan = ResolutionPlan(
            problem,
            cut,
            goal,
            outer,
            inner,
            distinct=self.gradient == "enumeration",
            realised=self.realised,
        )
        return Answer(plan, cut, limited=plan.failure is not None)

    def _listed(
        self, goal: np.ndarray, q: np.ndarray, p: np.ndarray, n: int, cut: np.ndarray
    ) -> tuple[System, System]:
        """Both systems as published, on truncated lists."""
        order, inside = priority(q, p), float(p[cut].sum())
        # Unlisted mass m with 1 - (1 - m)^n = tau outside H, p(H)^n - (p(H) - m)^n = tau inside.
        most = -np.expm1(np.log1p(-self.tau) / n)
        least = max(inside**n - self.tau, 0.0) ** (1 / n)
        outer = self._system(goal, p, n, ~cut, most, inside, 0.0, order)
        inner = self._system(q, p, n, cut, inside - least, 0.0, 1.0, order)
        return outer, inner

    def _unlisted(
        self,
        law: laws.Law,
        goal: np.ndarray,
        domain: np.ndarray,
        beside: np.ndarray,
        *,
        reject: bool,
    ) -> System:
        """Weights on all drafted tokens of `domain`, gradients by the integral.

        Tokens of `beside` may be drafted too and are not selected.
        """
        from multidraft.solvers import entropic_descent as descent
        from multidraft.solvers.entropic_dual import STEP, Block
        from multidraft.solvers.entropic_laws import generating

        tokens, selected = np.flatnonzero(domain & (law.probs > 0)), np.zeros(law.vocabulary)
        if len(tokens) == 0:
            return System(tokens, np.empty(0), selected, 0.0, None)
        free = np.isin(np.arange(law.vocabulary), tokens)
        block = Block(generating(law), np.maximum(goal, 1e-300), free, beside, reject=reject)
        # Outside H total masses agree: what exceeds the goal is half of the gradient's norm.
        stop = STOP * self.tau * (1.0 if reject else 0.5)
        state = descent.State(block, descent.start(block))
        most = CAPS[self.caps].iterations
        state = descent.descend(block, state, tolerance=stop, most=most)
        selected[tokens] = block.at(state.logs, STEP / 2).marginals().numpy()
        gradient = float(state.gradient.abs().sum())
        return System(tokens, state.logs.numpy(), selected, gradient, self._late(gradient))

    def _late(self, gradient: float) -> str | None:
        """Why a descent that ended at this gradient has failed, or None."""
        if gradient <= STOP * self.tau:
            return None
        return f"the gradient is {gradient:.2g} after {CAPS[self.caps].iterations} iterations"

    def _system(
        self,
        goal: np.ndarray,
        p: np.ndarray,
        n: int,
        domain: np.ndarray,
        most: float,
        never: float,
        offset: float,
        order: np.ndarray,
    ) -> System:
        """Weights on the tokens of `domain` that give them the masses `goal`.

        Drafts of mass `never` may stand beside them and are not selected; `offset` is the weight of
        rejecting: 0 for Phi (outside H), 1 for Theta (inside H).
        """
        tokens = _longest(p, domain, most)
        logs, gradient, failure = self._descend(goal[tokens], p[tokens], never, offset, n)
        listed = np.zeros(len(p), dtype=bool)
        if failure is None:
            listed[tokens] = True
        rest = order[(domain & ~listed & (p > 0))[order]]
        selected = np.zeros(len(p))
        if failure is None and len(tokens):
            mass = drafted_sets.masses(p[tokens], never + float(p[rest].sum()), n)
            top = logs.max()
            weights = np.exp(logs - top)
            selected[tokens] = drafted_sets.log_sums(weights, offset * np.exp(-top), n, mass)[1]
        # Without a listed token the priority decides: the earlier ones lose to each later one.
        below = never + np.concatenate([[0.0], np.cumsum(p[rest])])
        selected[rest] = below[1:] ** n - below[:-1] ** n
        return System(tokens[listed[tokens]], logs[listed[tokens]], selected, gradient, failure)

    def _descend(
        self, goal: np.ndarray, p: np.ndarray, beside: float, offset: float, n: int
    ) -> tuple[np.ndarray, float, str | None]:
        """Minimise Phi_T or Theta_T; log-weights, the gradient's L1 norm there, failure."""
        caps = CAPS[self.caps]
        logs = np.clip(np.log(np.maximum(goal, 1e-300) / p), -_RANGE / 2, _RANGE / 2)
        if len(p) == 0:
            return logs, 0.0, None
        sets = drafted_sets.count(len(p), n)
        if len(p) > caps.tokens or sets > MOST_SETS:
            return logs, np.nan, f"the list has {len(p)} tokens and {sets:.2g} sets of drafts"
        mass = drafted_sets.masses(p, beside, n)
        best, gradient = logs, np.inf

        def value(logs: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best, gradient
            top = logs.max()  # weights relative to the largest; the shift comes back as its log
            weights = np.exp(logs - top)
            total, slopes = drafted_sets.log_sums(weights, offset * np.exp(-top), n, mass)
            if (norm := float(np.abs(slopes - goal).sum())) < gradient:
                best, gradient = logs.copy(), norm
            return total + top * mass.sum() - goal @ logs, slopes - goal

        def stop(_: np.ndarray) -> None:
            if gradient <= STOP * self.tau:
                raise StopIteration

        minimize(
            value,
            logs,
            jac=True,
            method="L-BFGS-B",
            callback=stop,
            bounds=[(-_RANGE, _RANGE)] * len(p),
            options={"maxiter": caps.iterations, "maxcor": 20, "ftol": 0.0, "gtol": 0.0},
        )
        return best, gradient, self._late(gradient)


def vertex(
    q: Float[np.ndarray, " V"], p: Float[np.ndarray, " V"], n: int, cut: Bool[np.ndarray, " V"]
) -> Float[np.ndarray, " V"]:
    r"""Target masses outside H: a vertex of the polymatroid, by one running minimum.

    Along the tokens outside H in increasing ``q/p``, with ``psi(j) = q(A_j) - p(A_j)^n`` of H and
    the first j of them and ``F(j) = min over j' >= j of psi(j')``, token j + 1 gets
    ``q + F(j) - F(j + 1)``.
    """
    order = priority(q, p)
    chain = order[~cut[order]]
    wanted = float(q[cut].sum()) + np.concatenate([[0.0], np.cumsum(q[chain])])
    drafted = float(p[cut].sum()) + np.concatenate([[0.0], np.cumsum(p[chain])])
    least = np.minimum.accumulate((wanted - drafted**n)[::-1])[::-1]
    masses = np.zeros(len(q))
    masses[chain] = np.maximum(q[chain] + least[:-1] - least[1:], 0.0)
    return masses


def _longest(p: np.ndarray, among: np.ndarray, most: float) -> Int[np.ndarray, " k"]:
    """Return the smallest list of tokens of a set that leaves out a mass of at most `most`."""
    ids = np.flatnonzero(among & (p > 0))
    ids = ids[np.argsort(-p[ids], kind="stable")]
    left = np.append(np.cumsum(p[ids][::-1])[::-1], 0.0)
    return ids[: int((left > most).sum())]


def priority(q: Float[np.ndarray, " V"], p: Float[np.ndarray, " V"]) -> Int[np.ndarray, " V"]:
    """Tokens in increasing ``q/p``: what decides a tuple without a listed token, the last one wins.

    The paper does not say; by this order such a tuple selects where the target is furthest ahead.
    """
    return np.argsort(np.where(p > 0, q / np.where(p > 0, p, 1.0), np.inf), kind="stable")


class ResolutionPlan(Plan):
    """Two systems of weights as a rule; every mass below is exact over all tuples.

    Parameters
    ----------
    problem : Problem
    cut : (V,) boolean, the set H.
    goal : (V,) masses that the outer system was asked for.
    outer, inner : System
    distinct : bool
        Whether a token that is drafted twice counts once.
    realised : bool
        Whether the selected token is tested; a failed run always is, since its masses are wrong.
    """

    def __init__(
        self,
        problem: Problem,
        cut: Bool[np.ndarray, " V"],
        goal: Float[np.ndarray, " V"],
        outer: System,
        inner: System,
        *,
        distinct: bool,
        realised: bool,
    ) -> None:
        self.problem, self.cut, self.goal, self.outer, self.inner = problem, cut, goal, outer, inner
        self.distinct = distinct
        self.realised = realised or self.failure is not None

    @property
    def failure(self) -> str | None:
        """Why the run counts as failed, or None."""
        return self.outer.failure or self.inner.failure

    @property
    def spread(self) -> float:
        """Largest less smallest log-weight outside H: what the masses of a vertex blow up."""
        return float(np.ptp(self.outer.logs)) if len(self.outer.logs) else 0.0

    @property
    def selection(self) -> Float[np.ndarray, " V"]:
        """Mass with which each token is selected; what is rejected inside H selects no token."""
        return self.outer.selected + self.inner.selected

    @cached_property
    def test(self) -> Float[np.ndarray, " V"]:
        """Probability that a selected token is output: 1 as published, else ``min(1, q / b)``."""
        if not self.realised:
            return np.ones(self.problem.vocabulary)
        b = self.selection
        return np.minimum(self.problem.target, b) / np.where(b > 0, b, 1.0)

    @property
    def kept(self) -> Float[np.ndarray, " V"]:
        return self.selection * self.test

    @cached_property
    def residual(self) -> Float[np.ndarray, " V"]:
        """What kept tokens leave of the target; as published, what they were meant to leave."""
        if self.realised:
            return super().residual
        left = np.where(self.cut, 0.0, np.maximum(self.problem.target - self.goal, 0.0))
        total = left.sum()
        return left / total if total > 0 else self.problem.target

    @cached_property
    def _weights(self) -> Float[np.ndarray, " V"]:
        weights = np.zeros(self.problem.vocabulary)
        if len(self.outer.tokens):
            weights[self.outer.tokens] = np.exp(self.outer.logs - self.outer.logs.max())
        weights[self.inner.tokens] = np.exp(self.inner.logs)
        return weights

    def keep(self, drafts: Int[np.ndarray, "M n"]) -> Float[np.ndarray, "M n"]:
        tokens = np.maximum(drafts, 0)
        fresh = (drafts >= 0) & ~(repeats(drafts) & self.distinct)
        inside = self.cut[tokens]
        leaves = (fresh & ~inside).any(-1, keepdims=True)
        active = fresh & (inside != leaves)
        weights = np.where(active, self._weights[tokens], 0.0)
        total = weights.sum(-1, keepdims=True)
        listed = weights / np.where(total > 0, total + np.where(leaves, 0.0, 1.0), 1.0)
        rank = np.where(active, self._rank[tokens], -1)
        last = (rank == rank.max(-1, keepdims=True)) & active
        return np.where(total > 0, listed, last) * take(
            np.tile(self.test, (len(drafts), 1)), drafts
        )

    @cached_property
    def _rank(self) -> Int[np.ndarray, " V"]:
        order = priority(self.problem.target, self.problem.law.probs)
        return np.argsort(order, kind="stable")

    def output_law(self) -> Float[np.ndarray, " V"]:
        """Law of the output token, in closed form at any vocabulary."""
        kept = self.kept
        return kept + max(1.0 - kept.sum(), 0.0) * self.residual

    @property
    def deviation(self) -> float:
        """L1 distance of the output law from the target; the paper bounds it by 15 tau."""
        return float(np.abs(self.output_law() - self.problem.target).sum())

    def violation(self) -> Float[np.ndarray, ""]:
        """Largest error of the output law in one token."""
        return np.asarray(np.abs(self.output_law() - self.problem.target).max())
