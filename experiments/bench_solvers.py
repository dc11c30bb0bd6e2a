"""Time, memory and certificate of every method, by size, beside the full linear program.

Each method solves each size in a process of its own, so that the peak of memory is its own and a
solve that takes too long can be ended. One thread; imports and compilation are not timed.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import multidraft as md
from multidraft import laws, results, solvers
from multidraft.errors import Refused
from multidraft.solvers.token_sets import TokenSets

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

Row = dict[str, Any]
REFERENCE = "full-lp"
TIMEOUT = 60.0  # seconds for one solve
REPEATS = 5  # at most; slow solves are not repeated
_REPEATED = 1.0  # seconds after which a solve is not repeated


class Size(NamedTuple):
    """A draft law, a vocabulary and a number of drafts."""

    law: str
    vocabulary: int
    n: int


SIZES = (
    Size("iid", 10, 2),
    Size("iid", 10, 4),
    Size("iid", 50, 2),
    Size("iid", 40, 3),
    Size("iid", 60, 3),
    Size("iid", 256, 2),
    Size("iid", 1000, 2),
    Size("independent", 40, 3),
    Size("independent", 256, 2),
    Size("independent", 1000, 2),
    Size("without-replacement", 50, 2),
    Size("without-replacement", 200, 2),
    Size("explicit", 50, 3),
    Size("explicit", 200, 3),
)
QUICK = (Size("iid", 10, 2), Size("iid", 50, 2), Size("explicit", 50, 3))

# Variants that a name in the registry does not tell apart.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "relaxed-lp, pdlp": ("relaxed-lp", {"algorithm": "pdlp"}),
    "full-lp, pdlp": ("full-lp", {"algorithm": "pdlp"}),
    "convex-lp, canonical": ("convex-lp", {"program": "canonical"}),
}


def methods() -> tuple[str, ...]:
    """Every method of the registry, and the variants."""
    return (*solvers.names(), *VARIANTS)


def measure(
    sizes: Sequence[Size] = SIZES,
    names: Sequence[str] | None = None,
    *,
    timeout: float = TIMEOUT,
    seed: int = 0,
) -> list[Row]:
    """Solve every size with every method.

    Parameters
    ----------
    sizes : sequence of Size
    names : sequence of str, optional
        Methods and variants; all by default.
    timeout : float
        Seconds for one solve, start of the process not included.
    seed : int
        Of the laws.

    Returns
    -------
    One row per size and method: ``law, vocabulary, n, sets`` (distinct token sets), ``method``,
    ``seconds`` (the fastest of some repeats), ``megabytes`` (peak over what the imports take),
    ``acceptance, gap, violation, status``, ``proof`` (exact, proved or null), ``speedup`` over the
    full linear program where that ends in time, and ``reason`` (null, or why there are no numbers).
    """
    rows = [
        {**size._asdict(), "sets": sets, "method": name, **_outcome(size, name, timeout, seed)}
        for size in sizes
        for sets in [len(TokenSets.of(instance(size, seed).law).mass)]
        for name in (names or methods())
    ]
    slowest = {
        _size(row): row["seconds"]
        for row in rows
        if row["method"] == REFERENCE and row["reason"] is None
    }
    for row in rows:
        unit = slowest.get(_size(row), np.nan)
        speedup = np.nan if row["seconds"] is None else unit / row["seconds"]
        row["speedup"] = None if np.isnan(speedup) else float(speedup)
    return rows


def instance(size: Size, seed: int = 0) -> md.Problem:
    """Laws like a model's: normal logits of spread 2, the draft's a noisy copy.

    An explicit law holds 4 V tuples whose drafts repeat each other half of the time.
    """
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=size.vocabulary)
    drafts = [_softmax(logits + rng.normal(size=size.vocabulary)) for _ in range(size.n)]
    if size.law == "independent":
        law: laws.Law = laws.Independent(drafts)
    elif size.law == "explicit":
        tuples = rng.choice(size.vocabulary, p=drafts[0], size=(4 * size.vocabulary, size.n))
        repeated = rng.random(len(tuples)) < 0.5
        tuples[repeated, 1:] = tuples[repeated, :1]
        law = laws.Explicit(tuples, rng.dirichlet(np.ones(len(tuples))), vocabulary=size.vocabulary)
    else:
        law = laws.make({"law": size.law, "n": size.n}, drafts[0])
    return md.Problem(_softmax(logits), law)


def _softmax(logits: np.ndarray) -> np.ndarray:
    return md.normalise(np.exp(logits - logits.max()))


# ------------------------------------------------------------------------------ one solve, apart


def _outcome(size: Size, name: str, timeout: float, seed: int) -> Row:
    """Solve in a fresh process and wait for it no longer than `timeout`."""
    method, options = VARIANTS.get(name, (name, {}))
    if reason := solvers.get(method, **options).refuses(instance(size, seed)):
        return _empty(reason)
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_solve, args=(sender, size, method, options, seed))
    with _one_thread():
        process.start()
    sender.close()
    try:
        started = receiver.poll(60 + timeout) and receiver.recv() is None
        if started and receiver.poll(timeout):
            return receiver.recv()
        return _empty(f"over {timeout:.0f} s")
    except EOFError:
        return _empty(f"ended by the system (exit code {process.exitcode})")
    finally:
        process.kill()
        process.join()


def _empty(reason: str) -> Row:
    numbers = ("seconds", "megabytes", "acceptance", "gap", "violation", "status", "proof")
    return dict.fromkeys(numbers) | {"reason": reason}


@contextmanager
def _one_thread() -> Iterator[None]:
    """Give a process that starts here one thread for each numerical library."""
    pools = [f"{pool}_NUM_THREADS" for pool in ("OMP", "OPENBLAS", "MKL", "NUMBA")]
    before = {pool: os.environ.get(pool) for pool in pools}
    os.environ.update(dict.fromkeys(pools, "1"))
    try:
        yield
    finally:
        for pool, value in before.items():
            if value is None:
                del os.environ[pool]
            else:
                os.environ[pool] = value


def _solve(sender: Connection, size: Size, method: str, options: dict[str, Any], seed: int) -> None:
    """Send None when everything is imported and compiled, then the row."""
    md.solve(instance(Size(size.law, 4, size.n), seed), method, **options)
    problem = instance(size, seed)
    sender.send(None)
    try:
        sender.send(_row(problem, method, options))
    except Refused as refusal:
        sender.send(_empty(str(refusal)))


def _row(problem: md.Problem, method: str, options: dict[str, Any]) -> Row:
    before = _memory()
    solution = md.solve(problem, method, **options)
    megabytes = (_peak() - before) / 1e6
    seconds, start = [solution.seconds], time.perf_counter()
    while len(seconds) < REPEATS and time.perf_counter() - start < _REPEATED:
        seconds.append(md.solve(problem, method, **options).seconds)
    certificate = solution.certificate
    planned = solution.plan is not None
    proof = ("exact" if certificate.exact else "proved") if certificate.proved else None
    return {
        "seconds": min(seconds),
        "megabytes": megabytes,
        "acceptance": float(solution.acceptance),
        "gap": float(certificate.gap) if planned else None,
        "violation": float(certificate.violation) if planned else None,
        "status": solution.status.name.lower(),
        "proof": proof,
        "reason": None,
    }


def _memory() -> int:
    """Bytes in use now; the peak is measured from here on where the system can forget it."""
    import psutil

    forget = Path("/proc/self/clear_refs")
    if forget.exists():
        forget.write_text("5")
    return psutil.Process().memory_info().rss


def _peak() -> int:
    """Largest memory of this process, in bytes."""
    import resource  # not on Windows
    import sys

    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(status.read_text().split("VmHWM:")[1].split()[0])
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


# ------------------------------------------------------------------------------- what is written


def report(rows: Sequence[Row], folder: Path, *, seed: int = 0) -> dict[str, Any]:
    """Write ``solvers.parquet`` and ``solvers.png`` to `folder`; return the file's header."""
    import polars

    from multidraft import plots

    frame = polars.DataFrame(list(rows), infer_schema_length=None)
    sizes = [list(size) for size in dict.fromkeys(map(_size, rows))]
    header = results.header({"bench": "solvers", "sizes": sizes}, seeds=[seed])
    results.write(folder / "solvers.parquet", frame, header)
    plots.save(figure(frame), folder / "solvers.png")
    return header


def table(rows: Sequence[Row]) -> str:
    """Lay the rows out in Markdown, one table per size."""
    parts: dict[Size, list[Row]] = {}
    for row in rows:
        parts.setdefault(_size(row), []).append(row)
    return "\n".join(_section(size, part) for size, part in parts.items())


def _size(row: Row) -> Size:
    return Size(row["law"], row["vocabulary"], row["n"])


def _section(size: Size, rows: list[Row]) -> str:
    title = f"### {size.law}, V = {size.vocabulary}, n = {size.n}\n\n"
    heading = ["method", "time", "memory", "gap", "speed-up", "status", "proof"]
    solved = [row for row in rows if row["reason"] is None]
    lines = [heading, ["---", *["---:"] * 4, "---", "---"], *map(_line, solved)]
    others = [f"- {row['method']}: {row['reason']}\n" for row in rows if row["reason"] is not None]
    laid_out = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return title + laid_out + "".join(["\n", *others] if others else [])


def _line(row: Row) -> list[str]:
    return [
        row["method"],
        _duration(row["seconds"]),
        f"{row['megabytes']:.0f} MB",
        "" if row["gap"] is None else f"{max(row['gap'], 0.0):.0e}",
        "" if row["speedup"] is None else f"{row['speedup']:.3g}",
        row["status"],
        row["proof"] or "",
    ]


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def figure(frame: polars.DataFrame) -> Figure:
    """Seconds against the number of token sets, one panel per law, one curve per method."""
    import polars

    from multidraft import plots

    left_out = polars.col("method").is_in([*VARIANTS, "pair", "global-resolution"])
    solved = frame.filter(polars.col("reason").is_null() & ~left_out).with_columns(
        error=polars.lit(None, dtype=polars.Float64)
    )
    drawn = plots.lines(
        solved,
        x="sets",
        y="seconds",
        stderr="error",
        colour="method",
        panel="law",
        xlabel="distinct token sets",
        ylabel="time (s)",
        across=2,
    )
    for axes in drawn.axes:
        axes.set_xscale("log")
        axes.set_yscale("log")
    return drawn
