from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import multidraft as md
from multidraft.errors import Refused
from multidraft.solvers.branch_and_bound import independent_optimum


def _law(rng: np.random.Generator, size: int, kind: str) -> np.ndarray:
    if kind == "ties":
        return md.normalise(rng.integers(0, 3, size) + (np.arange(size) == 0))
    law = rng.dirichlet(np.full(size, 0.4))
    return md.normalise(np.where(rng.random(size) < 0.2, 1e-14, law) if kind == "tiny" else law)


def _all_cuts(q: np.ndarray, drafts: tuple[np.ndarray, ...]) -> float:
    masks = np.array(list(itertools.product([False, True], repeat=len(q))))
    return float(1 + (masks @ q - np.prod([masks @ p for p in drafts], axis=0)).min())


@settings(max_examples=100)
@given(
    st.integers(1, 8), st.integers(1, 4), st.sampled_from(["plain", "ties", "tiny"]), st.integers(0)
)
def test_equals_the_minimum_over_all_cuts(size: int, n: int, kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    q, drafts = _law(rng, size, kind), tuple(_law(rng, size, kind) for _ in range(n))
    minimum = independent_optimum(q, drafts)
    assert abs(minimum.value - _all_cuts(q, drafts)) < 1e-14
    assert minimum.gap <= 2e-12


def test_equals_the_minimum_where_only_the_search_finds_it() -> None:
    for seed in (43, 280, 357, 531, 608, 746, 830, 937):
        q, *drafts = np.random.default_rng(seed).dirichlet(np.full(7, 5.0), size=3)
        minimum = independent_optimum(q, tuple(drafts))
        assert abs(minimum.value - _all_cuts(q, tuple(drafts))) < 1e-14


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("concentration", [0.05, 0.3])
def test_full_vocabulary(n: int, concentration: float) -> None:
    rng = np.random.default_rng(n)
    q, *drafts = (md.normalise(rng.gamma(concentration, size=49_152)) for _ in range(n + 1))
    problem = md.Problem(q, md.Independent(drafts))
    solution = md.solve(problem, "branch-and-bound")
    minimum = independent_optimum(q, tuple(drafts))
    assert minimum.gap < 1e-9
    assert solution.status is md.Status.VALUE_ONLY
    assert float(solution.certificate.upper) == pytest.approx(minimum.value, abs=1e-14)
    # No token moved alone improves the cut.
    inside = np.stack(drafts) @ minimum.cut
    steps = np.where(minimum.cut, -1.0, 1.0)
    change = steps * q - np.prod(inside[:, None] + steps * np.stack(drafts), 0) + np.prod(inside)
    assert change.min() > -1e-12


def test_equal_laws_give_the_iid_optimum() -> None:
    rng = np.random.default_rng(3)
    q, p = rng.dirichlet(np.full(500, 0.3), size=2)
    same = md.optimal_acceptance(md.Problem(q, md.Independent([p, p, p])))
    assert float(same) == pytest.approx(float(md.optimal_acceptance(md.Problem(q, md.IID(p, 3)))))


def test_optimal_acceptance_of_a_batch() -> None:
    rng = np.random.default_rng(4)
    q, first, second = rng.dirichlet(np.full(6, 0.5), size=(3, 5))
    values = md.optimal_acceptance(md.Problem(q, md.Independent([first, second])))
    assert values == pytest.approx(
        [_all_cuts(*row) for row in zip(q, zip(first, second, strict=True), strict=True)]
    )


def test_a_search_that_is_cut_off_says_so() -> None:
    rng = np.random.default_rng(5)
    q, *drafts = rng.dirichlet(np.full(400, 1.0), size=5)
    problem = md.Problem(q, md.Independent(drafts))
    solution = md.solve(problem, "branch-and-bound", most_boxes=2)
    assert solution.status is md.Status.LIMIT
    assert independent_optimum(q, tuple(drafts), most_boxes=2).gap > 1e-3


def test_other_laws_are_refused() -> None:
    with pytest.raises(Refused, match="branch-and-bound is for independent drafts, not iid"):
        md.solve(md.Problem([0.5, 0.5], md.IID([0.5, 0.5], 2)), "branch-and-bound")
