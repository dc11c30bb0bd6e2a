"""Draft logits on another vocabulary than the target's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import multidraft as md

TARGET = np.array([[1.0, 2.0, 3.0, 4.0, 5.0]])
REDUCED = np.array([[30.0, 10.0]])


def as_numpy(array: object) -> np.ndarray:
    return np.asarray(array)


both_kinds = pytest.mark.parametrize("kind", [as_numpy, torch.tensor])


@both_kinds
def test_reduced_vocabulary_leaves_missing_tokens_impossible(kind):
    target, draft = md.align(kind(TARGET), kind(REDUCED), draft_to_target=kind(np.array([3, 1])))
    assert np.array_equal(np.asarray(draft), [[-np.inf, 10, -np.inf, 30, -np.inf]])
    assert np.array_equal(np.asarray(target), TARGET)


@both_kinds
def test_padding_columns_of_either_model_get_no_mass(kind):
    wide = kind(np.array([[9.0, 8.0, 7.0, 6.0, 5.0, 99.0, 99.0]]))
    target, draft = md.align(kind(TARGET), wide, pad=True)
    assert np.array_equal(np.asarray(target), [[1, 2, 3, 4, 5, -np.inf, -np.inf]])
    assert np.array_equal(np.asarray(draft), [[9, 8, 7, 6, 5, -np.inf, -np.inf]])
    swapped, narrow = md.align(wide, kind(TARGET), pad=True)
    assert np.array_equal(np.asarray(swapped), np.asarray(draft))
    assert np.array_equal(np.asarray(narrow), np.asarray(target))


def test_equal_widths_come_back_as_they_are():
    draft = TARGET[::-1]
    aligned = md.align(TARGET, draft)
    assert aligned[0] is TARGET and aligned[1] is draft


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_any_batch_shape_and_dtype(shape):
    target = np.zeros((*shape, 4), dtype=np.float16)
    _, draft = md.align(target, np.ones((*shape, 1), np.float16), draft_to_target=np.array([2]))
    assert draft.shape == (*shape, 4) and draft.dtype == np.float16
    assert np.isneginf(draft[..., [0, 1, 3]]).all() and (draft[..., 2] == 1).all()


def test_inputs_are_unchanged():
    target, draft, ids = TARGET.copy(), REDUCED.copy(), np.array([3, 1])
    md.align(target, draft, draft_to_target=ids)
    md.align(target, draft, pad=True)
    assert np.array_equal(target, TARGET) and np.array_equal(draft, REDUCED)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "5 and 2 logits: pass draft_to_target="),
        ({"draft_to_target": np.array([3])}, "for each of 2 logits"),
        ({"draft_to_target": np.array([1.0, 3.0])}, "for each of 2 logits"),
        ({"draft_to_target": np.array([3, 3])}, "different token ids in 0..4"),
        ({"draft_to_target": np.array([3, 5])}, "different token ids in 0..4"),
        ({"draft_to_target": np.array([-1, 3])}, "different token ids in 0..4"),
        ({"draft_to_target": np.array([3, 1]), "pad": True}, "not both"),
    ],
)
def test_what_is_refused(options, sentence):
    with pytest.raises(md.InputError, match=sentence):
        md.align(TARGET, REDUCED, **options)


def test_kinds_are_not_mixed():
    with pytest.raises(md.InputError, match="both torch tensors"):
        md.align(TARGET, torch.tensor(TARGET))
