"""Solve, compare, explain: what a first user calls, and what a plan promises."""

import numpy as np
import pytest

import multidraft as md
from multidraft import solvers
from multidraft.errors import InputError, Refused
from multidraft.solution import Certificate, Status

P4 = np.array([0.45, 0.35, 0.15, 0.05])
Q4 = np.array([0.15, 0.25, 0.25, 0.35])
PROBLEM = md.Problem(Q4, md.IID(P4, 2))


def brute_force(problem):
    """Smallest ``1 + q(H) - stay(H)`` over all sets."""
    sets = (np.arange(2**problem.vocabulary)[:, None] >> np.arange(problem.vocabulary)) % 2 == 1
    return min(1 + problem.target[mask].sum() - float(problem.law.stay(mask)) for mask in sets)


@pytest.mark.parametrize("name", ["iid", "without-replacement", "greedy", "hub", "top"])
def test_the_optimum_is_the_smallest_cut(name):
    rng = np.random.default_rng(5)
    for trial in range(60):
        p, q = rng.dirichlet(np.full(5, 0.5)), rng.dirichlet(np.full(5, 0.5))
        spec = {"law": name, "n": 2 if name == "hub" else 1 + trial % 4}
        problem = md.Problem(q, md.laws.make(spec, p))
        best = brute_force(problem)
        assert float(md.optimal_acceptance(problem)) == pytest.approx(best, abs=1e-14)
        assert float(md.solve(problem, "subset").certificate.upper) == pytest.approx(
            best, abs=1e-14
        )


def test_the_optimum_of_a_batch_is_that_of_its_rows():
    rng = np.random.default_rng(6)
    p, q = rng.dirichlet(np.ones(7), 6), rng.dirichlet(np.ones(7), 6)
    counts = np.array([1, 2, 3, 4, 5, 6])
    for kind in (md.IID, md.WithoutReplacement, md.Greedy, md.Top):
        problem = md.Problem(q, kind(p, counts))
        values = md.optimal_acceptance(problem)
        assert values.shape == (6,)
        rows = [float(md.optimal_acceptance(problem[i])) for i in range(6)]
        assert values == pytest.approx(rows, abs=1e-15)


def test_short_rows_have_an_optimum():
    hot = np.array([0.0, 1.0, 0.0, 0.0])
    for kind in (md.WithoutReplacement, md.Greedy, md.Top):
        problem = md.Problem(Q4, kind(hot, 3, short="pad"))
        assert float(md.optimal_acceptance(problem)) == pytest.approx(0.25, abs=1e-15)
        assert float(md.solve(problem, "relaxed-lp").acceptance) == pytest.approx(0.25, abs=1e-15)


def test_a_plan_is_lossless_and_attains_its_value():
    solution = md.solve(PROBLEM, "relaxed-lp")
    plan = solution.plan
    assert plan is not None
    assert plan.output_law() == pytest.approx(Q4, abs=1e-15)
    accepted = 0.0
    tuples, mass = PROBLEM.law.enumerate()
    laws = plan.conditional(tuples)
    assert laws.sum(-1) == pytest.approx(np.ones(len(tuples)))
    for drafts, weight, law in zip(tuples, mass, laws, strict=True):
        assert plan.conditional(drafts) == pytest.approx(law)
        accepted += weight * law[np.unique(drafts)].sum()
    # The residual may hit a draft, so the output is a draft at least as often as the plan says.
    assert accepted >= float(solution.acceptance) - 1e-15
    assert accepted <= brute_force(PROBLEM) + 1e-15
    b = plan.selection
    assert np.minimum(b, Q4).sum() == pytest.approx(float(solution.acceptance), abs=1e-15)
    assert b.sum() == pytest.approx(1)


def test_a_plan_samples_its_conditional_law():
    plan = md.solve(PROBLEM, "relaxed-lp").plan
    assert plan is not None
    drafts = np.array([0, 1])
    law = plan.conditional(drafts)
    uniforms = np.random.default_rng(0).random((40_000, 2))
    out = plan.sample(np.tile(drafts, (40_000, 1)), uniforms)
    counts = np.bincount(out, minlength=4)
    log = np.log(2e9)  # Bernstein, false-alarm rate 1e-9 per token
    assert (
        np.abs(counts - 40_000 * law) <= np.sqrt(2 * 40_000 * law * (1 - law) * log) + log
    ).all()
    again = plan.sample(drafts, uniforms[0])
    assert again.shape == ()
    assert int(again) == out[0]


def test_a_cut_that_is_not_the_minimiser_is_reported_as_a_gap():
    solution = md.solve(PROBLEM, "relaxed-lp")
    nothing = md.certify(PROBLEM, solution.plan, np.zeros(4, bool))
    assert isinstance(nothing, Certificate)
    assert float(nothing.upper) == 1
    assert float(nothing.gap) == pytest.approx(1 - float(solution.acceptance))
    wrong = md.Solution(PROBLEM, "x", plan=solution.plan, cut=np.zeros(4, bool), seconds=0.0)
    assert wrong.status is Status.INEXACT
    only = md.Solution(PROBLEM, "x", plan=None, cut=solution.certificate.cut, seconds=0.0)
    assert only.status is Status.VALUE_ONLY
    assert np.isnan(only.certificate.lower)


def test_methods_refuse_with_their_reason():
    independent = md.Problem(Q4, md.Independent([P4, Q4]))
    reasons = solvers.explain(independent)
    assert "closed form" in str(reasons["subset"])
    assert reasons["relaxed-lp"] is None
    with pytest.raises(Refused, match="closed form"):
        md.solve(independent, "subset")
    batch = md.Problem(np.stack([Q4, P4]), md.IID(P4, 2))
    with pytest.raises(Refused, match="solve_each"):
        md.solve(batch, "relaxed-lp")
    each = md.solve_each(batch, "relaxed-lp")
    assert [float(one.acceptance) for one in each] == pytest.approx(md.optimal_acceptance(batch))
    with pytest.raises(InputError, match="choose one of"):
        md.solve(PROBLEM, "simplex")
    with pytest.raises(InputError, match="time_limit"):
        md.solve(PROBLEM, "relaxed-lp", timelimit=3)


def test_compare_runs_every_method_that_takes_the_problem():
    answers = md.compare(PROBLEM)
    assert [answer.method for answer in answers] == list(solvers.available(PROBLEM))
    best = brute_force(PROBLEM)
    for answer in answers:
        if answer.status is Status.OPTIMAL:
            assert float(answer.acceptance) == pytest.approx(best, abs=1e-9)


def test_rows_of_a_batched_solution():
    batch = md.Problem(np.stack([Q4, P4]), md.WithoutReplacement(P4, 2))
    solution = md.solve(batch, "subset")
    assert len(solution) == 2
    assert float(solution[0].acceptance) == float(solution.acceptance[0])


def test_public_names_resolve():
    for name in md.__all__:
        if name not in ("bounds", "decode"):
            assert getattr(md, name) is not None
    with pytest.raises(AttributeError):
        md.nonsense  # noqa: B018
