"""my-rule: lossless by enumeration, below the optimum, and a broken copy of it is found out."""

from __future__ import annotations

import numpy as np
import pytest
from jaxtyping import Float, Int
from torch import Tensor

import multidraft as md
from multidraft import laws, testing
from multidraft.templates.my_rule import MyRule, PreparedMyRule
from multidraft.verifiers.context import Context
from multidraft.verifiers.matrix import EDGES, PLAIN, law_of
from multidraft.verifiers.passes import Weights

RULE = MyRule()
TAKEN = [law for law in laws.names() if not RULE.refuses(law_of(law, PLAIN[1]))]


def problems(law: str, n: int) -> list[md.Problem]:
    """One context at a time: the plain one, the edges, and random ones with zeros."""
    generator = np.random.default_rng(n)
    pairs = [PLAIN, *EDGES]
    for tokens in (2, 3, 5):
        q, p = generator.dirichlet(np.full(tokens, 0.5), 2)
        p[generator.integers(tokens)] = 0.0
        pairs.append((q, p / p.sum()))
    return [md.Problem(q, law_of(law, p, n)) for q, p in pairs]


@pytest.mark.parametrize("law", TAKEN)
def test_the_output_has_the_law_of_the_target(law: str) -> None:
    for n in (2,) if law == "hub" else (1, 2, 3):
        for problem in problems(law, n):
            testing.assert_lossless(RULE, problem.law, problem.target)


@pytest.mark.parametrize("law", TAKEN)
def test_acceptance_is_at_most_the_optimum(law: str) -> None:
    for problem in problems(law, 2):
        acceptance = RULE.acceptance(problem)
        assert float(acceptance.tested) <= float(acceptance) + 1e-12
        assert float(acceptance) <= float(md.optimal_acceptance(problem)) + 1e-12


def test_every_check_of_the_project_passes() -> None:
    """Edges, two consecutive rounds of draws, rows that do not touch each other, acceptance."""
    testing.assert_sound(RULE)


class Broken(MyRule):
    """The same tests of the drafts, and a residual that ignores what they took."""

    def on(self, context: Context) -> PreparedMyRule:
        return PreparedBroken(context)


class PreparedBroken(PreparedMyRule):
    def terms(self, tokens: Int[Tensor, "M n"]) -> tuple[Float[Tensor, "M n"], Weights]:
        return super().terms(tokens)[0], Weights(self.context.target)


def test_a_broken_copy_is_found_out() -> None:
    target, draft = PLAIN
    law = law_of(TAKEN[0], draft)
    with pytest.raises(AssertionError, match="outputs token"):
        testing.assert_lossless(Broken(), law, target)
    assert not testing.check_sampler(testing.sampler(Broken()), target, law, 20_000).passed
