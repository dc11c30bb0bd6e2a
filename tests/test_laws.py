"""Draft laws: what is listed, what is drawn and what `stay` says are one and the same law."""

import numpy as np
import pytest
import torch

import multidraft as md
from multidraft import laws
from multidraft.errors import InputError

P4 = np.array([0.45, 0.35, 0.15, 0.05])
Q4 = np.array([0.15, 0.25, 0.25, 0.35])
HOT = np.array([0.0, 1.0, 0.0, 0.0])
TIES = np.array([0.25, 0.25, 0.5, 0.0])
TINY = md.normalise([1.0, 1e-12, 1e-12, 1e-300])


def _small_laws():
    for probs in (P4, TIES, TINY, HOT):
        for n in (1, 2, 3):
            yield laws.IID(probs, n)
            yield laws.WithoutReplacement(probs, n, short="pad")
            yield laws.Greedy(probs, n, short="pad")
            yield laws.Top(probs, n, short="pad")
        yield laws.Hub(probs, short="pad")
        yield laws.Independent([probs, Q4])
    yield laws.Explicit([[0, 1], [2, -1], [3, 3], [1, 0]], [0.4, 0.3, 0.2, 0.1], vocabulary=4)
    yield laws.WithoutReplacement(P4, 4)


SMALL_LAWS = list(_small_laws())


def every_set(vocabulary):
    return (np.arange(2**vocabulary)[:, None] >> np.arange(vocabulary)) % 2 == 1


@pytest.mark.parametrize("law", SMALL_LAWS, ids=repr)
def test_stay_and_hit_are_sums_over_the_tuples(law):
    tuples, mass = law.enumerate()
    assert mass.sum() == pytest.approx(1, abs=1e-15)
    assert len(np.unique(tuples, axis=0)) == len(tuples)
    for mask in every_set(4):
        inside = (mask[np.maximum(tuples, 0)] | (tuples < 0)).all(-1)
        assert law.stay(mask) == pytest.approx(mass[inside].sum(), abs=2e-15)
        assert law.hit(~mask) == pytest.approx(mass[~inside].sum(), abs=2e-15)


@pytest.mark.parametrize("law", SMALL_LAWS, ids=repr)
def test_draws_follow_the_listed_law(law):
    tuples, mass = law.enumerate()
    size = 20_000
    drawn = law.sample(size, np.random.default_rng(1))
    assert drawn.shape == (size, law.width)
    index = {tuple(row): i for i, row in enumerate(tuples.tolist())}
    counts = np.bincount([index[tuple(row)] for row in drawn.tolist()], minlength=len(mass))
    # Bernstein at false-alarm rate 1e-9 per tuple; a tuple without mass is a KeyError.
    log = np.log(2e9)
    room = np.sqrt(2 * size * mass * (1 - mass) * log) + log
    assert (np.abs(counts - size * mass) <= room).all()


@pytest.mark.parametrize("law", SMALL_LAWS, ids=repr)
def test_torch_draws_the_same_tokens(law):
    uniforms = np.random.default_rng(2).random((50, law.draws))
    if isinstance(law, laws.Independent):
        twin = laws.Independent([torch.from_numpy(part) for part in law.parts])
    elif isinstance(law, laws.Explicit):
        twin = laws.Explicit(law.tuples, torch.from_numpy(law.probs), vocabulary=4)
    else:
        twin = laws.make(law.spec, torch.from_numpy(law.probs))
    assert twin.probs.dtype == torch.float64
    assert np.array_equal(twin.draw(torch.from_numpy(uniforms)).numpy(), law.draw(uniforms))


def test_a_batch_is_its_rows():
    rng = np.random.default_rng(3)
    probs, counts = rng.dirichlet(np.ones(6), 5), np.array([1, 3, 2, 3, 1])
    masks = rng.random((5, 6)) < 0.6
    for kind in (laws.IID, laws.WithoutReplacement, laws.Greedy, laws.Top):
        law = kind(probs, counts)
        uniforms = rng.random((5, 7, law.draws))
        tokens = law.draw(uniforms)
        assert tokens.shape == (5, 7, 3)
        for i in range(5):
            row = law[i]
            assert law.stay(masks)[i] == pytest.approx(float(row.stay(masks[i])), abs=1e-15)
            assert ((tokens[i] >= 0).sum(-1) == counts[i]).all()
            if law.draws == 3:
                own = row.draw(uniforms[i, :, : row.draws])
                assert np.array_equal(own, tokens[i, :, : counts[i]])


def test_spec_describes_a_law_without_its_numbers():
    for law in SMALL_LAWS:
        numbers = law.parts if isinstance(law, laws.Independent) else law.probs
        again = laws.make(law.spec, numbers)
        assert again.spec == law.spec
        assert np.array_equal(again.enumerate()[1], law.enumerate()[1])


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: laws.IID([0.5, 0.6], 2), "sums to 1.1"),
        (lambda: laws.IID([0.5, np.nan], 2), "NaN"),
        (lambda: laws.IID([1.5, -0.5], 2), "negative"),
        (lambda: laws.IID([], 2), "V >= 1"),
        (lambda: laws.IID([[1.0], [0.5, 0.5]], 2), "rectangular"),
        (lambda: laws.IID(["a", "b"], 2), "rectangular"),
        (lambda: laws.IID(np.ones((2, 2, 2)) / 2, 2), "(B, V)"),
        (lambda: laws.IID([0.5, 0.5], 0), "at least 1"),
        (lambda: laws.IID([0.5, 0.5], 2.5), "whole number"),
        (lambda: laws.IID([[0.5, 0.5]] * 3, np.array([1, 2])), "do not match"),
        (lambda: laws.WithoutReplacement(HOT, 2), 'short="pad"'),
        (lambda: laws.WithoutReplacement([P4, HOT], 2), "row 1"),
        (lambda: laws.Greedy(HOT, 2), "lower n"),
        (lambda: laws.Top(HOT, 2), "lower n"),
        (lambda: laws.Hub(HOT), "lower n"),
        (lambda: laws.Hub(P4, 3), "two tokens"),
        (lambda: laws.Independent([]), "one law each"),
        (lambda: laws.Independent([P4, [0.5, 0.5]]), "vocabulary"),
        (lambda: laws.Explicit([[0, 4]], [1.0], vocabulary=4), "outside"),
        (lambda: laws.Explicit([[0, 1]], [0.5, 0.5], vocabulary=4), "one each"),
        (lambda: laws.make({"law": "iidd", "n": 2}, P4), "choose one of"),
        (lambda: laws.make({"law": "iid"}, P4), "needs a number"),
        (lambda: laws.make({"law": "iid", "n": 2, "top": 1}, P4), "unknown option"),
        (lambda: laws.IID(P4, 2).stay(np.ones(3, bool)), "boolean array"),
        (lambda: laws.IID([P4, P4], 2).enumerate(), "one context"),
        (lambda: laws.IID(np.full(1000, 1e-3), 5).enumerate(), "tuples"),
    ],
)
def test_bad_input_is_one_clear_sentence(build, words):
    with pytest.raises(InputError) as caught:
        build()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_inputs_are_never_changed():
    probs = P4.copy()
    probs.setflags(write=False)
    rng = np.random.default_rng(0)
    for kind in (laws.IID, laws.WithoutReplacement, laws.Greedy, laws.Top):
        law = kind(probs, 3)
        assert law.probs is probs
        law.sample(10, rng)
        law.stay(np.array([True, False, True, True]))
    held = torch.tensor(P4)
    laws.WithoutReplacement(held, 3).draw(torch.rand(4, 3, dtype=torch.float64))
    laws.Greedy(held, 3).draw(torch.rand(4, 1, dtype=torch.float64))
    assert np.array_equal(held.numpy(), P4)


def test_a_float32_sum_that_ends_early_never_yields_an_impossible_token():
    """A cumulative float32 sum may end below 1: the missing mass goes to no token without mass."""
    probs = torch.full((50_000,), 1 / 49_999, dtype=torch.float32)
    probs[-1] = 0
    top = torch.full((1, 1), 1 - 2**-53, dtype=torch.float64)
    assert laws.IID(probs, 1).draw(top).item() == 49_998
