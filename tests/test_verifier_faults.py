"""Faults seen in public code, planted one by one, and which kind of test catches which.

Every fault is a deliberately wrong rule or sampler. Each is put to every kind of test:

one round    output law by enumeration, tolerance 1e-12
two rounds   `check_sampler` on few tokens, 20,000 sequences of two rounds
inputs       target, draft law and drafts are the same afterwards
edges        output law for p = q, laws one unit in the last place apart, one-hot and disjoint laws
sampler law  law of the draw itself, from a fine grid of uniforms, at V = 151,936
real laws    `check_sampler` at V = 49,152 on a recorded target and draft

The numbers in the names are those of the faults in the documentation. `EXPECTED` pins the whole
matrix, with the cells that do not catch a fault, and the test report prints it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import distinct_drafts
import numpy as np
import pytest
import torch
from matrices import cell
from torch import Tensor

import multidraft as md
from multidraft import laws, testing, traces, verifiers
from multidraft.problem import Problem
from multidraft.transform import probabilities
from multidraft.verifiers.base import Acceptance, Drafts, Prepared, Rule, fresh, in_turn, ratio
from multidraft.verifiers.context import Context
from multidraft.verifiers.passes import Weights, at

Terms = Callable[[Context, Tensor], tuple[Tensor, Weights]]
Array = np.ndarray

P3, Q3 = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.3, 0.5])
P4, Q4 = np.array([0.45, 0.35, 0.15, 0.05]), np.array([0.15, 0.25, 0.25, 0.35])


def same(law: laws.Law) -> laws.Law:
    return law


@dataclass(frozen=True)
class Wrong(Rule):
    """A rule that claims every law, with the terms and the drafting of a fault."""

    name: ClassVar[str] = "wrong"
    laws: ClassVar = (laws.Law,)
    terms: Terms = lambda context, tokens: single(context, tokens)
    drawn: Callable[[laws.Law], laws.Law] = same

    def on(self, context: Context) -> Prepared:
        return WrongPrepared(context, self.terms)

    def sample_drafts(self, target: Any, law: laws.Law, *, uniforms: Tensor) -> Drafts:
        return super().sample_drafts(target, self.drawn(law), uniforms=uniforms)

    def draft_draws(self, law: laws.Law) -> int:
        return self.drawn(law).draws

    def output_law(self, problem: Problem) -> Array:
        tuples, mass = self.drawn(problem.law).enumerate()
        prepared = self.prepare(problem.target, problem.law)
        return mass @ prepared.conditional(torch.from_numpy(tuples)).numpy()

    def _acceptance(self, problem: Problem) -> Acceptance:
        raise NotImplementedError


class WrongPrepared(Prepared):
    def __init__(self, context: Context, terms: Terms) -> None:
        super().__init__(context)
        self._terms = terms

    def terms(self, tokens: Tensor) -> tuple[Tensor, Weights]:
        return self._terms(self.context, tokens)


def single(context: Context, tokens: Tensor) -> tuple[Tensor, Weights]:
    """The right rule for one draft, which most faults spoil in one place."""
    q, p = context.target, context.draft
    return ratio(at(q, tokens), at(p, tokens)), Weights(q, p, context.ones())


def right(name: str) -> Terms:
    return lambda context, tokens: verifiers.get(name).on(context).terms(tokens)


# ------------------------------------------------------------------------------- faults of rules


def top_two(law: laws.Law) -> laws.Law:
    """Draws come from the two most probable tokens."""
    return laws.IID(cut(law.probs, 2), law.n)


def cut(probs: Any, k: int) -> Tensor:
    probs = torch.as_tensor(probs)
    kept = torch.zeros_like(probs).scatter(
        -1, order := probs.topk(k).indices, probs.gather(-1, order)
    )
    return kept / kept.sum(-1, keepdim=True)


def argmax(law: laws.Law) -> laws.Law:
    return laws.Top(law.probs, law.n)


def softmax_residual(context: Context, tokens: Tensor) -> tuple[Tensor, Weights]:
    keep, residual = single(context, tokens)
    return keep, Weights(torch.softmax(residual.dense(), -1))


def target_as_residual(context: Context, tokens: Tensor) -> tuple[Tensor, Weights]:
    return single(context, tokens)[0], Weights(context.target)


def draw_per_branch(context: Context, tokens: Tensor) -> tuple[Tensor, Weights]:
    """Every child is compared with a target draw of its own."""
    return in_turn(at(context.target, tokens)), Weights(context.target)


def every_test_against_the_target(context: Context, tokens: Tensor) -> tuple[Tensor, Weights]:
    """Later drafts are tested as if none had been rejected."""
    keep, residual = single(context, tokens)
    return in_turn(keep), residual


def repeats_skipped(context: Context, tokens: Tensor) -> tuple[Tensor, Weights]:
    """A draft that was rejected before is passed over, with its update of the residual."""
    q, p, new = context.target, context.draft, fresh(tokens)
    mass, factor, accept = context.ones().expand(len(tokens)), torch.zeros(len(tokens)), []
    for k in range(tokens.shape[-1]):
        x = tokens[:, k : k + 1]
        left = (at(q, x)[:, 0] - factor * at(p, x)[:, 0]).relu()
        accept.append(ratio(left, mass * at(p, x)[:, 0]) * new[:, k])
        factor = torch.where(new[:, k], factor + mass, factor).double()
        values, rows = factor.unique(return_inverse=True)
        mass = Weights(q, p, values).total()[rows]
    return in_turn(torch.stack(accept, -1)), Weights(q, p, factor)


def residual_by_position(context: Context, tokens: Tensor) -> tuple[Tensor, Weights]:
    """Both laws are lists of their top tokens; the i-th entries are subtracted, not equal ids."""
    q, p = context.target, context.draft
    size = int(min((q[0] > 0).sum(), (p[0] > 0).sum()))
    top = q.topk(size)
    left = (top.values - p.topk(size).values).relu()
    return single(context, tokens)[0], Weights(torch.zeros_like(q).scatter(-1, top.indices, left))


class Unguarded(Weights):
    def law(self) -> Tensor:
        weights = self.dense().double()
        return weights / weights.sum(-1, keepdim=True)


def no_guard(context: Context, tokens: Tensor) -> tuple[Tensor, Weights]:
    keep, right = single(context, tokens)
    return keep, Unguarded(right.target, right.draft, right.factor)


@dataclass(frozen=True)
class Clamped(Weights):
    floor: float = 0.0

    def dense(self) -> Tensor:
        return super().dense().clamp(min=self.floor)

    def draw(self, uniforms: Tensor, wanted: Tensor) -> Tensor:
        return torch.searchsorted(edges(self.dense())[0], uniforms.contiguous())


def edges(weights: Tensor) -> Tensor:
    cumulative = weights.double().cumsum(-1)
    return cumulative / cumulative[..., -1:]


def clamped(floor: float) -> Terms:
    def terms(context: Context, tokens: Tensor) -> tuple[Tensor, Weights]:
        keep, right = single(context, tokens)
        return keep, Clamped(right.target, right.draft, right.factor, floor=floor)

    return terms


# ----------------------------------------------------------------------- faults of samplers

Draw = Callable[[Tensor, Tensor], Tensor]  # weights (V,), uniforms (M,) -> tokens (M,)


def right_draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    return Weights(weights[None]).draw(uniforms, torch.ones(len(uniforms), dtype=torch.bool))


def clamped_draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    return torch.searchsorted(edges(weights.clamp(min=1e-5)), uniforms)


def slightly_clamped_draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    return torch.searchsorted(edges(weights.clamp(min=1e-8)), uniforms)


def half_multinomial(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Only one uniform is used: multinomial has its own generator."""
    torch.manual_seed(int(uniforms[0] * 2**40))
    half = weights.half()
    chunks = [half.expand(min(500, len(uniforms) - i), -1) for i in range(0, len(uniforms), 500)]
    return torch.cat([torch.multinomial(chunk, 1)[:, 0] for chunk in chunks])


def short_cumulative(weights: Tensor, uniforms: Tensor) -> Tensor:
    """The sum of float32 entries, added one by one, ends away from 1."""
    cumulative = torch.from_numpy(np.add.accumulate(weights.float().numpy()))
    return torch.searchsorted(cumulative, uniforms.float(), right=True).clamp(max=len(weights) - 1)


def draws_with(draw: Draw) -> testing.Sampler:
    """Naive sampling from the target with this draw."""

    def sample(target: Any, law: laws.Law, seeds: Array) -> Array:
        return draw(torch.as_tensor(target), md.uniforms(seeds, 1)[:, 0]).numpy()

    return sample


class Reused:
    """Randomness of a round is kept and used again in the next one."""

    def __init__(self) -> None:
        self.seeds: Array | None = None

    def __call__(self, target: Any, law: laws.Law, seeds: Array) -> Array:
        again, self.seeds = self.seeds, seeds if self.seeds is None else None
        return sampler_of("rrsw")(target, law, seeds if again is None else again)


def one_stream(target: Any, law: laws.Law, seeds: Array) -> Array:
    """Drafts and verification take the same uniforms."""
    rule = verifiers.get("rrs")
    drafts = rule.sample_drafts(target, law, uniforms=md.uniforms(seeds, law.draws))
    return rule.verify(
        target, law, drafts, uniforms=md.uniforms(seeds, 2), check=False
    ).token.numpy()


def mutating(target: Any, law: laws.Law, seeds: Array) -> Array:
    """The caller's target becomes the residual."""
    tokens = testing.sampler("single")(target, law, seeds)
    left = np.maximum(target - law.probs, 0)
    target[...] = left / left.sum()
    return tokens


# ---------------------------------------------------------------------------------- the matrix


@dataclass(frozen=True)
class Fault:
    """One planted fault.

    Attributes
    ----------
    rule : the wrong rule, or None for a fault of a sampler
    instance : target, draft law; on it the fault shows
    law : the same kind of draft law on any draft probabilities
    sampler : the black box; the rule's by default
    draw : the wrong draw, for faults of the draw itself
    real_draws : sequences on real laws
    """

    rule: Rule | None
    instance: tuple[Array, Array]
    law: Callable[[Any], laws.Law]
    sampler: Callable[[], testing.Sampler] | None = None
    draw: Draw = right_draw
    real_draws: int = 8000

    def black_box(self) -> testing.Sampler:
        if self.sampler is not None:
            return self.sampler()
        assert self.rule is not None
        return sampler_of(self.rule)


def sampler_of(rule: Rule | str) -> testing.Sampler:
    """The sampler of a rule; distinct drafts from many tokens are drawn in a fast way."""
    fast, usual = distinct_drafts.sampler(rule), testing.sampler(rule)

    def sample(target: Any, law: laws.Law, seeds: Array) -> Array:
        many = isinstance(law, laws.WithoutReplacement) and law.vocabulary > 1000
        return (fast if many else usual)(target, law, seeds)

    return sample


def iid(n: int) -> Callable[[Any], laws.Law]:
    return lambda p: laws.IID(p, n)


def distinct(n: int) -> Callable[[Any], laws.Law]:
    return lambda p: laws.WithoutReplacement(p, n, short="pad")


def top(n: int) -> Callable[[Any], laws.Law]:
    return lambda p: laws.Top(p, n, short="pad")


TRUNCATED = np.array([0.5, 0.3, 0, 0, 0, 0.2]), np.array([0.5, 0, 0.4, 0, 0, 0.1])
HALVES = np.array([0.5, 0.5]), np.array([0.5, 0.5])

FAULTS: dict[str, Fault] = {
    "0 none: rrs": Fault(Wrong(right("rrs")), (Q4, P4), iid(3)),
    "0 none: single": Fault(Wrong(), (Q3, P3), iid(1)),
    "1 drafts from top 2, verified untruncated": Fault(
        Wrong(drawn=top_two),
        (np.array([0.25, 0.35, 0.25, 0.15]), np.array([0.3, 0.3, 0.2, 0.2])),
        iid(1),
    ),
    "2 argmax verified as a sample": Fault(Wrong(drawn=argmax), (Q3, P3), iid(1)),
    "3 softmax of the residual": Fault(Wrong(softmax_residual), (Q3, P3), iid(1)),
    "3 residual is the target": Fault(Wrong(target_as_residual), (Q3, P3), iid(1)),
    "4 a target draw per branch": Fault(Wrong(draw_per_branch), HALVES, top(2)),
    "5 every test against the target": Fault(
        Wrong(every_test_against_the_target), (np.array([0.5, 0.5]), np.array([1.0, 0.0])), iid(2)
    ),
    "6 distinct drafts verified as iid": Fault(
        Wrong(right_rrs := right("rrs")), (Q4, P4), distinct(2)
    ),
    "6 repeated drafts skipped": Fault(Wrong(repeats_skipped), (Q4, P4), iid(2)),
    "7 randomness reused in the next round": Fault(
        Wrong(right("rrsw")), (Q4, P4), distinct(2), sampler=Reused
    ),
    "7 drafts and tests share uniforms": Fault(
        Wrong(right_rrs), (Q4, P4), iid(2), sampler=lambda: one_stream
    ),
    "8 inputs mutated": Fault(Wrong(), (Q4, P4), iid(1), sampler=lambda: mutating),
    "9 zero residual divided by zero": Fault(Wrong(no_guard), (Q3, P3), iid(1)),
    "10 residual clamped at 1e-5": Fault(Wrong(clamped(1e-5)), (Q3, P3), iid(1), draw=clamped_draw),
    "10 residual clamped at 1e-8": Fault(
        Wrong(clamped(1e-8)), (Q3, P3), iid(1), draw=slightly_clamped_draw
    ),
    "11 multinomial in half precision": Fault(
        None,
        (Q3, P3),
        iid(1),
        sampler=lambda: draws_with(half_multinomial),
        draw=half_multinomial,
        real_draws=800,
    ),
    "12 missing mass to the last token": Fault(
        None, (Q3, P3), iid(1), sampler=lambda: draws_with(short_cumulative), draw=short_cumulative
    ),
    "13 residual by position": Fault(Wrong(residual_by_position), TRUNCATED, iid(1)),
}


def caught_in_one_round(fault: Fault) -> bool | None:
    if fault.rule is None:
        return None
    q, p = fault.instance
    try:
        testing.assert_lossless(fault.rule, fault.law(p), q)
    except AssertionError:
        return True
    return False


def caught_at_edges(fault: Fault) -> bool | None:
    if fault.rule is None:
        return None
    from multidraft.verifiers.matrix import EDGES

    try:
        for q, p in EDGES:
            testing.assert_lossless(fault.rule, fault.law(p), q)
    except AssertionError:
        return True
    return False


def caught_in_two_rounds(fault: Fault) -> bool:
    q, p = fault.instance
    return not testing.check_sampler(fault.black_box(), q.copy(), fault.law(p), 20_000).passed


def caught_by_inputs(fault: Fault) -> bool:
    q, p = (part.copy() for part in fault.instance)
    law = fault.law(p)
    fault.black_box()(q, law, np.arange(50))
    return not (np.array_equal(q, fault.instance[0]) and np.array_equal(p, fault.instance[1]))


def caught_by_the_sampler_law(fault: Fault) -> bool:
    """Compare counts over a fine grid of uniforms with the law, on three laws of many tokens."""
    return not all(is_sampled(fault.draw, law) for law in many_tokens())


@cache
def many_tokens() -> tuple[Tensor, ...]:
    size = 151_936
    one_hot = torch.zeros(size, dtype=torch.float64).scatter(0, torch.tensor(77), 1.0)
    flat = torch.zeros(size, dtype=torch.float64)
    flat[:50_000] = 1 / 50_000
    few = torch.zeros(size, dtype=torch.float64)
    few[::1000] = torch.softmax(torch.linspace(-8, 0, 152, dtype=torch.float64), -1)
    return one_hot, flat, few


def is_sampled(draw: Draw, law: Tensor, points: int = 3000) -> bool:
    """Whether each point of the grid finds the token whose interval it lies in, up to round-off."""
    if draw is half_multinomial:  # takes no uniforms: judged by the support, on the one-hot law
        one_hot = many_tokens()[0]
        return law is not one_hot or bool(
            (one_hot[draw(one_hot, torch.full((1500,), 0.3))] > 0).all()
        )
    uniforms = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    tokens = draw(law, uniforms)
    above = law.cumsum(-1)
    inside = (uniforms >= (above - law)[tokens] - 1e-9) & (uniforms <= above[tokens] + 1e-9)
    return bool((inside & (law[tokens] > 0)).all())


@cache
def real_laws() -> tuple[Array, Array]:
    trace = traces.frozen()
    logits = np.stack([trace.target[3], trace.drafts[0, 3]]).astype(np.float64)
    q, p = md.normalise(probabilities(logits, top_k=2000))
    return q, p


def caught_on_real_laws(fault: Fault, draws: int | None = None) -> bool:
    q, p = real_laws()
    draws = draws or fault.real_draws
    return not testing.check_sampler(fault.black_box(), q.copy(), fault.law(p), draws).passed


KINDS: dict[str, Callable[[Fault], bool | None]] = {
    "one round": caught_in_one_round,
    "two rounds": caught_in_two_rounds,
    "inputs": caught_by_inputs,
    "edges": caught_at_edges,
    "sampler law": caught_by_the_sampler_law,
    "real laws": caught_on_real_laws,
}


# One letter per kind, in their order: x caught, . not caught, blank: the kind does not apply.
EXPECTED = {
    "0 none: rrs": "......",
    "0 none: single": "......",
    "1 drafts from top 2, verified untruncated": "xx.x.x",
    "2 argmax verified as a sample": "xx.x.x",
    "3 softmax of the residual": "xx.x.x",
    "3 residual is the target": "xx.x.x",
    "4 a target draw per branch": "xx.x.x",
    "5 every test against the target": "xx.x.x",
    "6 distinct drafts verified as iid": "xx....",
    "6 repeated drafts skipped": "xx....",
    "7 randomness reused in the next round": ".x...x",
    "7 drafts and tests share uniforms": ".x...x",
    "8 inputs mutated": ".xx..x",
    "9 zero residual divided by zero": "...x..",
    "10 residual clamped at 1e-5": "x..xxx",
    "10 residual clamped at 1e-8": "x..xxx",
    "11 multinomial in half precision": " .. xx",
    "12 missing mass to the last token": " .. xx",
    "13 residual by position": "xx.x.x",
}
SIGNS = {True: "x", False: ".", None: " "}


@pytest.mark.parametrize("name", FAULTS)
def test_kinds_that_catch_a_fault(name: str, record_property):
    signs = {kind: SIGNS[caught(FAULTS[name])] for kind, caught in KINDS.items()}
    for kind, sign in signs.items():
        cell(record_property, "fault x kind of test (x: caught)", name, kind, sign)
    assert "".join(signs.values()) == EXPECTED[name]


def test_every_fault_is_caught_and_no_right_rule_is():
    assert set(EXPECTED) == set(FAULTS)
    for number in range(1, 14):
        found = [signs for name, signs in EXPECTED.items() if name.split()[0] == str(number)]
        assert found and all("x" in signs for signs in found)
    assert all("x" not in signs for name, signs in EXPECTED.items() if name.startswith("0 "))


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in FAULTS if not name.startswith("11")])
def test_a_million_draws_on_real_laws(name: str):
    assert SIGNS[caught_on_real_laws(FAULTS[name], 1_000_000)] == EXPECTED[name][-1]


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("2 argmax verified as a sample", [1 / 3, 0, 2 / 3]),
        ("3 residual is the target", [0.28, 0.42, 0.30]),
        ("5 every test against the target", [0.75, 0.25]),
        ("4 a target draw per branch", [0.625, 0.375]),
        ("13 residual by position", [0.5, 0, 0, 0, 0, 0.5]),
    ],
)
def test_output_laws_of_faults_worked_out_by_hand(name: str, law: list[float]):
    fault = FAULTS[name]
    assert fault.rule is not None
    q, p = fault.instance
    assert np.abs(fault.rule.output_law(Problem(q, fault.law(p))) - law).max() < 1e-14


@pytest.mark.parametrize(
    ("name", "distance"),
    [
        ("1 drafts from top 2, verified untruncated", 0.36),
        ("3 softmax of the residual", 0.23),
        ("6 distinct drafts verified as iid", 0.037),
        ("6 repeated drafts skipped", 0.021),
    ],
)
def test_distances_of_faults(name: str, distance: float):
    fault = FAULTS[name]
    assert fault.rule is not None
    q, p = fault.instance
    output = fault.rule.output_law(Problem(q, fault.law(p)))
    assert np.abs(output - q).sum() / 2 == pytest.approx(distance, abs=0.005)


def test_reused_randomness_couples_the_rounds():
    """Each round is exact, and yet the second never repeats the first of the tokens."""
    sample, law = Reused(), md.WithoutReplacement(P4, 2)
    first, second = (sample(Q4, law, np.arange(4000) + k) for k in (0, 4000))
    assert np.array_equal(first, second)


def test_a_good_sampler_is_passed_with_the_stated_power():
    verdict = testing.check_sampler(testing.sampler("rrs"), Q4, md.IID(P4, 2), 20_000)
    assert verdict.passed and verdict.detects < 0.04

    def moved(target: Any, law: laws.Law, seeds: Array) -> Array:
        """An error of the size that is promised to be found: token 0 becomes token 3."""
        tokens = testing.sampler("rrs")(target, law, seeds)
        change = md.uniforms(seeds, 1, stream=9)[:, 0].numpy() < verdict.detects / Q4[0]
        return np.where((tokens == 0) & change, 3, tokens)

    assert not testing.check_sampler(moved, Q4, md.IID(P4, 2), 20_000).passed


def test_false_alarms_are_as_rare_as_promised():
    """At level 0.2 a lossless sampler may fail in a fifth of all runs; exact tests stay below."""
    draw, law = draws_with(right_draw), md.IID(P4, 1)
    runs = [testing.check_sampler(draw, Q4, law, 500, 0.2, seed=9000 * k) for k in range(60)]
    assert sum(not run.passed for run in runs) <= 19  # 12 expected at most, 3 standard deviations


def test_a_sampler_that_returns_nonsense_is_named():
    def shape(target: Any, law: laws.Law, seeds: Array) -> Array:
        return np.zeros((len(seeds), 2), dtype=np.int64)

    def range_(target: Any, law: laws.Law, seeds: Array) -> Array:
        return np.full(len(seeds), 7)

    with pytest.raises(md.InputError, match=r"returned shape \(50, 2\) for 50 seeds"):
        testing.check_sampler(shape, Q4, md.IID(P4, 1), 50)
    with pytest.raises(md.InputError, match="returned token 7 of 4"):
        testing.check_sampler(range_, Q4, md.IID(P4, 1), 50)
