"""Decoding: the target's text and law, batches, ends, what is measured, refusals, the command."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_model
import torch
from scipy import stats
from test_tree_cache import llama, ngram, sliding, wrapped
from transformers import LlamaForCausalLM

import multidraft as md
from multidraft import cli, models, verifiers
from multidraft.cli.decode import _coloured
from multidraft.decode import loop
from multidraft.decode.loop import choose_rule, choose_tree
from multidraft.models.transformer import Transformer
from multidraft.trees.rules import parse as parse_rule

ROOT = Path(__file__).resolve().parents[1]
PROMPTS = ["The", "a longer one", "x=1"]
SMALL = 10  # tokens of the vocabulary where laws are listed


def noisy(model: Transformer, scale: float) -> Transformer:
    """A draft near the target: every weight a little off."""
    twin = LlamaForCausalLM(model.module.config)
    twin.load_state_dict(model.module.state_dict())
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in twin.parameters():
            weight += scale * torch.randn(weight.shape, generator=generator) * weight.std()
    return wrapped(twin, "near")


def byte_llama(**changes: Any) -> Transformer:
    torch.manual_seed(1)
    config = tiny_model.config(3, 256)
    for key, value in changes.items():
        setattr(config, key, value)
    return wrapped(LlamaForCausalLM(config))


@pytest.fixture(scope="module")
def target():
    return byte_llama()


@pytest.fixture(scope="module")
def draft(target):
    return noisy(target, 0.08)


def small(seed: int) -> Transformer:
    torch.manual_seed(seed)
    config = tiny_model.config(2, SMALL)
    config.initializer_range = 0.15
    return wrapped(LlamaForCausalLM(config), f"small-{seed}")


# Temperature 0: the target's greedy text

SYSTEMS = [
    {},
    {"tree": "chain:4", "law": "iid", "rule": "rrs"},
    {"tree": "chain:3", "rule": "block"},
    {"tree": "k-ary:2,3", "law": "iid", "rule": "interval"},
    {"tree": "k-ary:3,2", "law": "without-replacement", "rule": "traversal"},
    {"tree": "paths:3,3", "law": "iid", "rule": "greedy-multipath"},
    {"tree": "delayed:2,1,2", "law": "greedy", "rule": "univer"},
    {"tree": "k-ary:2,2", "law": "hub", "rule": "spechub"},
    {"tree": "k-ary:3,2", "law": "top", "rule": "bottom-up:naive"},
]


@pytest.mark.parametrize("system", SYSTEMS)
def test_cold_text_is_the_greedy_text(target, draft, system):
    out = md.decode.generate(
        target, draft, prompts=PROMPTS, temperature=0, max_new_tokens=16, **system
    )
    sentences = md.decode.assert_greedy(out, target)
    assert len(sentences) == 3
    assert all("for all 16 tokens" in sentence or "closer" in sentence for sentence in sentences)
    plain = md.decode.plain(target, prompts=PROMPTS, temperature=0, max_new_tokens=16)
    assert md.decode.assert_greedy(plain, target) == sentences
    assert out.measured.block_efficiency > 1.2  # so drafts were accepted


def test_the_greedy_check_names_the_wrong_token_and_the_close_call(target, draft):
    out = md.decode.generate(target, draft, prompts="The", temperature=0, max_new_tokens=8)
    right = out.tokens[0][5]
    out.tokens[0][5] = (right + 1) % 256
    with pytest.raises(AssertionError, match=rf"token 5 is .*, and greedy decoding gives {right},"):
        md.decode.assert_greedy(out, target)
    torch.manual_seed(0)
    flat = wrapped(LlamaForCausalLM(tiny_model.config(1)))
    torch.nn.init.zeros_(flat.module.lm_head.weight)
    out = md.decode.plain(flat, prompts="a", temperature=0, max_new_tokens=3)
    sentence = md.decode.assert_greedy(out, flat)[0]
    assert re.search(r"row 0: equal .* 0 of 3 tokens; at the next .* closer than 0\.001", sentence)


# Temperature 1: the target's law

LAWS = [
    {"tree": "delayed:2,1,1"},
    {"tree": "k-ary:2,2", "law": "iid"},
    {"tree": "chain:3", "rule": "block"},
    {"tree": "k-ary:2,2", "law": "top", "top_k": 6, "top_p": 0.9},
    {"tree": "paths:2,2", "law": "greedy", "temperature": 0.7},
]
DRAWS, ALPHA = 1500, 1e-4


def exact_law(model, prompt: list[int], length: int, **shape: Any) -> np.ndarray:
    """Law of the continuations of a length, in the order of `itertools.product`."""
    law = np.ones(1)
    for size in range(length):
        paths = [[*prompt, *path] for path in itertools.product(range(SMALL), repeat=size)]
        rows = md.transform.probabilities(model.logits(np.array(paths))[:, -1], **shape)
        law = (law[:, None] * rows).ravel()
    return law


def p_value(tokens: list[list[int]], law: np.ndarray) -> float:
    """Of chi-square tests of every two places' joint law, corrected for their number."""
    drawn, places = np.array(tokens), range(len(tokens[0]))
    joint = law.reshape((SMALL,) * len(places))
    pairs = list(itertools.combinations(places, 2))
    found = []
    for first, second in pairs:
        others = tuple(place for place in places if place not in (first, second))
        cells = SMALL * drawn[:, first] + drawn[:, second]
        found.append(chi_square(cells, joint.sum(others).ravel()))
    return min(1.0, len(pairs) * min(found))


def chi_square(cells: np.ndarray, law: np.ndarray) -> float:
    """p-value; rare cells are pooled, so that 5 or more are expected in each."""
    counts = np.bincount(cells, minlength=law.size)
    if counts[law == 0].any():
        return 0.0
    rare = law * len(cells) < 5
    seen = np.array([*counts[~rare], counts[rare].sum()])
    expected = len(cells) * np.array([*law[~rare], law[rare].sum()])
    kept = expected > 0
    return float(stats.chisquare(seen[kept], expected[kept]).pvalue)


def continuations(draft, length: int, **options: Any) -> list[list[int]]:
    out = md.decode.generate(
        small(0),
        draft,
        prompts=[[1, 2, 3]] * DRAWS,
        max_new_tokens=length,
        seeds=1000,
        **options,
    )
    return out.tokens


def few_ngrams() -> models.Model:
    documents = [np.random.default_rng(1).integers(0, SMALL, 200)]
    tokenizer = tiny_model.byte_tokenizer()
    return models.NGram(2, documents, SMALL, tokenizer, "ngram-2")


def shape_of(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in ("temperature", "top_k", "top_p") if name in options}


@pytest.mark.parametrize("options", LAWS)
def test_short_continuations_have_the_law_of_plain_sampling(options):
    """A lossless loop fails with probability 1e-4 (asymptotically), for each case."""
    law = exact_law(small(0), [1, 2, 3], 3, **shape_of(options))
    assert p_value(continuations(small(1), 3, **options), law) > ALPHA


def test_the_law_with_an_ngram_draft_and_of_plain_decoding():
    law = exact_law(small(0), [1, 2, 3], 2)
    assert p_value(continuations(few_ngrams(), 2), law) > ALPHA
    out = md.decode.plain(small(0), prompts=[[1, 2, 3]] * DRAWS, max_new_tokens=2)
    assert p_value(out.tokens, law) > ALPHA


def same_in_every_step(seeds, draws: int, stream: int) -> np.ndarray:
    return verifiers.uniforms(seeds, draws, stream=stream % 2).numpy()


def same_for_both_purposes(seeds, draws: int, stream: int) -> np.ndarray:
    return verifiers.uniforms(seeds, draws, stream=stream // 2).numpy()


@pytest.mark.parametrize("planted", [same_in_every_step, same_for_both_purposes])
def test_uniforms_that_are_used_twice_are_found(monkeypatch, planted):
    monkeypatch.setattr(loop, "uniforms", planted)
    law = exact_law(small(0), [1, 2, 3], 3)
    assert p_value(continuations(small(1), 3, tree="chain:1"), law) < ALPHA


def test_a_rule_that_accepts_too_much_is_found(monkeypatch):
    rule = md.trees.get("block")
    judge = type(rule).judge

    def generous(self, drafted):
        verdict = judge(self, drafted)
        verdict.stop[:] = [0, 0, 1]
        return verdict

    monkeypatch.setattr(type(rule), "judge", generous)
    law = exact_law(small(0), [1, 2, 3], 3)
    assert p_value(continuations(small(1), 3, tree="chain:2", rule=rule), law) < ALPHA


# Batches, ends, limits


def test_a_row_does_not_see_its_neighbours(target, draft):
    options: dict[str, Any] = {"max_new_tokens": 20, "temperature": 0.8, "eos": [7, 60, 130, 200]}
    seeds = [11, 5, 11]
    whole = md.decode.generate(target, draft, prompts=PROMPTS, seeds=seeds, **options)
    assert len({len(tokens) for tokens in whole.tokens}) > 1  # rows dropped out one by one
    for row, (prompt, seed) in enumerate(zip(PROMPTS, seeds, strict=True)):
        alone = md.decode.generate(target, draft, prompts=prompt, seeds=[seed], **options)
        assert alone.tokens == whole.tokens[row : row + 1]
        assert alone.lengths == whole.lengths[row : row + 1]
        assert alone.accepted == whole.accepted[row : row + 1]
    other = md.decode.generate(target, draft, prompts=PROMPTS, seeds=12, **options)
    assert other.tokens != whole.tokens


def test_end_of_sequence_inside_an_accepted_block(target):
    free = md.decode.generate(target, target, prompts="The", temperature=0, tree="chain:5")
    tokens = free.tokens[0]
    ends = [i for i in range(2, 60) if tokens[i] not in tokens[:i] and i % 6 in (1, 2, 3)]
    end = ends[0]  # no block of 6 ends there
    out = md.decode.generate(
        target, target, prompts="The", temperature=0, tree="chain:5", eos=tokens[end]
    )
    assert out.tokens == [tokens[: end + 1]]
    assert out.ended == ["eos"] and out.accepted[0][-1]
    assert out.lengths == [[6] * (end // 6 + 1)]
    visible = target.tokenizer.decode(tokens[:end])
    assert out.texts == [visible]
    assert "".join(text for text, _ in out.pieces(0)) == visible


@pytest.mark.parametrize("limit", [1, 2, 5, 6, 7])
def test_the_limit_is_exact(target, limit):
    free = md.decode.generate(target, target, prompts=PROMPTS, temperature=0, max_new_tokens=9)
    out = md.decode.generate(
        target, target, prompts=PROMPTS, temperature=0, max_new_tokens=limit, tree="chain:4"
    )
    assert out.tokens == [tokens[:limit] for tokens in free.tokens]
    assert [len(flags) for flags in out.accepted] == [limit] * 3
    assert out.ended == ["limit"] * 3


def test_one_target_call_for_the_whole_batch(target, draft):
    calls = []
    hook = target.module.register_forward_hook(lambda *_: calls.append(1))
    out = md.decode.generate(target, draft, prompts=PROMPTS, max_new_tokens=10)
    hook.remove()
    assert len(calls) == 1 + out.measured.target_calls  # the first reads the prompts


def test_equal_models_accept_whole_paths(target):
    out = md.decode.generate(target, target, prompts=PROMPTS, max_new_tokens=12, tree="chain:3")
    assert out.measured.block_efficiency == 4
    assert out.measured.target_calls == 3
    assert out.accepted == [[True, True, True, False] * 3] * 3


# What is measured


def test_measurements_hang_together(target, draft):
    tree = md.trees.delayed(3, 1, 2)
    out = md.decode.generate(target, draft, prompts=PROMPTS * 2, max_new_tokens=30, tree=tree)
    found = out.measured
    lengths = [length for row in out.lengths for length in row]
    assert found.blocks == len(lengths)
    assert found.block_efficiency == pytest.approx(np.mean(lengths))
    assert found.block_efficiency == pytest.approx(1 + found.mean_acceptance.sum())
    np.testing.assert_allclose(np.cumprod(found.conditional_acceptance), found.mean_acceptance)
    shares = [found.slot_share[list(tree.level(depth))].sum() for depth in (1, 2, 3)]
    np.testing.assert_allclose(shares, found.mean_acceptance)
    np.testing.assert_allclose(
        np.nansum(found.slot_acceptance, axis=-1), found.conditional_acceptance
    )
    assert found.tokens == sum(map(len, out.tokens)) == 180
    assert found.error > 0
    parts = [found.seconds[name] for name in ("prefill", "draft", "target", "verification")]
    assert 0 < sum(parts) <= found.seconds["total"]
    assert found.tokens_per_second == pytest.approx(180 / found.seconds["total"])


def test_a_result_is_json(target, draft):
    out = md.decode.generate(target, draft, prompts="The", max_new_tokens=4)
    data = json.loads(json.dumps(out.as_data(), allow_nan=False))
    assert data["measured"]["error"] is None  # one row has no error
    assert data["rows"][0]["text"] == out.texts[0]
    assert data["settings"]["rule"] == "traversal"
    assert data["settings"]["seeds"] == [0]


def test_block_efficiency_is_what_the_trees_promise(target, draft):
    """The mean length of first blocks is the expected length given the drafted trees."""
    tree, batch = md.trees.k_ary(2, 2, "iid"), 400
    out = md.decode.generate(
        target, draft, prompts=["The"] * batch, max_new_tokens=1, tree=tree, rule="interval"
    )
    from multidraft.models.tree_laws import TreeLaws

    context = [np.array(target.tokenizer.encode("The", add_special_tokens=False))] * batch
    uniforms = np.random.default_rng(0).random((batch, tree.nodes))
    drafted = md.trees.draw(
        tree, TreeLaws.of(target, context), TreeLaws.of(draft, context), uniforms
    )
    expected = parse_rule("interval").expected_length(drafted)
    first = np.array([row[0] for row in out.lengths])
    error = np.hypot(first.std(), expected.std()) / np.sqrt(batch)
    assert abs(first.mean() - expected.mean()) < 4 * error


# Baselines


def test_assisted_generation_at_temperature_0_is_the_greedy_text(target, draft):
    found = md.decode.compare(
        target, draft, prompts=PROMPTS[:2], temperature=0, max_new_tokens=16, tree="chain:2"
    )
    assert list(found) == ["multidraft", "plain", "assisted"]
    for out in found.values():
        md.decode.assert_greedy(out, target)
        assert out.measured.tokens == 32
        assert out.measured.seconds["total"] > 0
    assert found["plain"].measured.target_calls == 16
    assert found["assisted"].measured.target_calls < 32
    json.dumps(found["assisted"].as_data(), allow_nan=False)


def test_assisted_generation_samples_and_stops(target, draft):
    options: dict[str, Any] = {"max_new_tokens": 30, "eos": list(range(0, 256, 8)), "top_k": 40}
    out = md.decode.assisted(target, draft, prompts=PROMPTS, seeds=3, **options)
    again = md.decode.assisted(target, draft, prompts=PROMPTS, seeds=3, **options)
    assert out.tokens == again.tokens
    for tokens, ended in zip(out.tokens, out.ended, strict=True):
        assert all(token % 8 for token in tokens[:-1])
        assert (tokens[-1] % 8 == 0) == (ended == "eos")


def test_an_ngram_is_compared_with_plain_decoding_only(target):
    found = md.decode.compare(target, ngram_of(target), prompts="The", max_new_tokens=3)
    assert list(found) == ["multidraft", "plain"]
    with pytest.raises(md.InputError, match="needs a draft that is a transformer"):
        md.decode.assisted(target, ngram_of(target), prompts="The")


def ngram_of(target) -> models.Model:
    return models.ngram(3, target, "ngram-3", ["abc abc abd " * 20])


# Choices


def test_loaded_networks_are_wrapped(target, draft):
    direct = md.decode.generate(
        target.module, draft.module, target.tokenizer, PROMPTS, max_new_tokens=5
    )
    models_ = md.decode.generate(target, draft, prompts=PROMPTS, max_new_tokens=5)
    assert direct.tokens == models_.tokens
    assert direct.settings["target"]["name"] == "LlamaForCausalLM"


@pytest.mark.parametrize(
    ("tree", "law", "temperature", "rule"),
    [
        ("chain:4", None, 1.0, "block"),
        ("delayed:3,1,2", None, 1.0, "traversal"),
        ("delayed:3,1,2", None, 0.0, "top-down:naive"),
        ("paths:3,2", "iid", 1.0, "top-down:interval"),
        ("k-ary:3,2", "greedy", 1.0, "univer"),
    ],
)
def test_defaults_fit_the_tree(tree, law, temperature, rule):
    chosen = choose_tree(tree, law, temperature)
    assert loop.rule_name(choose_rule(None, chosen)) == rule
    assert parse_rule(rule) == choose_rule(None, chosen)


def test_a_tree_of_several_laws_has_a_rule_that_takes_it():
    tree = md.trees.Tree([-1, 0, 0, 1, 1], ["iid", "top", None, None, None])
    assert loop.rule_name(choose_rule(None, tree)) == "top-down:naive"
    assert choose_tree(tree, None, 1.0) is tree


# Refusals

Change = Callable[[dict[str, Any]], None]


def other_tokenizer(options: dict[str, Any]) -> None:
    options["draft"] = byte_llama()
    options["draft"].tokenizer = tiny_model.byte_tokenizer(("<pad>",))


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"draft": llama()}, "near|tiny has 64 logits and tiny 256"),
    ({"target": ngram(2)}, "the target ngram-2 is no transformer"),
    ({"target": object()}, "the target is a object: pass a name, a folder"),
    ({"draft": LlamaForCausalLM(tiny_model.config(1))}, "draft is a network without a tokenizer"),
    ({"prompts": []}, "there is no prompt"),
    ({"prompts": ["a", ""]}, "a prompt has no tokens"),
    ({"prompts": [[300]]}, r"token ids, each in 0\.\.255"),
    ({"seeds": [1, 2]}, "one for each of the 1 prompts"),
    ({"tree": md.trees.chain(2), "law": "iid"}, "leave out law='iid'"),
    ({"tree": "bush:3"}, "names no tree"),
    ({"rule": "best"}, "unknown rule 'best'"),
    ({"rule": "sideways:rrs"}, "unknown form of a token rule"),
    ({"rule": "block"}, "this tree branches"),
    ({"temperature": -1.0}, "temperature is -1.0"),
    ({"draft_temperature": np.inf}, "temperature is inf"),
    ({"max_new_tokens": 0}, "max_new_tokens is 0"),
    ({"target": "smoll"}, "unknown model 'smoll'"),
]


@pytest.mark.parametrize(("changes", "sentence"), REFUSALS)
def test_bad_input_is_one_sentence(target, draft, changes, sentence):
    options = {"target": target, "draft": draft, "prompts": ["The"], "max_new_tokens": 4}
    with pytest.raises((md.InputError, md.Refused), match=sentence):
        md.decode.generate(**(options | changes))


def test_models_that_do_not_belong_together(target):
    options: dict[str, Any] = {"prompts": "The"}
    other_tokenizer(options)
    with pytest.raises(md.InputError, match="have different tokenizers"):
        md.decode.generate(target, **options)


def test_what_does_not_fit_is_refused(monkeypatch):
    short = byte_llama(max_position_embeddings=20)
    with pytest.raises(md.InputError, match="a prompt of 21 tokens is longer than the 20 position"):
        md.decode.generate(short, short, prompts="a" * 21)
    with pytest.raises(md.InputError, match="12 new ones and a tree of depth 3 are more than the"):
        md.decode.generate(short, short, prompts="a" * 8, max_new_tokens=12)
    out = md.decode.generate(short, short, prompts="a" * 7, max_new_tokens=11)
    assert len(out.tokens[0]) == 11
    with pytest.raises(md.Refused, match="wavy is a MistralForCausalLM"):
        wave = wrapped(sliding(), "wavy")
        md.decode.generate(wave, wave, prompts=[[1]])
    import psutil

    memory = type("Memory", (), {"available": 1000})()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    with pytest.raises(md.InputError, match="use a smaller tree or fewer trees"):
        md.decode.generate(short, short, prompts="a", max_new_tokens=4)


# The command


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tiny_model.write(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture
def command(folder, capsys, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        options = {"--target": folder, "--draft": "skip:1", "--max-new-tokens": "8"}
        given = [
            part for option in options.items() if option[0] not in arguments for part in option
        ]
        code = cli.main(["decode", *given, *arguments])
        return code, *capsys.readouterr()

    return run


def test_the_command_prints_prompt_and_text(command, tmp_path):
    listed = tmp_path / "prompts.txt"
    listed.write_text("one\n\ntwo\n", encoding="utf-8")
    code, out, err = command("--prompt", "zero", "--prompts", str(listed), "--temperature", "0")
    assert (code, err) == (0, "")
    assert [out.count(prompt) for prompt in ("zero", "one", "two")] == [1, 1, 1]
    assert "\x1b" not in out  # a pipe has no colours


def test_accepted_drafts_are_coloured_and_others_not(command, folder, monkeypatch):
    same = ("--prompt", "The", "--temperature", "0", "--draft", folder)
    monkeypatch.setenv("FORCE_COLOR", "1")
    code, out, _ = command(*same)
    found = json.loads(command(*same, "--json")[1])
    assert code == 0 and "\x1b[1mThe\x1b[0m" in out
    assert any(found["multidraft"]["rows"][0]["accepted"]) and "\x1b[32m" in out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[32m" not in command(*same)[1]


def test_pieces_know_where_they_come_from():
    text = _coloured("P", [("a", True), ("b", False), ("c", True)])
    styles = [(text.plain[span.start : span.end], str(span.style)) for span in text.spans]
    assert styles == [("a", "not bold green"), ("b", "not bold"), ("c", "not bold green")]
    assert (text.plain, str(text.style)) == ("Pabc", "bold")


def test_characters_of_several_tokens_are_one_piece(target):
    out = md.decode.plain(target, prompts="a", max_new_tokens=3)
    out.tokens[0][:] = target.tokenizer.encode("é!", add_special_tokens=False)
    assert out.pieces(0) == [("é", False), ("!", False)]


def test_statistics_and_comparison_are_printed(command):
    code, out, err = command("--prompt", "The", "--stats", "--compare", "--tree", "chain:2")
    assert (code, err) == (0, "")
    assert re.search(r"^block efficiency  +[12]\.\d{3} tokens per call", out, re.M)
    assert re.search(r"^position +mean acceptance +conditional acceptance", out, re.M)
    assert re.search(r"^plain +[\d.]+ +1\.00 +1\.000", out, re.M)
    assert re.search(r"^assisted ", out, re.M)


def test_the_command_refuses_in_one_sentence(command, tmp_path, monkeypatch):
    monkeypatch.setenv("MULTIDRAFT_CACHE", str(tmp_path))
    for arguments, sentence in [
        ((), "there is no prompt"),
        (("--prompt", "a", "--rule", "block"), "this tree branches"),
        (("--prompt", "a", "--target", "smollm2"), "run `multidraft models fetch smollm2`"),
        (("--prompts", str(tmp_path / "none.txt")), "No such file"),
    ]:
        code, out, err = command(*arguments)
        assert (code, out) == (2, "")
        assert sentence in err and err.count("\n") == 1


def test_the_page_runs_as_it_stands(target, draft, monkeypatch):
    """Its models are replaced by small ones."""
    pair = {"smollm2": target, "skip-8": draft}
    monkeypatch.setattr(models, "load", lambda name, target=None: pair[name])
    page = (ROOT / "docs" / "decoding.md").read_text(encoding="utf-8")
    space: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, "decoding.md", "exec"), space)
    assert len(space["out"].tokens[0]) == 64
    assert space["named"].name == "mine"
