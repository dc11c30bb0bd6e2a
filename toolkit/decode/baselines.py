"""What multi-draft decoding is measured against: one token per call, and one drafted chain."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from multidraft.arrays import search
from multidraft.decode.loop import advance, check_positions, generate, uniforms
from multidraft.decode.measured import Clock, Log, Measured
from multidraft.decode.pair import load, pair
from multidraft.decode.result import Decoded
from multidraft.decode.rows import Prompt, Rows, encode, end_tokens, seed_rows
from multidraft.errors import InputError
from multidraft.models import Tokenizer
from multidraft.models.transformer import Transformer
from multidraft.models.tree_laws import TreeLaws
from multidraft.transform import probabilities
from multidraft.trees.rules.base import Block
from multidraft.trees.tree import Tree

_ROOT = Tree([-1], "iid")


def plain(
    target: Any,
    tokenizer: Tokenizer | None = None,
    prompts: Prompt | Sequence[Prompt] = (),
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    max_new_tokens: int = 64,
    eos: int | Sequence[int] | None = None,
    seeds: int | Sequence[int] | np.ndarray = 0,
) -> Decoded:
    """Continue prompts with one token per target call; parameters as of `generate`."""
    model = load(target, tokenizer)
    shape = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    probabilities(np.zeros(1), **shape)
    texts = encode(prompts, model)
    rows = Rows(texts, end_tokens(eos, model.tokenizer), max_new_tokens)
    check_positions(model, max(map(len, texts)), rows.limit, 0)
    return _plain(model, rows, seed_rows(seeds, len(texts)), shape)


def _plain(
    model: Transformer, rows: Rows, seeds: Int[np.ndarray, " B"], shape: dict[str, Any]
) -> Decoded:
    clock, log = Clock(), Log(_ROOT)
    with clock.timing("prefill"):
        laws = TreeLaws.of(model, rows.prompts, **shape)
    while rows.active.size:
        root = np.full((rows.active.size, 1), -1)
        with clock.timing("target"):
            logits = laws.logits_at(root, root)
        with clock.timing("verification"):
            chosen = uniforms(seeds[rows.active], 1, log.calls)
            tokens = search(np.cumsum(laws.shaped(root, logits)[:, 0], axis=-1), chosen)
        nothing = np.zeros(len(root), dtype=np.int64)
        log.add(rows.active, Block(tokens, nothing + 1, nothing, root[:, :0]))
        going = rows.append(tokens, nothing)
        with clock.timing("target"):
            advance(laws, tokens, going)
    measured = log.measured(sum(map(len, rows.tokens)), clock.seconds())
    settings = {
        "method": "plain",
        "target": model.identity(),
        "sampling": shape,
        "seeds": seeds.tolist(),
    }
    return Decoded.of(rows, log.lengths(len(seeds)), measured, settings, model.tokenizer)


def assisted(
    target: Any,
    draft: Any,
    tokenizer: Tokenizer | None = None,
    prompts: Prompt | Sequence[Prompt] = (),
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    max_new_tokens: int = 64,
    eos: int | Sequence[int] | None = None,
    seeds: int | Sequence[int] | np.ndarray = 0,
) -> Decoded:
    """Continue prompts with the assisted generation of transformers, at its own settings.

    It takes one prompt at a time, so prompts are decoded one after the other. Which of its tokens
    are drafts is not told: `accepted` is False everywhere, acceptance per position is not
    measured, and the draft's time is what the calls of the draft take, the rest of its loop
    counting as verification.

    Raises
    ------
    InputError
        As `generate`, or a draft that is no transformer.
    """
    model, helper = pair(target, draft, tokenizer)
    if not isinstance(helper, Transformer):
        raise InputError(
            "the assisted generation of transformers needs a draft that is a transformer, and "
            f"{helper.name} is none."
        )
    texts = encode(prompts, model)
    rows = Rows(texts, end_tokens(eos, model.tokenizer), max_new_tokens)
    check_positions(model, max(map(len, texts)), rows.limit, 0)
    shape = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    return _assisted(model, helper, rows, seed_rows(seeds, len(texts)), shape)


def _assisted(
    model: Transformer,
    draft: Transformer,
    rows: Rows,
    seeds: Int[np.ndarray, " B"],
    shape: dict[str, Any],
) -> Decoded:
    clock, calls = Clock(), np.zeros(len(seeds), dtype=np.int64)
    settings = _generation_settings(rows, shape)
    for row, seed in enumerate(seeds.tolist()):
        with _counted(model, "target", clock) as counter, _counted(draft, "draft", clock):
            tokens = _one(model, draft, rows.prompts[row], seed, settings)
        calls[row] = counter["calls"]
        rows.active = np.array([row])
        rows.append(tokens, np.zeros(1, dtype=np.int64))
    seconds = {"draft": 0.0, **clock.seconds()}  # nothing is drafted for one token
    seconds["verification"] = seconds["total"] - seconds["target"] - seconds["draft"]
    nothing = np.empty(0)
    emitted, made = sum(map(len, rows.tokens)), int(calls.sum())
    measured = Measured(
        target_calls=made,
        blocks=made,
        tokens=emitted,
        block_efficiency=emitted / made,
        error=float("nan"),
        mean_acceptance=nothing,
        conditional_acceptance=nothing,
        slot_share=np.ones(1),
        slot_acceptance=np.empty((0, 0)),
        seconds=seconds,
    )
    facts = {
        "method": "assisted generation of transformers",
        "target": model.identity(),
        "draft": draft.identity(),
        "sampling": shape,
        "seeds": seeds.tolist(),
    }
    return Decoded.of(rows, [[] for _ in seeds], measured, facts, model.tokenizer)


def _generation_settings(rows: Rows, shape: dict[str, Any]) -> dict[str, Any]:
    heat = shape["temperature"]
    sampling = {
        "temperature": heat,
        "top_k": shape["top_k"] or 0,
        "top_p": 1.0 if shape["top_p"] is None else shape["top_p"],
    }
    return {
        "do_sample": heat > 0,
        "max_new_tokens": rows.limit,
        "eos_token_id": sorted(rows.eos) or None,
        "pad_token_id": min(rows.eos, default=0),
        **(sampling if heat else {}),
    }


def _one(
    model: Transformer,
    draft: Transformer,
    prompt: Int[np.ndarray, " T"],
    seed: int,
    settings: dict[str, Any],
) -> Int[np.ndarray, "1 N"]:
    """Tokens that one call of transformers adds to one prompt."""
    from transformers import GenerationConfig

    ids = torch.tensor(prompt[None]).to(model.module.device)
    with torch.random.fork_rng(), _quiet():
        torch.manual_seed(seed)
        found = model.module.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            assistant_model=draft.module,
            generation_config=GenerationConfig(**settings),
        )
    return found[:, len(prompt) :].cpu().numpy()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what transformers says of the calls that it makes itself."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


@contextmanager
def _counted(model: Transformer, name: str, clock: Clock) -> Iterator[Counter[str]]:
    """Count the calls of a network, and add their time to `name`."""
    counter: Counter[str] = Counter()
    begun: list[float] = []

    def after(*_: Any) -> None:
        counter["calls"] += 1
        clock.spent[name] += time.perf_counter() - begun.pop()

    hooks = (
        model.module.register_forward_pre_hook(lambda *_: begun.append(time.perf_counter())),
        model.module.register_forward_hook(after),
    )
    try:
        yield counter
    finally:
        for hook in hooks:
            hook.remove()


def compare(
    target: Any,
    draft: Any,
    tokenizer: Tokenizer | None = None,
    prompts: Prompt | Sequence[Prompt] = (),
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    max_new_tokens: int = 64,
    eos: int | Sequence[int] | None = None,
    seeds: int | Sequence[int] | np.ndarray = 0,
    **drafting: Any,
) -> dict[str, Decoded]:
    """Decode the same prompts by multi-draft sampling, plainly, and by assisted generation.

    Parameters are those of `generate`; tree, law, rule and draft_temperature are for multi-draft
    sampling alone. Every method first decodes one token that is not counted.

    Returns
    -------
    dict
        ``multidraft`` and ``plain``, and ``assisted`` where the draft is a transformer.
    """
    models = pair(target, draft, tokenizer)
    common = {
        "prompts": encode(prompts, models[0]),
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "eos": eos,
        "seeds": seeds,
    }
    methods: dict[str, Callable[..., Decoded]] = {
        "multidraft": partial(generate, *models, **common, **drafting),
        "plain": partial(plain, models[0], **common),
    }
    if isinstance(models[1], Transformer):
        methods["assisted"] = partial(assisted, *models, **common)
    for method in methods.values():
        method(max_new_tokens=1)
    return {name: method(max_new_tokens=max_new_tokens) for name, method in methods.items()}
