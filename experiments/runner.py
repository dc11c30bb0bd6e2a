"""The one runner: cells in, rows out, resumable.

A *cell* is a mapping of plain JSON values that decides one computation. The SHA-256 of its
canonical text is its key and gives its seed, so adding a cell to a list never changes the numbers
of another. A *function* turns a cell and its seed into rows. The runner adds to every row the key,
the seed, the seconds the cell took, its error (null when it went well), and the cell itself.

A run owns one folder::

    manifest.json        configuration and provenance, replaced by rename
    parts/000001.parquet outcomes of a batch of cells, written whole and renamed into place
    lock                 held by the running process; the kernel frees it when that dies

Killed at any moment, a run loses the cells in flight and nothing else; the same call again resumes.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multidraft import results
from multidraft.errors import InputError, Refused
from multidraft.files import atomic, write_text

if TYPE_CHECKING:
    import polars

Cell = Mapping[str, Any]
Function = Callable[[dict[str, Any], int], list[dict[str, Any]]]

SEEDS = "seed of a cell: hexadecimal digits 17 to 31 of the SHA-256 of its canonical JSON"
WRITING = 0.01  # share of the time that goes into writing parts, as long as
PATIENCE = 10.0  # seconds: no outcome waits longer than this to be written


def key(cell: Cell) -> str:
    """What identifies a cell: 16 hexadecimal digits of its hash."""
    return results.digest(cell)[:16]


def seed(cell: Cell) -> int:
    """The seed of a cell, from other digits of the same hash; below 2**60."""
    return int(results.digest(cell)[16:31], 16)


def grid(**axes: Sequence[Any]) -> list[dict[str, Any]]:
    """The cross product of the axes, as cells; the last axis varies fastest.

    Examples
    --------
    >>> grid(law=["iid"], n=[1, 2])
    [{'law': 'iid', 'n': 1}, {'law': 'iid', 'n': 2}]
    """
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


@dataclass(frozen=True)
class Summary:
    """How a run ended: cells asked for, of them with results, of them failed."""

    cells: int
    done: int
    failed: int


@dataclass(frozen=True)
class _Outcome:
    cell: Cell
    rows: list[dict[str, Any]]
    seconds: float
    error: str | None


def run(
    cells: Iterable[Cell],
    function: Function,
    folder: str | Path,
    *,
    configuration: Mapping[str, Any] | None = None,
    jobs: int = 1,
    resume: bool = True,
    retry_failed: bool = False,
    progress: bool = True,
) -> Summary:
    """Compute every cell that `folder` does not hold yet.

    Parameters
    ----------
    cells : iterable of mappings
        JSON content each; repeated cells are computed once.
    function : callable
        ``function(cell, seed)`` returns at least one row (a flat dict). An exception becomes a row
        with its sentence. With ``jobs > 1`` it must be importable or picklable.
    folder : path
        Holds the run; see the module's text.
    configuration : mapping, optional
        Recorded in the header besides the name of the function; what changes a number belongs
        into the cells, since only those decide what is computed again.
    jobs : int
        Worker processes, each with one thread for BLAS, torch and numba. 1 computes in this
        process, with this process's threads.
    resume : bool
        False throws away what the folder holds and starts over.
    retry_failed : bool
        Whether cells that failed before are tried again.
    progress : bool
        Show a bar with the time left on stderr, when that is a terminal.

    Raises
    ------
    Refused
        Another process runs in this folder, or a worker was killed.
    InputError
        The folder holds the results of another function or of a newer version.
    """
    folder = Path(folder)
    wanted = {key(cell): cell for cell in cells}
    with _locked(folder):
        parts = Parts(folder / "parts")
        parts.clear(".*" if resume else "*")
        _describe(folder, function, configuration or {}, len(wanted))
        known = parts.outcomes()
        skipped = {k for k in wanted if k in known and not (retry_failed and known[k])}
        todo = [cell for k, cell in wanted.items() if k not in skipped]
        with _bar(len(wanted), len(skipped), progress) as bar:
            parts.collect(_counted(_outcomes(todo, function, jobs), bar))
        return _summary(wanted, parts.outcomes())


def status(cells: Iterable[Cell], folder: str | Path) -> Summary:
    """How far a run is, without touching it."""
    return _summary({key(cell): cell for cell in cells}, Parts(Path(folder) / "parts").outcomes())


def collect(folder: str | Path, cells: Iterable[Cell] | None = None) -> results.Results:
    """All rows of a run in one table, ordered by key, with the header of its last start.

    Parameters
    ----------
    folder : path
        The run.
    cells : iterable of mappings, optional
        Keep these cells only: a folder may hold others from an earlier list.
    """
    folder = Path(folder)
    frame = Parts(folder / "parts").frame()
    if cells is not None:
        frame = frame.filter(frame["key"].is_in([key(cell) for cell in cells]))
    return results.Results(frame.sort("key", maintain_order=True), _manifest(folder))


def merge(folder: str | Path, path: str | Path, cells: Iterable[Cell] | None = None) -> None:
    """Write what `collect` returns to one Parquet file."""
    merged = collect(folder, cells)
    results.write(path, merged.frame, merged.header)


class Parts:
    """The part files of a run: whole, numbered, the newest outcome of a cell counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def files(self) -> list[Path]:
        """Part files, oldest first."""
        return sorted(self.folder.glob("[0-9]*.parquet"), key=lambda path: int(path.stem))

    def clear(self, pattern: str) -> None:
        """Delete files by name; ``.*`` are halves of parts that a killed process left."""
        for path in self.folder.glob(pattern):
            path.unlink()

    def outcomes(self) -> dict[str, str | None]:
        """Key of every computed cell, with its error or None."""
        import polars

        known: dict[str, str | None] = {}
        for path in self.files():
            known |= polars.read_parquet(path, columns=["key", "error"]).iter_rows()
        return known

    def frame(self) -> polars.DataFrame:
        """All rows, without the outcomes that a later one replaced."""
        import polars

        files = self.files()
        if not files:
            raise InputError(f"{self.folder} holds no results yet; run the cells first")
        parts = [polars.read_parquet(path).with_columns(part=i) for i, path in enumerate(files)]
        frame = polars.concat(parts, how="diagonal_relaxed")
        return frame.filter(polars.col("part") == polars.col("part").max().over("key")).drop("part")

    def collect(self, outcomes: Iterator[_Outcome]) -> None:
        """Write outcomes as they come, in parts so large that writing stays a small cost."""
        batch: list[_Outcome] = []
        began, cost = time.perf_counter(), 0.0
        try:
            for outcome in outcomes:
                batch.append(outcome)
                if time.perf_counter() - began >= min(cost / WRITING, PATIENCE):
                    cost = self._write(batch)
                    batch, began = [], time.perf_counter()
        finally:  # Ctrl-C and a dead pool keep what was computed
            if batch:
                self._write(batch)

    def _write(self, batch: list[_Outcome]) -> float:
        """Write one part and return the seconds that took."""
        import polars

        start = time.perf_counter()
        rows = [row for outcome in batch for row in _rows(outcome)]
        last = self.files()[-1:]
        number = 1 + (int(last[0].stem) if last else 0)
        with atomic(self.folder / f"{number:06d}.parquet") as temporary:
            polars.DataFrame(rows, infer_schema_length=None).write_parquet(temporary)
        return time.perf_counter() - start


def _rows(outcome: _Outcome) -> Iterator[dict[str, Any]]:
    cell = {
        name: results.canonical(value) if isinstance(value, dict | list) else value
        for name, value in outcome.cell.items()
    }
    stamp = {
        "key": key(outcome.cell),
        "seed": seed(outcome.cell),
        "seconds": outcome.seconds,
        "error": outcome.error,
    }
    return (stamp | cell | row for row in outcome.rows)


def _outcomes(cells: list[Cell], function: Function, jobs: int) -> Iterator[_Outcome]:
    """Outcomes in the order in which they are ready."""
    if jobs == 1 or not cells:
        yield from (_attempt(function, cell) for cell in cells)
        return
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    with parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
        pool = Parallel(return_as="generator_unordered")
    try:
        for outcome in pool(delayed(_attempt)(function, cell) for cell in cells):
            assert outcome is not None  # joblib types its results as optional
            yield outcome
    except TerminatedWorkerError:
        raise Refused(
            "a worker process was killed, most likely for want of memory; what was done is kept: "
            "run the same command again, with fewer jobs"
        ) from None


def _attempt(function: Function, cell: Cell) -> _Outcome:
    start = time.perf_counter()
    try:
        rows, sentence = function(dict(cell), seed(cell)), None
        _check_rows(rows, cell)
    except Exception as error:  # a failed cell is a row like any other, and can be retried
        rows, sentence = [{}], f"{type(error).__name__}: {error}"
    return _Outcome(cell, rows, time.perf_counter() - start, sentence)


def _check_rows(rows: list[dict[str, Any]], cell: Cell) -> None:
    if not rows:
        raise InputError("the function returned no row: nothing would show that the cell is done")
    taken = {"key", "seed", "seconds", "error", *cell}.intersection(*rows)
    if taken:
        raise InputError(f"the function returned a column {min(taken)!r} that the cell has")


def _counted(outcomes: Iterator[_Outcome], bar: Any) -> Iterator[_Outcome]:
    for outcome in outcomes:
        yield outcome
        bar.update()


def _bar(total: int, done: int, progress: bool) -> Any:
    from tqdm import tqdm

    # disable=None: silent unless stderr is a terminal
    return tqdm(total=total, initial=done, unit="cell", disable=None if progress else True)


def _summary(wanted: Mapping[str, Cell], known: Mapping[str, str | None]) -> Summary:
    done = [k for k in wanted if k in known]
    return Summary(len(wanted), len(done), sum(known[k] is not None for k in done))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / "lock", timeout=0):
            yield
    except Timeout:
        raise Refused(
            f"another process is computing in {folder}; wait for it, or choose another folder"
        ) from None


def _describe(
    folder: Path, function: Function, configuration: Mapping[str, Any], cells: int
) -> None:
    """Write the manifest, unless the folder belongs to another function."""
    inner = getattr(function, "func", function)  # a functools.partial
    name = f"{inner.__module__}.{inner.__qualname__}"
    if (folder / "manifest.json").exists():
        before = _manifest(folder)["configuration"]["function"]
        if before != name:
            raise InputError(f"{folder} holds results of {before}; choose another for {name}")
    header = results.header({**configuration, "function": name, "cells": cells}, SEEDS)
    write_text(folder / "manifest.json", json.dumps(header, indent=1, sort_keys=True) + "\n")


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    if not path.is_file():
        raise InputError(f"{folder} holds no run: there is no manifest.json in it")
    header = json.loads(path.read_text(encoding="utf-8"))
    if header["schema"] > results.SCHEMA:
        raise InputError(
            f"{folder} was made by a newer version; "
            f"use multidraft {header['versions']['multidraft']} or later"
        )
    return header
