"""Engines: cells in, outcomes out in the order in which they are ready.

All engines run the same tasks. A task is a list of cells, so long that handing it over costs
little: about `TASK` seconds of work, one cell when cells take longer than that.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from multidraft.checks import choice
from multidraft.errors import InputError, Refused
from multidraft.experiments.cells import Cell, Function, Outcome, attempt, key
from multidraft.results import digest

TASK = 0.25  # seconds of work per task
MOST_CELLS = 256  # in one task, however short they are
HANDOVER = 0.01  # seconds that a Dask scheduler may spend on a task, twice what it was seen to
RESTARTS = 3  # of a pool whose workers were killed
AHEAD = 2  # tasks per worker that are handed out before the first is back
CONNECT = 10  # seconds for a scheduler to answer

ENGINES = ("loky", "dask")
KILLED = (
    "Killed: a worker process was killed while this cell was in flight, most likely for want of "
    "memory; try it again with --retry-failed and fewer jobs."
)


@dataclass(frozen=True)
class Engine:
    """Where cells are computed.

    Attributes
    ----------
    name : {"loky", "dask"}
        Processes of this machine, or an existing Dask cluster.
    jobs : int
        Worker processes; 1 computes in this process, with its threads. Not for dask.
    scheduler : str, optional
        Address of the Dask scheduler, ``tcp://host:port``.
    memory : float, optional
        GiB of address space (RLIMIT_AS) of each worker: beyond it a cell fails with MemoryError.
    """

    name: str = "loky"
    jobs: int = 1
    scheduler: str | None = None
    memory: float | None = None

    def __post_init__(self) -> None:
        choice(self.name, ENGINES, "engine")
        if self.jobs < 1:
            raise InputError(f"jobs is {self.jobs}: at least one worker computes.")
        if (self.name == "dask") != (self.scheduler is not None):
            raise InputError("the engine dask, and no other, needs --scheduler tcp://HOST:PORT.")
        if self.name == "dask" and self.memory is not None:
            raise InputError("Dask limits its workers itself: start them with --memory-limit.")

    def workers(self) -> int:
        """How many cells are computed at a time."""
        if self.scheduler is None:
            return self.jobs
        with _client(self.scheduler) as client:
            return _workers(client)

    def outcomes(self, cells: Iterable[Cell], function: Function) -> Iterator[Outcome]:
        """Compute cells; outcomes come in any order, one for each cell."""
        pace = _Pace()
        tasks = pace.tasks(iter(cells))
        if self.scheduler is not None:
            found = _on_cluster(tasks, function, self.scheduler, pace)
        elif self.jobs == 1 and self.memory is None:
            found = (outcome for task in tasks for outcome in attempt(function, task))
        else:
            found = _in_pool(tasks, function, self.jobs, self.memory)
        for outcome in found:
            pace.note(outcome.seconds)
            yield outcome


class _Pace:
    """Cuts cells into tasks by the time that the last cells took."""

    def __init__(self) -> None:
        self.task = TASK
        self.seconds = TASK  # so the first tasks are single cells

    def note(self, seconds: float) -> None:
        self.seconds += 0.1 * (seconds - self.seconds)

    def tasks(self, cells: Iterator[Cell]) -> Iterator[list[Cell]]:
        while task := list(itertools.islice(cells, self._length())):
            yield task

    def _length(self) -> int:
        most = MOST_CELLS * self.task / TASK
        return int(max(1, min(most, self.task / max(self.seconds, 1e-6))))


def _in_pool(
    tasks: Iterator[list[Cell]], function: Function, jobs: int, memory: float | None
) -> Iterator[Outcome]:
    """Outcomes of a pool that is started again when one of its workers was killed."""
    from joblib import delayed
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    for _ in range(RESTARTS + 1):
        flying: dict[str, list[Cell]] = {}  # by the key of their first cell
        pool = _pool(jobs, memory)
        try:
            noted = (delayed(attempt)(function, task) for task in _noted(tasks, flying))
            for outcomes in pool(noted):
                assert outcomes is not None  # joblib types its results as optional
                del flying[outcomes[0].key]
                yield from outcomes
            return
        except TerminatedWorkerError:
            yield from _lost(itertools.chain.from_iterable(list(flying.values())))
    raise Refused(
        f"worker processes were killed {RESTARTS + 1} times, most likely for want of memory; "
        "what was done is kept: run the same command again, with fewer jobs"
    )


def _pool(jobs: int, memory: float | None) -> Any:
    from joblib import Parallel, parallel_config

    options = {"initializer": _limit, "initargs": (memory,)} if memory else {}
    # joblib computes in this process when there is one worker; of two, one task keeps one busy.
    ahead = AHEAD * jobs if jobs > 1 else 1
    with parallel_config("loky", n_jobs=max(jobs, 2), inner_max_num_threads=1, **options):
        # Tasks are cut to length here; joblib must not bundle them again.
        once: Any = {"batch_size": 1}  # which joblib types as a string
        return Parallel(return_as="generator_unordered", pre_dispatch=str(ahead), **once)


def _limit(memory: float) -> None:
    """Bound the address space of this process to `memory` GiB."""
    import resource

    most = int(memory * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _noted(tasks: Iterator[list[Cell]], flying: dict[str, list[Cell]]) -> Iterator[list[Cell]]:
    for task in tasks:
        flying[key(task[0])] = task
        yield task


def _lost(cells: Iterable[Cell]) -> Iterator[Outcome]:
    return (Outcome(cell, digest(cell), [{}], 0.0, KILLED) for cell in cells)


def _on_cluster(
    tasks: Iterator[list[Cell]], function: Function, scheduler: str, pace: _Pace
) -> Iterator[Outcome]:
    """Outcomes of a Dask cluster, which computes the tasks of a lost worker again itself."""
    from distributed import as_completed
    from distributed.scheduler import KilledWorker

    with _client(scheduler) as client:
        sent: dict[str, list[Cell]] = {}

        def submit(task: list[Cell]) -> Any:
            future = client.submit(_quietly, function, task, pure=False)
            sent[future.key] = task
            return future

        workers = _workers(client)
        pace.task, ahead = max(TASK, HANDOVER * workers), AHEAD * workers
        first = [submit(task) for task in itertools.islice(tasks, ahead)]
        ready = as_completed(first, loop=client.loop)
        for future in ready:
            task = sent.pop(future.key)
            error = future.exception()
            if error is not None and not isinstance(error, KilledWorker):
                raise Refused(f"the cluster cannot run the cells: {error}") from error
            yield from _lost(task) if error is not None else future.result()
            future.release()
            for following in itertools.islice(tasks, 1):
                ready.add(submit(following))


def _client(scheduler: str) -> Any:
    from distributed import Client

    try:
        return Client(scheduler, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise Refused(f"no Dask scheduler answers at {scheduler} ({error}); start one.") from None


def _workers(client: Any) -> int:
    """Number of workers of a cluster, each of which must have one thread."""
    try:
        client.wait_for_workers(1, timeout=CONNECT)
    except TimeoutError:
        raise Refused(
            "the Dask scheduler has no worker: start some with `dask worker --nthreads 1`."
        ) from None
    threads = client.nthreads().values()
    if max(threads) > 1:
        raise Refused("a Dask worker has several threads: start it with --nthreads 1.")
    return len(threads)


def _quietly(function: Function, task: list[Cell]) -> list[Outcome]:
    """Compute a task with one thread for each library, whether it is imported already or not."""
    for name, variable in (("torch", "OMP_NUM_THREADS"), ("numba", "NUMBA_NUM_THREADS")):
        if name in sys.modules:
            sys.modules[name].set_num_threads(1)
        else:
            os.environ[variable] = "1"
    return attempt(function, task)
