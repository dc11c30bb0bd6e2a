"""What a sweep costs beside its cells: throughput, overhead and memory on many short cells.

The cells are optima of iid drafts at full vocabulary, one recorded context each. Run it on a quiet
machine: ``multidraft bench sweep``.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from multidraft.experiments import runner, sweep, sweep_file

CELLS = 10_000
SINGLE = 2_000  # cells whose cost is measured without a sweep around them
LOOK = 0.5  # seconds between two looks at the memory
COLUMNS = {
    "cells": ("cells", ".0f"),
    "jobs": ("workers", ".0f"),
    "start": ("seconds until they are ready", ".1f"),
    "seconds": ("seconds for the cells", ".1f"),
    "single": ("milliseconds of a cell in a plain loop, alone", ".2f"),
    "abreast": ("milliseconds of a cell in plain loops, one per worker at once", ".2f"),
    "inside": ("milliseconds of a cell in a worker of the sweep", ".2f"),
    "overhead": ("overhead over the plain loops at once", ".1%"),
    "handling": ("overhead over the time inside cells", ".1%"),
    "early": ("MiB in the second quarter", ".0f"),
    "late": ("MiB in the last quarter", ".0f"),
    "bytes": ("bytes on the disk", ".0f"),
    "parts": ("part files", ".0f"),
}
COUNTS = (1, 2, 3, 4, 6, 8, 12, 16)


def measure(cells: int = CELLS, jobs: int = 2, trace: str = "default") -> dict[str, float]:
    """Run a sweep of about `cells` cells and compare it with the same cells in a plain loop.

    Returns
    -------
    dict
        The columns of `COLUMNS`. ``single`` is a cell's cost in a plain loop, ``abreast`` in `jobs`
        such loops at once, which share the machine's memory and clock as workers do, ``inside``
        what the workers needed on average; ``overhead`` says how far ``jobs * seconds`` exceeds
        the plain loops at once, ``handling`` how far it exceeds the time inside cells. ``start`` is
        the timed sample that every sweep begins with: the workers import and compile. Memory is
        that of this process and its workers, without shared pages, in the second and in the last
        quarter of the run.
    """
    found = _sweep(cells, trace)
    listed, function = list(found), found.function()
    single, abreast = _plain(listed, function, 1), _plain(listed, function, jobs)
    with tempfile.TemporaryDirectory() as folder, _watched() as memory:
        begin = time.perf_counter()
        cost = runner.estimate(found, function, folder, engine=runner.Engine(jobs=jobs))
        start = time.perf_counter() - begin
        sample = runner.collect(folder).frame["key"]
        summary = runner.run(found, function, folder, jobs=jobs, progress=False)
        seconds = time.perf_counter() - begin - start
        frame = runner.collect(folder).frame
        frame = frame.filter(~frame["key"].is_in(sample.implode()))
        inside = float(frame["seconds"].to_numpy().mean())
        parts = list(Path(folder, "parts").iterdir())
        size = sum(part.stat().st_size for part in parts)
    assert summary == runner.Summary(len(listed), len(listed), 0)
    quarter = max(1, len(memory) // 4)
    return {
        "cells": cost.left,
        "jobs": jobs,
        "start": start,
        "seconds": seconds,
        "single": 1e3 * single,
        "abreast": 1e3 * abreast,
        "inside": 1e3 * inside,
        "overhead": jobs * seconds / (cost.left * abreast) - 1,
        "handling": jobs * seconds / (cost.left * inside) - 1,
        "early": float(np.mean(memory[quarter : 2 * quarter] or memory)),
        "late": float(np.mean(memory[-quarter:])),
        "bytes": size,
        "parts": len(parts),
    }


def page(row: dict[str, float]) -> str:
    """Lay a measured row out in Markdown."""
    lines = (f"| {name} | {row[key]:{form}} |" for key, (name, form) in COLUMNS.items())
    return "\n".join(["| | |", "| --- | ---: |", *lines]) + "\n"


def _sweep(cells: int, trace: str) -> sweep.Sweep:
    """A sweep with one context per cell, and as many temperatures as make up the number."""
    source = {"kind": "trace", "path": trace, "chunk": 1}
    grid = {"draft": "skip-8", "n": list(COUNTS)}
    file = {"schema": sweep_file.SCHEMA, "name": "bench", "source": source, "grid": [grid]}
    contexts = len(sweep.prepare(sweep_file.SweepFile.model_validate(file), Path()).contexts)
    heats = -(-cells // (contexts * len(COUNTS)))
    grid["temperature"] = np.linspace(0.5, 1.0, heats).round(4).tolist()
    return sweep.prepare(sweep_file.SweepFile.model_validate(file), Path())


def _plain(cells: list[sweep.Cell], function: runner.Function, processes: int) -> float:
    """Seconds per cell in plain loops of so many processes at once, with one thread each."""
    from joblib import Parallel, delayed

    step = max(1, len(cells) // SINGLE // len(COUNTS)) * len(COUNTS)
    # Whole blocks of cells that share their laws, as in the sweep.
    blocks = [cells[i : i + len(COUNTS)] for i in range(0, len(cells), step)]
    chosen = [dict(cell) for block in blocks[: SINGLE // len(COUNTS)] for cell in block]
    loops = Parallel(n_jobs=max(processes, 2))(
        delayed(_loop)(chosen, function) for _ in range(processes)
    )
    return float(np.mean([seconds for seconds in loops if seconds is not None]))


def _loop(cells: list[sweep.Cell], function: runner.Function) -> float:
    """Seconds per cell of a loop, after a warm-up of two blocks."""
    import numba
    import torch

    torch.set_num_threads(1)
    numba.set_num_threads(1)
    for cell in cells[: 2 * len(COUNTS)]:
        function(dict(cell), 0)
    start = time.perf_counter()
    for cell in cells:
        function(dict(cell), 0)
    return (time.perf_counter() - start) / len(cells)


@contextmanager
def _watched() -> Iterator[list[float]]:
    """Look at the memory of this process and its children while the body runs, in MiB."""
    import psutil

    found: list[float] = []
    done = threading.Event()

    def look() -> None:
        this = psutil.Process()
        while not done.wait(LOOK):
            sizes = [_private(process) for process in [this, *this.children(recursive=True)]]
            found.append(sum(sizes) / 2**20)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield found
    finally:
        done.set()
        watcher.join()


def _private(process: object) -> int:
    """Resident bytes that are not shared: the mapped trace does not count."""
    import psutil

    assert isinstance(process, psutil.Process)
    try:
        memory = process.memory_info()
    except psutil.Error:  # it has just ended
        return 0
    return memory.rss - getattr(memory, "shared", 0)
