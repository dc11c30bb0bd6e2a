from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Instance, instances

import multidraft as md
from multidraft.errors import Refused
from multidraft.laws import Law
from multidraft.solvers import entropic
from multidraft.solvers.entropic import EntropicPlan
from multidraft.solvers.entropic_dual import Block
from multidraft.solvers.entropic_laws import generating
from multidraft.solvers.entropic_sums import Dense, Panels
from multidraft.solvers.selection import clipped_selection

LAWS = ("iid", "independent", "without-replacement")


def _psi(law: Law, g: np.ndarray) -> np.ndarray:
    """Generating function at rows of `g`, through the sums."""
    psi = generating(law)
    sums = [torch.tensor(rows) @ torch.tensor(g.T**r) for r, rows in enumerate(psi.rows, 1)]
    return psi.algebra(sums).numpy()


def _laws(rng: np.random.Generator, size: int, n: int) -> list[Law]:
    p = md.normalise(10.0 ** -rng.uniform(0, rng.choice([1, 10]), size))
    others = [rng.dirichlet(np.full(size, 0.5)) for _ in range(n)]
    return [md.IID(p, n), md.Independent(others), md.WithoutReplacement(p, n, short="pad")]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [2, 5, 12])
def test_generating_functions_against_enumeration(n: int, size: int) -> None:
    rng = np.random.default_rng(10 * n + size)
    g = np.exp(-(10.0 ** rng.uniform(-4, 3, (3, size))))
    for law in _laws(rng, size, n):
        tuples, mass = law.enumerate()
        expected = np.where(tuples >= 0, g[:, np.maximum(tuples, 0)], 1.0).prod(-1) @ mass
        assert _psi(law, g) == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("n", [3, 8])
def test_arrivals_give_the_probability_to_stay(n: int) -> None:
    rng = np.random.default_rng(n)
    law = md.WithoutReplacement(rng.dirichlet(np.full(300, 0.5)), n)
    mask = rng.random(300) < 0.9
    assert _psi(law, mask[None] * 1.0)[0] == pytest.approx(float(law.stay(mask)), abs=1e-13)


def test_panels_are_the_table() -> None:
    rng = np.random.default_rng(0)
    logs = torch.tensor(rng.normal(scale=6, size=400))
    nodes = torch.exp(torch.arange(-30.0, 20.0, 0.7, dtype=torch.float64))
    rows, values = torch.rand(2, 400).double(), torch.rand(2, len(nodes)).double()
    dense, panels = Dense(logs, nodes, 2), Panels(logs, nodes, 2)
    for r in (1, 2):
        assert torch.allclose(dense.down(rows, r), panels.down(rows, r), rtol=0, atol=1e-10)
        assert torch.allclose(dense.up(values, r), panels.up(values, r), rtol=0, atol=1e-10)


def _solve(problem: md.Problem, **options: Any) -> EntropicPlan:
    plan = md.solve(problem, "entropic", **options).plan
    assert isinstance(plan, EntropicPlan)
    return plan


def _block(law: Law, *, reject: bool) -> tuple[Block, np.ndarray, np.ndarray]:
    """A block on half of six tokens, with the masks of its own and of the fixed tokens."""
    free = np.array([True, True, True, False, False, False])
    ones = np.array([False, False, False, True, True, False])
    target = np.array([0.1, 0.2, 0.15, 0.25, 0.2, 0.1])
    return Block(generating(law), target, free, ones, reject=reject), free, ones


@pytest.mark.parametrize("reject", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_duals_and_their_gradients_against_enumeration(n: int, reject: bool) -> None:
    rng = np.random.default_rng(n)
    for law in _laws(rng, 6, n):
        block, free, ones = _block(law, reject=reject)
        logs = torch.tensor(rng.normal(scale=2, size=3))
        weights = np.zeros(6)
        weights[free] = np.exp(logs.numpy())
        tuples, mass = law.enumerate()
        reached = (free | ones)[tuples].all(-1) & (free[tuples].any(-1) | reject)
        tuples, mass = tuples[reached], mass[reached]
        total = weights[tuples].sum(-1) + reject
        value = mass @ np.log(total) - block.target.numpy() @ logs.numpy()
        shares = weights[tuples] / total[:, None] * mass[:, None]
        marginals = np.bincount(tuples.ravel(), shares.ravel(), minlength=6)[free]
        point = block.at(logs)
        assert point.value() == pytest.approx(value, abs=1e-12)
        assert point.marginals().numpy() == pytest.approx(marginals, abs=1e-13)


@pytest.mark.parametrize("reject", [False, True])
def test_hessian_products_are_differences_of_the_gradient(reject: bool) -> None:
    rng = np.random.default_rng(5)
    for law in _laws(rng, 6, 3):
        block, _, _ = _block(law, reject=reject)
        logs, vector = torch.tensor(rng.normal(size=3)), torch.tensor(rng.normal(size=3))
        ahead, behind = (block.at(logs + h * vector).marginals() for h in (1e-5, -1e-5))
        point = block.at(logs)
        product = point.hessian(vector, point.curvature())
        assert product.numpy() == pytest.approx(((ahead - behind) / 2e-5).numpy(), abs=1e-9)


@settings(max_examples=40)
@given(instances(laws=LAWS))
def test_optimal_and_lossless_on_every_family(instance: Instance) -> None:
    problem = instance.problem
    solution = md.solve(problem, "entropic")
    certificate = solution.certificate
    assert abs(float(certificate.gap)) < 1e-10
    assert float(certificate.violation) < 1e-12
    assert solution.plan is not None
    assert np.abs(solution.plan.output_law() - problem.target).max() < 1e-12
    if instance.answer is not None:
        assert float(solution.acceptance) == pytest.approx(instance.answer, abs=1e-10)


@settings(max_examples=25)
@given(st.sampled_from(LAWS), st.integers(0))
def test_selection_is_what_the_weights_realise(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    law = _laws(rng, 5, 3)[LAWS.index(name)]
    problem = md.Problem(rng.dirichlet(np.full(5, 0.5)), law)
    # Weights from anywhere: three steps of L-BFGS-B do not converge.
    plan = _solve(problem, finish=False, iterations=3)
    tuples, mass = law.enumerate()
    shares = plan.weights(tuples) * mass[:, None]
    realised = np.bincount(np.maximum(tuples, 0).ravel(), shares.ravel(), minlength=5)
    assert np.abs(plan.selection - realised).max() < 1e-12
    assert np.abs(plan.output_law() - problem.target).max() < 1e-12


@pytest.mark.parametrize("name", LAWS)
def test_tokens_without_target_mass_stand_beside_the_others(name: str) -> None:
    p = np.array([0.5, 0.35, 0.1, 0.05])
    parts = [p, np.array([0.4, 0.5, 0.05, 0.05])]
    laws = [md.IID(p, 2), md.Independent(parts), md.WithoutReplacement(p, 2)]
    plan = _solve(md.Problem([0.1, 0.0, 0.5, 0.4], laws[LAWS.index(name)]))
    assert plan.cut.tolist() == [True, True, False, False]
    pair = plan.weights(np.array([[0, 1]]))[0]
    assert pair == pytest.approx([1 / (1 + np.exp(-plan.logs[0])), 0])
    assert plan.output_law() == pytest.approx(plan.problem.target, abs=1e-12)


def test_weights_of_a_tuple() -> None:
    problem = md.Problem([0.1, 0.1, 0.3, 0.3, 0.2], md.IID([0.5, 0.3, 0.1, 0.1, 0.0], 3))
    plan = _solve(problem)
    w = np.exp(plan.logs)
    assert plan.cut.tolist() == [True, True, False, False, False]
    leaving, repeated, inside = plan.weights(np.array([[0, 2, 3], [2, 2, 3], [0, 1, 1]]))
    assert leaving == pytest.approx([0, w[2] / (w[2] + w[3]), w[3] / (w[2] + w[3])])
    assert repeated == pytest.approx(np.array([w[2], w[2], w[3]]) / (2 * w[2] + w[3]))
    assert inside == pytest.approx(np.array([w[0], w[1], w[1]]) / (1 + w[0] + 2 * w[1]))
    assert inside.sum() < 1 - 1e-3


def test_iid_drafts_realise_the_clipped_law_outside_the_cut() -> None:
    rng = np.random.default_rng(1)
    q, p = np.sqrt(rng.dirichlet(np.full(50, 0.5), size=2))
    problem = md.Problem(md.normalise(q), md.IID(md.normalise(p), 3))
    plan = _solve(problem)
    clipped = clipped_selection(problem.target, problem.law.probs, 3, plan.cut)
    outside = ~plan.cut
    assert (clipped.law < problem.target - 1e-6)[outside].any()
    assert (clipped.law == problem.target)[outside].any()
    assert plan.selection[outside] == pytest.approx(clipped.law[outside], abs=1e-10)


Make = Callable[[np.random.Generator, int], Law]
SIZES: dict[str, tuple[int, Make]] = {
    "iid": (3000, lambda rng, v: md.IID(_spread(rng, v), 4)),
    "independent": (3000, lambda rng, v: md.Independent([_spread(rng, v) for _ in range(3)])),
    "two without replacement": (3000, lambda rng, v: md.WithoutReplacement(_spread(rng, v), 2)),
    "four without replacement": (300, lambda rng, v: md.WithoutReplacement(_spread(rng, v), 4)),
}


def _spread(rng: np.random.Generator, size: int) -> np.ndarray:
    """A law like a language model's: log-normal masses over many orders of magnitude."""
    return md.normalise(np.exp(rng.normal(scale=3, size=size)))


@pytest.mark.parametrize("name", SIZES)
def test_gap_before_and_after_the_finish(name: str) -> None:
    size, make = SIZES[name]
    rng = np.random.default_rng(7)
    problem = md.Problem(_spread(rng, size), make(rng, size))
    descended = md.solve(problem, "entropic", finish=False, tolerance=0.0).certificate
    finished = md.solve(problem, "entropic").certificate
    assert abs(float(descended.gap)) < 1e-8
    assert abs(float(finished.gap)) < 1e-10
    assert float(finished.violation) < 1e-12
    assert float(finished.upper) == pytest.approx(float(md.optimal_acceptance(problem)), abs=1e-12)


@pytest.mark.parametrize("kind", ["iid", "independent", "without-replacement"])
def test_a_batch_is_its_rows(kind):
    rng = np.random.default_rng(3)
    q, first, second = rng.dirichlet(np.full(12, 0.7), (3, 4))
    law = {
        "iid": md.IID(first, 3),
        "independent": md.Independent([first, second]),
        "without-replacement": md.WithoutReplacement(first, 3),
    }[kind]
    problem = md.Problem(q, law)
    together = _solve(problem)
    assert together.quadrature_error.shape == (4,)
    for i in range(4):
        alone = _solve(problem[i])
        np.testing.assert_array_equal(together.selection[i], alone.selection)
        np.testing.assert_array_equal(together.row(i).logs, alone.logs)
        np.testing.assert_allclose(together.row(i).output_law(), q[i], atol=1e-12)
    certificate = md.solve(problem, "entropic").certificate
    assert (certificate.gap < 1e-10).all() and (certificate.violation < 1e-12).all()


def test_three_different_drafts_at_full_vocabulary() -> None:
    rng = np.random.default_rng(2)
    common = rng.normal(scale=3, size=49_152)
    q, *drafts = (md.normalise(np.exp(common + rng.normal(size=49_152))) for _ in range(4))
    solution = md.solve(md.Problem(q, md.Independent(drafts)), "entropic")
    assert solution.status is md.Status.OPTIMAL
    assert abs(float(solution.certificate.gap)) < 1e-10
    assert float(solution.acceptance) < 1 - 1e-3


def test_iterations_that_do_not_suffice_are_reported() -> None:
    rng = np.random.default_rng(3)
    q, p = rng.dirichlet(np.full(40, 0.3), size=2)
    solution = md.solve(md.Problem(q, md.IID(p, 2)), "entropic", iterations=1)
    assert solution.status is md.Status.LIMIT
    assert 1e-9 < float(solution.certificate.gap) < 0.5


def test_refusals_name_the_way_out() -> None:
    top = md.Problem([0.5, 0.5], md.Top([0.5, 0.5], 1))
    with pytest.raises(Refused, match="not top: use subset"):
        md.solve(top, "entropic")
    size = entropic.MOST_ENTRIES // 4 + 1
    uniform = np.full(size, 1 / size)
    wide = md.Problem(uniform, md.WithoutReplacement(uniform, 4))
    with pytest.raises(Refused, match="truncate the draft with draft_top_k"):
        md.solve(wide, "entropic")
