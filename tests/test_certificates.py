"""Certificates are recomputed, in floats and in rational numbers, and fail when they should."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import Instance, instances

import multidraft as md
from multidraft import rational
from multidraft.errors import InputError
from multidraft.solution import Plan, Solution, Status
from multidraft.solvers.token_sets import SetPlan, TokenSets

PROBLEM = md.Problem([0.15, 0.25, 0.25, 0.35], md.IID([0.45, 0.35, 0.15, 0.05], 2))


def set_plan(problem: md.Problem, name: str = "relaxed-lp") -> SetPlan:
    plan = md.solve(problem, name).plan
    assert isinstance(plan, SetPlan)
    return plan


def solution_of(plan: Plan, cut: np.ndarray) -> Solution:
    return Solution(plan.problem, "by hand", plan=plan, cut=cut, seconds=0.0)


def exact_masses(problem: md.Problem) -> tuple[list[Fraction], dict[tuple[int, ...], Fraction]]:
    """The exact problem, by plain fractions: target, and token sets with their masses."""
    sets = TokenSets.of(problem.law)
    target = [Fraction(float(mass)) for mass in problem.target]
    masses = [Fraction(float(mass)) for mass in sets.mass]
    keys = [tuple(row[row >= 0].tolist()) for row in sets.members]
    total, wanted = sum(masses), sum(target)
    return [q / wanted for q in target], {
        key: mass / total for key, mass in zip(keys, masses, strict=True)
    }


def least_cut(problem: md.Problem) -> Fraction:
    target, sets = exact_masses(problem)
    tokens = range(len(target))
    cuts = [set(cut) for size in range(len(target) + 1) for cut in combinations(tokens, size)]
    return min(
        sum((target[y] for y in cut), Fraction(0))
        + sum((mass for key, mass in sets.items() if not cut.issuperset(key)), Fraction(0))
        for cut in cuts
    )


# ------------------------------------------------------------------------------------- rational


@settings(max_examples=120)
@given(instances(tokens=4))
def test_the_basis_gives_the_exact_optimum(instance: Instance):
    certificate = md.solve(instance.problem, "relaxed-lp").certificate
    proof = certificate.proof
    assert certificate.exact and certificate.proved and proof is not None
    assert proof.lower == proof.upper == least_cut(instance.problem)
    assert proof.change < 1e-15
    assert str(proof).startswith("exact: optimum ")


@settings(max_examples=40)
@given(instances(tokens=4))
def test_a_rounded_plan_is_proved_with_its_gap(instance: Instance):
    optimum = least_cut(instance.problem)
    for name in ("max-flow", "submodular", "canonical-lp", "optimised-max-flow"):
        solution = md.solve(instance.problem, name)
        proof = solution.certificate.proof
        assert proof is not None
        assert proof.lower <= optimum <= proof.upper
        assert proof.gap < 1e-12
        assert proof.exact == solution.certificate.exact == (proof.gap == 0)
        if not proof.exact:
            assert f"rational gap {float(proof.gap):.2g}" in str(proof)


def test_a_poor_plan_is_proved_to_be_what_it_is():
    plan = set_plan(PROBLEM)
    cut = md.solve(PROBLEM, "relaxed-lp").certificate.cut
    proof = rational.prove(SetPlan(PROBLEM, plan.sets, plan.flow / 2), cut)
    assert proof is not None and not proof.exact
    assert float(proof.lower) == pytest.approx(float(plan.value()) / 2)
    assert proof.upper == least_cut(PROBLEM)


def test_a_wrong_cut_is_never_exact():
    plan = set_plan(PROBLEM, "max-flow")
    proof = rational.prove(plan, np.array([False, False, True, True]))
    assert proof is not None and not proof.exact
    assert proof.upper > least_cut(PROBLEM)


def test_flows_that_break_a_constraint_are_trimmed_before_they_count():
    plan = set_plan(PROBLEM)
    greedy = SetPlan(PROBLEM, plan.sets, np.where(plan.sets.members >= 0, 1.0, 0.0))
    proof = rational.prove(greedy, np.ones(4, dtype=bool))
    assert proof is not None
    assert proof.lower <= least_cut(PROBLEM)


def test_flows_are_rounded_far_below_their_own_precision():
    # All exact masses are multiples of 1/4 here, and a flow of 1/2 less one ulp is no 1/4.
    problem = md.Problem([0.25, 0.5, 0.25], md.WithoutReplacement([0.4, 0.2, 0.4], 4, short="pad"))
    plan = set_plan(problem, "max-flow")
    short = SetPlan(problem, plan.sets, np.nextafter(plan.flow, 0))
    proof = rational.prove(short, np.ones(3, dtype=bool))
    assert proof is not None and 0 < proof.gap < Fraction(1, 10**15)


def test_a_basis_that_is_not_feasible_is_mended_only_within_the_tolerance():
    plan = set_plan(PROBLEM)
    assert plan.forest is not None
    cut = md.solve(PROBLEM, "relaxed-lp").certificate.cut
    empty = type(plan.forest)(*(np.zeros_like(part) for part in vars(plan.forest).values()))
    proof = rational.prove(SetPlan(PROBLEM, plan.sets, plan.flow, empty), cut)
    assert proof is not None
    assert proof.lower == 0 and not proof.exact


@pytest.mark.parametrize(
    "values", [[0.5, 0.25, 0.25], [1.0, 0.0], [5e-324, 1.0], [0.1, 0.2, 0.7], [0.0]]
)
def test_integers_are_the_floats(values: list[float]):
    whole, unit = rational.integers(np.array(values))
    assert [Fraction(number) * unit for number in whole] == [Fraction(value) for value in values]


def test_what_cannot_be_proved_says_so():
    batch = md.Problem([[0.5, 0.5], [0.2, 0.8]], md.IID([0.5, 0.5], 2))
    certificate = md.solve(batch, "subset").certificate
    assert certificate.proof is None and not certificate.proved and not certificate.exact
    value_only = md.solve(md.Problem([0.2, 0.8], md.Top([0.5, 0.5], 1)), "subset")
    assert value_only.certificate.proof is None
    flat = np.full(500, 1 / 500)
    assert md.solve(md.Problem(flat, md.IID(flat, 2)), "submodular").certificate.proof is None


@pytest.mark.long
def test_proof_of_fifty_thousand_sets():
    rng = np.random.default_rng(0)
    target, draft = rng.dirichlet(np.full(310, 0.5)), rng.dirichlet(np.full(310, 0.5))
    problem = md.Problem(target, md.IID(draft, 2))
    plan = set_plan(problem)
    assert len(plan.sets.mass) > 48_000
    assert md.solve(problem, "relaxed-lp").certificate.exact


# --------------------------------------------------------------------------------------- floats


def test_certify_recomputes_value_bound_and_violation():
    plan = set_plan(PROBLEM)
    cut = np.array([True, False, False, False])
    certificate = md.certify(PROBLEM, plan, cut)
    assert float(certificate.lower) == pytest.approx(0.7475)
    assert float(certificate.upper) == pytest.approx(0.15 + 1 - 0.45**2)
    assert float(certificate.violation) == 0
    assert certificate.plan is plan


@pytest.mark.parametrize("fault", ["token", "set", "negative", "stray"])
def test_a_plan_that_breaks_a_constraint_is_inexact(fault: str):
    plan = set_plan(PROBLEM)
    flow = plan.flow.copy()
    if fault == "token":
        flow *= 1.01
    elif fault == "set":
        flow[0, 0] = plan.sets.mass[0] + 1e-3
    elif fault == "negative":
        flow[1, 0] -= flow[1, 0] + 1e-3
    else:
        flow[plan.sets.members < 0] = 1e-3
    cut = md.solve(PROBLEM, "relaxed-lp").certificate.cut
    broken = solution_of(SetPlan(PROBLEM, plan.sets, flow), cut)
    assert broken.certificate.violation >= 9e-4
    assert broken.status is Status.INEXACT


def test_a_cut_that_proves_less_is_inexact():
    plan = set_plan(PROBLEM)
    assert solution_of(plan, np.zeros(4, dtype=bool)).status is Status.INEXACT


# ---------------------------------------------------------------------------------------- files


@settings(max_examples=25)
@given(instance=instances(tokens=4))
def test_plans_survive_the_disk(instance: Instance, tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("plans") / "plan.npz"
    for name in ("relaxed-lp", "submodular"):
        plan = md.solve(instance.problem, name).plan
        assert plan is not None
        plan.save(path)
        loaded = md.load_plan(path)
        tuples, _ = instance.problem.law.enumerate()
        assert loaded.value() == pytest.approx(float(plan.value()), abs=1e-14)
        assert (loaded.problem.target == instance.problem.target).all()
        assert loaded.output_law() == pytest.approx(plan.output_law(), abs=1e-14)
        assert loaded.conditional(tuples).sum(-1) == pytest.approx(1)


def test_large_plans_and_batches_keep_their_laws_on_the_disk(tmp_path: Path):
    flat = np.full(500, 1 / 500)
    for target in (flat, np.stack([flat, flat])):
        problem = md.Problem(target, md.IID(flat, 2))
        plan = md.solve(problem, "subset").plan
        assert plan is not None
        plan.save(tmp_path / "plan.npz")
        assert np.load(tmp_path / "plan.npz")["selection"] == pytest.approx(plan.selection)
        assert (md.load(tmp_path / "plan.npz").target == target).all()
        with pytest.raises(InputError, match="solve its problem again"):
            md.load_plan(tmp_path / "plan.npz")


def test_damaged_plans_are_one_sentence(tmp_path: Path):
    path = tmp_path / "plan.npz"
    plan = set_plan(PROBLEM)
    with pytest.raises(InputError, match="no file"):
        md.load_plan(path)
    PROBLEM.save(path)
    with pytest.raises(InputError, match="not a plan"):
        md.load_plan(path)
    SetPlan(PROBLEM, plan.sets, 2 * plan.flow).save(path)
    with pytest.raises(InputError, match="not feasible"):
        md.load_plan(path)
    plan.save(path)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match="damaged"):
        md.load_plan(path)
