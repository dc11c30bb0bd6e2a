"""The decoding loop of the documentation, run as it stands there, and the example beside it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_model import config
from transformers import LlamaForCausalLM

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture(scope="module")
def loop() -> Any:
    text = (DOCS / "decoding-recipe.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    assert len(code.splitlines()) <= 36  # imports and all
    space: dict[str, Any] = {}
    exec(compile(code, "decoding-recipe.md", "exec"), space)
    return space["multi_draft"]


@pytest.fixture(scope="module")
def models() -> list[LlamaForCausalLM]:
    found = []
    for seed in range(2):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config(layers=2, vocabulary=32))
        found.append(model.train(False))
    return found


def decode(loop: Any, models: list[Any], **options: Any) -> torch.Tensor:
    target, drafter = models
    options = {"do_sample": True, "max_new_tokens": 9, "pad_token_id": 0} | options
    return target.generate(
        torch.tensor([[1, 2, 3]]),
        attention_mask=torch.ones(1, 3, dtype=torch.long),
        custom_generate=loop,
        drafter=drafter,
        **options,
    )


RULES = [
    ("naive", "top"), ("rrs", "iid"), ("rrsw", "without-replacement"), ("k-seq", "iid"),
    ("spechub", "hub"), ("greedy", "greedy"), ("importance", "iid"), ("gls", "iid"),
    ("interval", "iid"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "law"), RULES)
def test_cold_sampling_gives_the_greedy_text(loop, models, rule: str, law: str):
    n = 2 if law == "hub" else 3
    found = decode(loop, models, rule=rule, law=law, n=n, temperature=1e-3)
    assert torch.equal(found, decode(None, [models[0], None], do_sample=False))


def test_seeds_decide_the_text(loop, models):
    first, again, other = (decode(loop, models, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert first.shape == (1, 12)


def test_equal_models_accept_every_draft(loop, models):
    calls = []
    handle = models[0].register_forward_hook(lambda *_: calls.append(1))
    decode(loop, [models[0], models[0]], max_new_tokens=8)
    handle.remove()
    assert len(calls) == 4 + 4  # as target and as drafter: two tokens for each call


def test_the_example_of_transformers(capsys):
    runpy.run_path(str(DOCS / "examples" / "check_transformers_assisted.py"))
    shipped, ensemble = re.findall(r": +(\w+): 1500 draws", capsys.readouterr().out)
    assert (shipped, ensemble) == ("passed", "FAILED")
