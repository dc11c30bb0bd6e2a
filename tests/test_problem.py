"""Problems: strict validation, logits to laws in one place, files."""

import json
import re
import zipfile

import numpy as np
import pytest
import torch

import multidraft as md
from multidraft.errors import InputError
from multidraft.transform import probabilities

P3, Q3 = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.3, 0.5])


def test_float32_marginals_are_refused_with_their_sum():
    rng = np.random.default_rng(0)
    logits = torch.from_numpy(rng.normal(size=256) * 3).float()
    rounded = logits.softmax(-1).numpy()
    with pytest.raises(InputError, match=r"sums to (1\.0|0\.9).*normalise"):
        md.Problem(rounded, md.IID(np.full(256, 1 / 256), 2))
    with pytest.raises(InputError, match="draft sums to"):
        md.Problem(np.full(256, 1 / 256), md.IID(rounded, 2))
    md.Problem(md.normalise(rounded), md.IID(md.normalise(rounded), 2))


@pytest.mark.parametrize("off", [1e-7, 1e-5, 1e-3, -2e-7])
def test_a_sum_that_is_off_is_refused_not_mended(off):
    target = Q3 * (1 + off)
    with pytest.raises(InputError, match=re.escape(f"sums to {target.sum():.16g},")):
        md.Problem(target, md.IID(P3, 2))
    assert md.normalise(target).sum() == pytest.approx(1, abs=1e-15)


def test_broadcasting_and_rows():
    problem = md.Problem(Q3, md.IID(np.stack([P3, Q3]), np.array([1, 3])))
    assert problem.batch == (2,)
    assert len(problem) == 2
    assert md.optimal_acceptance(problem) == pytest.approx([np.minimum(P3, Q3).sum(), 1.0])
    row = problem[0]
    assert row.batch == ()
    assert row.n == 1
    with pytest.raises(IndexError):
        problem[2]
    with pytest.raises(InputError, match="do not match"):
        md.Problem(np.stack([Q3] * 3), md.IID(np.stack([P3] * 2), 2))
    with pytest.raises(InputError, match="align"):
        md.Problem([0.5, 0.5], md.IID(P3, 2))


def test_normalise_refuses_what_it_cannot_mend():
    for bad in ([0.0, 0.0], [1.0, -1.0], [np.nan, 1.0], [np.inf, 1.0], []):
        with pytest.raises(InputError, match="normalised"):
            md.normalise(bad)


LOGITS = np.log([0.1, 0.4, 0.3, 0.2])


@pytest.mark.parametrize("array", [np.asarray, torch.tensor])
def test_temperature_then_top_k_then_top_p(array):
    def law(**options):
        return np.asarray(probabilities(array(LOGITS), **options))

    assert law() == pytest.approx([0.1, 0.4, 0.3, 0.2])
    assert law(temperature=0.5) == pytest.approx(np.array([1, 16, 9, 4]) / 30)
    assert law(top_k=2) == pytest.approx([0, 4 / 7, 3 / 7, 0])
    assert law(top_p=0.5) == pytest.approx([0, 4 / 7, 3 / 7, 0])
    assert law(top_p=0.4) == pytest.approx([0, 1, 0, 0])
    # 0.7 is reached by two tokens of the full law, and of the law left by top-k 3.
    assert law(top_k=3, top_p=0.7) == pytest.approx([0, 4 / 7, 3 / 7, 0])
    assert law(top_k=9, top_p=1.0) == pytest.approx([0.1, 0.4, 0.3, 0.2])


@pytest.mark.parametrize("array", [np.asarray, torch.tensor])
def test_ties_go_to_the_lowest_id(array):
    flat = array(np.zeros(4))
    assert np.asarray(probabilities(flat, temperature=0.0)).tolist() == [1, 0, 0, 0]
    assert np.asarray(probabilities(flat, top_k=2)).tolist() == [0.5, 0.5, 0, 0]
    assert np.asarray(probabilities(flat, top_p=0.5)).tolist() == [0.5, 0.5, 0, 0]


def test_half_precision_is_raised_before_the_softmax():
    logits = torch.tensor([12.0, 0.0, -12.0], dtype=torch.float16)
    law = probabilities(logits)
    assert law.dtype == torch.float32
    assert law[2] == pytest.approx(np.exp(-24), rel=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": np.nan}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
    ],
)
def test_bad_parameters(options, words):
    with pytest.raises(InputError, match=words):
        probabilities(LOGITS, **options)


@pytest.mark.parametrize("bad", [[np.nan, 0.0], [np.inf, 0.0], [-np.inf, -np.inf], []])
def test_bad_logits(bad):
    with pytest.raises(InputError, match="logits"):
        probabilities(bad)


def test_masked_tokens_stay_impossible_at_any_temperature():
    logits = np.array([0.0, -np.inf, 1.0])
    for temperature in (0.0, 0.3, 1.0):
        law = probabilities(logits, temperature)
        assert law[1] == 0
        assert law.sum() == pytest.approx(1)


def test_from_logits_shapes_both_laws_and_pads_short_rows():
    target, draft = np.stack([LOGITS, LOGITS]), np.stack([LOGITS[::-1], LOGITS])
    problem = md.Problem.from_logits(target, draft, md.Top, n=3, top_k=2)
    assert (problem.target > 0).sum(-1).tolist() == [2, 2]
    assert problem.law.short_rows.all()
    full = md.Problem.from_logits(target, draft, "iid", n=3, draft_top_k=2, temperature=0.5)
    assert (full.target > 0).all()
    assert full.law.probs[1] == pytest.approx([0, 16 / 25, 9 / 25, 0])
    two = md.Problem.from_logits(
        target, [draft, draft], md.Independent, draft_temperature=[1.0, 2.0]
    )
    assert isinstance(two.law, md.Independent)
    assert two.law.parts[1][1, 1] < two.law.parts[0][1, 1]


def test_a_problem_survives_its_file(tmp_path):
    explicit = md.Explicit([[0, 1], [2, -1]], [0.25, 0.75], vocabulary=3)
    batch = md.IID(np.stack([P3, Q3]), np.array([2, 5]))
    for law in (md.IID(P3, 2), md.Independent([P3, Q3]), md.Hub(P3), explicit, batch):
        problem = md.Problem(Q3, law)
        problem.save(tmp_path / "problem.npz")
        again = md.load(tmp_path / "problem.npz")
        assert again.law.spec == law.spec
        assert np.array_equal(again.target, problem.target)
        everything = np.ones(3, bool)
        assert np.array_equal(again.law.stay(everything), law.stay(everything))
    assert [path.name for path in tmp_path.iterdir()] == ["problem.npz"]


def test_damaged_files_are_named(tmp_path):
    path = tmp_path / "problem.npz"
    with pytest.raises(InputError, match="no file"):
        md.load(path)
    md.Problem(Q3, md.IID(P3, 2)).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="damaged"):
        md.load(path)
    path.write_bytes(b"")
    with pytest.raises(InputError, match="damaged"):
        md.load(path)
    np.savez(path, target=Q3)
    with pytest.raises(InputError, match="damaged"):
        md.load(path)


def test_a_header_that_claims_more_than_the_file_holds_is_not_allocated(tmp_path):
    path = tmp_path / "problem.npz"
    claim = {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)}
    with zipfile.ZipFile(path, "w") as archive, archive.open("target.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, claim)
    with pytest.raises(InputError, match="damaged"):
        md.load(path)


def test_a_later_format_is_named(tmp_path):
    path = tmp_path / "problem.npz"
    header = json.dumps({"format": 99, "law": {"law": "iid", "n": 2}})
    np.savez(path, header=np.array(header), target=Q3, draft_0=P3)
    with pytest.raises(InputError, match="format 99"):
        md.load(path)
