r"""Acceptance of a rule whose tests are exact but whose residual may hit a draft.

The output is a draft with probability

.. math:: \tau + \sum_x P(x)\,\big(1 - \textstyle\sum_k \mathrm{keep}_k(x)\big)\,
          \mathrm{residual}(S(x)) .

The second sum is listed where the tuples are few, else it is the mean over drawn tuples of its
exact terms. As y is drafted with probability ``hit(y)`` and some test fails with ``1 - tau``, it is
at most :math:`\sum_y \mathrm{residual}(y) \min(1 - \tau, \mathrm{hit}(y))`, and at least zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from multidraft.problem import Problem
from multidraft.verifiers.base import Acceptance, Prepared, fresh

_MOST_TUPLES = 50_000  # that are listed, per context


def acceptance(
    rows: Sequence[Prepared],
    problem: Problem,
    tested: Float[np.ndarray, "*batch"],
    samples: int,
    seed: int,
) -> Acceptance:
    """Acceptance of a rule, prepared for each context, whose tests' acceptance is known exactly."""
    contexts = [problem[i] for i in range(len(problem))] if problem.batch else [problem]
    parts = zip(rows, contexts, np.ravel(tested).tolist(), strict=True)
    found = [
        _one(prepared, context, mass, samples, np.random.default_rng([seed, i]))
        for i, (prepared, context, mass) in enumerate(parts)
    ]
    value, stderr, lower, upper = map(np.asarray, np.array(found).T.reshape(4, *problem.batch))
    exact = (lower == upper).all()
    return Acceptance(value, tested, "exact" if exact else "estimate", lower, upper, stderr)


def _one(
    prepared: Prepared,
    problem: Problem,
    tested: float,
    samples: int,
    generator: np.random.Generator,
) -> tuple[float, float, float, float]:
    if problem.law.tuple_count() <= _MOST_TUPLES:
        tuples, mass = problem.law.enumerate()
        value = tested + float(mass @ hits(prepared, torch.from_numpy(tuples)).numpy())
        return value, 0.0, value, value
    tokens = torch.from_numpy(problem.law.sample(samples, generator))
    drawn = hits(prepared, tokens).numpy()
    most = _most(prepared, tokens[:1], tested)
    return tested + drawn.mean(), drawn.std(ddof=1) / np.sqrt(samples), tested, tested + most


def hits(prepared: Prepared, tokens: Int[Tensor, "M n"]) -> Float[Tensor, " M"]:
    """Probability, given each tuple, that all tests fail and the residual token was drafted."""
    keep, residual = prepared.terms(tokens)
    found = residual.at(tokens).masked_fill(~fresh(tokens), 0.0).sum(-1)
    total = residual.total()
    share = found / torch.where(total > 0, total, 1.0)
    return (1 - keep.sum(-1)).clamp(min=0.0) * share


def _most(prepared: Prepared, tokens: Int[Tensor, "1 n"], tested: float) -> float:
    """Upper bound of the hits, for a residual that does not depend on the drafts."""
    law = prepared.terms(tokens)[1].law().numpy()[0]
    hit = 1 - np.prod([1 - part.numpy()[0] for part in prepared.context.drafts], axis=0)
    return float((law * np.minimum(1 - tested, hit)).sum())
