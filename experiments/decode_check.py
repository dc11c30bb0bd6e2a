"""Real decoding against what it must equal: greedy text, exact law, recorded trees; and its speed.

``python -m multidraft.experiments.decode_check PART...`` runs ``greedy``, ``law``, ``cells`` or
``speed`` on SmolLM2 with its skip-8 draft, adds what it finds to ``results/decode/checks.json``,
and writes the page beside it again. Times are those of the machine that the page names.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from multidraft import decode, models
from multidraft.cli.record import default_trace
from multidraft.decode.loop import Decoder
from multidraft.decode.measured import Clock
from multidraft.decode.rows import encode
from multidraft.errors import InputError
from multidraft.experiments import tree_table
from multidraft.files import write_text
from multidraft.models import Model
from multidraft.models.transformer import Transformer
from multidraft.models.tree_laws import TreeLaws
from multidraft.results import clustered_mean, paired_difference
from multidraft.transform import probabilities
from multidraft.trees import efficiency
from multidraft.trees.named import parse as parse_tree
from multidraft.trees.recorded import Recording
from multidraft.trees.recording import Recorder
from multidraft.trees.rules import parse as parse_rule

FOLDER = Path("results/decode")
PROMPTS = (
    "The capital of France is",
    "Once upon a time, there was a",
    "Water boils at a temperature of",
    "def fibonacci(n):",
)
SEEDS, BATCH, TOP_K, ALPHA = 1000, 100, 20, 1e-3
CONTEXTS, STEPS = 32, 2
CELLS = (
    ("iid", "chain:4", "block"),
    ("iid", "k-ary:2,2", "interval"),
    ("without-replacement", "paths:3,2", "traversal"),
)
MEANS = ("recorded", "decoded", "difference")
SYSTEMS = (
    {"tree": "delayed:3,1,2", "law": "without-replacement", "rule": "traversal"},
    {"tree": "chain:4", "law": "iid", "rule": "block"},
)


def greedy(target: Transformer, draft: Model) -> dict[str, Any]:
    """Four prompts, 64 tokens, temperature 0: the target's greedy text."""
    out = decode.generate(target, draft, prompts=PROMPTS, temperature=0, max_new_tokens=64)
    return {
        "rows": decode.assert_greedy(out, target),
        "block_efficiency": out.measured.block_efficiency,
        "error": out.measured.error,
        "texts": out.texts,
    }


def law(target: Transformer, draft: Model) -> dict[str, Any]:
    """The law of two tokens at temperature 1, top-k 20, against the exact one."""
    prompt = encode(PROMPTS[0], target)[0]
    shape: dict[str, Any] = {"temperature": 1.0, "top_k": TOP_K}
    drawn = []
    for first in range(0, SEEDS, BATCH):
        out = decode.generate(
            target, draft, prompts=[prompt] * BATCH, tree="paths:2,1", seeds=first,
            max_new_tokens=2, eos=(), **shape,
        )  # fmt: skip
        drawn += out.tokens
    exact = exact_pairs(target, prompt, **shape)
    counts = {pair: drawn.count(list(pair)) for pair in exact}
    return {
        "prompt": PROMPTS[0],
        "seeds": SEEDS,
        "outside": SEEDS - sum(counts.values()),
        **chi_square(np.array(list(counts.values())), np.array(list(exact.values()))),
    }


def exact_pairs(
    model: Model, prompt: Int[np.ndarray, " T"], **shape: Any
) -> dict[tuple[int, int], float]:
    """Probability of every possible pair of next tokens."""
    first = probabilities(model.logits(prompt)[-1], **shape)
    tokens = np.flatnonzero(first)
    rows = np.column_stack([np.tile(prompt, (len(tokens), 1)), tokens])
    second = probabilities(model.logits(rows, np.array([len(prompt)]))[:, 0], **shape)
    return {
        (int(token), int(other)): float(first[token] * law[other])
        for token, law in zip(tokens, second, strict=True)
        for other in np.flatnonzero(law)
    }


def chi_square(counts: Int[np.ndarray, " C"], exact: Float[np.ndarray, " C"]) -> dict[str, Any]:
    """The test; cells in which fewer than five are expected are pooled into one."""
    expected = exact * counts.sum()
    rare = expected < 5
    seen = np.array([*counts[~rare], counts[rare].sum()])
    hoped = np.array([*expected[~rare], expected[rare].sum()])
    found = stats.chisquare(seen, hoped * seen.sum() / hoped.sum())
    return {"cells": len(seen), "statistic": float(found.statistic), "p": float(found.pvalue)}


def cells(target: Transformer, draft: Model) -> dict[str, Any]:
    """Three cells of the recorded trees again, drafted and verified afresh by the decoding loop.

    Differences are paired by context; their errors are clustered by passage.
    """
    rows = []
    for law, group in itertools.groupby(CELLS, key=lambda cell: cell[0]):
        recording = _recording(law, target, draft)
        contexts = recording.contexts[:CONTEXTS]
        behind = (TreeLaws.of(target, contexts), TreeLaws.of(draft, contexts))
        for _, tree, rule in group:
            case = efficiency.Case(parse_tree(tree, law), parse_rule(rule))
            drafted = recording.drafted(slice(0, CONTEXTS), case.tree)
            expected = case.rule.expected_length(drafted)
            real = _real_lengths(target, draft, case, behind)
            passages = recording.passage[:CONTEXTS]
            difference = paired_difference(real, expected, passages)
            rows.append(
                {
                    "tree": tree,
                    "law": law,
                    "rule": rule,
                    "recorded": clustered_mean(expected, passages)[:2],
                    "decoded": clustered_mean(real, passages)[:2],
                    "difference": difference[:2],
                }
            )
    return {"contexts": CONTEXTS, "steps": STEPS, "rows": rows}


def _recording(law: str, target: Transformer, draft: Model) -> Recording:
    """The trees of the table of block efficiencies, recorded now where they are not there yet."""
    recorder = Recorder(
        default_trace(target.name), target, drafts={draft.name: draft}, contexts=tree_table.CONTEXTS
    )
    return recorder.record(draft.name, tree_table.deepest(law))


def _real_lengths(
    target: Transformer,
    draft: Model,
    case: efficiency.Case,
    behind: tuple[TreeLaws, TreeLaws],
) -> Float[np.ndarray, " N"]:
    """Mean block length of every context over a few steps of the loop from it."""
    shape: dict[str, Any] = {"temperature": 1.0, "top_k": None, "top_p": None}
    decoder = Decoder(target, draft, case.tree, case.rule, shape, shape)
    seeds, clock = np.arange(CONTEXTS) + 10_000, Clock()
    nothing = np.empty((CONTEXTS, 0), dtype=np.int64)
    lengths = []
    for step in range(STEPS):
        lengths.append(decoder.step(*behind, seeds, step, clock).length)
        for laws in behind:
            laws.commit(nothing)
    return np.mean(lengths, axis=0)


def speed(target: Transformer, draft: Model) -> dict[str, Any]:
    """Tokens per second of multi-draft, plain and assisted decoding of one prompt, by system."""
    rows = {}
    for temperature, system in itertools.product((0.0, 0.6), SYSTEMS):
        options: dict[str, Any] = dict(system)
        if temperature == 0:  # the tree then holds the draft's most probable tokens
            options |= {"law": None, "rule": None}
        found = decode.compare(
            target, draft, prompts=PROMPTS[1], temperature=temperature, max_new_tokens=48, eos=(),
            **options,
        )  # fmt: skip
        name = f"{system['tree']} at temperature {temperature:g}"
        rows[name] = {
            method: {
                "tokens_per_second": out.measured.tokens_per_second,
                "tokens_per_call": out.measured.block_efficiency,
                "seconds": out.measured.seconds,
            }
            for method, out in found.items()
        }
    return rows


PARTS: dict[str, Callable[[Transformer, Model], dict[str, Any]]] = {
    "greedy": greedy,
    "law": law,
    "cells": cells,
    "speed": speed,
}


def page(found: dict[str, Any]) -> str:
    """The results as Markdown."""
    writers = {
        "greedy": _greedy_text,
        "law": _law_text,
        "cells": _cells_text,
        "speed": _speed_text,
    }
    parts = [writers[name](found[name]) for name in writers if name in found]
    return "\n".join(["# Decoding with SmolLM2 and skip-8", "", *parts])


def _greedy_text(found: dict[str, Any]) -> str:
    lines = "\n".join(f"- {row}" for row in found["rows"])
    return (
        "## Temperature 0\n\n"
        "Four prompts, 64 tokens each, the default tree; every token against the logits of one "
        "plain pass of the target:\n\n"
        f"{lines}\n\nBlock efficiency {found['block_efficiency']:.3f} ± {found['error']:.3f} "
        "(clustered by prompt).\n"
    )


def _law_text(found: dict[str, Any]) -> str:
    verdict = "agrees with" if found["p"] > ALPHA else "DIFFERS from"
    return (
        f"## Temperature 1\n\nThe two tokens after {found['prompt']!r} at top-k {TOP_K}, from "
        f"{found['seeds']} seeds, two drafts without replacement: their law {verdict} the exact "
        f"one (chi-square over {found['cells']} cells, those with fewer than five expected pairs "
        f"pooled: {found['statistic']:.1f}, p = {found['p']:.3f}; a lossless loop fails below "
        f"{ALPHA:g}). {found['outside']} pairs have probability zero.\n"
    )


def _cells_text(found: dict[str, Any]) -> str:
    lines = [
        "## Recorded trees, decoded again\n",
        f"From each of {found['contexts']} recorded contexts the loop takes {found['steps']} steps "
        "with fresh randomness. The recorded number is exact given one drafted tree per context; "
        "differences are paired by context, errors clustered by passage.\n",
        "| tree | law | rule | recorded | decoded | difference | in errors |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in found["rows"]:
        numbers = (f"{row[name][0]:.3f} ± {row[name][1]:.3f}" for name in MEANS)
        ratio = row["difference"][0] / row["difference"][1]
        cells = (row["tree"], row["law"], row["rule"], *numbers, f"{ratio:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _speed_text(found: dict[str, Any]) -> str:
    lines = [
        "## Speed\n",
        "One prompt, 48 tokens, one run each on one machine: no error is estimated, and "
        "differences of a tenth say nothing.\n",
        "| tree | method | tokens/s | against plain | tokens per target call |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for tree, methods in found.items():
        plain = methods["plain"]["tokens_per_second"]
        for method, row in methods.items():
            per_second = row["tokens_per_second"]
            lines.append(
                f"| {tree} | {method} | {per_second:.2f} | {per_second / plain:.2f} | "
                f"{row['tokens_per_call']:.2f} |"
            )
    return "\n".join(lines) + "\n"


def main(names: list[str]) -> None:
    """Run parts and write what they found."""
    if unknown := set(names) - PARTS.keys() or not names:
        raise InputError(f"{unknown} is no part: name some of {', '.join(PARTS)}.")
    target = models.load("smollm2")
    assert isinstance(target, Transformer)
    draft = models.load("skip-8", target)
    place = FOLDER / "checks.json"
    found = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
    for name in names:
        found[name] = PARTS[name](target, draft)
        found["machine"] = {"cores": os.cpu_count(), "processor": platform.machine()}
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_text(place, json.dumps(found, indent=1) + "\n")
        write_text(FOLDER / "README.md", page(found))


if __name__ == "__main__":
    main(sys.argv[1:])
