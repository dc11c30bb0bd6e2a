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

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multidraft import results
from multidraft.errors import InputError, Refused
from multidraft.experiments.cells import SEEDS, Cell, Function, Outcome, grid, key, seed
from multidraft.experiments.engine import Engine
from multidraft.experiments.parts import Parts
from multidraft.files import write_text

__all__ = [
    "SEEDS",
    "Cell",
    "Engine",
    "Estimate",
    "Function",
    "Outcome",
    "Summary",
    "collect",
    "estimate",
    "grid",
    "key",
    "merge",
    "run",
    "seed",
    "status",
    "whole",
]

SAMPLE = 8  # cells that are timed for an estimate, at least two for each worker


@dataclass(frozen=True)
class Summary:
    """How a run ended: cells asked for, of them with results, of them failed."""

    cells: int
    done: int
    failed: int


@dataclass(frozen=True)
class Estimate:
    """What is left of a run, judged by a timed sample.

    Attributes
    ----------
    cells, left : int
        Cells in all, and those that are not computed yet.
    seconds : float
        Until the rest is done, with the engine that timed the sample.
    bytes : int
        On the disk in the end.
    """

    cells: int
    left: int
    seconds: float
    bytes: int


def run(
    cells: Iterable[Cell],
    function: Function,
    folder: str | Path,
    *,
    configuration: Mapping[str, Any] | None = None,
    jobs: int = 1,
    engine: Engine | None = None,
    resume: bool = True,
    retry_failed: bool = False,
    progress: bool = True,
) -> Summary:
    """Compute every cell that `folder` does not hold yet.

    Parameters
    ----------
    cells : iterable of mappings
        JSON content each; repeated cells are computed once. An iterable that makes its cells anew
        each time keeps the memory flat: only keys are remembered.
    function : callable
        ``function(cell, seed)`` returns at least one row (a flat dict). An exception becomes a row
        with its sentence. With several workers it must be importable or picklable.
    folder : path
        Holds the run; see the module's text.
    configuration : mapping, optional
        Recorded in the header besides the name of the function; what changes a number belongs
        into the cells, since only those decide what is computed again.
    jobs : int
        Worker processes, each with one thread for BLAS, torch and numba. 1 computes in this
        process, with this process's threads.
    engine : Engine, optional
        Another engine than `jobs` processes of this machine; takes the place of `jobs`.
    resume : bool
        False throws away what the folder holds and starts over.
    retry_failed : bool
        Whether cells that failed before are tried again.
    progress : bool
        Show a bar with the time left on stderr, when that is a terminal.

    Raises
    ------
    Refused
        Another process runs in this folder, or workers were killed again and again.
    InputError
        The folder holds the results of another function or of a newer version.
    """
    folder, cells = Path(folder), _reusable(cells)
    engine = engine or Engine(jobs=jobs)
    keys = [key(cell) for cell in cells]
    wanted = set(keys)
    with _locked(folder):
        parts = Parts(folder / "parts")
        parts.clear(".*" if resume else "*")
        _describe(folder, function, configuration or {}, len(wanted))
        left = wanted - _finished(parts, retry_failed)
        with _bar(len(wanted), len(wanted) - len(left), progress) as bar:
            outcomes = engine.outcomes(_only(cells, keys, left), function)
            parts.collect(_counted(outcomes, bar))
        return _summary(wanted, parts)


def estimate(
    cells: Iterable[Cell],
    function: Function,
    folder: str | Path,
    *,
    configuration: Mapping[str, Any] | None = None,
    engine: Engine | None = None,
    retry_failed: bool = False,
) -> Estimate:
    """Compute a sample of what is left, and judge the rest by it.

    The sample is spread evenly over the list, and its results are kept: nothing is computed twice.
    The parameters are those of :func:`run`.
    """
    cells, engine = _reusable(cells), engine or Engine()
    parts, keys = Parts(Path(folder) / "parts"), [key(cell) for cell in cells]
    wanted = set(keys)
    left = wanted - _finished(parts, retry_failed)
    workers = engine.workers()
    chosen = _spread(_only(cells, keys, left), len(left), max(SAMPLE, 2 * workers) + workers)
    options = {"configuration": configuration, "engine": engine, "retry_failed": retry_failed}
    # The first cells of a worker compile and import; only those after them tell the pace.
    for sample in (chosen[:workers], chosen[workers:]):
        run(sample, function, folder, progress=False, **options)
    rest = len(left) - len(chosen)
    if not rest:
        return Estimate(len(wanted), 0, 0.0, parts.size())
    seconds = collect(folder, chosen[workers:]).frame.unique("key")["seconds"].to_numpy().mean()
    growth = 1 + rest / len(parts.outcomes()[0])
    return Estimate(
        len(wanted), rest, float(seconds) * rest / workers, round(parts.size() * growth)
    )


def _reusable(cells: Iterable[Cell]) -> Iterable[Cell]:
    return list(cells) if isinstance(cells, Iterator) else cells


def _finished(parts: Parts, retry_failed: bool) -> set[str]:
    done, failed = parts.outcomes()
    return done - failed if retry_failed else done


def _only(cells: Iterable[Cell], keys: list[str], wanted: set[str]) -> Iterator[Cell]:
    """The cells with wanted keys, each once; `keys` are those of all cells, in their order."""
    left = set(wanted)
    for cell, name in zip(cells, keys, strict=True):
        if name in left:
            left.remove(name)
            yield cell


def _spread(cells: Iterator[Cell], total: int, count: int) -> list[Cell]:
    """About `count` cells at equal distances in a list of `total`."""
    places = {i * total // count for i in range(count)} if total else set()
    return [cell for i, cell in enumerate(cells) if i in places]


def status(cells: Iterable[Cell], folder: str | Path) -> Summary:
    """How far a run is, without touching it."""
    return _summary({key(cell) for cell in cells}, Parts(Path(folder) / "parts"))


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
        frame = frame.filter(frame["key"].is_in({key(cell) for cell in cells}))
    return results.Results(frame.sort("key", maintain_order=True), _manifest(folder))


def whole(
    cells: Iterable[Cell], function: Function, folder: str | Path, **options: Any
) -> results.Results:
    """Compute what is missing, as :func:`run` does, and return the rows of all cells.

    Raises
    ------
    Refused
        A cell failed: the message is its sentence.
    """
    cells = _reusable(cells)
    summary = run(cells, function, folder, retry_failed=True, **options)
    found = collect(folder, cells)
    if summary.failed:
        sentence = found.frame["error"].drop_nulls()[0]
        raise Refused(f"{summary.failed} of {summary.cells} cells failed, the first: {sentence}")
    return found


def merge(folder: str | Path, path: str | Path, cells: Iterable[Cell] | None = None) -> None:
    """Write what `collect` returns to one Parquet file."""
    merged = collect(folder, cells)
    results.write(path, merged.frame, merged.header)


def _counted(outcomes: Iterator[Outcome], bar: Any) -> Iterator[Outcome]:
    for outcome in outcomes:
        yield outcome
        bar.update()


def _bar(total: int, done: int, progress: bool) -> Any:
    from tqdm import tqdm

    # disable=None: silent unless stderr is a terminal
    return tqdm(total=total, initial=done, unit="cell", disable=None if progress else True)


def _summary(wanted: set[str], parts: Parts) -> Summary:
    done, failed = parts.outcomes()
    return Summary(len(wanted), len(wanted & done), len(wanted & failed))


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
    header = results.header({**configuration, "function": name, "cells": cells}, SEEDS)
    starts: list[dict[str, Any]] = []
    if (folder / "manifest.json").exists():
        before = _manifest(folder)
        if before["configuration"]["function"] != name:
            raise InputError(
                f"{folder} holds results of {before['configuration']['function']}; "
                f"choose another for {name}"
            )
        starts = before.get("starts", [])
    header["starts"] = _with_start(starts, header)
    write_text(folder / "manifest.json", json.dumps(header, indent=1, sort_keys=True) + "\n")


def _with_start(starts: list[dict[str, Any]], header: dict[str, Any]) -> list[dict[str, Any]]:
    """Every code, configuration and machine that rows of this folder may come from."""
    start = {name: header[name] for name in ("configuration_hash", "git", "machine", "versions")}
    return starts if start in starts else [*starts, start]


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
