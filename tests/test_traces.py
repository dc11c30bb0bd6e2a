"""Traces: the file, the recording, the shipped texts, and the frozen trace."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import multidraft as md
from multidraft import record, texts, traces
from multidraft.models import registry, smollm2

SMALL = {"contexts": 22, "passages": 8, "tokens": 48, "progress": False}
ARRAYS = ("target", "drafts", "next_token", "text", "passage", "position")


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return md.models.load(str(tiny_model.write(tmp_path_factory.mktemp("models") / "tiny")))


@pytest.fixture(scope="module")
def trace(target):
    return traces.record(target=target, drafts=["skip:1", "ngram-2"], **SMALL)


@pytest.fixture
def path(trace, tmp_path):
    return trace.write(tmp_path / "tiny.safetensors")


def softmax(logits: np.ndarray) -> np.ndarray:
    masses = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return masses / masses.sum(-1, keepdims=True)


def overlap(target: np.ndarray, draft: np.ndarray) -> float:
    """Mean acceptance of one draft: the sum of min(q, p)."""
    return float(np.minimum(target, draft).sum(-1).mean())


# The file


def test_a_trace_comes_back_as_it_was_written(trace, path):
    again = traces.open(path)
    for name in ARRAYS:
        assert np.array_equal(getattr(again, name), getattr(trace, name))
        assert getattr(again, name).dtype == getattr(trace, name).dtype
    assert again.header == trace.header and again.passages == trace.passages
    assert len(again) == 22 and again.vocabulary == 256 and again.names == ("skip:1", "ngram-2")


def test_logits_stay_in_the_file(path):
    trace = traces.open(path)
    rows = trace.target[3:5]
    assert isinstance(trace.target, np.memmap) and isinstance(trace.drafts, np.memmap)
    assert rows.base is not None and not rows.flags.writeable
    assert np.shares_memory(trace.draft("ngram-2"), trace.drafts)


def test_the_safetensors_library_reads_the_same(trace, path):
    tensors = load_file(path)
    assert sorted(tensors) == sorted(ARRAYS)
    assert all(np.array_equal(tensors[name], getattr(trace, name)) for name in ARRAYS)


def test_selections_keep_rows_together(trace, tmp_path):
    part = trace.select([5, 2], ["ngram-2"])
    assert part.names == ("ngram-2",) and len(part) == 2
    assert np.array_equal(part.draft("ngram-2"), trace.draft("ngram-2")[[5, 2]])
    assert np.array_equal(part.next_token, trace.next_token[[5, 2]])
    assert traces.open(part.write(tmp_path / "part.safetensors")).names == ("ngram-2",)


def test_an_unknown_draft_is_named(trace):
    with pytest.raises(md.InputError, match=r"no draft 'skip-9': choose one of skip:1, ngram-2"):
        trace.draft("skip-9")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_an_interrupted_write_leaves_the_old_file(trace, path, monkeypatch, step):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    before = path.read_bytes()
    monkeypatch.setattr(os, step, interrupt)
    with pytest.raises(KeyboardInterrupt):
        trace.select([0]).write(path)
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("fault", [np.nan, np.inf])
def test_logits_that_are_no_law_are_not_written(trace, tmp_path, fault):
    bad = trace.select([0])
    bad.target[0, 7] = fault
    with pytest.raises(md.InputError, match=r"NaN or \+inf"):
        bad.write(tmp_path / "bad.safetensors")
    bad.target[0, 7] = -np.inf
    bad.write(tmp_path / "good.safetensors")


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(md.InputError, match="cannot be read"):
        traces.open(tmp_path / "none.safetensors")


@pytest.mark.parametrize("length", [0, 5, 8, 100, -1])
def test_a_truncated_file_is_one_sentence(path, length):
    os.truncate(path, length if length >= 0 else path.stat().st_size - 1)
    with pytest.raises(md.InputError, match="is no trace or is damaged"):
        traces.open(path)


def edited(path: Path, change) -> Path:
    """Rewrite the JSON header of a safetensors file."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    entries = json.loads(raw[8 : 8 + length])
    header = json.loads(entries["__metadata__"]["multidraft"])
    change(entries, header)
    if "__metadata__" in entries:
        entries["__metadata__"]["multidraft"] = json.dumps(header)
    text = json.dumps(entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    return path


# A header that promises far more than the file holds must be refused before anything is allocated.
FAULTS = {
    "no JSON": (lambda e, h: e.update(target=[]), "header is not that of a trace"),
    "foreign": (lambda e, h: e.pop("__metadata__"), "header is not that of a trace"),
    "huge shape": (lambda e, h: e["target"].update(shape=[10**9, 10**9]), "target does not fit"),
    "beyond": (lambda e, h: e["drafts"].update(data_offsets=[0, 10**15]), "drafts does not fit"),
    "backwards": (lambda e, h: e["target"].update(data_offsets=[9, 4]), "target does not fit"),
    "negative": (lambda e, h: e["target"].update(shape=[-22, -256]), "not that of a trace"),
    "dtype": (lambda e, h: e["target"].update(dtype="I8"), "not that of a trace"),
    "integers": (lambda e, h: e["text"].update(dtype="F32", shape=[44]), "has 44 where N = 22"),
    "missing": (lambda e, h: e.pop("position"), "lacks tensor position"),
    "unknown": (lambda e, h: e.update(paths=e["position"]), "unknown tensor paths"),
    "one dimension": (lambda e, h: e["target"].update(shape=[22 * 256]), "has 1 dimensions"),
    "transposed": (lambda e, h: e["target"].update(shape=[256, 22]), "where N = 256"),
    "names": (lambda e, h: h["drafts"].pop(), "names 1 drafts of 2"),
    "texts": (lambda e, h: h["texts"].clear(), "text must hold"),
    "key": (lambda e, h: h.pop("passages"), "lacks passages"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_header_is_one_sentence(path, fault):
    change, sentence = FAULTS[fault]
    with pytest.raises(md.InputError, match=sentence):
        traces.open(edited(path, change))


def test_a_newer_format_is_named_with_its_tensors(path):
    def change(entries, header):
        header["format"] = 2
        entries["paths"] = entries["path_logits"] = entries["position"]

    with pytest.raises(md.InputError, match="format 2 with tensors path_logits, paths, .* upgrade"):
        traces.open(edited(path, change))


def test_a_file_of_another_kind_is_refused(tmp_path):
    save_file({"weight": np.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(md.InputError, match="not that of a trace"):
        traces.open(tmp_path / "model.safetensors")


@settings(derandomize=True, max_examples=150, deadline=None)
@given(data=st.data())
def test_a_flipped_byte_in_the_header_never_shows_another_exception(tiny_bytes, data):
    raw, scratch = tiny_bytes
    place = data.draw(st.integers(0, 8 + int.from_bytes(raw[:8], "little") - 1))
    changed = bytearray(raw)
    changed[place] ^= data.draw(st.integers(1, 255))
    scratch.write_bytes(changed)
    try:
        traces.open(scratch)
    except md.InputError as fault:
        assert len(str(fault).splitlines()) == 1


@pytest.fixture(scope="module")
def tiny_bytes(trace, tmp_path_factory):
    scratch = tmp_path_factory.mktemp("flips") / "flipped.safetensors"
    return trace.select([0, 1]).write(scratch).read_bytes(), scratch


# Recording


def test_recorded_logits_are_the_models_at_the_context(target, trace):
    """Each row is the law of the next token given the passage's first `position` tokens."""
    for row in range(len(trace)):
        tokens = written_tokens(target, trace, row)
        if tokens is None:
            continue
        place = trace.position[row]
        expected = target.logits(tokens[:place])[-1]
        assert np.allclose(trace.target[row], expected, rtol=1e-3, atol=2e-3)
        assert trace.next_token[row] == tokens[place]
        shorter = md.models.load("skip:1", target).logits(tokens[:place])[-1]
        assert np.allclose(trace.draft("skip:1")[row], shorter, rtol=1e-3, atol=2e-3)


def written_tokens(target, trace, row):
    """Find the passage of a row among the blocks of its text by hash; None if it was sampled."""
    passage = trace.passages[trace.passage[row]]
    if passage.temperature is not None:
        return None
    work = {work.id: work for work in texts.works()}[passage.text]
    tokens = target.tokenizer.encode(work.contexts, add_special_tokens=False)
    blocks = [np.array(tokens[i : i + 48]) for i in range(0, len(tokens) - 47, 48)]
    found = [block for block in blocks if record._hash(block) == passage.sha256]
    assert len(found) == 1
    return found[0]


def test_contexts_spread_over_passages_and_have_a_history(trace):
    sizes = np.bincount(trace.passage)
    assert len(sizes) == 8 and sorted(sizes) == [2, 2, 3, 3, 3, 3, 3, 3]
    assert trace.position.min() >= 32 and trace.position.max() < 48
    for passage in range(8):
        assert np.all(np.diff(trace.position[trace.passage == passage]) > 0)


def test_a_quarter_is_sampled_from_the_target_and_says_how(trace):
    sampled = [passage for passage in trace.passages if passage.temperature is not None]
    assert len(sampled) == 2 and [passage.seed for passage in sampled] == [[0, 0], [0, 1]]
    assert all(passage.temperature == 1.0 and passage.tokens == 48 for passage in sampled)


def test_recording_depends_on_its_arguments_alone(target, trace):
    again = record.record(target=target, drafts=["skip:1", "ngram-2"], **SMALL)
    assert all(np.array_equal(getattr(again, name), getattr(trace, name)) for name in ARRAYS)
    assert again.header == trace.header
    other = record.record(target=target, drafts=["ngram-2"], seed=1, **SMALL)
    assert not np.array_equal(other.position, trace.position)


def test_the_header_tells_models_texts_and_settings(target, trace):
    header = trace.header
    assert header["target"] == target.identity()
    assert [draft["kind"] for draft in header["drafts"]] == ["skip", "ngram"]
    assert header["tokenizer"]["sha256"] == md.models.tokenizer_hash(target.tokenizer)
    assert header["settings"]["seed"] == 0 and header["dtype"] == "float16"
    assert header["versions"]["numpy"] == np.__version__
    assert json.loads(json.dumps(header)) == header


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_sampling_inverts_the_targets_own_law(target, temperature):
    prompts = np.array([[5, 6, 7], [8, 9, 10]])
    out = record.sample(target, prompts, 4, temperature, [[3], [4]])
    assert np.array_equal(out[:, :3], prompts)
    for row, seed in enumerate([[3], [4]]):
        uniforms = np.random.default_rng(seed).random(4)
        for place, uniform in enumerate(uniforms, start=3):
            law = softmax(target.logits(out[row, :place])[-1] / temperature)
            below = law[: out[row, place]].sum()
            assert below - 1e-5 <= uniform <= below + law[out[row, place]] + 1e-5


def test_a_sampled_row_does_not_depend_on_the_others(target):
    prompts = np.array([[5, 6, 7], [8, 9, 10], [5, 6, 7]])
    out = record.sample(target, prompts, 8, 1.0, [[3], [4], [5]])
    assert np.array_equal(record.sample(target, prompts[1:2], 8, 1.0, [[4]]), out[1:2])
    assert not np.array_equal(out[0], out[2])


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"contexts": 4}, "do not spread over 8 passages"),
        ({"contexts": 65}, "do not spread over 8 passages"),
        ({"passages": 0}, "passages is 0"),
        ({"sampled": 9}, "between 0 and passages"),
        ({"temperature": 0.0}, "need a positive one"),
        ({"dtype": "int8"}, "choose one of float16, float32"),
        ({"tokens": 32}, "leaves no room"),
        ({"seed": -1}, "seed is -1"),
        ({"passages": 3000, "contexts": 3000}, "the texts hold .* not 3000"),
    ],
)
def test_recordings_that_cannot_be_made(target, setting, sentence):
    with pytest.raises(md.InputError, match=sentence):
        record.record(target=target, drafts=["ngram-1"], **{**SMALL, **setting})


def test_a_trace_needs_a_draft_that_fits(target, tmp_path):
    with pytest.raises(md.InputError, match="at least one draft"):
        record.record(target=target, drafts=[], **SMALL)
    other = md.models.load(str(tiny_model.write(tmp_path / "wide", vocabulary=300)))
    with pytest.raises(md.InputError, match="align"):
        record.record(target=target, drafts={"wide": other}, **SMALL)


def test_own_texts_and_full_precision(target):
    work = texts.works()[0]
    trace = record.record(
        target=target, drafts=["ngram-1"], texts=[work], dtype="float32", sampled=0, **SMALL
    )
    assert trace.target.dtype == np.float32 and [text["id"] for text in trace.texts] == [work.id]
    assert all(passage.temperature is None for passage in trace.passages)


# Shipped texts


def test_shipped_texts_are_many_and_state_where_they_come_from():
    works = texts.works()
    assert len(works) >= 12 and len({work.genre for work in works}) >= 12
    for work in works:
        assert all(getattr(work, fact).strip() for fact in ("title", "author", "year", "source"))
        assert work.licence.startswith("public domain")
        assert len(work.contexts) > 4000 and len(work.held_out) > 4000
    assert 250_000 < sum(len(work.text.encode()) for work in works) < 350_000


def test_every_shipped_text_is_in_the_catalogue():
    folder = Path(texts.__file__).parent
    assert {path.stem for path in folder.glob("*.txt")} == {work.id for work in texts.works()}


# The frozen trace


@pytest.fixture(scope="module")
def frozen():
    return traces.frozen()


def test_the_frozen_trace_is_small_and_whole(frozen):
    assert len(frozen) == 24 and sorted(frozen.passage) == list(range(24))
    assert frozen.names == ("skip-8",) and frozen.target.dtype == np.float16
    assert frozen.vocabulary == 49_152
    assert Path(frozen.target.filename).stat().st_size <= 5_000_000
    assert sum(passage.temperature is not None for passage in frozen.passages) == 6


def test_the_frozen_trace_is_of_the_shipped_texts_and_the_published_weights(frozen):
    hashes = {work.id: work.sha256 for work in texts.works()}
    assert {text["id"]: text["sha256"] for text in frozen.texts} == hashes
    published = smollm2.SHA256
    assert frozen.header["target"]["sha256"] == published
    assert frozen.header["drafts"][0]["of"]["sha256"] == published
    assert frozen.header["drafts"][0]["skipped"] == list(registry.SKIPS["skip-8"])


def test_trap_20_the_tail_of_the_vocabulary_is_kept(frozen):
    """Known trap 20: tokens below 1e-7 hold 80% of a real vocabulary and 4e-4 of its mass."""
    assert np.isfinite(frozen.target).all() and np.isfinite(frozen.drafts).all()
    laws = softmax(frozen.target)
    rare = laws < 1e-7
    assert rare.mean() == pytest.approx(0.80, abs=0.02)
    assert np.where(rare, laws, 0).sum(-1).mean() == pytest.approx(4e-4, rel=0.2)
    # A law without them is noticed, not taken for one.
    with pytest.raises(md.InputError, match="sums to"):
        md.IID(np.where(rare, 0, laws), n=2)


def test_trap_21_a_rest_bucket_inflates_acceptance(frozen):
    """Known trap 21: the top K and one rest bucket give a larger overlap."""
    target, draft = softmax(frozen.target), softmax(frozen.draft("skip-8"))
    kept = (1024, 256, 64)
    values = [overlap(target, draft), *(overlap(*bucketed(target, draft, k)) for k in kept)]
    assert values == pytest.approx([0.4284, 0.4356, 0.4521, 0.4832], abs=1e-3)
    assert np.all(np.diff(values) > 0.005)


def bucketed(target: np.ndarray, draft: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    top = np.argsort(-target, axis=-1)[:, :k]
    cut = [np.take_along_axis(law, top, axis=-1) for law in (target, draft)]
    pairs = [np.append(law, 1 - law.sum(-1, keepdims=True), axis=-1) for law in cut]
    return pairs[0], pairs[1]
