"""The block program: known values, certificates, and every rule below it."""

from __future__ import annotations

import re

import numpy as np
import pytest

import multidraft as md
from multidraft import results, trees
from multidraft.errors import InputError
from multidraft.experiments import tree_estimate, tree_optimum, tree_report
from multidraft.trees import Markov, Tree
from multidraft.trees.block_program import Program

P3, Q3 = [0.6, 0.3, 0.1], [0.2, 0.3, 0.5]


def pair(vocabulary: int, seed: int) -> tuple[Markov, Markov]:
    """A random pair of models whose laws differ from token to token."""
    generator = np.random.default_rng(seed)
    flat = generator.choice([0.4, 1.0, 3.0], size=2)
    tables = [generator.dirichlet(np.full(vocabulary, a), size=vocabulary + 1) for a in flat]
    return tuple(Markov(table[0], table[1:]) for table in tables)  # type: ignore[return-value]


@pytest.mark.parametrize(("paths", "value"), [(1, 2.0), (2, 2.208)])
def test_known_optima_of_p3_and_q3(paths, value):
    found = trees.optimum(Q3, P3, paths=paths, length=2)
    assert float(found) == pytest.approx(value, abs=1e-9)
    assert abs(found.gap) < 1e-9
    assert found.violation < 1e-12
    assert not found.limited


@pytest.mark.parametrize(("vocabulary", "length"), [(2, 1), (2, 3), (3, 2), (3, 3), (4, 2)])
def test_block_verification_attains_the_optimum_of_one_path(vocabulary, length):
    for seed in range(3):
        models = pair(vocabulary, seed)
        best = trees.optimum(*models, paths=1, length=length)
        block = trees.expected_length(trees.get("block"), trees.chain(length), *models)
        assert block == pytest.approx(float(best), abs=1e-9)
        assert abs(best.gap) < 1e-9


LAWS = {
    "iid": md.IID,
    "without-replacement": md.WithoutReplacement,
    "greedy": md.Greedy,
    "top": md.Top,
}


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_at_one_level_it_is_the_optimal_acceptance(name, n):
    """One bonus token, and one more when a draft is accepted."""
    (target, draft), tree = pair(4, n), trees.k_ary(n, 1, name)
    single = md.optimal_acceptance(md.Problem(target.start, LAWS[name](draft.start, n)))
    best = trees.tree_optimum(tree, target, draft)
    assert float(best) == pytest.approx(1 + float(single), abs=1e-9)
    assert abs(best.gap) < 1e-9


CASES = [
    (3, trees.paths(2, 2)),
    (3, trees.k_ary(2, 2)),
    (3, trees.paths(2, 3)),
    (2, trees.paths(3, 3)),
    (3, trees.k_ary(2, 2, "without-replacement")),
    (3, trees.k_ary(2, 2, "greedy")),
    (3, trees.k_ary(2, 2, "hub")),
    (4, trees.k_ary(2, 2, "top")),
    (3, trees.delayed(2, 1, 1, "greedy")),
    (3, Tree([-1, 0, 0, 1], "iid")),
]


@pytest.mark.parametrize(("vocabulary", "tree"), CASES, ids=lambda case: str(case))
def test_no_rule_is_above_the_optimum(vocabulary, tree):
    models = pair(vocabulary, 7)
    best = trees.tree_optimum(tree, *models)
    assert abs(best.gap) < 1e-9
    for name in ("block", "greedy-multipath", "traversal", "univer", "top-down", "bottom-up"):
        rule = trees.get(name)
        if rule.refuses(tree) is None:
            length = trees.expected_length(rule, tree, *models)
            assert 1 <= length <= best.upper + 1e-12


def test_deterministic_drafts_leave_nothing_to_optimise():
    """With top drafts matching a draw from the target is the only lossless rule."""
    models, tree = pair(4, 3), trees.k_ary(2, 2, "top")
    best = trees.tree_optimum(tree, *models)
    for rule in (trees.get("top-down"), trees.get("traversal"), trees.get("univer")):
        assert trees.expected_length(rule, tree, *models) == pytest.approx(float(best), abs=1e-9)


def test_any_prices_are_an_upper_bound():
    models = pair(3, 1)
    best = float(trees.optimum(*models, paths=2, length=2))
    program = Program.of(trees.paths(2, 2), *models)
    generator = np.random.default_rng(0)
    bounds = [program.bound(generator.normal(1, s, size=27)) for s in (0.0, 0.3, 3.0)]
    assert min(bounds) >= best - 1e-9
    assert bounds[0] <= 3 + 1e-9  # equal prices: every block as long as it can be


def test_targets_and_drafts_with_zeros():
    draft = Markov([0.5, 0.5, 0.0], [[1.0, 0, 0], [0, 1.0, 0], [0.2, 0.3, 0.5]])
    target = Markov([0.0, 0.5, 0.5], [[0.5, 0.5, 0], [0, 1.0, 0], [1.0, 0, 0]])
    best = trees.optimum(target, draft, paths=2, length=2)
    assert abs(best.gap) < 1e-9
    assert best.violation < 1e-12
    equal = trees.optimum(draft, draft, paths=2, length=2)
    assert float(equal) == pytest.approx(3, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_laws_of_wildly_different_masses(seed):
    """Probabilities down to 1e-30 and zeros, where HiGHS's own tolerances would not hold."""
    generator = np.random.default_rng(seed)
    tables = generator.dirichlet(np.full(3, 0.05), size=(2, 4))
    tables[:, :, 0] += 1e-9  # no row of zeros
    tables[generator.random(tables.shape) < 0.1] = 0.0
    tables[tables.sum(-1) == 0] = 1.0
    tables /= tables.sum(-1, keepdims=True)
    target, draft = (Markov(table[0], table[1:]) for table in tables)
    for tree in (trees.paths(2, 2), trees.chain(3), trees.k_ary(2, 2, "greedy")):
        best = trees.tree_optimum(tree, target, draft)
        assert abs(best.gap) < 1e-9
        assert best.violation < 1e-12


def test_three_paths_of_three_over_three_tokens_have_sixty_thousand_columns():
    program = Program.of(trees.paths(3, 3), *pair(3, 0))
    assert len(program.lengths) == 60_435
    assert len(program.mass) == 3303  # sets of one to three of 27 paths: 27 + 351 + 2925


@pytest.mark.long
def test_three_paths_of_three_over_three_tokens_are_solved():
    models = pair(3, 0)
    best = trees.optimum(*models, paths=3, length=3)
    assert abs(best.gap) < 1e-9
    assert best.violation < 1e-12
    for name in ("traversal", "greedy-multipath"):
        assert trees.expected_length(trees.get(name), trees.paths(3, 3), *models) <= best.upper


def test_a_time_limit_is_told():
    found = trees.tree_optimum(trees.paths(2, 3), *pair(3, 0), time_limit=0.0)
    assert found.limited
    assert found.upper >= found.lower or found.violation > 1e-9


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((Q3, P3, 3, 4), "too many to list"),
        ((np.eye(2), P3, 1, 1), r"one law, \(V,\), or a model"),
        ((Q3, [0.6, 0.4], 1, 1), "draft has shape"),
        (([0.5, 0.4], [0.5, 0.5], 1, 1), "sums to 0.9"),
        ((Q3, P3, 0, 1), "n is 0"),
    ],
)
def test_bad_input(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        trees.optimum(*arguments)


def test_a_program_that_is_too_large(monkeypatch):
    monkeypatch.setattr("multidraft.trees.block_program.MOST_COLUMNS", 100)
    with pytest.raises(InputError, match="has 441 columns, more than 100"):
        trees.optimum(Q3, P3, paths=2, length=2)


# ----------------------------------------------------------------------------------- experiment


def test_the_cells_of_the_experiment():
    cells = tree_optimum.cells()
    assert len({tuple(cell.items()) for cell in cells}) == len(cells) > 200
    assert {"V": 3, "pair": "P3/Q3", "law": "iid", "n": 3, "L": 3} in cells
    assert not any(cell["V"] ** (cell["n"] * cell["L"]) > tree_optimum.LISTED for cell in cells)


def test_every_pair_is_a_pair_of_models():
    for cell in tree_optimum.cells():
        target, draft = tree_optimum.models(cell["pair"], cell["V"])
        assert target.start.size == draft.start.size == cell["V"]


def test_the_report_of_a_few_cells(tmp_path, monkeypatch):
    chosen = [
        cell
        for cell in tree_optimum.cells()
        if cell["V"] == 3 and cell["pair"] == "P3/Q3" and cell["n"] * cell["L"] <= 3
    ]
    monkeypatch.setattr(tree_optimum, "cells", lambda: chosen)
    short = tree_estimate.cells()[:2]
    monkeypatch.setattr(tree_estimate, "cells", lambda: short)
    tree_report.report(tmp_path)
    frame = results.read(tmp_path / "rules.parquet").frame
    assert frame["share"].to_numpy().max() <= 1 + 1e-9
    known = frame.filter(pair="P3/Q3", n=1, L=2)
    lengths = dict(zip(known["method"], known["length"], strict=True))
    assert lengths["block"] == pytest.approx(2.0, abs=1e-9)
    assert lengths["top-down rrs"] == pytest.approx(1.96, abs=1e-9)
    text = (tmp_path / "README.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 15
    for link in links:
        assert (tmp_path / link).stat().st_size > 0, link
    assert not re.search(r"\bnan\b", text)


@pytest.mark.parametrize("shape", tree_estimate.SHAPES)
def test_the_estimate_is_off_when_acceptance_falls(shape):
    errors = []
    for drift in tree_estimate.DRIFTS:
        cell = {"shape": shape, "drift": drift, "depth": 4}
        exact, estimate = tree_estimate.compute(cell, 0)
        errors.append(estimate["length"] - exact["length"])
    assert errors[0] == pytest.approx(0, abs=1e-12)
    assert errors == sorted(errors)
    assert errors[-1] > 0.1
