"""Every formulation finds the same optimum, with a plan and a cut of its own that prove it."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import FAMILIES, Instance, instances

import multidraft as md
from multidraft import laws, solvers
from multidraft.errors import InputError, Refused
from multidraft.solution import Status, upper_bound
from multidraft.solvers import highs, pair, prefix, priority
from multidraft.solvers.max_flow import MaxFlow
from multidraft.solvers.max_flow_networkx import MaxFlowNetworkX
from multidraft.solvers.optimised_max_flow import OptimisedMaxFlow
from multidraft.solvers.pair import Pair
from multidraft.solvers.polymatroid import Polymatroid
from multidraft.solvers.submodular import Submodular, nearest
from multidraft.solvers.token_sets import TokenSets, count

EXACT = (
    "max-flow",
    "submodular",
    "relaxed-lp",
    "canonical-lp",
    "full-lp",
    "max-flow-networkx",
    "optimised-max-flow",
    "pair",
)
VALUES = ("subset", "branch-and-bound")
CLOSE = 1e-9


def random_problem(rng: np.random.Generator, law: str, vocabulary: int, n: int) -> md.Problem:
    spread = rng.choice([0.2, 1.0, 5.0])
    target, *drafts = rng.dirichlet(np.full(vocabulary, spread), size=n + 1)
    if law == "independent":
        return md.Problem(target, md.Independent(list(drafts)))
    if law == "explicit":
        tuples = rng.integers(vocabulary, size=(3 * vocabulary, n))
        mass = rng.dirichlet(np.ones(len(tuples)))
        return md.Problem(target, md.Explicit(tuples, mass, vocabulary=vocabulary))
    return md.Problem(target, laws.make({"law": law, "n": n}, drafts[0]))


def all_sets(vocabulary: int) -> np.ndarray:
    return np.array(list(product([False, True], repeat=vocabulary)))


def least_cut(problem: md.Problem) -> float:
    sets = all_sets(problem.vocabulary)
    return float((sets @ problem.target + problem.law.hit(~sets)).min())


def assert_lossless(solution: md.Solution) -> None:
    plan, problem = solution.plan, solution.problem
    assert plan is not None
    assert plan.output_law() == pytest.approx(problem.target, abs=1e-12)
    assert plan.violation() <= 1e-12


# ---------------------------------------------------------------------------------- equivalence


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=16)
@given(data=st.data())
def test_exact_methods_agree(family: str, data: st.DataObject):
    instance = data.draw(instances(families=[family], tokens=4))
    problem = instance.problem
    reference = least_cut(problem) if instance.answer is None else instance.answer
    for name in set(EXACT) & set(solvers.available(problem)):
        solution = md.solve(problem, name)
        assert solution.status is Status.OPTIMAL, solution
        assert float(solution.acceptance) == pytest.approx(reference, abs=CLOSE), solution
        assert_lossless(solution)
    for name in set(VALUES) & set(solvers.available(problem)):
        value = md.solve(problem, name).certificate.upper
        assert float(value) == pytest.approx(reference, abs=CLOSE)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "convex-lp"},
        {"method": "convex-lp", "program": "canonical"},
        {"method": "convex-lp", "solver": "HIGHS"},
        {"method": "polymatroid"},
        {"method": "polymatroid", "all_sets": 1},
        {"method": "relaxed-lp", "algorithm": "pdlp"},
        {"method": "canonical-lp", "algorithm": "pdlp"},
        {"method": "full-lp", "algorithm": "pdlp"},
    ],
    ids=str,
)
@settings(max_examples=25)
@given(instance=instances(tokens=4))
def test_approximate_methods_hold_within_their_certificate(
    options: dict[str, Any], instance: Instance
):
    reference = least_cut(instance.problem)
    solution = md.solve(instance.problem, **options)
    certificate = solution.certificate
    assert certificate.lower - 1e-12 <= reference <= certificate.upper + 1e-12
    assert certificate.gap <= 1e-5
    assert_lossless(solution)
    if solution.status is Status.OPTIMAL:
        assert float(solution.acceptance) == pytest.approx(reference, abs=CLOSE)


def test_linear_program_equals_prefix_rule_on_random_instances():
    rng = np.random.default_rng(3)
    for i in range(500):
        law = ("iid", "without-replacement")[i % 2]
        n = int(rng.integers(1, 5))
        problem = random_problem(rng, law, int(rng.integers(n, 8)), n)
        optimum = prefix.iid_optimum if law == "iid" else prefix.without_replacement_optimum
        value = float(optimum(problem.target, problem.law.probs, n)[0])
        solution = md.solve(problem, "relaxed-lp")
        assert float(solution.acceptance) == pytest.approx(value, abs=CLOSE)
        assert abs(solution.certificate.gap) < CLOSE
        assert solution.certificate.violation < CLOSE


@pytest.mark.parametrize("law", ["iid", "independent", "without-replacement", "explicit"])
def test_minimum_norm_point_against_all_cuts(law: str):
    rng = np.random.default_rng(len(law))
    for vocabulary in (3, 8, 12):
        problem = random_problem(rng, law, vocabulary, 3)
        solution = md.solve(problem, "submodular")
        assert solution.status is Status.OPTIMAL
        assert float(solution.acceptance) == pytest.approx(least_cut(problem), abs=1e-12)


# ---------------------------------------------------------------------------------------- plans


@pytest.mark.parametrize("name", [*EXACT, "convex-lp", "polymatroid"])
@pytest.mark.parametrize("law", ["iid", "independent", "without-replacement", "explicit"])
def test_plans(name: str, law: str):
    problem = random_problem(np.random.default_rng(1), law, 5, 3)
    if (reason := solvers.get(name).refuses(problem)) is not None:
        assert name == "pair" and law in reason
        return
    plan = md.solve(problem, name).plan
    assert plan is not None

    # The full plan has both marginals, and keeps what the plan says it keeps.
    tuples, coupling = plan.coupling()
    assert coupling.sum(0) == pytest.approx(problem.target, abs=1e-12)
    assert coupling.sum(1) == pytest.approx(problem.law.enumerate()[1], abs=1e-12)
    drafted = (tuples[:, :, None] == np.arange(5)).any(1)
    assert coupling[drafted].sum() >= plan.value() - 1e-12

    # The selection law lies in the base polytope, and alone reaches the plan's value.
    selection = plan.selection
    sets = all_sets(5)
    assert (sets @ selection <= problem.law.hit(sets) + 1e-12).all()
    assert selection.sum() == pytest.approx(1, abs=1e-12)
    assert np.minimum(problem.target, selection).sum() >= plan.value() - 1e-12

    # One tuple at a time, repeats and order of the drafts included.
    for drafts in ([0, 0, 0], [2, 1, 2], [4, 3, 1]):
        conditional = plan.conditional(np.array(drafts))
        assert conditional.sum() == pytest.approx(1, abs=1e-12)
        assert conditional.min() >= 0


def test_drafts_that_the_law_cannot_draw_are_rejected_by_the_plan():
    problem = md.Problem([0.5, 0.3, 0.2], md.Explicit([[0, 1]], [1.0], vocabulary=3))
    for name in ("max-flow", "canonical-lp", "optimised-max-flow"):
        plan = md.solve(problem, name).plan
        assert plan is not None
        assert plan.keep(np.array([[2, 2]])).sum() == 0
        assert plan.conditional([2, 2]) == pytest.approx(plan.residual)


def test_plan_of_a_wide_law_needs_no_63_bit_keys():
    tuples = np.stack([np.arange(30), np.arange(30)[::-1]])
    problem = md.Problem(np.full(30, 1 / 30), md.Explicit(tuples, [0.5, 0.5], vocabulary=30))
    solution = md.solve(problem, "max-flow")
    assert float(solution.acceptance) == pytest.approx(1)
    assert_lossless(solution)


def test_half_a_flow_is_enough_for_one_tuple():
    problem = md.Problem([0.2, 0.3, 0.5], md.IID([0.6, 0.3, 0.1], 2))
    plan = OptimisedMaxFlow().plan(problem)
    assert plan.cut.tolist() == [True, True, False]
    assert plan.keep(np.array([[0, 1]])).sum() < 1
    assert "inner" in vars(plan) and "outer" not in vars(plan)
    assert plan.keep(np.array([[0, 2]])).sum() == pytest.approx(1)
    assert "outer" in vars(plan)


# --------------------------------------------------------------------------------- each method


@pytest.mark.parametrize("law", ["iid", "independent", "without-replacement", "explicit"])
def test_vertices_by_every_route(law: str):
    rng = np.random.default_rng(7)
    problem = random_problem(rng, law, 6, 3)
    order = rng.permutation(6)
    by_stay = priority._of_stay(problem.law)(order)
    by_sets = priority.of_sets(TokenSets.of(problem.law))(order)
    assert priority.winner(problem.law)(order) == pytest.approx(by_stay, abs=1e-14)
    assert by_sets == pytest.approx(by_stay, abs=1e-14)


def test_flows_with_rounded_capacities_bracket_the_optimum():
    rng = np.random.default_rng(5)
    for law in ("iid", "explicit"):
        problem = random_problem(rng, law, 6, 2)
        low, high = MaxFlow().bracket(problem)
        assert low <= least_cut(problem) + 1e-15 and least_cut(problem) <= high + 1e-15
        assert high - low < 1e-15
    with pytest.raises(Refused, match="one context"):
        MaxFlow().bracket(md.Problem([[0.5, 0.5]], md.IID([0.5, 0.5], 2)))


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_pair_over_subsets_and_prefixes(n: int):
    rng = np.random.default_rng(n)
    for _ in range(20):
        problem = random_problem(rng, "iid", 6, n)
        subsets, prefixes = (md.solve(problem, "pair", all_sets=size) for size in (6, 0))
        assert float(subsets.acceptance) == pytest.approx(float(prefixes.acceptance), abs=1e-14)
        certain = Pair().certain(problem)
        assert certain == Pair(all_sets=0).certain(problem)
        assert certain == (float(md.optimal_acceptance(problem)) > 1 - 1e-13)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_pair_evaluates_the_expression_of_the_paper(n: int):
    q, p, outside = np.array([0.3]), np.array([0.6]), np.array([0.4])
    (value,) = pair.expression(q, p, outside, n)
    stated = {1: 0.3 + 0.4, 2: 0.3 + 0.4**2 + 2 * 0.6 * 0.4, 3: 0.3 + 1 - 0.6**3}
    assert value == pytest.approx(stated[n], abs=1e-15)


def test_pair_knows_when_acceptance_one_is_possible():
    # Flat drafts, Khisti et al.'s toy: three tokens, each q(S) against p(S)^2.
    draft = np.full(3, 1 / 3)
    assert Pair().certain(md.Problem([1 / 3, 1 / 3, 1 / 3], md.IID(draft, 2)))
    assert Pair().certain(md.Problem([1 / 9, 3 / 9, 5 / 9], md.IID(draft, 2)))
    assert not Pair().certain(md.Problem([0.1, 0.35, 0.55], md.IID(draft, 2)))
    with pytest.raises(Refused, match="not top"):
        Pair().certain(md.Problem(draft, md.Top(draft, 2)))


def test_cutting_planes_end_where_all_constraints_do():
    rng = np.random.default_rng(11)
    for law in ("iid", "independent", "explicit"):
        problem = random_problem(rng, law, 9, 2)
        written, generated = (Polymatroid(all_sets=size).solve(problem) for size in (9, 1))
        assert generated.status is not Status.LIMIT
        assert float(written.acceptance) == pytest.approx(float(generated.acceptance), abs=1e-7)
    one_round = Polymatroid(all_sets=1, rounds=0).solve(random_problem(rng, "iid", 9, 2))
    assert one_round.status is Status.LIMIT
    assert_lossless(one_round)


def test_minimum_norm_point_stops_at_its_limit_with_a_feasible_plan():
    problem = random_problem(np.random.default_rng(2), "iid", 30, 2)
    optimum = float(md.optimal_acceptance(problem))
    enough = 32 * 30 * 30.0  # bytes of as many vertices as tokens, which this one does not need
    assert md.solve(problem, "submodular", memory=enough).status is Status.OPTIMAL
    found = nearest(
        problem.target, priority.winner(problem.law), gap=0, iterations=99, memory=enough / 30
    )
    assert found.limited and len(found.shares) == 2
    solution = md.solve(problem, "submodular", iterations=1)
    assert solution.status is Status.LIMIT
    assert solution.certificate.lower < optimum <= solution.certificate.upper
    assert_lossless(solution)


# ------------------------------------------------- known faults of optimisers (lines 14 to 18)


@pytest.mark.parametrize("excess", [1e-7, 2e-7, 1e-5, 1e-3])
@pytest.mark.parametrize("where", ["target", "draft"])
def test_sums_off_by_a_little_are_refused_with_the_sum_or_normalised_when_asked(
    excess: float, where: str
):
    good, off = np.array([0.2, 0.3, 0.5]), np.array([0.2, 0.3, 0.5 + excess])
    pair = (off, good) if where == "target" else (good, off)
    with pytest.raises(InputError, match=rf"{where} sums to 1\.0\d+, .*normalise"):
        md.Problem(pair[0], md.IID(pair[1], 2))
    target, draft = (md.normalise(law) for law in pair)
    for name in EXACT:
        assert md.solve(md.Problem(target, md.IID(draft, 2)), name).status is Status.OPTIMAL


def test_float32_softmax_at_256_tokens():
    rng = np.random.default_rng(0)
    q, p = (np.exp(3 * rng.normal(size=256)).astype(np.float32) for _ in range(2))
    q, p = q / q.sum(), p / p.sum()
    with pytest.raises(InputError, match="normalise"):
        md.Problem(q, md.IID(p, 2))
    problem = md.Problem(md.normalise(q), md.IID(md.normalise(p), 2))
    optimum = float(md.optimal_acceptance(problem))
    for name in ("relaxed-lp", "max-flow", "submodular"):
        solution = md.solve(problem, name)
        assert solution.status is Status.OPTIMAL
        assert float(solution.acceptance) == pytest.approx(optimum, abs=1e-12)


@pytest.mark.parametrize("name", EXACT)
def test_tiny_masses_are_not_dropped(name: str):
    # The optimum is the sum of the tails: nothing else overlaps.
    law = md.normalise([1 - 3e-8, 1e-8, 1e-8, 1e-8])
    problem = md.Problem(law[::-1], md.IID(law, 1))
    solution = md.solve(problem, name)
    assert float(solution.acceptance) == pytest.approx(4e-8, rel=1e-6)
    assert solution.plan is not None
    assert solution.plan.kept == pytest.approx([1e-8] * 4, rel=1e-6)


@pytest.mark.parametrize("name", ["full-lp", "relaxed-lp", "canonical-lp"])
def test_round_off_is_not_infeasibility(name: str):
    # Sums of 1 + 2e-16 and masses of 1e-20, which presolve has called infeasible.
    rng = np.random.default_rng(14)
    for _ in range(40):
        exponents = rng.integers(-20, 1, size=(2, 4)).astype(float)
        exponents[:, 0] = 0
        q, p = (md.normalise(10.0**powers) for powers in exponents)
        solution = md.solve(md.Problem(q, md.IID(p, 2)), name)
        assert solution.status is Status.OPTIMAL
        # In units of mass alone the tolerance of the optimiser would show: gaps of 1e-10.
        assert abs(solution.certificate.gap) < 1e-13


def test_presolve_is_tried_again_without(monkeypatch: pytest.MonkeyPatch):
    asked = []
    run = highs._run

    def stubborn(program: Any, options: dict[str, Any]) -> Any:
        asked.append(options["presolve"])
        if options["presolve"] == "on":
            program.row_upper_ = np.full(program.num_row_, -1.0)  # now it is infeasible
            answer = run(program, options)
            program.row_upper_ = upper
            return answer
        return run(program, options)

    upper = np.array([2.0**24 * 0.5, 2.0**24])
    monkeypatch.setattr(highs, "_run", stubborn)
    matrix = highs.csc_array(np.array([[1.0, 0.0], [0.0, 1.0]]))
    optimum = highs.maximise(np.ones(2), matrix, np.zeros(2), np.array([0.5, 1.0]))
    assert asked == ["on", "off"]
    assert optimum.primal == pytest.approx([0.5, 1.0])


@pytest.mark.parametrize("name", ["full-lp", "relaxed-lp", "canonical-lp"])
def test_a_plan_at_the_time_limit_is_feasible_and_says_so(name: str):
    problem = random_problem(np.random.default_rng(16), "iid", 12, 2)
    solution = md.solve(problem, name, time_limit=0.0)
    assert solution.status is Status.LIMIT
    assert_lossless(solution)
    certificate, optimum = solution.certificate, float(md.optimal_acceptance(problem))
    assert certificate.lower <= optimum + 1e-12 and optimum <= certificate.upper + 1e-12


def test_flow_capacities_are_wide_enough_at_512_tokens():
    problem = random_problem(np.random.default_rng(17), "iid", 512, 2)
    solution = md.solve(problem, "max-flow")
    assert float(solution.acceptance) == pytest.approx(
        float(md.optimal_acceptance(problem)), abs=1e-12
    )


def test_cuts_of_the_readable_flow_are_minimum_cuts():
    rng = np.random.default_rng(18)
    for _ in range(20):
        problem = random_problem(rng, "explicit", 5, 2)
        cut = MaxFlowNetworkX().solve(problem).certificate.cut
        assert float(upper_bound(problem, cut)) == pytest.approx(least_cut(problem), abs=1e-14)


def test_rounded_softmax_can_be_sampled():
    rng = np.random.default_rng(0)
    for _ in range(300):
        logits = rng.normal(size=50).astype(np.float32)
        rounded = np.exp(logits) / np.exp(logits).sum()
        law = md.IID(md.normalise(rounded), 3)
        drafts = law.sample(4, rng)
        assert drafts.min() >= 0 and drafts.max() < 50


@pytest.mark.parametrize("name", [*EXACT, "convex-lp", "polymatroid"])
def test_smallest_problems(name: str):
    for law in (md.IID([1.0], 3), md.Independent([[1.0], [1.0]]), md.Top([1.0], 1)):
        problem = md.Problem([1.0], law)
        if solvers.get(name).refuses(problem) is None:
            assert float(md.solve(problem, name).acceptance) == pytest.approx(1, abs=1e-7)


def test_more_drafts_than_supported_tokens_are_refused_by_name():
    with pytest.raises(InputError, match=r'without-replacement with n=3 .* short="pad"'):
        md.WithoutReplacement([0.5, 0.5, 0.0], 3)


# -------------------------------------------------------------------------- sizes and refusals

TOO_LARGE = [
    ("full-lp", "iid", 300, 2),
    ("relaxed-lp", "iid", 3000, 2),
    ("canonical-lp", "iid", 3000, 2),
    ("convex-lp", "iid", 3000, 2),
    ("max-flow", "iid", 6000, 2),
    ("max-flow", "iid", 30, 6),
    ("max-flow", "independent", 6000, 2),
    ("optimised-max-flow", "without-replacement", 6000, 2),
    ("max-flow-networkx", "iid", 200, 2),
    ("polymatroid", "iid", 300, 2),
    ("submodular", "without-replacement", 3000, 2),
]


@pytest.mark.parametrize(("name", "law", "vocabulary", "n"), TOO_LARGE)
def test_too_large_is_refused_with_a_method_that_works(
    name: str, law: str, vocabulary: int, n: int
):
    flat = np.full(vocabulary, 1 / vocabulary)
    drafts = [flat] * n if law == "independent" else flat
    problem = md.Problem(flat, laws.make({"law": law, "n": n}, drafts))
    reason = solvers.get(name).refuses(problem)
    assert reason is not None
    other = reason.split("use ")[-1].split(",")[0].rstrip(".")
    assert solvers.get(other).refuses(problem) is None, reason
    with pytest.raises(Refused, match="use "):
        md.solve(problem, name)


@pytest.mark.parametrize("name", ["subset", "branch-and-bound", "pair"])
def test_another_law_is_refused_with_a_method_that_works(name: str):
    problem = random_problem(np.random.default_rng(0), "explicit", 5, 2)
    reason = solvers.get(name).refuses(problem)
    assert reason is not None
    assert solvers.get(reason.split("use ")[-1].rstrip(".")).refuses(problem) is None


def test_memory_is_an_option_and_named_in_the_refusal():
    problem = random_problem(np.random.default_rng(0), "iid", 20, 2)
    assert solvers.get("full-lp").refuses(problem) is None
    reason = solvers.get("full-lp", memory=1e6).refuses(problem)
    assert reason is not None and "0.0096 GB" in reason and "option memory" in reason


@pytest.mark.parametrize("law", laws.names())
def test_counts_of_token_sets_are_upper_bounds(law: str):
    rng = np.random.default_rng(0)
    drafts = rng.dirichlet(np.ones(6), size=2)
    spec = {"law": law, "n": 2}
    if law == "explicit":
        made = laws.Explicit([[0, 1], [1, 0], [2, 2]], [0.2, 0.3, 0.5], vocabulary=6)
    else:
        made = laws.make(spec, list(drafts) if law == "independent" else drafts[0])
    assert len(TokenSets.of(made).mass) <= count(made) <= made.tuple_count()


@pytest.mark.parametrize("name", EXACT)
def test_batches_are_refused(name: str):
    batch = md.Problem([[0.5, 0.5], [0.2, 0.8]], md.IID([0.5, 0.5], 2))
    with pytest.raises(Refused, match="solve_each"):
        md.solve(batch, name)


def test_options_are_checked():
    problem = random_problem(np.random.default_rng(0), "iid", 4, 2)
    with pytest.raises(InputError, match="unknown algorithm 'ipm'"):
        md.solve(problem, "relaxed-lp", algorithm="ipm")
    with pytest.raises(InputError, match="unknown program"):
        md.solve(problem, "convex-lp", program="dual")
    with pytest.raises(InputError, match="unknown solver of cvxpy 'GUROBY'"):
        md.solve(problem, "convex-lp", solver="GUROBY")


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]):
    problem = random_problem(np.random.default_rng(0), "iid", 4, 2)
    for name in (*EXACT, "polymatroid"):
        md.solve(problem, name)
    md.solve(problem, "convex-lp", solver="HIGHS")
    md.solve(problem, "relaxed-lp", algorithm="pdlp")
    assert capfd.readouterr() == ("", "")


def test_highs_runs_beside_code_that_gave_it_more_threads():
    import highspy

    with highs.quieted():
        other = highspy.Highs()
    highspy.Highs.resetGlobalScheduler(True)
    try:
        other.setOptionValue("threads", 2)
        other.addVar(0, 1)
        other.run()
        problem = md.Problem([0.2, 0.3, 0.5], md.IID([0.6, 0.3, 0.1], 2))
        assert float(md.solve(problem, "relaxed-lp").acceptance) == pytest.approx(0.69)
    finally:
        highspy.Highs.resetGlobalScheduler(True)


def test_the_minimum_norm_point_at_200_tokens_on_laws_that_are_no_product():
    rng = np.random.default_rng(200)
    target, draft = rng.dirichlet(np.ones(200)), rng.dirichlet(np.ones(200))
    tuples = rng.integers(200, size=(4000, 3))
    tuples[::2, 1] = tuples[::2, 0]
    mass = rng.dirichlet(np.ones(4000))
    for law in (md.WithoutReplacement(draft, 2), md.Explicit(tuples, mass, vocabulary=200)):
        problem = md.Problem(target, law)
        solution = Submodular().solve(problem)
        assert solution.status is Status.OPTIMAL
        assert float(solution.acceptance) == pytest.approx(
            float(md.solve(problem, "max-flow").acceptance), abs=1e-11
        )


SIZES = [
    ("full-lp", "iid", 50, 2),
    ("full-lp", "iid", 10, 4),
    ("relaxed-lp", "iid", 256, 2),
    ("relaxed-lp", "independent", 40, 3),
    ("canonical-lp", "iid", 256, 2),
    ("convex-lp", "iid", 100, 2),
    ("max-flow", "iid", 1000, 2),
    ("max-flow", "independent", 60, 3),
    ("optimised-max-flow", "iid", 1000, 2),
    ("max-flow-networkx", "iid", 60, 2),
    ("polymatroid", "iid", 60, 2),
    ("submodular", "independent", 5000, 2),
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "law", "vocabulary", "n"), SIZES)
def test_stated_sizes(name: str, law: str, vocabulary: int, n: int):
    problem = random_problem(np.random.default_rng(9), law, vocabulary, n)
    solution = md.solve(problem, name)
    optimum = float(md.optimal_acceptance(problem))
    certificate = solution.certificate
    assert certificate.lower - 1e-12 <= optimum <= certificate.upper + 1e-12
    if name != "convex-lp":
        assert solution.status is Status.OPTIMAL
        assert float(solution.acceptance) == pytest.approx(optimum, abs=CLOSE)
