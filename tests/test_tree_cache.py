"""The cache behind contexts and trees, and models as functions of drafted paths."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tiny_model
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

import multidraft as md
from multidraft.models.ngram import NGram
from multidraft.models.transformer import Transformer
from multidraft.models.tree_cache import TreeCache
from multidraft.models.tree_laws import TreeLaws

V = 64
CONTEXTS = [np.array([5, 9, 3, 60, 2]), np.array([7]), np.array([1, 2, 3])]
TREE = md.trees.delayed(3, 1, 2)
NEAR = {"atol": 1e-4, "rtol": 0}


def wrapped(module: Any, name: str = "tiny") -> Transformer:
    tokenizer = tiny_model.byte_tokenizer()
    return Transformer(name, module, tokenizer, {"kind": "test"})


def llama(layers: int = 3, seed: int = 0, **changes: Any) -> Transformer:
    torch.manual_seed(seed)
    config = tiny_model.config(layers, V)
    for key, value in changes.items():
        setattr(config, key, value)
    return wrapped(LlamaForCausalLM(config))


@pytest.fixture(scope="module")
def model() -> Transformer:
    return llama()


def tree_tokens(contexts=CONTEXTS, tree=TREE, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of (last token, drafted tree) and parents, one row per context."""
    shape = (len(contexts), tree.slots)
    tokens = np.random.default_rng(seed).integers(0, V, shape)
    tokens[:, 0] = [context[-1] for context in contexts]
    return tokens, np.tile(tree.parents, (len(contexts), 1))


def plainly(model: Transformer, context: np.ndarray, path: list[int]) -> np.ndarray:
    return model.logits(np.array([*context[:-1], *path]))[-1]


def paths_of(tokens: np.ndarray, parents: np.ndarray) -> list[list[int]]:
    paths: list[list[int]] = []
    for token, parent in zip(tokens.tolist(), parents.tolist(), strict=True):
        paths.append([*(paths[parent] if parent >= 0 else []), token])
    return paths


def check_rows(model, contexts, tokens, parents, logits) -> None:
    for b, context in enumerate(contexts):
        for slot, path in enumerate(paths_of(tokens[b], parents[b])):
            if tokens[b, slot] < 0:
                assert not logits[b, slot].any()
            else:
                np.testing.assert_allclose(logits[b, slot], plainly(model, context, path), **NEAR)


def gpt2() -> Transformer:
    torch.manual_seed(3)
    config = GPT2Config(vocab_size=V, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    return wrapped(GPT2LMHeadModel(config))


@pytest.mark.parametrize("make", [llama, gpt2, lambda: llama().without([1], "short")])
def test_a_tree_call_is_every_path_run_plainly(make):
    model = make()
    tokens, parents = tree_tokens()
    logits = TreeCache(model, CONTEXTS).extend(tokens, parents)
    assert logits.shape == (3, TREE.slots, V) and logits.dtype == np.float32
    check_rows(model, CONTEXTS, tokens, parents, logits)


def test_eager_attention_and_double_precision_take_the_same_mask():
    model = llama()
    model.module.set_attn_implementation("eager")
    model.module.double()
    tokens, parents = tree_tokens()
    check_rows(model, CONTEXTS, tokens, parents, TreeCache(model, CONTEXTS).extend(tokens, parents))


def test_level_by_level_is_one_call(model):
    tokens, parents = tree_tokens()
    whole = TreeCache(model, CONTEXTS).extend(tokens, parents)
    cache = TreeCache(model, CONTEXTS)
    edges = [0, 1, 2, 5, TREE.slots]
    parts = [cache.extend(tokens[:, a:b], parents[:, a:b]) for a, b in itertools.pairwise(edges)]
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, **NEAR)
    assert cache.drafted == TREE.slots


def test_rows_do_not_influence_each_other(model):
    tokens, parents = tree_tokens()
    whole = TreeCache(model, CONTEXTS).extend(tokens, parents)
    for b, context in enumerate(CONTEXTS):
        alone = TreeCache(model, [context]).extend(tokens[[b]], parents[[b]])
        np.testing.assert_allclose(whole[[b]], alone, atol=1e-5)


def test_absent_slots_are_zeros_and_change_nothing(model):
    tokens, parents = tree_tokens()
    full = TreeCache(model, CONTEXTS).extend(tokens, parents)
    kept = [0, 1, 2, 5]  # the first branch only, in row 1
    tokens[1, [3, 4, 6, 7]] = -1
    logits = TreeCache(model, CONTEXTS).extend(tokens, parents)
    np.testing.assert_allclose(logits[[0, 2]], full[[0, 2]], **NEAR)
    np.testing.assert_allclose(logits[1, kept], full[1, kept], **NEAR)
    assert not logits[1, [3, 4, 6, 7]].any()


def test_keep_goes_on_as_a_fresh_context(model):
    cache, contexts = TreeCache(model, CONTEXTS), list(CONTEXTS)
    kept = np.array([[0, 1, 4, 7, -1, -1], [0, 1, 2, -1, -1, -1], [0, -1, -1, -1, -1, -1]])
    for round_ in range(3):
        tokens, parents = tree_tokens(contexts, seed=round_)
        logits = cache.extend(tokens, parents)
        check_rows(model, contexts, tokens, parents, logits)
        cache.keep(kept)
        bonus = np.random.default_rng(9 + round_).integers(0, V, len(contexts))
        for b, path in enumerate(kept):
            accepted = tokens[b, path[path > 0]]
            contexts[b] = np.array([*contexts[b], *accepted, bonus[b]])
        assert cache.lengths.tolist() == [len(context) - 1 for context in contexts]
        assert cache.drafted == 0


def test_keeping_nothing_forgets_the_tree(model):
    tokens, parents = tree_tokens()
    cache = TreeCache(model, CONTEXTS)
    first = cache.extend(tokens, parents)
    cache.keep(np.empty((3, 0), dtype=np.int64))
    np.testing.assert_allclose(cache.extend(tokens, parents), first, **NEAR)


def test_select_goes_on_with_some_rows(model):
    tokens, parents = tree_tokens()
    cache = TreeCache(model, CONTEXTS)
    full = cache.extend(tokens, parents)
    held = cache.nbytes
    cache.select(np.array([2, 1]))
    assert cache.lengths.tolist() == [2, 0]
    np.testing.assert_allclose(cache.extend(tokens[[2, 1]], parents[[2, 1]]), full[[2, 1]], **NEAR)
    assert 0 < cache.nbytes < held


# Refusals


@pytest.mark.parametrize(
    ("parents", "tokens"),
    [([-1, 1], [3, 4]), ([-1, 2], [3, 4]), ([-1, 0], [-1, 4])],
)
def test_a_slot_hangs_below_an_earlier_one(model, parents, tokens):
    cache = TreeCache(model, [np.array([1])])
    with pytest.raises(md.InputError, match="slot 1 hangs below a slot that is absent or"):
        cache.extend(np.array([tokens]), np.array([parents]))


@pytest.mark.parametrize("slots", [[1], [0, 2], [0, -1, 1], [0, 1, 3], [9]])
def test_only_paths_are_kept(model, slots):
    cache = TreeCache(model, [np.array([1, 2])])
    cache.extend(np.array([[2, 3, 4]]), np.array([[-1, 0, 1]]))
    with pytest.raises(md.InputError, match="no path behind the committed tokens"):
        cache.keep(np.array([slots]))


def test_shapes_and_ids_are_checked(model):
    cache = TreeCache(model, CONTEXTS)
    with pytest.raises(md.InputError, match="for 3 contexts"):
        cache.extend(np.array([[1]]), np.array([[-1]]))
    with pytest.raises(md.InputError, match="one path for each of 3 contexts"):
        cache.keep(np.array([[0]]))
    with pytest.raises(md.InputError, match=r"each in 0\.\.63"):
        TreeCache(model, [np.array([64, 1])])
    for contexts in ([], [np.array([], dtype=int)]):
        with pytest.raises(md.InputError, match="give a prompt"):
            TreeCache(model, contexts)


def test_a_long_prompt_and_a_deep_tree_do_not_fit():
    model = llama(max_position_embeddings=6)
    with pytest.raises(md.InputError, match=r"prompt of 7 tokens is longer than the 6 positions"):
        TreeCache(model, [np.ones(7, dtype=int)])
    cache = TreeCache(model, [np.ones(4, dtype=int)])
    chain = np.array([[1, 2, 3, 4]])
    assert cache.extend(chain[:, :3], np.array([[-1, 0, 1]])).shape == (1, 3, V)
    with pytest.raises(md.InputError, match=r"position 7 is deeper than the 6 positions of tiny"):
        cache.extend(chain[:, :1], np.array([[2]]))


def sliding() -> Any:
    config = MistralConfig(
        vocab_size=V,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        sliding_window=4,
    )
    return MistralForCausalLM(config)


def recurrent() -> Any:
    return MambaForCausalLM(MambaConfig(vocab_size=V, hidden_size=16, num_hidden_layers=1))


def alibi() -> Any:
    return BloomForCausalLM(BloomConfig(vocab_size=V, hidden_size=16, n_layer=1, n_head=2))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (sliding, "wavy is a MistralForCausalLM whose cache has layers of .*Sliding"),
        (recurrent, "wavy is a MambaForCausalLM whose cache has layers of .*LinearAttention"),
        (alibi, "wavy is a BloomForCausalLM, which takes no position ids"),
    ],
)
def test_caches_that_cannot_be_cut_are_refused_by_name(make, why):
    with pytest.raises(md.Refused, match=why):
        TreeCache(wrapped(make(), "wavy"), CONTEXTS)


# Models as functions of paths


def ngram(order: int) -> NGram:
    documents = [np.random.default_rng(1).integers(0, V, 400)]
    return NGram(order, documents, V, tiny_model.byte_tokenizer(), f"ngram-{order}")


def reference(model: md.models.Model, contexts, shape: dict[str, Any]):
    def laws(paths: np.ndarray) -> np.ndarray:
        rows = [
            [model.logits(np.array([*context, *path]))[-1] for path in row]
            for context, row in zip(contexts, paths.tolist(), strict=True)
        ]
        return md.transform.probabilities(np.array(rows), **shape)

    return laws


SHAPES: list[dict[str, Any]] = [{}, {"temperature": 0.7, "top_k": 9, "top_p": 0.8}]


@pytest.mark.parametrize("make", [llama, lambda: ngram(3), lambda: ngram(1)])
@pytest.mark.parametrize("shape", SHAPES)
def test_drafting_and_looking_agree_with_plain_models(make, shape):
    model, contexts = make(), list(CONTEXTS)
    laws = TreeLaws.of(model, contexts, **shape)
    parents = np.tile(TREE.parents, (3, 1))
    accepted = np.array([[0, 0, 0], [2, -1, -1], [4, 6, -1]])  # slots 2, 3 and 4 hang below 1
    for round_ in range(3):
        plain = reference(model, contexts, shape)
        uniforms = np.random.default_rng(round_).random((3, TREE.nodes))
        tokens, drafted = md.trees.draw_tokens(TREE, laws, uniforms)
        expected = md.trees.draw_tokens(TREE, plain, uniforms)
        np.testing.assert_array_equal(tokens, expected[0])
        np.testing.assert_allclose(drafted, expected[1], **NEAR)
        live = np.ones(tokens.shape, dtype=bool)
        np.testing.assert_allclose(
            laws.at(parents, tokens), md.trees.evaluate(plain, parents, tokens, live), **NEAR
        )
        # Row 0 takes the whole first path, row 1 one token, row 2 what was never drafted.
        longest = TREE.path(TREE.level(3)[0])
        accepted[0] = tokens[0, list(longest)]
        accepted[1, 0] = tokens[1, 1]
        laws.commit(accepted)
        contexts = [
            np.array([*context, *row[row >= 0]])
            for context, row in zip(contexts, accepted, strict=True)
        ]


def test_questions_asked_twice_and_out_of_order_have_one_answer(model):
    laws = TreeLaws.of(model, CONTEXTS)
    plain = reference(model, CONTEXTS, {})
    deep = np.random.default_rng(0).integers(0, V, (3, 2, 4))
    deep[:, 1] = deep[:, 0]
    for paths in (deep, deep[..., :2], deep[..., :0], deep):
        np.testing.assert_allclose(laws(paths), plain(paths), **NEAR)
    laws.commit(deep[:, 0])
    grown = [np.array([*c, *p]) for c, p in zip(CONTEXTS, deep[:, 0], strict=True)]
    np.testing.assert_allclose(
        laws(deep[..., :1]), reference(model, grown, {})(deep[..., :1]), **NEAR
    )


def test_equal_paths_are_computed_once(model):
    laws: Any = TreeLaws.of(model, CONTEXTS)
    laws(np.zeros((3, 1, 0), dtype=np.int64))
    laws(np.zeros((3, 5, 1), dtype=np.int64))
    assert laws.cache.drafted == 2


@pytest.mark.parametrize("make", [llama, lambda: ngram(2)])
def test_selected_contexts_go_on(make):
    model = make()
    laws = TreeLaws.of(model, CONTEXTS)
    paths = np.array([[[3]], [[4]], [[5]]])
    laws(paths)
    laws.commit(np.array([[3, 8], [4, -1], [-1, -1]]))
    laws.select(np.array([2, 0]))
    left = [CONTEXTS[2], np.array([*CONTEXTS[0], 3, 8])]
    np.testing.assert_allclose(laws(paths[:2]), reference(model, left, {})(paths[:2]), **NEAR)


def test_ngrams_need_a_token_and_trees_a_memory(monkeypatch):
    with pytest.raises(md.InputError, match="give a prompt"):
        TreeLaws.of(ngram(2), [np.array([], dtype=int)])
    import psutil

    tokens, parents = tree_tokens()
    tokens[:, 0] = -1
    memory = type("Memory", (), {"available": 1000})()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    with pytest.raises(md.InputError, match="use a smaller tree or fewer trees"):
        TreeLaws.of(ngram(2), CONTEXTS).at(parents, tokens)
