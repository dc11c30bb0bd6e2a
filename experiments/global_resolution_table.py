"""Tables 1 and 2 of Global Resolution (2511.15898): what an optimal rule costs per token.

The paper times four solvers on iid drafts from the top k tokens of the draft law, on a CPU, and
reports milliseconds per token and the share of runs inside its caps. We time the same four and two
of ours on recorded laws of a real pair, on one thread, and add what the paper does not print: the
acceptance reached, its distance from the optimum, and the error of the output law.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import multidraft as md
from multidraft import results
from multidraft.errors import Refused
from multidraft.experiments import runner
from multidraft.experiments.one_thread import one_thread
from multidraft.files import write_text
from multidraft.solution import Status
from multidraft.solvers.global_resolution import ResolutionPlan

if TYPE_CHECKING:
    import polars

PUBLISHED = Path(__file__).parent / "published"
#: The paper's settings (k, n), then ours.
SETTINGS = ((10, 2), (10, 4), (10, 5), (100, 2), (1000, 2))
BEYOND = ((1000, 4), (1000, 8), (None, 2), (None, 4), (None, 8))
#: Column -> method and options.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "full-lp": ("full-lp", {"time_limit": 60.0}),
    "max-flow": ("max-flow", {}),
    "optimised-max-flow": ("optimised-max-flow", {}),
    "GR tau 1e-3": ("global-resolution", {"tau": 1e-3, "caps": "middle"}),
    "GR tau 1e-4": ("global-resolution", {"tau": 1e-4, "caps": "middle"}),
    "entropic": ("entropic", {}),
    "interval": ("interval", {}),
}
OPTIONS = ("tau", "caps", "masses", "gradient", "time_limit")
#: Variants of Global Resolution for the ablation, at the settings where the paper fails most.
CAPS = ("tight", "middle", "wide")
ABLATED = ((100, 2), (1000, 2))
TAUS = {"enumeration": (1e-3, 1e-4), "integral": (1e-3, 1e-4, 1e-8)}
BUDGET = 60.0  # seconds for one cell; contexts beyond it are left out, with the reason
LIMITS = (1, 10, 100)  # milliseconds, for the form of Table 2


def cells(trace: str, draft: str, contexts: int) -> list[dict[str, Any]]:
    """List a cell for each setting and method."""
    base = {"trace": trace, "draft": draft} | dict.fromkeys(OPTIONS)
    table = [
        {**base, "table": "methods", "top_k": k, "n": n, "column": column, "method": method}
        | {**options, "contexts": contexts}
        for k, n in (*SETTINGS, *BEYOND)
        for column, (method, options) in METHODS.items()
    ]
    ablation = [
        {**base, "table": "ablation", "top_k": k, "n": n, "column": "variant"}
        | {"method": "global-resolution", "contexts": contexts}
        | {"tau": tau, "caps": caps, "masses": masses, "gradient": gradient}
        for k, n in ABLATED
        for gradient, taus in TAUS.items()
        for tau in taus
        for caps in CAPS
        for masses in ("vertex", "clipped")
    ]
    return table + ablation


def compute(cell: dict[str, Any], seed: int, *, path: str) -> list[dict[str, Any]]:
    """Rows of one cell: for each context the time of the solve and what its plan achieves.

    Contexts are spread over the trace. Nothing is drawn, so `seed` is not used.
    """
    trace = md.traces.open(path)
    picked = np.linspace(0, len(trace) - 1, min(cell["contexts"], len(trace))).astype(int)
    options = {name: cell[name] for name in OPTIONS if cell[name] is not None}
    solver = md.solvers.get(cell["method"], **options)
    rows: list[dict[str, Any]] = []
    started = time.perf_counter()
    for context in picked.tolist():
        row: dict[str, Any] = {"context": context, "passage": int(trace.passage[context])}
        problem = listed(_problem(trace, cell, context))
        reason = solver.refuses(problem)
        if reason is None and time.perf_counter() - started > BUDGET:
            reason = f"over {BUDGET:g} s for this cell"
        rows.append(row | (_left_out(reason) if reason else _solved(solver, problem)))
        if reason:
            break
    return rows


def _problem(trace: Any, cell: dict[str, Any], context: int) -> md.Problem:
    laws = trace.target[context], trace.draft(cell["draft"])[context]
    return md.Problem.from_logits(*laws, "iid", n=cell["n"], draft_top_k=cell["top_k"])


def listed(problem: md.Problem) -> md.Problem:
    """Merge all tokens that are never drafted into one: no plan tells them apart.

    So that solvers whose size grows with V are timed on k + 1 tokens, not on the vocabulary.
    """
    p = problem.law.probs
    drafted = p > 0
    if drafted.all():
        return problem
    target = np.append(problem.target[drafted], problem.target[~drafted].sum())
    return md.Problem(target, md.IID(np.append(p[drafted], 0.0), int(problem.n)))


def _left_out(reason: str) -> dict[str, Any]:
    return {"reason": reason, "success": False}


def _solved(solver: Any, problem: md.Problem) -> dict[str, Any]:
    try:
        # The first solve of a size pays for compilation and page faults; the second is timed.
        solution = min((solver.solve(problem) for _ in range(2)), key=lambda found: found.seconds)
    except Refused as error:
        return _left_out(str(error))
    plan = solution.plan
    failure = "the time limit ended the solve" if solution.status is Status.LIMIT else None
    spread = None
    if isinstance(plan, ResolutionPlan):
        failure, spread = plan.failure, plan.spread
    kept = plan.kept
    law = kept + max(1 - kept.sum(), 0.0) * plan.residual
    optimum = float(md.optimal_acceptance(problem))
    return {
        "reason": failure,
        "success": failure is None,
        "milliseconds": 1e3 * solution.seconds,
        "acceptance": float(plan.value()),
        "optimum": optimum,
        "gap": optimum - float(plan.value()),
        "deviation": float(np.abs(law - problem.target).sum()),
        "violation": float(plan.violation()),
        "spread": spread,
    }


def run(trace: Path, draft: str, folder: Path, *, contexts: int = 32) -> results.Results:
    """Compute what ``folder/run`` lacks, one cell at a time on one thread, and merge it."""
    from multidraft.experiments.first_light import fingerprint

    wanted = cells(fingerprint(trace), draft, contexts)
    function = partial(compute, path=str(trace))
    configuration = {"draft": draft, "contexts": contexts, "published": PUBLISHED.name}
    with one_thread():
        runner.run(wanted, function, folder / "run", configuration=configuration, retry_failed=True)
    path = folder / "global-resolution.parquet"
    runner.merge(folder / "run", path, wanted)
    return results.read(path)


def report(found: results.Results, folder: Path) -> None:
    """Write the page with both tables and the ablation."""
    frame = found.frame
    write_text(
        folder / "README.md",
        _PAGE.format(
            contexts=frame.filter(column="interval")["context"].n_unique(),
            draft=found.header["configuration"]["draft"],
            time=_pivot(frame, _time),
            quality=_pivot(frame, _quality),
            ratios=_ratios(frame),
            best=_best(frame),
            published=_published(),
            published_best=_published_best(),
            ablation=_ablation(frame),
            machine=f"{found.header['machine']['cores']} cores, {found.header['written']}",
            reasons=_reasons(frame),
        ),
    )


def _rows_of(frame: polars.DataFrame, k: int | None, n: int, column: str) -> polars.DataFrame:
    import polars

    same = polars.col("top_k").eq_missing(polars.lit(k, dtype=polars.Int64))
    return frame.filter(same, table="methods", n=n, column=column)


def _pivot(frame: polars.DataFrame, cell: Any) -> str:
    """One line per (k, n), one column per method."""
    lines = [
        ["all" if k is None else str(k), str(n)]
        + [cell(_rows_of(frame, k, n, column)) for column in METHODS]
        for k, n in (*SETTINGS, *BEYOND)
    ]
    return _markdown(["k", "n", *METHODS], lines)


def _markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = [":---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))


def _timed(rows: polars.DataFrame) -> polars.DataFrame:
    return rows.filter(rows["milliseconds"].is_not_null()) if len(rows) else rows


def _time(rows: polars.DataFrame) -> str:
    """Mean milliseconds; the shares of contexts that succeeded and were reached, where not all."""
    timed = _timed(rows)
    if timed.is_empty():
        return _short(str(rows["reason"][0])) if len(rows) else "-"
    share = timed["success"].mean()
    text = f"{timed['milliseconds'].mean():.3g}" + _reached(rows)
    return text if share == 1 else f"{text} ({share:.0%})"


def _reached(rows: polars.DataFrame) -> str:
    """How many contexts came before the time was up, where it was."""
    timed = len(_timed(rows))
    return "" if timed == len(rows) else f" [{timed}]"


def _short(reason: str) -> str:
    return "over 60 s" if reason.startswith("over") else "refused"


def _quality(rows: polars.DataFrame) -> str:
    """Mean acceptance, largest gap, largest L1 error, over the successful contexts."""
    good = _timed(rows)
    good = good.filter(good["success"])
    if good.is_empty():
        return "-"
    gap, error = good["gap"].abs().max(), good["deviation"].max()
    return f"{good['acceptance'].mean():.4f}{_reached(rows)} / {gap:.0e} / {error:.0e}"


def _ratios(frame: polars.DataFrame) -> str:
    """How much faster the interval partition is than Global Resolution at tau 1e-4."""
    lines = []
    for k, n in (*SETTINGS, *BEYOND):
        ours = _timed(_rows_of(frame, k, n, "interval"))
        theirs = _timed(_rows_of(frame, k, n, "GR tau 1e-4"))
        if ours.is_empty() or theirs.is_empty():
            continue
        both = theirs.join(ours, on="context", suffix="_interval")
        both = both.with_columns(ratio=both["milliseconds"] / both["milliseconds_interval"])
        good = both.filter(both["success"])
        succeeded = f"{good['ratio'].median():.0f}" if len(good) else "none succeeded"
        name = "all" if k is None else str(k)
        lines.append([name, str(n), succeeded, f"{both['ratio'].median():.0f}"])
    return _markdown(["k", "n", "where it succeeded", "over all contexts"], lines)


def _best(frame: polars.DataFrame) -> str:
    """The form of Table 2: the best mean acceptance whose mean time fits the limit."""
    lines = []
    for column in METHODS:
        line = [column]
        for limit in LIMITS:
            fits = []
            for k, n in (*SETTINGS, *BEYOND):
                rows = _rows_of(frame, k, n, column)
                good = _timed(rows)
                if len(good) < len(rows) or not good["success"].all():
                    continue
                if good["milliseconds"].to_numpy().mean() <= limit:
                    name = "all" if k is None else str(k)
                    fits.append((good["acceptance"].to_numpy().mean(), f"k {name}, n {n}"))
            line.append(f"{max(fits)[0]:.4f} ({max(fits)[1]})" if fits else "-")
        lines.append(line)
    return _markdown(["method", *(f"{limit} ms" for limit in LIMITS)], lines)


def _ablation(frame: polars.DataFrame) -> str:
    """Success, time and error of the variants."""
    lines = []
    keys = ["top_k", "n", "tau", "gradient", "caps", "masses"]
    for key, rows in frame.filter(table="ablation").group_by(keys):
        timed = _timed(rows)
        good = timed.filter(timed["success"])
        numbers = [f"{good[name].max():{form}}" if len(good) else "-" for name, form in _WORST]
        share = f"{timed['success'].mean():.0%}" if len(timed) else "-"
        spent = f"{timed['milliseconds'].mean():.3g}" if len(timed) else "-"
        lines.append([*map(str, key), share, spent, *numbers])
    lines.sort(key=_rank)
    head = ["k", "n", "tau", "gradient", "caps", "masses", "success", "ms", "L1 error", "spread"]
    return _markdown(head, lines)


_WORST = (("deviation", ".1e"), ("spread", ".0f"))  # largest over the contexts, and its format


def _rank(line: list[str]) -> tuple[Any, ...]:
    """Order of the ablation's lines: the published form first."""
    k, n, tau, gradient, caps, masses = line[:6]
    return int(k), int(n), -float(tau), gradient, CAPS.index(caps), masses != "vertex"


def _reasons(frame: polars.DataFrame) -> str:
    """Every reason for which a context failed or a cell was left out, once."""
    seen = frame.filter(frame["reason"].is_not_null(), table="methods")
    lines = []
    for (column,), rows in seen.group_by("column", maintain_order=True):
        lines.append(f"- *{column}*: {rows['reason'][0]}")
    return "\n".join(lines)


def _published() -> str:
    """Milliseconds and success as the paper's notes give them; another machine, other models."""
    lines = []
    for k, n in SETTINGS:
        for row in _csv("globalres2025_table1.csv"):
            if (row["vocab_topk"], row["n_drafts"]) != (str(k), str(n)):
                continue
            bound = "at least " if "lower bound" in row["note"] else ""
            what = "success" if row["metric"] == "solver_success_rate" else "time"
            value = f"{bound}{row['value']} {'%' if what == 'success' else 'ms'}"
            lines.append([str(k), str(n), row["method"], row["setting"], what, value])
    return _markdown(["k", "n", "method", "setting", "what", "published"], lines)


def _published_best() -> str:
    """Best acceptance within a time limit, as the paper's notes give it."""
    lines = [
        [row["target_model"], row["method"], row["setting"].replace(";", ", "), f"{row['value']} %"]
        for row in _csv("globalres2025_table2.csv")
        if row["metric"] == "best_optimal_acceptance_within_time_limit"
    ]
    return _markdown(["target", "method", "setting", "published"], lines)


def _csv(name: str) -> list[dict[str, str]]:
    with (PUBLISHED / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


_PAGE = """\
# What an optimal rule costs per token: Global Resolution's tables, and the exact optimum

Written by `multidraft bench global-resolution`; {machine}, one thread.

Target smollm2 and draft {draft} at temperature 1, {contexts} contexts spread over the recorded
trace, iid drafts from the draft's top k tokens; the target is not truncated. Tokens that are never
drafted are merged into one before any method sees the problem. The faster of two solves of each
context counts. *GR* is Global Resolution as published (vertex
masses, truncated lists, L-BFGS-B), caps of 1024 tokens and 200 iterations; it has failed when a cap
is met before the gradient is within 5 tau.

## Milliseconds per token

In round brackets the share of contexts on which Global Resolution succeeded, where not all; in
square brackets the number of contexts that were reached in 60 s, where not all.

{time}

What was refused or failed, and why:

{reasons}

## Acceptance / largest gap to the optimum / largest L1 error of the output law

Over the contexts on which the method succeeded.

{quality}

## How many times faster the interval partition is than Global Resolution at tau 1e-4

Median over contexts of the ratio of the two times on the same context.

{ratios}

## Best mean acceptance within a time limit

The form of the paper's Table 2: over the settings (k, n) above whose mean time fits and where every
context was reached and succeeded. Means of *entropic* are over its own contexts.

{best}

## Where failures come from

Global Resolution by its caps (tight: 64 tokens, 50 iterations; middle: 1024, 200; wide: 8192,
1000), by the masses it is asked for (the paper's vertex, or the clipped law), and by how its
gradient is summed: over listed sets of drafts, or by the integral of
[entropic weights](../../docs/entropic-weights.md), which needs no list. *L1 error* and *spread*
(largest less smallest log-weight outside H, stopped at 120 and 100) are the largest over the
successful contexts.

{ablation}

## As published

Llama-3 70B and 8B, another machine; nearly all from secondary notes on the paper, not checked
against it. "At least" marks lower bounds.

{published}

{published_best}
"""
