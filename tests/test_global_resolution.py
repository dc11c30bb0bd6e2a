"""Global Resolution as published: its sums, its bounds, and what its failures output."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import multidraft as md
from multidraft.errors import Refused
from multidraft.solution import Plan, Status
from multidraft.solvers import drafted_sets
from multidraft.solvers.global_resolution import ResolutionPlan, vertex

P4 = np.array([0.45, 0.35, 0.15, 0.05])
Q4 = np.array([0.15, 0.25, 0.25, 0.35])


def resolution(problem: md.Problem, **options: object) -> ResolutionPlan:
    plan = md.solve(problem, "global-resolution", **options).plan
    assert isinstance(plan, ResolutionPlan)
    return plan


def small_problems(count: int = 40):
    rng = np.random.default_rng(11)
    for trial in range(count):
        size, n = int(rng.integers(1, 7)), int(rng.integers(1, 5))
        p, q = rng.dirichlet(np.full(size, 0.7)), rng.dirichlet(np.full(size, 0.7))
        yield md.Problem(p if trial % 5 == 0 else q, md.IID(p, n))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_masses_and_sums_over_sets_equal_enumeration(n):
    rng = np.random.default_rng(n)
    full = rng.dirichlet(np.ones(6))
    listed, rest = full[:4], float(full[4:].sum())
    want: dict[tuple[int, ...], float] = {}
    for x in itertools.product(range(5), repeat=n):
        drafted = tuple(sorted(set(x) - {4}))
        mass = float(np.prod([rest if token == 4 else listed[token] for token in x]))
        want[drafted] = want.get(drafted, 0.0) + mass
    # Tuples of token ids sort like the depth-first walk.
    order = sorted(drafted for drafted in want if drafted)
    mass = drafted_sets.masses(listed, rest, n)
    assert mass == pytest.approx([want[drafted] for drafted in order], abs=1e-15)
    weights = rng.random(4) + 0.1
    value, slopes = drafted_sets.log_sums(weights, 0.7, n, mass)
    totals = [0.7 + weights[list(drafted)].sum() for drafted in order]
    assert value == pytest.approx(mass @ np.log(totals), abs=1e-14)
    for i in range(4):
        holds = [i in drafted for drafted in order]
        assert slopes[i] == pytest.approx((mass * holds / totals).sum() * weights[i], abs=1e-15)


def test_the_vertex_lies_in_the_polymatroid():
    for problem in small_problems():
        cut = md.solve(problem, "subset").certificate.cut
        q, p, n = problem.target, problem.law.probs, int(problem.n)
        masses = vertex(q, p, n, cut)
        assert (masses >= 0).all()
        assert (masses <= q + 1e-15).all()
        assert masses[cut].sum() == 0
        if cut.any():
            assert masses.sum() == pytest.approx(1 - p[cut].sum() ** n, abs=1e-14)
        for bits in itertools.product([False, True], repeat=problem.vocabulary):
            mask = np.array(bits) & ~cut
            assert masses[mask].sum() <= float(problem.law.hit(mask)) + 1e-14


@pytest.mark.parametrize("tau", [1e-3, 1e-4])
@pytest.mark.parametrize("masses", ["vertex", "clipped"])
@pytest.mark.parametrize("gradient", ["enumeration", "integral"])
def test_published_errors_stay_within_their_bounds(tau, masses, gradient):
    for problem in small_problems(40 if gradient == "enumeration" else 10):
        plan = resolution(problem, tau=tau, masses=masses, gradient=gradient)
        assert plan.failure is None
        assert plan.deviation <= 15 * tau
        gap = float(md.optimal_acceptance(problem)) - float(plan.value())
        assert abs(gap) <= 10 * tau


@pytest.mark.parametrize("gradient", ["enumeration", "integral"])
def test_what_a_plan_says_of_its_law_is_what_enumeration_finds(gradient):
    for problem in small_problems(40 if gradient == "enumeration" else 10):
        for realised in (False, True):
            plan = resolution(problem, tau=1e-3, realised=realised, gradient=gradient)
            assert plan.output_law() == pytest.approx(Plan.output_law(plan), abs=1e-12)
            if realised:
                assert plan.output_law() == pytest.approx(problem.target, abs=1e-12)


def test_the_integral_needs_no_list():
    trace = md.traces.frozen()
    problem = md.Problem.from_logits(
        trace.target[0], trace.draft("skip-8")[0], "iid", n=4, draft_top_k=1000
    )
    assert "tokens" in str(resolution(problem, tau=1e-3, caps="tight").failure)
    plan = resolution(problem, tau=1e-3, caps="middle", gradient="integral")
    assert plan.failure is None
    assert plan.deviation <= 15e-3


def test_the_vertex_sends_weights_to_infinity_and_the_clipped_law_does_not():
    rng = np.random.default_rng(0)
    common = rng.normal(scale=2, size=200)
    q, p = (md.normalise(np.exp(common + rng.normal(size=200))) for _ in range(2))
    problem = md.Problem(q, md.IID(p, 2))
    options = {"tau": 1e-7, "gradient": "integral"}
    assert resolution(problem, masses="vertex", **options).spread > 50
    assert resolution(problem, masses="clipped", **options).spread < 20


def test_a_run_that_meets_a_cap_has_failed_and_is_still_lossless(monkeypatch):
    from multidraft.solvers import global_resolution as module

    caps = {"tight": module.Caps(2, 50), "middle": module.Caps(1024, 1)}
    monkeypatch.setattr(module, "CAPS", caps)
    problem = md.Problem(Q4, md.IID(P4, 2))
    for name, words in (("tight", "tokens"), ("middle", "iterations")):
        solution = md.solve(problem, "global-resolution", tau=1e-6, caps=name)
        plan = solution.plan
        assert isinstance(plan, ResolutionPlan)
        assert words in str(plan.failure)
        assert solution.status is Status.LIMIT
        assert plan.output_law() == pytest.approx(Q4, abs=1e-14)
        assert Plan.output_law(plan) == pytest.approx(Q4, abs=1e-14)


def test_published_plans_are_never_called_optimal():
    solution = md.solve(md.Problem(Q4, md.IID(P4, 2)), "global-resolution", tau=1e-3)
    assert solution.status is Status.INEXACT
    assert float(solution.certificate.violation) > 0


def test_top_k_of_a_real_pair():
    trace = md.traces.frozen()
    for i in range(3):
        problem = md.Problem.from_logits(
            trace.target[i], trace.draft("skip-8")[i], "iid", n=2, draft_top_k=100
        )
        plan = resolution(problem, tau=1e-3)
        assert plan.failure is None
        assert plan.deviation <= 15e-3
        assert abs(float(md.optimal_acceptance(problem)) - float(plan.value())) <= 1e-2


def test_other_laws_are_refused_by_name():
    with pytest.raises(Refused, match="use entropic"):
        md.solve(md.Problem(Q4, md.WithoutReplacement(P4, 2)), "global-resolution")
