"""What a sweep survives: kill -9 of itself or of its workers, and a lost Dask worker. For real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import polars as pl
import psutil
import pytest

from multidraft.errors import InputError, Refused
from multidraft.experiments import parts, runner
from multidraft.results import digest

TIMES = ["seconds"]
CELLS = runner.grid(x=list(range(60)))
PATIENCE = 60  # seconds that something may take to happen

SLOW = """
import time

def slow(cell, seed, seconds=0.05):
    time.sleep(seconds)
    return [{"value": cell["x"] + seed}]

def greedy(cell, seed):
    return [{"bytes": len(bytearray(cell["x"] * 2**30))}]
"""
RUN = """
import sys
from multidraft.experiments import runner
from slowly import slow
jobs, folder = int(sys.argv[1]), sys.argv[2]
runner.run(runner.grid(x=list(range(60))), slow, folder, jobs=jobs)
"""


@pytest.fixture(autouse=True)
def slowly(tmp_path, monkeypatch):
    """The functions of these tests as a module that every process can import."""
    (tmp_path / "slowly.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("multidraft.experiments.engine.TASK", 0.1)
    sys.modules.pop("slowly", None)
    import slowly  # type: ignore[import-not-found]

    return slowly


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.02)


def rows(folder: Path) -> pl.DataFrame:
    return runner.collect(folder).frame.drop(TIMES)


def start(folder: Path, jobs: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", RUN, str(jobs), str(folder)]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


@pytest.fixture
def serial(tmp_path, slowly) -> pl.DataFrame:
    runner.run(CELLS, partial(slowly.slow, seconds=0), tmp_path / "serial")
    return rows(tmp_path / "serial")


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_sweep_resumes_with_the_rows_of_an_undisturbed_one(tmp_path, serial, jobs):
    folder = tmp_path / "run"
    process = start(folder, jobs)
    wait_until(lambda: len(list(folder.glob("parts/0*.parquet"))) >= 1)
    process.kill()
    process.wait()
    before = runner.status(CELLS, folder)
    assert 1 <= before.done < 60
    assert before.failed == 0
    again = start(folder, 1)
    assert again.wait(PATIENCE) == 0
    assert rows(folder).equals(serial)


def test_a_second_sweep_is_refused_while_the_first_lives_and_only_then(tmp_path, slowly):
    folder = tmp_path / "run"
    process = start(folder, 1)
    wait_until((folder / "manifest.json").exists)
    with pytest.raises(Refused, match="another process is computing in"):
        runner.run(CELLS, slowly.slow, folder)
    process.kill()
    process.wait()
    runner.run(CELLS[:1], slowly.slow, folder)


def test_a_worker_killed_from_outside_costs_its_cells_only(tmp_path, serial, slowly):
    folder = tmp_path / "run"
    process = start(folder, 2)
    wait_until(lambda: len(list(folder.glob("parts/0*.parquet"))) >= 1)
    workers = [
        child
        for child in psutil.Process(process.pid).children()
        if "popen_loky_posix" in " ".join(child.cmdline())
    ]
    workers[0].kill()
    assert process.wait(PATIENCE) == 0
    found = rows(folder)
    assert sorted(found["x"]) == list(range(60))
    lost = found["error"].is_not_null().sum()
    assert 1 <= lost < 30
    runner.run(CELLS, slowly.slow, folder, retry_failed=True)
    assert rows(folder).equals(serial)


def test_a_cell_beyond_the_memory_limit_fails_and_the_others_do_not(tmp_path, slowly):
    engine = runner.Engine(jobs=1, memory=6.0)
    summary = runner.run(runner.grid(x=[0, 8]), slowly.greedy, tmp_path / "run", engine=engine)
    assert summary == runner.Summary(2, 2, 1)
    frame = rows(tmp_path / "run").sort("x")
    assert frame["error"].to_list() == [None, "MemoryError: "]


@pytest.fixture
def cluster() -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A Dask scheduler and two workers on loopback, each a process of its own."""
    port = _free_port()
    address = f"tcp://127.0.0.1:{port}"
    dask = [sys.executable, "-m", "dask"]
    common = ["--no-dashboard", "--host", "127.0.0.1"]
    commands = [[*dask, "scheduler", "--port", str(port), *common]]
    commands += 2 * [[*dask, "worker", address, "--nthreads", "1", "--no-nanny", *common]]
    nothing = subprocess.DEVNULL
    processes = [subprocess.Popen(line, stdout=nothing, stderr=nothing) for line in commands]
    try:
        yield address, processes[1:]
    finally:
        for process in processes[::-1]:
            process.kill()
            process.wait()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_dask_cluster_that_loses_a_worker_gives_the_rows_of_the_serial_run(
    tmp_path, serial, slowly, cluster
):
    address, workers = cluster
    engine = runner.Engine("dask", scheduler=address)
    wait_until(lambda: _count(engine) == 2)
    killed = []

    def kill_half_way(outcomes: Iterator) -> Iterator:
        for i, outcome in enumerate(outcomes):
            if i == 20:
                workers[0].send_signal(signal.SIGKILL)
                killed.append(workers[0].wait())
            yield outcome

    collect = parts.Parts.collect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            parts.Parts, "collect", lambda self, found: collect(self, kill_half_way(found))
        )
        summary = runner.run(CELLS, slowly.slow, tmp_path / "run", engine=engine)
    assert killed == [-signal.SIGKILL]
    assert summary == runner.Summary(60, 60, 0)
    assert rows(tmp_path / "run").equals(serial)


def _count(engine: runner.Engine) -> int:
    try:
        return engine.workers()
    except Refused:
        return 0


def test_engines_that_cannot_run_say_why(monkeypatch):
    with pytest.raises(InputError, match="needs --scheduler"):
        runner.Engine("dask")
    with pytest.raises(InputError, match="unknown engine 'ray': choose one of dask, loky"):
        runner.Engine("ray")
    with pytest.raises(InputError, match="limits its workers itself"):
        runner.Engine("dask", scheduler="tcp://127.0.0.1:1", memory=4.0)
    monkeypatch.setattr("multidraft.experiments.engine.CONNECT", 0.2)
    with pytest.raises(Refused, match="no Dask scheduler answers at tcp://127.0.0.1:"):
        runner.Engine("dask", scheduler=f"tcp://127.0.0.1:{_free_port()}").workers()


def outcome(x: int, error: str | None = None) -> runner.Outcome:
    cell = {"x": x}
    return runner.Outcome(cell, digest(cell), [{"value": float(x)}] * 2, 0.1, error)


def test_compaction_keeps_every_row_and_the_newest_outcome(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "MANY", 4)
    monkeypatch.setattr(parts, "WRITING", 1e9)  # a part for each outcome
    store = parts.Parts(tmp_path)
    store.collect(iter([outcome(0, "broken"), *map(outcome, range(1, 9)), outcome(0)]))
    assert len(store.files()) <= 4
    assert store.outcomes() == ({runner.key({"x": x}) for x in range(9)}, set())
    assert sorted(store.frame()["x"]) == sorted(2 * list(range(9)))


def crash(path: Path, missing_ok: bool = False) -> None:
    if path.suffix == ".parquet":  # a part, not the temporary file that is gone already
        raise KeyboardInterrupt


def test_a_crash_between_compaction_and_deletion_changes_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "WRITING", 1e9)
    store = parts.Parts(tmp_path)
    store.collect(iter([outcome(0, "broken"), outcome(1), outcome(0), outcome(2)]))
    before = store.frame().sort("x")
    monkeypatch.setattr(parts, "MANY", 2)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", crash)
        with pytest.raises(KeyboardInterrupt):
            store.compact()
    assert len(store.files()) == 4
    assert store.frame().sort("x").equals(before)
    store.compact()
    assert len(store.files()) == 1
    assert store.frame().sort("x").equals(before)


def test_large_parts_are_not_copied_again(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "WRITING", 1e9)
    store = parts.Parts(tmp_path)
    store.collect(iter([outcome(0, "broken"), outcome(1)]))
    sizes = [path.stat().st_size for path in store.files()]
    monkeypatch.setattr(parts, "SMALL", min(sizes))
    monkeypatch.setattr(parts, "MANY", 2)
    store.collect(map(outcome, range(5)))
    assert {path.name for path in store.files()} >= {"000001.parquet", "000002.parquet"}


def test_a_reader_that_meets_a_compaction_looks_again(tmp_path, monkeypatch):
    store = parts.Parts(tmp_path)
    store.collect(map(outcome, range(3)))
    files, gone = store.files(), tmp_path / "000000.parquet"
    answers = iter([[gone, *files], files])
    monkeypatch.setattr(parts.Parts, "files", lambda self: next(answers))
    assert len(store.frame()) == 6
