"""Acceptance of the rules: formulas against enumeration, bounds, published curves, real laws."""

from __future__ import annotations

import csv
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from strategies import Instance, instances

import multidraft as md
from multidraft import laws, testing, traces, verifiers
from multidraft.transform import probabilities
from multidraft.verifiers import listed, matrix, rejected_paths, residual_hits
from multidraft.verifiers.importance import Importance
from multidraft.verifiers.rrs import RRS

P4, Q4 = np.array([0.45, 0.35, 0.15, 0.05]), np.array([0.15, 0.25, 0.25, 0.35])
CLOSED = {
    "naive": list(laws.names()),
    "single": ["iid", "independent", "without-replacement", "greedy"],
    "rrs": ["iid", "independent"],
    "rrsw": ["without-replacement"],
    "k-seq": ["iid"],
    "spechub": ["hub"],
    "greedy": ["greedy", "hub"],
    "importance": ["iid", "independent"],
    "interval": ["iid"],
}
# Rules of other authors; those without a formula are the sum that it is compared with.
OTHERS = set(verifiers.names()) - {*CLOSED, "gls", "from-plan", "entropic", "global-resolution"}
CLOSED |= {
    name: [law for law, kind in laws.LAWS.items() if issubclass(kind, verifiers.get(name).laws)]
    for name in sorted(OTHERS)
}


def enumerated(rule: verifiers.Rule, problem: md.Problem) -> tuple[float, float]:
    """Acceptance and tested acceptance, summed over all drafted tuples."""
    tuples, mass = problem.law.enumerate()
    prepared = rule.prepare(problem.target, problem.law)
    conditional = prepared.conditional(torch.from_numpy(tuples)).numpy()
    hit = [law[sorted({*x} - {-1})].sum() for x, law in zip(tuples, conditional, strict=True)]
    keep = prepared.terms(torch.from_numpy(tuples))[0].sum(-1).numpy()
    return float(mass @ np.array(hit)), float(mass @ keep)


@pytest.mark.parametrize("name", CLOSED)
def test_formula_equals_enumeration_and_stays_below_the_optimum(name: str):
    rule = verifiers.get(name)

    @settings(max_examples=15 if name == "importance" else 60)
    @given(instances(laws=CLOSED[name], tokens=6, drafts=1 if name == "single" else 4))
    def holds(instance: Instance):
        problem = instance.problem
        if rule.refuses(problem.law):  # single never meets the hub
            return
        found, (value, tested) = rule.acceptance(problem), enumerated(rule, problem)
        assert found.kind == "exact" and float(found.stderr) == 0
        assert abs(float(found) - value) < 1e-12 and abs(float(found.tested) - tested) < 1e-12
        assert float(found.tested) <= float(found) + 1e-15
        assert float(found) <= float(md.optimal_acceptance(problem)) + 1e-12

    holds()


@settings(max_examples=60)
@given(instances(laws=["iid"], tokens=6))
def test_k_seq_keeps_its_guarantee(instance: Instance):
    n = instance.problem.n
    optimum = float(md.optimal_acceptance(instance.problem))
    found = float(verifiers.get("k-seq").acceptance(instance.problem).tested)
    assert found >= (1 - (1 - 1 / n) ** n) * optimum - 1e-12


@pytest.mark.parametrize(
    "options", [{}, {"s": 2}, {"s": 3, "order": "ratio"}, {"s": 2, "alphabet": 3}]
)
def test_importance_loses_at_most_its_truncation_bound(options: dict):
    rule = verifiers.get("importance", **options)
    assert isinstance(rule, Importance)

    @settings(max_examples=12)
    @given(instances(laws=["iid", "independent"], tokens=6, drafts=2))
    def holds(instance: Instance):
        if instance.problem.n == 2:
            bound = md.optimal_acceptance(instance.problem) - rule.truncation(instance.problem)
            assert float(rule.acceptance(instance.problem).tested) >= float(bound) - 1e-12

    holds()


def test_importance_with_every_token_in_the_program_is_optimal():
    q, p = np.array([0.14, 0.28, 0.13, 0.1, 0.35]), np.array([0.27, 0.47, 0.05, 0.0, 0.21])
    problem = md.Problem(q, md.IID(p, 2))
    found = float(verifiers.get("importance", s=5).acceptance(problem))
    assert abs(found - float(md.optimal_acceptance(problem))) < 1e-12
    assert float(verifiers.get("importance", s=1).acceptance(problem)) < found - 0.01


@settings(max_examples=40)
@given(instances(laws=["hub"], tokens=6))
def test_greedy_and_spechub_agree_for_two_drafts(instance: Instance):
    problem = instance.problem
    greedy = md.Problem(problem.target, md.Greedy(problem.law.probs, 2, short="pad"))
    found = float(verifiers.get("spechub").acceptance(problem))
    for rule, other in (("greedy", problem), ("greedy", greedy)):
        assert abs(float(verifiers.get(rule).acceptance(other)) - found) < 1e-14
    assert abs(found - float(md.optimal_acceptance(problem))) < 1e-12


# ------------------------------------------------------------------------------ published numbers

RULES = {"SpecTr": ("k-seq", 2), "SpecInfer": ("rrs", 2), "single-draft": ("single", 1)}


def curves() -> list[tuple[str, np.ndarray, float]]:
    """Method, target, acceptance of every point of Figure 2 of 2410.18234; the draft is uniform."""
    points = []
    with open(Path(__file__).parent / "data" / "khisti2024_fig2.csv") as file:
        for row in csv.DictReader(file):
            setting = dict(part.split("=") for part in row["setting"].split(";"))
            x = Fraction(setting["q2"])
            first = Fraction(setting["target"].strip("()").split(",")[0])
            target = np.array([float(first), float(x), float(1 - first - x)])
            points.append((row["method"], target, float(row["value"])))
    return points


def test_toy_curves():
    points = curves()
    assert len(points) == 72
    for method, target, value in points:
        if method == "optimal":
            found = md.optimal_acceptance(md.Problem(target, md.IID(np.full(3, 1 / 3), 2)))
        else:
            name, n = RULES[method]
            problem = md.Problem(target, md.IID(np.full(3, 1 / 3), n))
            found = verifiers.get(name).acceptance(problem).value
        assert abs(float(found) - value) < 1e-9


@pytest.mark.parametrize(
    ("name", "law", "value"),
    [
        ("rrs", md.IID(P4, 2), 0.68),
        ("rrs", md.IID(P4, 3), 0.736),
        ("single", md.IID(P4, 1), 0.6),
        ("greedy", md.Greedy(P4, 3), 0.9),  # q(Top) + min(q, r) = .4 + (.25 + .25)
        ("naive", md.Top(P4, 2), 0.4),
    ],
)
def test_numbers_worked_out_by_hand(name: str, law: laws.Law, value: float):
    assert abs(float(verifiers.get(name).acceptance(md.Problem(Q4, law))) - value) < 1e-14


# ------------------------------------------------------------------------------------- estimates


def test_estimate_without_replacement_agrees_with_the_sum(monkeypatch: pytest.MonkeyPatch):
    rule, rng = verifiers.get("rrsw", paths=4000, seed=1), np.random.default_rng(0)
    for n in (3, 4):
        q, p = rng.dirichlet(np.full(7, 0.6), (2, 6))
        problem = md.Problem(q, md.WithoutReplacement(p, n))
        exact = rule.acceptance(problem)
        with monkeypatch.context() as patch:
            patch.setattr(rejected_paths, "_MOST_PATHS", 0)
            found = rule.acceptance(problem)
        assert exact.kind == "exact" and found.kind == "estimate"
        assert (np.abs(found.value - exact.value) < 5 * found.stderr + 1e-15).all()
        assert ((found.lower <= exact.value) & (exact.value <= found.upper)).all()
        assert (found.stderr < 0.01).all() and (found.stderr > 0).any()


def test_estimate_of_residual_hits_agrees_with_the_sum(monkeypatch: pytest.MonkeyPatch):
    rule, rng = verifiers.get("importance", s=1, samples=4000), np.random.default_rng(0)
    q, p = rng.dirichlet(np.full(6, 0.8), (2, 5))
    for law in (md.IID(p, 3), md.Independent([p, p[::-1]])):
        problem = md.Problem(q, law)
        exact = rule.acceptance(problem)
        assert (exact.value > exact.tested + 1e-3).any()  # the two figures differ
        with monkeypatch.context() as patch:
            patch.setattr(residual_hits, "_MOST_TUPLES", 0)
            found = rule.acceptance(problem)
        assert exact.kind == "exact" and found.kind == "estimate"
        assert (np.abs(found.value - exact.value) < 5 * found.stderr + 1e-15).all()
        assert ((found.lower <= exact.value) & (exact.value <= found.upper + 1e-15)).all()


def test_list_bound_is_a_bound_and_exact_for_one_draft():
    rule = verifiers.get("gls")
    one = rule.acceptance(md.Problem(Q4, md.IID(P4, 1)))
    # Pr[X = Y] of two races that share their noise, sum_j 1 / sum_i max(q_i/q_j, p_i/p_j)
    races = np.maximum(Q4[:, None] / Q4, P4[:, None] / P4).sum(0)
    assert one.kind == "exact" and abs(float(one) - (1 / races).sum()) < 1e-14
    law = md.IID(P4, 3)
    found = rule.acceptance(md.Problem(Q4, law))
    seeds = np.arange(40_000)
    drafts = rule.sample_drafts(Q4, law, uniforms=md.uniforms(seeds, rule.draft_draws(law)))
    hit = float((rule.verify(Q4, law, drafts).draft >= 0).double().mean())
    assert found.kind == "bound" and float(found) < hit + 0.01 < float(found.upper)
    assert float(found.upper) == float(md.optimal_acceptance(md.Problem(Q4, law)))


@pytest.mark.parametrize("name", [name for name in CLOSED if name != "single"])
def test_frequencies_match_both_figures(name: str):
    """Outcomes of 40,000 verifications: output is a draft, and accepted by a test."""
    rule, law = verifiers.get(name), matrix.law_of(CLOSED[name][0], P4)
    draws = 40_000
    chosen = md.uniforms(np.arange(draws), law.draws, stream=1)
    drafts = rule.sample_drafts(Q4, law, uniforms=chosen)
    out = rule.verify(Q4, law, drafts, uniforms=md.uniforms(np.arange(draws), 2))
    found = rule.acceptance(md.Problem(Q4, law))
    for part, mass in ((out.draft, found.value), (out.tested, found.tested)):
        assert testing._compare("", int((part >= 0).sum()), draws, float(mass), 1e-6) == []


# ---------------------------------------------------------------------------------------- batches


@pytest.mark.parametrize("name", [name for name in CLOSED if name != "single"])
def test_a_batch_is_its_rows(name: str):
    rng, rule = np.random.default_rng(2), verifiers.get(name)
    q, p = rng.dirichlet(np.full(9, 0.5), (2, 5))
    for kind in CLOSED[name]:
        if kind == "explicit":
            continue
        law = matrix.law_of(kind, p, 2)
        found = rule.acceptance(md.Problem(q, law))
        rows = [rule.acceptance(md.Problem(q[i], law[i])) for i in range(5)]
        for part in ("value", "tested", "lower", "upper", "stderr"):
            assert getattr(found, part).shape == (5,)
            assert np.allclose(
                getattr(found, part), [float(getattr(row, part)) for row in rows], 0, 1e-14
            )


@pytest.mark.parametrize("name", ["naive", "rrs", "rrsw", "k-seq", "greedy", "importance"])
def test_the_number_of_drafts_may_differ_by_row(name: str):
    rng, rule, counts = np.random.default_rng(3), verifiers.get(name), np.array([1, 3, 2])
    q, p = rng.dirichlet(np.full(6, 0.7), (2, 3))
    kind = {"naive": "without-replacement", "rrsw": "without-replacement", "greedy": "greedy"}
    law = kind.get(name, "iid")
    found = rule.acceptance(md.Problem(q, matrix.law_of(law, p, counts)))
    for i, n in enumerate(counts.tolist()):
        alone = rule.acceptance(md.Problem(q[i], matrix.law_of(law, p[i], n)))
        assert abs(found.value[i] - float(alone)) < 1e-14


# --------------------------------------------------------------------------------- full vocabulary


@pytest.fixture(scope="module")
def real() -> tuple[np.ndarray, np.ndarray]:
    trace = traces.frozen()
    rows = slice(0, 6)
    logits = np.stack([trace.target[rows], trace.drafts[0, rows]]).astype(np.float64)
    target, draft = md.normalise(probabilities(logits.reshape(12, -1))).reshape(2, 6, -1)
    return target, draft


REAL = [
    ("naive", "iid"), ("naive", "without-replacement"), ("naive", "top"), ("rrs", "iid"),
    ("k-seq", "iid"), ("importance", "iid"), ("rrsw", "without-replacement"), ("greedy", "greedy"),
    ("spechub", "hub"), ("gls", "iid"), ("interval", "iid"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "law"), REAL)
def test_no_rule_exceeds_the_optimum_on_real_laws(name: str, law: str, real: tuple):
    q, p = real
    for n in (2, 4):
        made = laws.make({"law": law, "n": 2 if law == "hub" else n, "short": "pad"}, p)
        problem = md.Problem(q, made)
        found, optimum = verifiers.get(name).acceptance(problem), md.optimal_acceptance(problem)
        assert (found.lower <= found.value).all() and (found.value <= found.upper).all()
        slack = 5 * found.stderr + 1e-12
        assert (found.value <= optimum + slack).all() and (
            found.tested <= found.value + 1e-12
        ).all()
        if name in ("interval", "spechub", "greedy"):
            assert np.abs(found.value - optimum).max() < 1e-9


def test_inclusion_without_replacement_agrees_with_another_integral():
    """Sum over tokens of the target times the probability that the token is drafted."""
    rng = np.random.default_rng(5)
    q, p = rng.dirichlet(np.full(30, 0.4), 2)
    for n in (2, 3, 6):
        law = md.WithoutReplacement(p, n)
        single = np.eye(30, dtype=bool)
        expected = float(sum(q[y] * law.hit(single[y]) for y in range(30)))
        found = float(verifiers.get("naive").acceptance(md.Problem(q, law)))
        assert abs(found - expected) < 1e-12


# ------------------------------------------------------------------------------ without a formula


class WithoutFormula(RRS):
    _acceptance = verifiers.Rule._acceptance


@pytest.mark.parametrize("law", ["iid", "independent"])
def test_a_rule_without_a_formula_is_summed_over_its_drafts(law: str):
    rng = np.random.default_rng(1)
    q, p = rng.dirichlet(np.full(5, 0.7), (2, 3))
    problem = md.Problem(q, matrix.law_of(law, p, 2))
    found, formula = WithoutFormula().acceptance(problem), RRS().acceptance(problem)
    assert found.kind == "exact" and found.value.shape == (3,)
    assert np.allclose(found.value, formula.value, 0, 1e-14)
    assert np.allclose(found.tested, formula.tested, 0, 1e-14)


def test_without_a_formula_many_drafts_are_sampled(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listed, "MOST_TUPLES", 0)
    problem = md.Problem(np.stack([Q4, Q4[::-1]]), md.IID(P4, 3))
    found, formula = WithoutFormula().acceptance(problem), RRS().acceptance(problem)
    assert found.kind == "estimate"
    assert (found.stderr > 0).all() and (found.stderr < 0.02).all()
    assert (np.abs(found.value - formula.value) < 5 * found.stderr).all()
    assert (found.lower <= formula.value).all() and (formula.value <= found.upper).all()
