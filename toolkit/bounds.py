r"""Named bounds on the optimum: cheap numbers that papers compare with, at full vocabulary.

Each says which side it bounds, for which draft laws, and where it comes from. Sweeps and plots take
them by name. Every bound is of the optimal acceptance, but for ``truncation-loss``, which bounds
what truncated importance sampling loses against it.

Examples
--------
>>> import multidraft as md
>>> problem = md.Problem([0.2, 0.3, 0.5], md.IID([0.6, 0.3, 0.1], n=2))
>>> for bound in md.bounds.evaluate(problem):
...     print(f"{bound.name:16} {bound.side:5} {float(bound.value):.4f}")
single-draft     lower 0.6000
union            upper 1.0000
k-seq            lower 0.5250
list-coupling    lower 0.6167
target-support   upper 1.0000
draft-support    upper 1.0000
truncation-loss  upper 0.0000
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float

from multidraft import checks, laws
from multidraft.arrays import largest, take
from multidraft.errors import Refused
from multidraft.problem import Problem

Side: TypeAlias = Literal["lower", "upper"]
Value: TypeAlias = np.ndarray | np.float64  # of the batch shape; one context makes it a scalar

# Tokens inside which truncated importance sampling optimises (Khisti et al.'s default).
TRUNCATION = 5


@dataclass(frozen=True)
class Bound:
    """One bound, evaluated.

    Attributes
    ----------
    name : str
    side : "lower" or "upper"
    of : what is bounded.
    law : draft laws that it holds for.
    value : array of the problem's batch shape.
    source : paper or argument.
    """

    name: str
    side: Side
    of: str
    law: str
    value: Float[np.ndarray, "*batch"]
    source: str


@dataclass(frozen=True)
class _Rule:
    side: Side
    law: str
    takes: Callable[[laws.Law], bool]
    value: Callable[[Problem], Value]
    source: str
    of: str = "optimal acceptance"


def names() -> tuple[str, ...]:
    """Names of all bounds."""
    return tuple(_RULES)


def describe(name: str) -> str:
    """Side, what is bounded, draft laws and source of a bound, in one line."""
    rule = _RULES[checks.choice(name, _RULES, "bound")]
    return f"{rule.side} bound of the {rule.of}, for {rule.law}: {rule.source}"


def losses() -> tuple[str, ...]:
    """Names of the bounds of a loss, which are not to be compared with acceptances."""
    return tuple(name for name, rule in _RULES.items() if rule.of.startswith("loss"))


def available(problem: Problem) -> tuple[str, ...]:
    """Names of the bounds that hold for the problem's draft law."""
    return tuple(name for name, rule in _RULES.items() if rule.takes(problem.law))


def get(name: str, problem: Problem) -> Bound:
    """Evaluate one bound.

    Raises
    ------
    InputError
        An unknown name.
    Refused
        The bound does not hold for the problem's draft law.
    """
    rule = _RULES[checks.choice(name, _RULES, "bound")]
    if not rule.takes(problem.law):
        raise Refused(f"{name} holds for {rule.law}, not for {problem.law.name} drafts.")
    value = np.broadcast_to(rule.value(problem), problem.batch)
    return Bound(name, rule.side, rule.of, rule.law, value, rule.source)


def evaluate(problem: Problem) -> list[Bound]:
    """Evaluate every bound that holds for the problem's draft law."""
    return [get(name, problem) for name in available(problem)]


# ------------------------------------------------------------------------------------- formulas


def _overlap(problem: Problem) -> Value:
    """``sum min(q, p)``; over several draft laws the best of them."""
    parts = problem.law.parts if isinstance(problem.law, laws.Independent) else [problem.law.probs]
    overlaps = [np.minimum(problem.target, part).sum(-1) for part in parts]
    return np.max(np.stack(np.broadcast_arrays(*overlaps)), axis=0)


def _union(problem: Problem) -> Value:
    """``min(1, sum_i alpha_1(p_i))``, for identical drafts ``min(1, n alpha_1)``."""
    if not isinstance(problem.law, laws.Independent):
        return np.minimum(1.0, problem.n * _overlap(problem))
    overlaps = [np.minimum(problem.target, part).sum(-1) for part in problem.law.parts]
    return np.minimum(1.0, sum(overlaps, start=np.zeros(problem.batch)))


def _k_seq(problem: Problem) -> Value:
    """``(1 - (1 - 1/n)^n) sum min(q, n p)``: K-SEQ at ratio n accepts at least this.

    With ``x = sum min(q / n, p) <= 1/n`` it accepts ``1 - (1 - x)^n``, concave in x and linear
    interpolation from 0 to 1/n below it; ``sum min(q, n p)`` is an upper bound on the optimum.
    """
    n = np.asarray(problem.n, dtype=np.float64)
    covered = np.minimum(problem.target, n[..., None] * problem.law.probs).sum(-1)
    return (1 - (1 - 1 / n) ** n) * covered


def _list_coupling(problem: Problem) -> Value:
    """``sum_j n / sum_i [max(q_i / q_j, p_i / p_j) + (n - 1) q_i / q_j]``, in O(V log V).

    The larger of the two ratios is the target's exactly when ``q_i / p_i >= q_j / p_j``, so after
    one sort the inner sum is two running sums.
    """
    shape = (*problem.batch, problem.vocabulary)
    q, p = problem.target, np.broadcast_to(problem.law.probs, shape)
    n = np.broadcast_to(problem.law.counts, problem.batch)[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(np.where(p > 0, q / p, np.inf), axis=-1, kind="stable")
    q, p = (np.take_along_axis(law, order, axis=-1) for law in (q, p))
    rising, below = np.cumsum(q[..., ::-1], axis=-1)[..., ::-1], np.cumsum(p, axis=-1) - p
    matched = (q > 0) & (p > 0)
    q, p = np.where(matched, q, 1.0), np.where(matched, p, 1.0)
    terms = n / ((rising + (n - 1) * problem.target.sum(-1)[..., None]) / q + below / p)
    return np.where(matched, terms, 0.0).sum(-1)


def _target_support(problem: Problem) -> Value:
    """``1 - stay(H)`` for H the tokens outside the target's support."""
    return problem.law.hit(problem.target > 0)


def _draft_support(problem: Problem) -> Value:
    """Target mass of the tokens that can be drafted at all."""
    return np.where(_drafted(problem.law), problem.target, 0.0).sum(-1)


def _drafted(law: laws.Law) -> Bool[np.ndarray, "*batch V"]:
    if isinstance(law, laws.Independent):
        return np.any(
            [np.broadcast_to(part > 0, (*law.batch, law.vocabulary)) for part in law.parts], axis=0
        )
    if isinstance(law, laws.Explicit):
        drafted = law.tuples[law.probs > 0]
        return np.isin(np.arange(law.vocabulary), drafted)
    if isinstance(law, laws.SureAndLast):
        sure = np.arange(law.vocabulary) == law.sure()[..., None]
        return sure.any(-2) | (law.last() > 0)
    return law.probs > 0


def _truncation_loss(problem: Problem) -> Value:
    """``sum (q - p_1 p_2)+`` over the tokens outside the first `TRUNCATION` in that order."""
    law = problem.law
    first, second = law.parts if isinstance(law, laws.Independent) else (law.probs, law.probs)
    wanted = problem.target - first * second
    kept = largest(wanted, TRUNCATION)
    return np.maximum(wanted, 0.0).sum(-1) - np.maximum(take(wanted, kept), 0.0).sum(-1)


def _identical(law: laws.Law) -> bool:
    return isinstance(law, laws.IID)


def _product(law: laws.Law) -> bool:
    return isinstance(law, laws.IID | laws.Independent)


def _first_from_p(law: laws.Law) -> bool:
    return isinstance(law, laws.IID | laws.Independent | laws.WithoutReplacement | laws.Hub)


def _two_products(law: laws.Law) -> bool:
    return _product(law) and isinstance(law.n, int) and law.n == 2


def _any(law: laws.Law) -> bool:
    return True


_RULES: dict[str, _Rule] = {
    "single-draft": _Rule(
        "lower",
        "laws with a draft from p: iid, independent, without replacement, hub",
        _first_from_p,
        _overlap,
        "speculative sampling with that draft alone (2211.17192)",
    ),
    "union": _Rule(
        "upper",
        "iid and independent drafts",
        _product,
        _union,
        "union bound over the drafts",
    ),
    "k-seq": _Rule(
        "lower",
        "iid drafts",
        _identical,
        _k_seq,
        "guarantee of K-SEQ, 1 - (1 - 1/n)^n of sum min(q, n p) and so of the optimum (2310.15141)",
    ),
    "list-coupling": _Rule(
        "lower",
        "iid drafts",
        _identical,
        _list_coupling,
        "list coupling by exponential races (2506.05632)",
    ),
    "target-support": _Rule(
        "upper",
        "every draft law",
        _any,
        _target_support,
        "tuples outside the target's support are never accepted",
    ),
    "draft-support": _Rule(
        "upper",
        "every draft law",
        _any,
        _draft_support,
        "tokens outside the draft's support are never accepted",
    ),
    "truncation-loss": _Rule(
        "upper",
        "two iid or independent drafts",
        _two_products,
        _truncation_loss,
        f"importance sampling inside {TRUNCATION} tokens (2410.18234)",
        of="loss of truncated importance sampling",
    ),
}
