"""Clipped selection law, interval partition, and the plan that they make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from iid_instances import random_pairs
from strategies import instances

import multidraft as md
from multidraft.errors import Refused
from multidraft.experiments import bench_full_vocabulary as bench
from multidraft.solution import Plan
from multidraft.solvers import partition as kernels
from multidraft.solvers import prefix
from multidraft.solvers.interval import Interval, IntervalPlan
from multidraft.solvers.partition import Partition, mean_density, partition
from multidraft.solvers.selection import ClippedPlan, clipped_selection


def hit(mass: Any, n: int) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return -np.expm1(n * np.log1p(-np.minimum(mass, 1.0)))


def selection_of(q: np.ndarray, p: np.ndarray, n: int) -> tuple[float, np.ndarray]:
    value, cut = prefix.iid_optimum(q, p, n)
    return float(value), clipped_selection(q, p, n, cut).law


def plan_of(problem: md.Problem, method: str) -> Plan:
    plan = md.solve(problem, method).plan
    assert plan is not None
    return plan


def interval_plan(problem: md.Problem) -> IntervalPlan:
    plan = plan_of(problem, "interval")
    assert isinstance(plan, IntervalPlan)
    return plan


# ------------------------------------------------------------------------------- selection law


def check_selection(count: int, seed: int) -> None:
    """Optimal, and inside every constraint b(A) <= hit(A): all 2^V of them."""
    for q, p, n in random_pairs(count, tokens=8, drafts=8, seed=seed):
        value, b = selection_of(q, p, n)
        sets = (np.arange(2 ** len(q))[:, None] >> np.arange(len(q))) & 1
        assert np.minimum(q, b).sum() == pytest.approx(value, abs=2e-14)
        assert (sets @ b - hit(sets @ p, n)).max() < 2e-14
        assert b.sum() == pytest.approx(1, abs=2e-14)


def test_selection_law_is_optimal_and_realisable():
    check_selection(1500, seed=0)


@pytest.mark.long
def test_selection_law_is_optimal_and_realisable_on_many_instances():
    check_selection(12_000, seed=1)


def test_parts_are_clipped_separately():
    """One joint clip of q/p loses an acceptance of 0.2 here."""
    p, q = np.array([1 - 7e-24, 0, 0, 7e-24, 0]), np.array([0.2, 0.2, 0.2, 0.2, 0.2])
    value, b = selection_of(q, p, 2)
    assert value == pytest.approx(0.2)
    assert np.minimum(q, b).sum() == pytest.approx(0.2)


def test_levels_of_small_cases():
    q, p = np.array([0.2, 0.3, 0.5]), np.array([0.6, 0.3, 0.1])
    cut = prefix.iid_optimum(q, p, 1)[1]
    one = clipped_selection(q, p, 1, cut)
    assert one.law == pytest.approx(p)
    two = clipped_selection(q, p, 2, prefix.iid_optimum(q, p, 2)[1])
    # H holds tokens 0 and 1: 0.81 of the pairs stay there, 0.19 meet token 2.
    assert two.law == pytest.approx([0.51, 0.3, 0.19])
    assert float(two.low) == pytest.approx(0.85)
    assert float(two.high) == pytest.approx(1.9)
    equal = clipped_selection(p, p, 3, prefix.iid_optimum(p, p, 3)[1])
    assert (equal.law == p).all()
    assert float(equal.low) == 0
    assert float(equal.high) == np.inf


def test_no_optimal_law_is_less_spread():
    """Convex order against the selection laws of other optimal plans."""
    for q, p, n in random_pairs(60, tokens=5, drafts=3, seed=2):
        problem = md.Problem(q, md.IID(p, n))
        _, b = selection_of(q, p, n)
        other = plan_of(problem, "relaxed-lp").selection
        own, its = b[p > 0] / p[p > 0], other[p > 0] / p[p > 0]
        for level in np.concatenate([own, its]):
            spread = p[p > 0] @ np.maximum(own - level, 0)
            assert spread <= p[p > 0] @ np.maximum(its - level, 0) + 1e-9


# ----------------------------------------------------------------------------------- partition


def check_partition(q: np.ndarray, p: np.ndarray, n: int) -> None:
    value, b = selection_of(q, p, n)
    pieces = partition(p, b, n)[0]
    assert np.abs(pieces.realised(p) - b).max() < 1e-12
    assert pieces.length_error(p) < 1e-14
    assert np.minimum(q, pieces.realised(p)).sum() == pytest.approx(value, abs=1e-12)
    assert (np.sort(pieces.rank) == np.arange(len(pieces.rank))).all()
    assert len(pieces.rank) <= 2 * np.count_nonzero(p)


def test_partition_realises_the_selection_law():
    for q, p, n in random_pairs(1000, tokens=80, drafts=64, seed=3):
        check_partition(q, p, n)


@pytest.mark.long
def test_partition_realises_the_selection_law_on_many_instances():
    for q, p, n in random_pairs(10_000, tokens=300, drafts=64, seed=4):
        check_partition(q, p, n)


def test_partition_at_full_vocabulary():
    for q, p, n in big_pairs(49_152, [2]):
        check_partition(q, p, n)


@pytest.mark.long
def test_partition_at_the_largest_vocabulary():
    for q, p, n in big_pairs(262_144, [1, 2, 3, 4, 8, 16, 64]):
        check_partition(q, p, n)


def big_pairs(size: int, counts: list[int]) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Model-like laws, peaked and flat, near and far from each other."""
    rng = np.random.default_rng(size)
    for n in counts:
        for scale, noise in ((2.0, 1.0), (3.0, 0.3), (7.0, 1.0), (0.0, 1.0)):
            logits = scale * rng.normal(size=size)
            draft = logits + noise * rng.normal(size=size)
            q, p = np.exp(logits - logits.max()), np.exp(draft - draft.max())
            yield md.normalise(q), md.normalise(p), n


@pytest.mark.parametrize("n", [2, 3, 8, 64])
def test_an_interval_of_any_length_is_placed_to_the_last_digit(n):
    rng = np.random.default_rng(n)
    for length in 10.0 ** rng.uniform(-20, 0, 200):
        left = rng.uniform(length, 1)
        density = mean_density(left, left - length, n)
        x = kernels._position(length, density, n)
        assert mean_density(x, x - length, n) == pytest.approx(density, rel=n * 1e-15)


def test_tokens_too_light_to_move_an_edge_add_up():
    """40,000 tokens of mass 1e-17 straddle the block [0.2, 0.5]; the last token finds it wider."""
    light, mass, n = 40_000, 1e-17, 8
    heavy, gain = np.array([0.1, 0.3]), np.array([hit(0.1, n), hit(0.5, n) - hit(0.2, n)])
    below = gain[1] / heavy[1] * (1 - np.linspace(1e-6, 1e-3, light))  # densities, all distinct
    p = np.concatenate([heavy, np.full(light, mass), [0.6 - light * mass]])
    b = np.concatenate([gain, below * mass, [1 - gain.sum() - (below * mass).sum()]])
    assert np.abs(partition(p, b, n)[0].realised(p) - b).max() < 2e-15


def some_realisable_law(rng: np.random.Generator, p: np.ndarray, n: int) -> np.ndarray:
    """A mixture of priority orders, the vertices of the base polytope."""
    law = np.zeros(len(p))
    for weight in rng.dirichlet(np.ones(rng.integers(1, 4))):
        order = rng.permutation(len(p))
        law[order] += weight * np.diff(hit(np.cumsum(p[order]), n), prepend=0.0)
    return np.maximum(law, 0.0)


def test_every_realisable_law_has_a_partition():
    """Not only the clipped one: vertices of the base polytope are met as well."""
    rng = np.random.default_rng(5)
    for _, p, n in random_pairs(600, tokens=60, drafts=8, seed=6):
        b = some_realisable_law(rng, p, n)
        assert np.abs(partition(p, b, n)[0].realised(p) - b).max() < 1e-13


def test_law_outside_the_polytope_is_found_out():
    p, b = np.array([0.5, 0.3, 0.2]), np.array([0.9, 0.1, 0.0])
    assert np.abs(partition(p, b, 2)[0].realised(p) - b).max() > 0.05
    problem = md.Problem(b, md.IID(p, n=2))
    assert ClippedPlan(problem, b).violation() == pytest.approx(0.15)
    assert IntervalPlan(problem, b).violation() > 0.05


# ------------------------------------------------------------------------------- verifier side


@settings(max_examples=100)
@given(instances(laws=["iid"]))
def test_plan_against_enumeration(instance):
    problem = instance.problem
    solution = md.solve(problem, "interval")
    assert solution.status is md.Status.OPTIMAL
    assert abs(solution.certificate.gap) < 1e-12
    assert solution.certificate.violation < 1e-13
    tuples, mass = problem.law.enumerate()
    plan = solution.plan
    assert isinstance(plan, IntervalPlan)
    weights = plan.weights(tuples)
    assert weights.sum(-1) == pytest.approx(1, abs=1e-13)
    selected = np.bincount(tuples.ravel(), (weights * mass[:, None]).ravel(), problem.vocabulary)
    assert selected == pytest.approx(plan.selection, abs=1e-13)
    assert plan.output_law() == pytest.approx(problem.target, abs=1e-13)


def times_of(pieces: Partition, token: int, grid: np.ndarray) -> np.ndarray:
    """Survival function of a token's time on a grid of places in the order of pieces."""
    k = pieces.region[token]
    own = slice(pieces.offsets[k], pieces.offsets[k + 1])
    return np.interp(
        grid,
        np.ravel([pieces.rank[own], pieces.rank[own] + 1], order="F"),
        np.ravel([pieces.survival[own], np.append(pieces.survival[own][1:], 0.0)], order="F"),
        left=1.0,
        right=0.0,
    )


def test_weights_are_the_integral_over_times():
    """Pr[draft i is earliest] by a fine grid, repeats and shared pieces included."""
    for q, p, n in random_pairs(40, tokens=12, drafts=4, seed=7):
        _, b = selection_of(q, p, n)
        pieces = partition(p, b, n)[0]
        drafts = np.random.default_rng(n).choice(len(p), n, p=p)
        grid = np.linspace(0, len(pieces.rank), 400 * len(pieces.rank) + 1)
        alive = np.stack([times_of(pieces, y, grid) for y in drafts])
        middle = (alive[:, 1:] + alive[:, :-1]) / 2
        expected = np.zeros(n)
        for i in range(n):
            first = list(drafts).index(drafts[i])
            others = np.prod(np.delete(middle, i, axis=0), axis=0)
            expected[first] += (-np.diff(alive[i]) * others).sum()
        assert pieces.weights(drafts[None])[0] == pytest.approx(expected, abs=1e-5)


def test_earliest_draft_has_the_exact_weights():
    rng = np.random.default_rng(8)
    for q, p, n in random_pairs(20, tokens=6, drafts=4, seed=9):
        _, b = selection_of(q, p, n)
        pieces = partition(p, b, n)[0]
        drafts = rng.choice(len(p), n, p=p)
        chosen = pieces.select(np.tile(drafts, (20_000, 1)), rng.random((20_000, n)))
        counts = np.bincount(chosen, minlength=n)
        weights = pieces.weights(drafts[None])[0]
        for y in set(drafts.tolist()):  # weights put a token's chance on its first position
            frequency, chance = counts[drafts == y].sum() / 20_000, weights[drafts == y].sum()
            assert frequency == pytest.approx(chance, abs=5 * np.sqrt(0.25 / 20_000))


def test_padding_and_repeats():
    problem = md.Problem([0.2, 0.3, 0.5], md.IID([0.6, 0.3, 0.1], n=3))
    plan = interval_plan(problem)
    weights = plan.weights(np.array([[1, 1, 1], [2, -1, -1], [0, 2, 0]]))
    assert weights[:2] == pytest.approx(np.array([[1, 0, 0], [1, 0, 0]]))
    assert weights[2, 2] == 0
    assert plan.conditional(np.array([0, 2, 0])).sum() == pytest.approx(1)
    assert plan.partitions[0].select(np.array([[2, -1, -1]]), np.zeros((1, 3))) == [0]


def test_output_law_at_full_vocabulary():
    """Chi-square on the 99 likeliest tokens and the rest, error rate 1e-4, seed fixed."""
    [(q, p, n), *_] = big_pairs(49_152, [4])
    problem = md.Problem(q, md.IID(p, n))
    plan = interval_plan(problem)
    rng, draws = np.random.default_rng(10), 100_000
    drafts = problem.law.sample(draws, rng)
    outputs = plan.sample(drafts, rng.random((draws, 2)))
    top = np.argsort(-q)[:99]
    expected = np.append(q[top], 1 - q[top].sum()) * draws
    counts = np.bincount(outputs, minlength=len(q))[top]
    observed = np.append(counts, draws - counts.sum())
    statistic = ((observed - expected) ** 2 / expected).sum()
    assert statistic < 160.1  # the 1 - 1e-4 quantile of chi-square with 99 degrees of freedom
    # The same test rejects drafts taken unverified.
    counts = np.bincount(drafts[:, 0], minlength=len(q))[top]
    assert ((np.append(counts, draws - counts.sum()) - expected) ** 2 / expected).sum() > 1000


# -------------------------------------------------------------------------------------- solver


def test_batches_with_their_own_number_of_drafts():
    rng = np.random.default_rng(11)
    q, p = rng.dirichlet(np.ones(9), 5), rng.dirichlet(np.ones(9))
    counts = np.array([1, 2, 3, 4, 2])
    problem = md.Problem(q, md.IID(p, counts))
    solution = md.solve(problem, "interval")
    assert solution.acceptance.shape == (5,)
    assert solution.certificate.violation.shape == (5,)
    for i in range(5):
        one = interval_plan(md.Problem(q[i], md.IID(p, int(counts[i]))))
        assert float(one.value()) == pytest.approx(solution.acceptance[i], abs=1e-15)
        drafts, row = rng.choice(9, counts[i], p=p), solution[i].plan
        assert row is not None
        assert (row.conditional(drafts) == one.conditional(drafts)).all()
    with pytest.raises(Refused, match="one context"):
        interval_plan(problem).conditional(np.array([0, 1, 2, 3]))


def test_subset_and_interval_give_the_same_plan():
    problem = md.Problem([0.15, 0.25, 0.25, 0.35], md.IID([0.45, 0.35, 0.15, 0.05], n=2))
    subset, interval = md.solve(problem, "subset"), md.solve(problem, "interval")
    assert float(subset.acceptance) == float(interval.acceptance) == pytest.approx(0.7475)
    assert subset.certificate.violation < 1e-15
    drafts = np.array([0, 3])
    plans = [plan_of(problem, method) for method in ("subset", "interval")]
    assert (plans[0].conditional(drafts) == plans[1].conditional(drafts)).all()


def test_other_laws_are_refused():
    problem = md.Problem([0.5, 0.5], md.WithoutReplacement([0.5, 0.5], n=2))
    assert "iid" in (Interval().refuses(problem) or "")
    with pytest.raises(Refused, match="without-replacement"):
        Interval().solve(problem)


def test_benchmark_rows_and_table():
    rows = bench.measure([60], [2], repeats=1)
    assert {row["laws"] for row in rows} == {"synthetic", "recorded"}
    assert [row["units"] for row in rows if row["step"] == bench.UNIT] == [1, 1]
    assert all(row["milliseconds"] > 0 and row["bytes"] > 0 for row in rows)
    assert len(bench.table(rows).splitlines()) == 4
