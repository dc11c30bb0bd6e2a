from __future__ import annotations

import numpy as np
import pytest

import multidraft as md
from multidraft.errors import InputError
from multidraft.experiments import families
from multidraft.transform import probabilities

SMALL = {"vocabulary": 60}
KNOWN = [
    ("equal", SMALL | {"concentration": 0.05}),
    ("disjoint", {"vocabulary": 7}),
    ("sure", SMALL),
    ("sure-draft", SMALL),
    ("two", {"first": 0.2, "draft": 0.6}),
    ("two", {"first": 0.9, "draft": 0.3}),
    ("two", {"first": 1.0, "draft": 0.0}),
]


def problem(name: str, parameters: dict, n: int, instance: int = 0) -> md.Problem:
    target, drafts = families.draw(name, parameters, instance)
    return md.Problem.from_logits(target, drafts[0], "iid", n=n)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize(("name", "parameters"), KNOWN)
def test_special_cases_have_the_optimum_that_they_state(name, parameters, n):
    expected = families.optimum(name, parameters, n)
    assert expected is not None
    found = float(md.optimal_acceptance(problem(name, parameters, n)))
    assert found == pytest.approx(expected, abs=1e-12)


def test_families_without_a_formula_state_none():
    unknown = [name for name in families.names() if families.FAMILIES[name].optimum is None]
    assert unknown == ["dirichlet", "zipf", "normals"]
    assert families.optimum("zipf", {}, 2) is None


@pytest.mark.parametrize("name", families.names())
def test_an_instance_depends_on_its_content_alone(name):
    first = families.draw(name, {}, 3, n=1)
    again = families.draw(name, dict(families.FAMILIES[name].defaults), 3, n=4)
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1][0], again[1][0])
    assert again[1].shape == (4, len(again[0]))
    for row in (again[0], *again[1]):
        assert probabilities(row).sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", ["dirichlet", "zipf", "normals"])
def test_instances_and_their_drafts_differ(name):
    (one, drafts), (other, _) = (families.draw(name, SMALL, i, n=2) for i in (0, 1))
    assert not np.array_equal(drafts[0], drafts[1])
    assert name == "zipf" or not np.array_equal(one, other)


def test_dirichlet_laws_have_the_moments_of_their_concentration():
    def second_moment(concentration: float) -> float:
        parameters = {"vocabulary": 20, "concentration": concentration}
        rows = [families.draw("dirichlet", parameters, i)[0] for i in range(400)]
        return float((probabilities(np.stack(rows)) ** 2).mean())

    for a in (0.02, 0.5, 30.0):
        # E q_i^2 = a (a + 1) / (a V (a V + 1))
        assert second_moment(a) == pytest.approx((a + 1) / (20 * (20 * a + 1)), rel=0.1)


def test_correlation_and_moved_share_lead_from_equal_laws_to_unrelated_ones():
    def acceptance(name: str, **changes: float) -> float:
        values = [
            float(md.optimal_acceptance(problem(name, SMALL | changes, 2, i))) for i in range(20)
        ]
        return float(np.mean(values))

    assert acceptance("normals", correlation=1.0) == pytest.approx(1, abs=1e-12)
    assert acceptance("zipf", moved=0.0) == pytest.approx(1, abs=1e-12)
    close, far = acceptance("normals", correlation=0.95), acceptance("normals", correlation=0.0)
    assert 1 > close > far + 0.2
    assert 1 > acceptance("zipf", moved=0.1) > acceptance("zipf", moved=1.0) + 0.1


def test_normal_logits_have_the_correlation_and_spread_that_were_asked_for():
    target, drafts = families.draw(
        "normals", {"vocabulary": 20_000, "spread": 2.0, "correlation": 0.7}, 0
    )
    assert np.corrcoef(target, drafts[0])[0, 1] == pytest.approx(0.7, abs=0.02)
    assert drafts[0].std() == pytest.approx(2.0, rel=0.03)


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("gauss", {}, "unknown family 'gauss': choose one of dirichlet"),
        ("zipf", {"slope": 1.0}, "unknown parameter of zipf 'slope': choose one of exponent"),
        ("normals", {"correlation": 1.5}, r"correlation is 1.5: normals takes a number in 0..1"),
        ("dirichlet", {"vocabulary": 10.5}, "takes a whole number"),
        ("dirichlet", {"vocabulary": "10"}, "takes a whole number"),
    ],
)
def test_wrong_parameters_are_named_with_what_is_allowed(name, parameters, sentence):
    with pytest.raises(InputError, match=sentence):
        families.draw(name, parameters, 0)
