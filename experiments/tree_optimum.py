"""Every tree rule against the true optimum of the tree, on pairs of small models.

A cell is one pair, draft law, number of paths n and length L. Its rows are the optimum of the block
program and the expected block length of every rule that takes the tree, all exact. Of the possible
gain over plain decoding, one token per target call, a rule gets the share
``(length - 1) / (optimum - 1)``.

``python -m multidraft.experiments.tree_report results/trees`` computes and reports.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
from jaxtyping import Int

from multidraft import results, trees
from multidraft.errors import Refused
from multidraft.experiments import runner
from multidraft.trees import Markov

OPTIMUM = "optimum"
#: Name in tables -> registry name and options.
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "top-down naive": ("top-down", {"rule": "naive"}),
    "top-down rrs": ("top-down", {"rule": "rrs"}),
    "top-down rrsw": ("top-down", {"rule": "rrsw"}),
    "top-down k-seq": ("top-down", {"rule": "k-seq"}),
    "top-down greedy": ("top-down", {"rule": "greedy"}),
    "top-down interval": ("top-down", {"rule": "interval"}),
    "block": ("block", {}),
    "greedy-multipath": ("greedy-multipath", {}),
    "traversal": ("traversal", {}),
    "univer": ("univer", {}),
    "bottom-up k-seq": ("bottom-up", {"rule": "k-seq"}),
    "bottom-up interval": ("bottom-up", {"rule": "interval"}),
}
#: Draft law -> the rules of its trees; for one path, see `SINGLE`.
LAWS = {
    "iid": (
        "top-down naive",
        "top-down rrs",
        "top-down k-seq",
        "top-down interval",
        "greedy-multipath",
        "traversal",
        "bottom-up k-seq",
        "bottom-up interval",
    ),
    "without-replacement": ("top-down naive", "top-down rrsw", "traversal"),
    "greedy": ("top-down naive", "top-down greedy", "traversal", "univer"),
}
SINGLE = ("top-down naive", "top-down rrs", "block")
PAIRS = ("P3/Q3", "random", "sharp", "warm", "text")
SIZES = (1, 2, 3)  # of n and of L
LISTED = 50_000  # drafted trees of the largest cell


def cells() -> list[dict[str, Any]]:
    """All pairs, laws, numbers and lengths of paths whose drafted trees can be listed."""
    axes = runner.grid(V=[2, 3, 4], pair=PAIRS, law=list(LAWS), n=SIZES, L=SIZES)
    return [cell for cell in axes if _is_wanted(**cell)]


def _is_wanted(V: int, pair: str, law: str, n: int, L: int) -> bool:
    if (pair == "P3/Q3" and V != 3) or V ** (n * L) > LISTED:
        return False
    return law == "iid" or 1 < n <= V  # at a single draft all laws are one


def compute(cell: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Rows of one cell: the optimum with its certificate, then every rule's expected length.

    Nothing is drawn, so `seed` is not used.
    """
    target, draft = models(cell["pair"], cell["V"])
    tree = trees.paths(cell["n"], cell["L"], cell["law"])
    best = trees.tree_optimum(tree, target, draft)
    drafted, mass = trees.enumerate_drafts(tree, target, draft)
    rows = [_row(OPTIMUM, best.lower, best.upper) | {"gap": best.gap, "violation": best.violation}]
    for name in LAWS[cell["law"]] if cell["n"] > 1 else SINGLE:
        kind, options = RULES[name]
        length = float(mass @ trees.get(kind, **options).expected_length(drafted))
        rows.append(_row(name, length, best.upper))
    return rows


def _row(method: str, length: float, optimum: float) -> dict[str, Any]:
    """One number; it is exact, so its standard error is null."""
    return {
        "method": method,
        "length": length,
        "share": (length - 1) / (optimum - 1),
        "stderr": None,
    }


# ------------------------------------------------------------------------------------------ models


def models(name: str, vocabulary: int) -> tuple[Markov, Markov]:
    """Target and draft model of a pair.

    ``P3/Q3`` has one law everywhere. ``random`` and ``sharp`` draw every law from a Dirichlet
    distribution of parameter 1 and .3. ``warm`` is a random target, drafted at temperature 2.
    ``text`` is English as kinds of letters: the target knows the letter before, the draft does not.
    """
    if name == "P3/Q3":
        return Markov.constant([0.2, 0.3, 0.5]), Markov.constant([0.6, 0.3, 0.1])
    if name == "text":
        return _text(vocabulary)
    generator = np.random.default_rng([vocabulary, PAIRS.index(name)])
    parameter = np.full(vocabulary, 0.3 if name == "sharp" else 1.0)
    target, draft = (generator.dirichlet(parameter, size=vocabulary + 1) for _ in range(2))
    if name == "warm":
        draft = np.sqrt(target) / np.sqrt(target).sum(-1, keepdims=True)
    return Markov(target[0], target[1:]), Markov(draft[0], draft[1:])


def _text(vocabulary: int) -> tuple[Markov, Markov]:
    """Bigrams as the target and single frequencies as the draft, after a space."""
    kinds = _kinds(vocabulary)
    counts = np.zeros((vocabulary, vocabulary))
    np.add.at(counts, (kinds[:-1], kinds[1:]), 1.0)
    rows = counts / counts.sum(-1, keepdims=True)
    return Markov(rows[-1], rows), Markov.constant(counts.sum(0) / counts.sum())


def _kinds(vocabulary: int) -> Int[np.ndarray, " characters"]:
    """A text as letters and others; vowels apart at three kinds, spaces apart at four."""
    text = files("multidraft.texts").joinpath("pride-and-prejudice.txt").read_text("utf-8")
    characters = np.array(list(text.lower()))
    letter = np.isin(characters, list(ascii_lowercase))
    if vocabulary == 2:
        return np.where(letter, 0, 1)
    kinds = np.where(np.isin(characters, list("aeiou")), 0, np.where(letter, 1, 2))
    return kinds if vocabulary == 3 else np.where(np.char.isspace(characters), 3, kinds)


def run(folder: Path, *, jobs: int = 1) -> results.Results:
    """Compute what ``folder/run`` lacks, merge it to ``folder/rules.parquet``, return it."""
    return finished(cells(), compute, folder / "run", folder / "rules.parquet", jobs=jobs)


def finished(
    wanted: list[dict[str, Any]],
    function: runner.Function,
    state: Path,
    path: Path,
    *,
    jobs: int = 1,
) -> results.Results:
    """Run all cells, merge them to one file and return it.

    Raises
    ------
    Refused
        A cell failed, with its sentence.
    """
    if runner.run(wanted, function, state, jobs=jobs, retry_failed=True).failed:
        sentence = runner.collect(state, wanted).frame["error"].drop_nulls()[0]
        raise Refused(f"a cell failed: {sentence}")
    runner.merge(state, path, wanted)
    return results.read(path)
