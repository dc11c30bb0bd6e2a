"""The one computation that nearly all items share: acceptances of a few contexts, one by one.

A cell names contexts (see :class:`Setting`), ``law`` and ``n``, and any of ``temperature`` (1),
``draft_temperature`` (the target's; a list for independent drafts of several temperatures),
``top_k`` (of both laws), ``draft_top_k`` (of the draft alone). ``methods`` lists rules, and
quantities of the laws themselves by the names of `QUANTITIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float

import multidraft as md
from multidraft.experiments.papers.common import setting
from multidraft.transform import probabilities

OPTIMUM = "optimum"


def compute(cell: dict[str, Any], seed: int, *, path: str) -> list[dict[str, Any]]:
    """A row for every context and method: value, tested, kind, stderr.

    `seed` is that of the rules whose acceptance is an estimate.
    """
    chosen = problem(cell, path)
    found = {name: measured(name, chosen, seed) for name in cell["methods"]}
    places = where(cell, path)
    return [
        {**place, "method": name, **{part: value[i] for part, value in parts.items()}, "kind": kind}
        for name, (parts, kind) in found.items()
        for i, place in enumerate(places)
    ]


def where(cell: Mapping[str, Any], path: str) -> list[dict[str, int]]:
    """Context and passage of every row of the cell's problem."""
    chosen = setting.rows(cell, path)
    passages = md.traces.open(path).passage[chosen]
    return [
        {"context": context, "passage": passage}
        for context, passage in zip(chosen.tolist(), passages.tolist(), strict=True)
    ]


def measured(
    name: str, problem: md.Problem, seed: int = 0, **options: Any
) -> tuple[dict[str, list[float]], str]:
    """Columns of a rule or quantity, with one number per context, and whether they are exact."""
    if name in QUANTITIES:
        value = QUANTITIES[name](problem)
        return {"value": value.tolist(), "tested": value.tolist(), "stderr": [0.0] * len(value)}, (
            "exact"
        )
    if name in ESTIMATED:
        options = {"seed": seed, **options}
    found = md.verifiers.get(name, **options).acceptance(problem)
    columns = {"value": found.value, "tested": found.tested, "stderr": found.stderr}
    return {part: value.tolist() for part, value in columns.items()}, found.kind


def problem(cell: Mapping[str, Any], path: str) -> md.Problem:
    """The laws of a cell's contexts, as one batched problem."""
    heat = cell.get("temperature", 1.0)
    shape = (path, cell["contexts"], tuple(cell["texts"]), cell["first"], cell["last"])
    top_k = cell.get("top_k")
    target = _law(*shape, None, heat, top_k)
    heats = cell.get("draft_temperature", heat)
    width = top_k if cell.get("draft_top_k") is None else cell["draft_top_k"]
    drafts = [
        _law(*shape, cell["draft"], one, width)
        for one in (heats if isinstance(heats, list) else [heats])
    ]
    spec = {"law": cell["law"], "n": cell["n"], "short": "pad"}
    probs = drafts if cell["law"] == "independent" else drafts[0]
    return md.Problem(target, md.laws.make(spec, probs))


@lru_cache(maxsize=6)  # settings of one chunk follow each other
def _law(
    path: str,
    contexts: int,
    texts: tuple[str, ...],
    first: int,
    last: int,
    draft: str | None,
    temperature: float,
    top_k: int | None,
) -> Float[np.ndarray, "B V"]:
    """Law of the target (draft None) or of a draft at some contexts."""
    trace = md.traces.open(path)
    cell = {"contexts": contexts, "texts": texts, "first": first, "last": last}
    logits = (trace.target if draft is None else trace.draft(draft))[setting.rows(cell, path)]
    return md.normalise(probabilities(logits, temperature, top_k))


def _parts(problem: md.Problem) -> list[np.ndarray]:
    law = problem.law
    return list(law.parts) if isinstance(law, md.Independent) else [law.probs]


def _single(problem: md.Problem) -> Float[np.ndarray, " B"]:
    """Acceptance of one draft, the better one where there are several laws."""
    return np.max([np.minimum(problem.target, p).sum(-1) for p in _parts(problem)], axis=0)


def _first(problem: md.Problem) -> Float[np.ndarray, " B"]:
    """Acceptance of the first draft alone."""
    return np.minimum(problem.target, _parts(problem)[0]).sum(-1)


def _entropy(problem: md.Problem) -> Float[np.ndarray, " B"]:
    q = problem.target
    return -np.where(q > 0, q * np.log2(np.where(q > 0, q, 1.0)), 0.0).sum(-1)


def _peak(problem: md.Problem) -> Float[np.ndarray, " B"]:
    return _parts(problem)[0].max(-1)


def _guarantee(problem: md.Problem) -> Float[np.ndarray, " B"]:
    return np.asarray(md.bounds.get("k-seq", problem).value)


def _coupling(problem: md.Problem) -> Float[np.ndarray, " B"]:
    return np.asarray(md.bounds.get("list-coupling", problem).value)


#: Quantities of the laws: the optimum, acceptance of one draft, the draft's largest probability,
#: the target's entropy in bits, two lower bounds.
QUANTITIES: dict[str, Callable[[md.Problem], Float[np.ndarray, " B"]]] = {
    OPTIMUM: md.optimal_acceptance,
    "single draft": _single,
    "first draft alone": _first,
    "draft's top probability": _peak,
    "target's entropy": _entropy,
    "k-seq guarantee": _guarantee,
    "list coupling": _coupling,
}
#: Rules whose acceptance may be an estimate.
ESTIMATED = ("importance", "rrsw")
