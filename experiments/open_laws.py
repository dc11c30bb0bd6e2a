"""The exact optimum for draft laws that no paper solves at such sizes, on recorded laws.

Global Resolution (2511.15898) takes iid drafts only and names two cases as open: three or more
different drafters, and drafts without replacement. Here both are solved by entropic weights at full
vocabulary, with the certificate of each answer and its time; for independent drafts branch and
bound's share of that time, and the gap that it proves, stand beside it.

The different drafters are those of the trace; where it has too few, the first one at further
temperatures, as in Khisti et al. (2410.18234).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import multidraft as md
from multidraft import results
from multidraft.experiments import runner
from multidraft.experiments.one_thread import one_thread
from multidraft.solvers.branch_and_bound import independent_optimum

if TYPE_CHECKING:
    import polars

    from multidraft.traces import Trace

#: Draft law, number of drafts, tokens kept of the draft law (None: all).
CASES = (
    ("independent", 2, None),
    ("independent", 3, None),
    ("independent", 4, None),
    ("without-replacement", 2, None),
    ("without-replacement", 3, 1000),
    ("without-replacement", 4, 1000),
    ("without-replacement", 3, None),
    ("without-replacement", 4, None),
)
#: Temperatures of the first drafter, once the trace's drafters are used up.
HEATS = (0.7, 1.4, 2.0)


def cells(trace: str, contexts: int, cases: Sequence[tuple[Any, ...]] = CASES) -> list[dict]:
    """List one cell for each case and context number."""
    settings = [{"law": law, "n": n, "top_k": k} for law, n, k in cases]
    spread = [{"contexts": contexts, "number": number} for number in range(contexts)]
    return [{"trace": trace} | setting | place for setting in settings for place in spread]


def compute(cell: dict[str, Any], seed: int, *, path: str) -> list[dict[str, Any]]:
    """Solve one context; nothing is drawn, so `seed` is not used."""
    trace = md.traces.open(path)
    context = int(np.linspace(0, len(trace) - 1, cell["contexts"])[cell["number"]])
    problem = _problem(trace, cell, context)
    solution = md.solve(problem, "entropic")
    certificate = solution.certificate
    row = {
        "context": context,
        "passage": int(trace.passage[context]),
        "acceptance": float(certificate.lower),
        "gap": float(certificate.gap),
        "violation": float(certificate.violation),
        "status": solution.status.name,
        "solve_seconds": solution.seconds,
    }
    return [row | _cut(problem)]


def _problem(trace: Trace, cell: dict[str, Any], context: int) -> md.Problem:
    target, options = trace.target[context], {"draft_top_k": cell["top_k"]}
    logits = [trace.draft(name)[context] for name in trace.names]
    if cell["law"] != "independent":
        return md.Problem.from_logits(target, logits[0], cell["law"], n=cell["n"], **options)
    drafters = [(row, 1.0) for row in logits] + [(logits[0], heat) for heat in HEATS]
    rows, heats = zip(*drafters[: cell["n"]], strict=True)
    return md.Problem.from_logits(
        target, list(rows), "independent", draft_temperature=list(heats), **options
    )


def _cut(problem: md.Problem) -> dict[str, Any]:
    """Time and proved gap of branch and bound, for independent drafts."""
    if not isinstance(problem.law, md.Independent):
        return {"cut_seconds": None, "cut_gap": None, "boxes": None}
    start = time.perf_counter()
    minimum = independent_optimum(problem.target, problem.law.parts)
    seconds = time.perf_counter() - start
    return {"cut_seconds": seconds, "cut_gap": minimum.gap, "boxes": minimum.boxes}


def run(
    trace: Path, folder: Path, *, contexts: int = 8, cases: Sequence[tuple[Any, ...]] = CASES
) -> results.Results:
    """Compute what ``folder/run`` lacks, one cell at a time on one thread, and merge it."""
    from multidraft.experiments.first_light import fingerprint

    wanted = cells(fingerprint(trace), contexts, cases)
    function = partial(compute, path=str(trace))
    with one_thread():
        runner.run(wanted, function, folder / "run", configuration={"contexts": contexts})
    path = folder / "open-laws.parquet"
    runner.merge(folder / "run", path, wanted)
    return results.read(path)


def table(frame: polars.DataFrame) -> str:
    """One line per case: mean acceptance, what is proved at worst, median times."""
    lines = []
    keys = ["law", "n", "top_k"]
    for (law, n, k), rows in frame.sort(keys, nulls_last=True).group_by(keys, maintain_order=True):
        cut = rows["cut_seconds"].median()
        fields = [
            *(str(law), str(n), "all" if k is None else str(k), str(len(rows))),
            _mean(rows),
            f"{rows['gap'].abs().max():.0e}",
            f"{rows['violation'].max():.0e}",
            f"{rows['solve_seconds'].median():.2f}",
            *("-" if cut is None else f"{cut:.2f}", _largest(rows["cut_gap"])),
        ]
        lines.append("| " + " | ".join(fields) + " |")
    return "\n".join([_HEAD, "|:---|" + "---:|" * 9, *lines]) + "\n"


def _mean(rows: polars.DataFrame) -> str:
    """Mean over contexts with its standard error, passages as clusters."""
    mean = results.clustered_mean(rows["acceptance"].to_numpy(), rows["passage"].to_numpy())
    return f"{mean.mean:.4f} ± {mean.stderr:.4f}"


def _largest(column: polars.Series) -> str:
    largest = column.max()
    return "-" if largest is None else f"{largest:.0e}"


_HEAD = (
    "| law | n | tokens | contexts | acceptance | gap | violation | seconds | cut, seconds "
    "| cut, gap |"
)
PAGE = """\
# Draft laws that no paper solves at such sizes

{machine} Recorded laws of a real pair at temperature 1, contexts spread over the trace, one thread.

Entropic weights for drafts from different laws and for drafts without replacement. *acceptance* is
the mean over contexts of the exact optimum, with the standard error of that mean; *gap* the largest
distance between what a plan accepts and its cut; *violation* the largest error of an output law, by
quadrature; *seconds* the median time of a solve. For independent drafts the cut comes from branch
and bound: its median time, and the largest gap that it proves by itself.

{table}
"""
