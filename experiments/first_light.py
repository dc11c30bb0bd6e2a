"""The main job: the optimum and the known rules on the recorded laws of a real language model.

For every temperature, truncation, number of drafts and draft law: the optimal acceptance of each
context, and the acceptance of every rule that is lossless for that draft law.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import multidraft as md
from multidraft import results
from multidraft.experiments import runner

if TYPE_CHECKING:
    import polars

TEMPERATURES = (0.6, 1.0)
TOP_K = (10, 100, 1000, None)
COUNTS = (1, 2, 4, 8)
#: Draft law -> the rules that are lossless for it.
RULES: dict[str, tuple[str, ...]] = {
    "iid": ("naive", "rrs", "k-seq"),
    "without-replacement": ("naive", "rrsw"),
    "greedy": ("naive", "greedy"),
    "hub": ("naive", "spechub", "greedy"),
    "top": ("naive",),
}
#: Rules whose acceptance is sampled where it has no exact form (more than two drafts).
ESTIMATES = ("rrsw",)
OPTIMUM = "optimum"
CHUNK = 32  # contexts per cell: 64 MB of laws at V = 49,152, a few seconds at most
TOLERANCE = 1e-9  # round-off between two exact routes to one number

SETTING = ("temperature", "top_k", "law", "n")


def cells(trace: str, draft: str, contexts: int) -> list[dict[str, Any]]:
    """List the cells of the job.

    Parameters
    ----------
    trace : str
        Fingerprint of the trace: the numbers depend on its content, not on where it lies.
    draft : str
        Name of a draft in the trace.
    contexts : int
        Number of contexts in the trace; a cell takes `CHUNK` of them.
    """
    starts = range(0, contexts, CHUNK)
    return [
        {
            "trace": trace,
            "draft": draft,
            "first": first,
            "last": min(first + CHUNK, contexts) - 1,
            **dict(zip(SETTING, setting, strict=True)),
            "rules": list(RULES[setting[2]]),
        }
        for first in starts
        for temperature in TEMPERATURES
        for top_k in TOP_K
        for law in RULES
        for n in ((2,) if law == "hub" else COUNTS)
        for setting in [(temperature, top_k, law, n)]
    ]


def compute(cell: dict[str, Any], seed: int, *, path: str) -> list[dict[str, Any]]:
    """Rows of one cell: for each context the optimum, then every rule's acceptance.

    Only rules whose acceptance is an estimate draw, from `seed`. ``value`` is the probability that
    the output is one of the drafts, ``tested`` that a test of the rule accepted (for the optimum
    there is one figure).
    """
    first, last = cell["first"], cell["last"]
    single = _laws(path, cell["draft"], cell["temperature"], cell["top_k"], first, last)
    spec = {"law": cell["law"], "n": cell["n"], "short": "pad"}
    problem = md.Problem(single.target, md.laws.make(spec, single.law.probs))
    optimum = md.optimal_acceptance(problem)
    columns = {OPTIMUM: (optimum, optimum, "exact", np.zeros_like(optimum))}
    for name in cell["rules"]:
        options = {"seed": seed} if name in ESTIMATES else {}
        found = md.verifiers.get(name, **options).acceptance(problem)
        columns[name] = (found.value, found.tested, found.kind, found.stderr)
    passages = md.traces.open(path).passage[first : last + 1]
    short = problem.law.short_rows
    return [
        {
            "method": method,
            "context": first + i,
            "passage": int(passages[i]),
            "value": float(value[i]),
            "tested": float(tested[i]),
            "kind": kind,
            "stderr": float(stderr[i]),
            "short": bool(short[i]),
        }
        for method, (value, tested, kind, stderr) in columns.items()
        for i in range(len(passages))
    ]


@lru_cache(maxsize=1)  # consecutive cells share their laws
def _laws(
    path: str, draft: str, temperature: float, top_k: int | None, first: int, last: int
) -> md.Problem:
    """The laws of some contexts as a problem with one draft."""
    trace = md.traces.open(path)
    rows = slice(first, last + 1)
    return md.Problem.from_logits(
        trace.target[rows],
        trace.draft(draft)[rows],
        md.laws.IID,
        n=1,
        temperature=temperature,
        top_k=top_k,
    )


def run(
    trace: Path, draft: str, folder: Path, *, jobs: int = 1, resume: bool = True
) -> results.Results:
    """Compute what ``folder/run`` lacks, merge it to ``folder/first-light.parquet``, return it.

    Raises
    ------
    InputError
        A trace that cannot be read, or without this draft.
    Refused
        A cell failed, with its sentence; or another process runs in the folder.
    """
    opened = md.traces.open(trace)
    opened.draft(draft)
    wanted = cells(fingerprint(trace), draft, len(opened))
    configuration = {"trace": opened.header, "draft": draft, "contexts": len(opened)}
    function = partial(compute, path=str(trace))
    found = runner.whole(
        wanted, function, folder / "run", configuration=configuration, jobs=jobs, resume=resume
    )
    path = folder / "first-light.parquet"
    results.write(path, found.frame, found.header)
    return results.read(path)


def fingerprint(trace: Path) -> str:
    """What identifies the content of a trace: 16 hexadecimal digits of its hash."""
    with trace.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


class Excess(NamedTuple):
    """How far exact values of rules exceed the optimum of their law, context by context."""

    comparisons: int
    largest: float
    violations: int


def with_optimum(frame: polars.DataFrame) -> polars.DataFrame:
    """Rows of rules, with the optimum of the same context and its gap beside the value."""
    import polars

    key = [*SETTING, "context", "passage"]
    optimum = frame.filter(polars.col("method") == OPTIMUM).select(*key, optimum="value")
    rules = frame.filter(polars.col("method") != OPTIMUM)
    joined = rules.join(optimum, on=key, how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(gap=polars.col("optimum") - polars.col("value"))


def excess(frame: polars.DataFrame) -> Excess:
    """Compare every exact value of a rule with the optimum of its law, which it cannot exceed."""
    import polars

    over = -with_optimum(frame).filter(polars.col("kind") == "exact")["gap"].to_numpy()
    return Excess(len(over), float(over.max()), int((over > TOLERANCE).sum()))


def means(frame: polars.DataFrame, column: str = "value") -> polars.DataFrame:
    """Mean of a column over contexts for every setting and method, clustered by passage.

    Returns
    -------
    polars.DataFrame
        Columns temperature, top_k, law, n, method, value, stderr, in the order of the job.
    """
    import polars

    rows: list[dict[str, Any]] = []
    groups = frame.partition_by(*SETTING, "method", as_dict=True)
    for (*setting, method), part in sorted(groups.items(), key=_order):
        found = results.clustered_mean(part[column].to_numpy(), part["passage"].to_numpy())
        names = dict(zip((*SETTING, "method"), (*setting, method), strict=True))
        rows.append({**names, "value": found.mean, "stderr": found.stderr})
    return polars.DataFrame(rows, infer_schema_length=None)


def _order(item: tuple[Sequence[Any], Any]) -> tuple[int, ...]:
    temperature, top_k, law, n, method = item[0]
    return (
        TEMPERATURES.index(temperature),
        TOP_K.index(top_k),
        list(RULES).index(law),
        (OPTIMUM, *RULES[law]).index(method),
        n,
    )
