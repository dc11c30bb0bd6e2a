r"""Acceptance of a rule without a formula: a sum over the drafted tuples, or a mean over some.

Given the drafts x the output is one of them with probability

.. math:: \sum_k \mathrm{keep}_k(x)
          + \big(1 - \textstyle\sum_k \mathrm{keep}_k(x)\big)\,\mathrm{residual}(S(x)) .

Where the tuples are too many to be listed, both figures are means over drawn tuples of these exact
terms. What is certain then is only that a lossless rule does not exceed the optimum.
"""

from __future__ import annotations

import numpy as np
import torch

from multidraft.problem import Problem
from multidraft.verifiers.base import Acceptance, Rule
from multidraft.verifiers.residual_hits import hits

MOST_TUPLES = 50_000  # that are listed, per context
_SAMPLES = 2048
_SEED = 0


def acceptance(rule: Rule, problem: Problem) -> Acceptance:
    """Both acceptance figures of every context of a problem, without a formula."""
    contexts = [problem[i] for i in range(len(problem))] if problem.batch else [problem]
    found = [_one(rule, context, i) for i, context in enumerate(contexts)]
    parts = np.array(found).T.reshape(5, *problem.batch)
    value, tested, stderr, lower, upper = map(np.asarray, parts)
    exact = all(context.law.tuple_count() <= MOST_TUPLES for context in contexts)
    return Acceptance(value, tested, "exact" if exact else "estimate", lower, upper, stderr)


def _one(rule: Rule, problem: Problem, row: int) -> tuple[float, float, float, float, float]:
    """Value, tested, standard error, lower and upper end."""
    prepared = rule.prepare(problem.target, problem.law, check=False)
    listed = problem.law.tuple_count() <= MOST_TUPLES
    if listed:
        tuples, mass = problem.law.enumerate()
    else:
        tuples = problem.law.sample(_SAMPLES, np.random.default_rng([_SEED, row]))
        mass = np.full(_SAMPLES, 1 / _SAMPLES)
    tokens = torch.from_numpy(tuples)
    kept = prepared.terms(tokens)[0].sum(-1).numpy()
    drafted = kept + hits(prepared, tokens).numpy()
    value, tested = float(mass @ drafted), float(mass @ kept)
    if listed:
        return value, tested, 0.0, value, value
    from multidraft.api import optimal_acceptance

    stderr = float(drafted.std(ddof=1)) / _SAMPLES**0.5
    return value, tested, stderr, 0.0, max(value, float(optimal_acceptance(problem)))
