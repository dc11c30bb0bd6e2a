"""The matrix rule x draft law x check, computed on a few small instances.

``multidraft methods --verifiers`` and the test report print it. Every cell is one of

* ``ok`` or ``FAIL``;
* ``-``: the check does not exist for this rule.

Pairs that a rule refuses are left out: refusing is how a rule stays lossless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from multidraft import laws, testing, verifiers
from multidraft.api import optimal_acceptance
from multidraft.problem import Problem
from multidraft.verifiers.base import Rule
from multidraft.verifiers.randomness import uniforms

# L1 error of the output law that a rule states for itself; every other rule is exact to 1e-12.
STATED = {"entropic": 1e-10, "global-resolution": 15e-4}  # 15 tau, as published
EXACT = 1e-12

_P, _Q = np.array([0.45, 0.35, 0.15, 0.05]), np.array([0.15, 0.25, 0.25, 0.35])
_NEXT = _Q.copy()
_NEXT[:2] = np.nextafter(_Q[0], 1), np.nextafter(_Q[1], 0)

# Target and draft: the plain one, then the edges.
PLAIN = (_Q, _P)
EDGES = (
    (_Q, _Q),
    (_Q, _NEXT),
    (np.array([0.0, 1.0, 0.0]), np.array([0.6, 0.3, 0.1])),
    (np.array([0.6, 0.3, 0.1]), np.array([0.0, 1.0, 0.0])),
    (np.array([0.5, 0.5, 0.0, 0.0]), np.array([0.0, 0.0, 0.5, 0.5])),
)


def law_of(name: str, p: Float[np.ndarray, "*batch V"], n: Any = 2) -> laws.Law:
    """Return the draft law of this name on p; further laws and tables are made from p."""
    if name == "independent":
        return laws.Independent([np.roll(p, k, axis=-1) for k in range(n)])
    if name == "explicit":
        tuples, mass = laws.IID(p, n).enumerate()
        weights = mass * (1 + np.arange(len(mass)) % 3)
        return laws.Explicit(tuples, weights / weights.sum(), vocabulary=len(p))
    return laws.make({"law": name, "n": n, "short": "pad"}, p)


def rows(rules: Iterable[Rule | str] | None = None) -> list[dict[str, str]]:
    """One row per rule and draft law it takes, one cell per check.

    Parameters
    ----------
    rules : iterable of rules or their names, optional
        All registered rules by default; a rule need not be registered.

    Examples
    --------
    >>> for row in rows(["rrs"]):
    ...     print(" ".join(row.values()))
    rrs iid ok ok ok ok ok
    rrs independent ok ok ok ok ok
    """
    found = []
    for rule in map(testing.as_rule, rules or verifiers.names()):
        for law in laws.names():
            n = 1 if rule.name == "single" else 2
            if (law == "hub" and n == 1) or rule.refuses(law_of(law, _P, n)):
                continue
            cells = {check: test(rule, law, n) for check, test in CHECKS.items()}
            found.append({"rule": rule.name, "law": law, **cells})
    return found


def _says(good: bool | None) -> str:
    return "-" if good is None else "ok" if good else "FAIL"


def _one_round(rule: Rule, law: str, n: int) -> str:
    """Output law by enumeration."""
    return _says(_lossless(rule, law, n, [PLAIN]))


def _edges(rule: Rule, law: str, n: int) -> str:
    """The same for equal laws, laws one unit in the last place apart, one-hot and disjoint laws."""
    return _says(_lossless(rule, law, n, EDGES))


def _lossless(rule: Rule, law: str, n: int, instances: Iterable[Any]) -> bool | None:
    if rule.name == "gls":
        return None
    problems = [Problem(q, law_of(law, p, n)) for q, p in instances]
    errors = [np.abs(rule.output_law(problem) - problem.target).sum() for problem in problems]
    return bool(max(errors) <= STATED.get(rule.name, EXACT))


def _two_rounds(rule: Rule, law: str, n: int) -> str:
    """Two consecutive rounds, statistically, at a false-alarm rate of 1e-6."""
    q, p = PLAIN
    return _says(testing.check_sampler(testing.sampler(rule), q, law_of(law, p, n), 20_000).passed)


def _batch(rule: Rule, law: str, n: int) -> str:
    """A row's outcome does not depend on the other rows; inputs stay as they were."""
    seeds = np.arange(6)
    q, p = PLAIN
    target = np.stack([np.roll(q, i % 3) for i in seeds])
    draft = law_of(law, p, n)
    if law != "explicit":  # a table has no batch
        draft = law_of(law, np.stack([np.roll(p, i % 2) for i in seeds]), n)
    before = target.copy(), np.copy(draft.probs)
    drafts = _drawn(rule, target if draft.batch else target[0], draft, seeds)
    whole = rule.verify(target, draft, drafts, uniforms=uniforms(seeds, rule.draws(n)))
    same = []
    for i in (3, 5):
        one = draft[i] if draft.batch else draft
        noise = None if drafts.noise is None else drafts.noise[i : i + 1]
        row = verifiers.Drafts(drafts.tokens[i : i + 1], noise)
        alone = rule.verify(target[i], one, row, uniforms=uniforms([i], rule.draws(n)))
        same.append(int(alone.token) == int(whole.token[i]))
    kept = np.array_equal(before[0], target) and np.array_equal(before[1], draft.probs)
    again = _drawn(rule, target if draft.batch else target[0], draft, seeds)
    return _says(all(same) and kept and torch.equal(again.tokens, drafts.tokens))


def _drawn(rule: Rule, target: Any, law: laws.Law, seeds: np.ndarray) -> verifiers.Drafts:
    chosen = uniforms(seeds, rule.draft_draws(law), stream=1)
    return rule.sample_drafts(target, law, uniforms=chosen)


def _acceptance(rule: Rule, law: str, n: int) -> str:
    """The acceptance that is reported against enumeration, and below the optimum."""
    if rule.name == "gls":
        return _says(None)
    q, p = PLAIN
    problem = Problem(q, law_of(law, p, n))
    tuples, mass = problem.law.enumerate()
    conditional = rule.prepare(q, problem.law).conditional(torch.from_numpy(tuples)).numpy()
    hit = [law[sorted(set(x))].sum() for x, law in zip(tuples, conditional, strict=True)]
    found, error = rule.acceptance(problem), STATED.get(rule.name, EXACT)
    inside = found.lower - error <= mass @ np.array(hit) <= found.upper + error
    return _says(bool(inside) and float(found) <= float(optimal_acceptance(problem)) + error)


CHECKS: dict[str, Callable[[Rule, str, int], str]] = {
    "one round": _one_round,
    "edges": _edges,
    "two rounds": _two_rounds,
    "batch": _batch,
    "acceptance": _acceptance,
}
