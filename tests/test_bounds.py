"""Every named bound lies on its side of the optimum; formulas against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import Instance, instances

import multidraft as md
from multidraft.errors import InputError, Refused

ROUND_OFF = 1e-12


@settings(max_examples=150)
@given(instances())
def test_every_bound_lies_on_its_side(instance: Instance):
    optimum = float(md.optimal_acceptance(instance.problem))
    for bound in md.bounds.evaluate(instance.problem):
        if bound.of != "optimal acceptance":
            continue
        if bound.side == "lower":
            assert bound.value <= optimum + ROUND_OFF, bound
        else:
            assert bound.value >= optimum - ROUND_OFF, bound


@settings(max_examples=40)
@given(instances(families=["equal"], laws=["iid", "independent"]))
def test_bounds_that_are_tight_for_equal_laws(instance: Instance):
    bounds = {bound.name: float(bound.value) for bound in md.bounds.evaluate(instance.problem)}
    assert bounds["single-draft"] == pytest.approx(1)
    assert bounds["union"] == pytest.approx(1)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_list_coupling_is_the_double_sum(n: int):
    rng = np.random.default_rng(n)
    q, p = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(6))
    q[2] = p[4] = 0
    q, p = md.normalise(q), md.normalise(p)
    total = 0.0
    for j in np.flatnonzero((q > 0) & (p > 0)):
        total += n / (np.maximum(q / q[j], p / p[j]) + (n - 1) * q / q[j]).sum()
    bound = md.bounds.get("list-coupling", md.Problem(q, md.IID(p, n)))
    assert float(bound.value) == pytest.approx(total, abs=1e-14)


def test_k_seq_and_union_sandwich_the_optimum():
    q, p = [0.15, 0.25, 0.25, 0.35], [0.45, 0.35, 0.15, 0.05]
    problem = md.Problem(q, md.IID(p, 3))
    bounds = {bound.name: bound for bound in md.bounds.evaluate(problem)}
    covered = np.minimum(q, 3 * np.array(p)).sum()
    assert float(bounds["k-seq"].value) == pytest.approx((1 - (2 / 3) ** 3) * covered)
    assert float(bounds["union"].value) == pytest.approx(min(1, 3 * np.minimum(q, p).sum()))
    assert float(bounds["k-seq"].value) < float(md.optimal_acceptance(problem))


def test_support_bounds():
    problem = md.Problem([0.5, 0.5, 0.0, 0.0], md.IID([0.0, 0.4, 0.4, 0.2], 2))
    bounds = {bound.name: float(bound.value) for bound in md.bounds.evaluate(problem)}
    assert bounds["draft-support"] == pytest.approx(0.5)
    assert bounds["target-support"] == pytest.approx(1 - 0.6**2)


def test_truncation_loss_bounds_what_importance_sampling_loses():
    rng = np.random.default_rng(0)
    lossy = 0
    for _ in range(20):
        q, p = rng.dirichlet(np.ones(9)), rng.dirichlet(np.ones(9))
        problem = md.Problem(q, md.IID(p, 2))
        loss = float(md.bounds.get("truncation-loss", problem).value)
        reached = float(md.verifiers.get("importance").acceptance(problem).tested)
        optimum = float(md.optimal_acceptance(problem))
        assert reached >= optimum - loss - 1e-9
        lossy += reached < optimum - 1e-6
    assert lossy > 0


def test_batches_keep_their_shape():
    rng = np.random.default_rng(1)
    q, p = rng.dirichlet(np.ones(8), size=3), rng.dirichlet(np.ones(8), size=3)
    batch = md.Problem(q, md.IID(p, np.array([1, 2, 3])))
    for bound in md.bounds.evaluate(batch):
        assert bound.value.shape == (3,)
        for i in range(3):
            row = md.bounds.get(bound.name, batch[i])
            assert float(bound.value[i]) == pytest.approx(float(row.value), abs=1e-15)


def test_each_law_has_its_bounds_and_refuses_the_others():
    problem = md.Problem([0.2, 0.3, 0.5], md.Top([0.6, 0.3, 0.1], 2))
    assert md.bounds.available(problem) == ("target-support", "draft-support")
    assert set(md.bounds.available(problem)) < set(md.bounds.names())
    with pytest.raises(Refused, match="holds for iid drafts, not for top drafts"):
        md.bounds.get("k-seq", problem)
    with pytest.raises(InputError, match="choose one of"):
        md.bounds.get("k_seq", problem)
