"""The prefix-rule kernels against all cuts, exact arithmetic, and enumeration of the draws."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from iid_instances import random_pairs
from strategies import instances

import multidraft as md
from multidraft.solvers import prefix


def all_sets(size: int) -> np.ndarray:
    return (np.arange(2**size)[:, None] >> np.arange(size)) & 1 == 1


def chain_optimum(q: np.ndarray, p: np.ndarray, n: int) -> float:
    """Every prefix of the full sort."""
    order = np.argsort(np.divide(q, p, out=np.full(len(q), np.inf), where=p > 0), kind="stable")
    order = order[p[order] > 0]
    inside = np.append(0.0, np.cumsum(q[order]))
    outside = np.append(np.cumsum(p[order][::-1])[::-1], 0.0)
    hit = [-math.expm1(n * math.log1p(-x)) if x < 1 else 1.0 for x in outside]
    return min(1.0, float((inside + hit).min()))


@settings(max_examples=150)
@given(instances(laws=["iid", "without-replacement"], tokens=7))
def test_no_set_of_tokens_beats_the_prefix(instance):
    problem = instance.problem
    sets = all_sets(problem.vocabulary)
    values = (sets * problem.target).sum(-1) + problem.law.hit(~sets)
    kernel = prefix.iid_optimum if problem.law.name == "iid" else prefix.without_replacement_optimum
    value, cut = kernel(problem.target, problem.law.probs, problem.n)
    assert value == pytest.approx(values.min(), abs=1e-13)
    attained = problem.target[cut].sum() + problem.law.hit(~cut)
    assert value == pytest.approx(float(attained), abs=1e-13)


def check_against_chain(count: int, seed: int) -> None:
    for q, p, n in random_pairs(count, tokens=2000, drafts=16, seed=seed):
        value, cut = prefix.iid_optimum(q, p, n)
        assert value == pytest.approx(chain_optimum(q, p, n), rel=1e-13, abs=0)
        assert not cut[p == 0].any()
        # The set is decided by the ratio alone: tokens of equal ratio are on one side.
        ratio = np.divide(q, p, out=np.full(len(q), np.inf), where=p > 0)
        assert not cut.any() or ratio[cut].max() < ratio[~cut].min(initial=np.inf) or cut.all()


def test_iid_optimum_without_a_sort():
    check_against_chain(400, seed=0)


@pytest.mark.long
def test_iid_optimum_without_a_sort_on_many_instances():
    check_against_chain(10_000, seed=1)


def test_the_best_cut_lies_inside_a_bucket():
    """The ratio of 400 light tokens crosses the slope 2 p(H) of p(H)^2 between bucket edges."""
    band = np.linspace(1.195, 1.215, 400)
    p = np.concatenate([[0.6], np.full(400, 1e-5), [0.396]])
    q = np.concatenate([[0.06], 1e-5 * band, [0.0]])
    q[-1] = 1 - q.sum()
    value, cut = prefix.iid_optimum(q, p, 2)
    assert value == pytest.approx(chain_optimum(q, p, 2), abs=1e-14)
    assert 1 < cut.sum() < 401


def test_small_optimum_keeps_its_relative_accuracy():
    q, p, n = np.array([1 - 1e-20, 1e-20, 0.0]), np.array([1e-20, 0.0, 1.0]), 3
    exact = 1 - (1 - Fraction(p[0])) ** n
    value, cut = prefix.iid_optimum(q, p, n)
    assert value == pytest.approx(float(exact), rel=1e-15)
    assert cut.tolist() == [False, False, True]


def test_optimum_one_gives_the_empty_set():
    p = np.array([0.5, 0.25, 0.25])
    value, cut = prefix.iid_optimum(p, p, 2)
    assert value == 1.0
    assert not cut.any()


def test_batches_equal_their_rows(monkeypatch):
    monkeypatch.setattr(prefix.numba, "get_num_threads", lambda: 3)
    rng = np.random.default_rng(3)
    q, p = rng.dirichlet(np.ones(30), size=7), rng.dirichlet(np.ones(30))
    counts = rng.integers(1, 5, 7)
    for kernel in (prefix.iid_optimum, prefix.without_replacement_optimum):
        value, cut = kernel(q, p, counts)
        assert value.shape == (7,)
        for i in range(7):
            one, one_cut = kernel(q[i], p, int(counts[i]))
            assert one.shape == ()
            assert one == value[i]
            assert (one_cut == cut[i]).all()


def test_inputs_are_left_alone():
    q, p = np.array([0.2, 0.3, 0.5]), np.array([0.6, 0.3, 0.1])
    q.flags.writeable = p.flags.writeable = False
    prefix.iid_optimum(q, p, 2)
    prefix.without_replacement_optimum(q, p, 2)


@pytest.mark.parametrize("size", [0, 1, 5, 3000])
def test_radix_sort_is_the_stable_sort(size):
    rng = np.random.default_rng(size)
    values = rng.choice([0.0, 5e-324, 1e-300, 0.5, 1.0, 1.5, np.inf], size)
    values[: size // 2] = rng.random(size // 2)
    order = prefix.argsort_nonnegative(values)
    assert (order == np.argsort(values, kind="stable")).all()


# ---------------------------------------------------------------------- drafts without replacement


def stay_by_enumeration(p: np.ndarray, inside: np.ndarray, n: int) -> float:
    """Sum over ordered draws, what is left summed over the other tokens."""

    def draw(left: tuple[int, ...], missing: int) -> float:
        if missing == 0:
            return 1.0
        total = math.fsum(p[i] for i in left)
        return math.fsum(
            p[i] / total * draw(tuple(j for j in left if j != i), missing - 1)
            for i in left
            if inside[i]
        )

    support = tuple(int(i) for i in np.flatnonzero(p))
    return draw(support, min(n, len(support)))


@pytest.mark.parametrize("digits", [1, 5, 30, 300])
def test_stay_without_replacement_on_peaked_laws(digits):
    rng = np.random.default_rng(digits)
    for _ in range(40):
        size, n = int(rng.integers(2, 7)), int(rng.integers(1, 6))
        p = md.normalise(10.0 ** rng.uniform(-digits, 0, size))
        inside = rng.random(size) < 0.6
        expected = stay_by_enumeration(p, inside, n)
        stay = prefix.without_replacement_stay(p, inside, n)
        assert stay == pytest.approx(expected, abs=1e-13)


def test_two_drafts_without_replacement_have_a_closed_form():
    rng = np.random.default_rng(4)
    q, p = rng.dirichlet(np.full(500, 0.3)), rng.dirichlet(np.full(500, 0.3))
    value, cut = prefix.without_replacement_optimum(q, p, 2)
    held = p[cut]
    closed = (held * (held.sum() - held) / (1 - held)).sum()
    assert value == pytest.approx(1 + q[cut].sum() - closed, abs=1e-14)
    assert prefix.without_replacement_stay(p, cut, 2) == pytest.approx(closed, abs=1e-14)


@pytest.mark.parametrize("n", [3, 4, 8])
def test_quadrature_agrees_with_a_step_of_half_the_size(n, monkeypatch):
    rng = np.random.default_rng(n)
    logits = rng.normal(size=2000) * 3
    p, q = md.normalise(np.exp(logits)), md.normalise(np.exp(logits + rng.normal(size=2000)))
    value, _ = prefix.without_replacement_optimum(q, p, n)
    step = prefix._trapezoid_step
    monkeypatch.setattr(prefix, "_trapezoid_step", lambda n: step(n) / 2)
    assert value == pytest.approx(prefix.without_replacement_optimum(q, p, n)[0], abs=1e-13)


def test_short_supports_draft_every_token():
    p, q = np.array([0.7, 0.3, 0.0]), np.array([0.5, 0.2, 0.3])
    value, cut = prefix.without_replacement_optimum(q, p, 5)
    assert value == pytest.approx(0.7)
    assert cut.tolist() == [True, True, False]
    assert prefix.without_replacement_stay(p, np.array([True, True, False]), 5) == 1.0
    assert prefix.without_replacement_stay(p, np.array([True, False, True]), 5) == 0.0
