from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from multidraft import results
from multidraft.errors import InputError
from multidraft.experiments import runner

TIMES = ["seconds"]
CELLS = runner.grid(law=["iid", "top"], n=[1, 2, 4])


def draw(cell: dict, seed: int) -> list[dict]:
    """Two rows that depend on the cell and its seed alone."""
    generator = np.random.default_rng(seed)
    return [{"context": i, "value": cell["n"] + generator.random()} for i in range(2)]


def fail_at_two(cell: dict, seed: int) -> list[dict]:
    if cell["n"] == 2:
        raise InputError("two is one too many")
    return draw(cell, seed)


def once_broken(cell: dict, seed: int, flag: str) -> list[dict]:
    return draw(cell, seed) if Path(flag).exists() else fail_at_two(cell, seed)


def threads(cell: dict, seed: int) -> list[dict]:
    import numba
    import torch

    return [
        {"torch": torch.get_num_threads(), "numba": numba.get_num_threads(), "pid": os.getpid()}
    ]


def rows(folder: Path) -> pl.DataFrame:
    return runner.collect(folder).frame


def test_keys_and_seeds_follow_from_content_alone():
    assert runner.key({"law": "iid", "n": 2}) == runner.key({"n": 2, "law": "iid"})
    assert len({runner.key(cell) for cell in CELLS}) == len(CELLS)
    assert len({runner.seed(cell) for cell in CELLS}) == len(CELLS)
    assert all(0 <= runner.seed(cell) < 2**60 for cell in CELLS)
    # Pinned: another seed for the same cell would silently change published numbers.
    assert runner.seed({"law": "iid", "n": 2}) == 1095040172214281239


def test_a_run_keeps_every_row_with_its_cell(tmp_path):
    summary = runner.run(CELLS, draw, tmp_path)
    assert summary == runner.Summary(cells=6, done=6, failed=0)
    frame = rows(tmp_path)
    assert len(frame) == 12
    for cell in CELLS:
        mine = frame.filter(key=runner.key(cell))
        assert mine["law"].to_list() == [cell["law"]] * 2
        assert mine["value"].to_list() == [row["value"] for row in draw(cell, runner.seed(cell))]
        assert mine["error"].null_count() == 2


def test_workers_give_the_rows_of_the_serial_run(tmp_path):
    runner.run(CELLS, draw, tmp_path / "serial")
    runner.run(CELLS[::-1], draw, tmp_path / "parallel", jobs=2)
    assert rows(tmp_path / "serial").drop(TIMES).equals(rows(tmp_path / "parallel").drop(TIMES))


def test_every_worker_has_one_thread(tmp_path, monkeypatch):
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        monkeypatch.delenv(name)
    # On a machine of 8 cores the pool's default is 4 threads each.
    monkeypatch.setattr("joblib._parallel_backends.cpu_count", lambda: 8)
    runner.run([{"n": 1}], threads, tmp_path, jobs=2)
    row = rows(tmp_path).row(0, named=True)
    assert (row["torch"], row["numba"]) == (1, 1)
    assert row["pid"] != os.getpid()


def test_adding_cells_computes_the_new_ones_and_changes_no_other(tmp_path):
    runner.run(CELLS[:2], draw, tmp_path)
    before = rows(tmp_path)
    runner.run([*CELLS, *CELLS], draw, tmp_path)
    after = rows(tmp_path)
    assert len(after) == 12
    assert after.filter(after["key"].is_in(before["key"].to_list())).equals(before)  # times too


def test_a_fresh_start_forgets_what_was_there(tmp_path):
    runner.run(CELLS, draw, tmp_path)
    assert runner.run(CELLS[:1], draw, tmp_path, resume=False).done == 1
    assert len(rows(tmp_path)) == 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failure_is_a_row_with_its_sentence(tmp_path, jobs):
    assert runner.run(CELLS, fail_at_two, tmp_path, jobs=jobs).failed == 2
    failed = rows(tmp_path).filter(pl.col("error").is_not_null())
    assert failed["error"].unique().to_list() == ["InputError: two is one too many"]
    assert failed["n"].to_list() == [2, 2]
    assert len(rows(tmp_path)) == 4 * 2 + 2


def test_failures_are_tried_again_only_when_asked(tmp_path):
    flag = tmp_path / "repaired"
    function = partial(once_broken, flag=str(flag))
    folder = tmp_path / "run"
    assert runner.run(CELLS, function, folder).failed == 2
    flag.touch()
    assert runner.run(CELLS, function, folder).failed == 2
    assert runner.run(CELLS, function, folder, retry_failed=True) == runner.Summary(6, 6, 0)
    runner.run(CELLS, draw, tmp_path / "whole")
    assert (
        rows(folder)
        .drop("error", "seconds")
        .equals(rows(tmp_path / "whole").drop("error", "seconds"))
    )


@pytest.mark.parametrize(
    ("row", "sentence"),
    [(None, "returned no row"), ({"n": 3}, "column 'n'"), ({"key": 1}, "'key'")],
)
def test_rows_that_would_hide_the_cell_are_failures(tmp_path, row, sentence):
    runner.run([{"n": 1}], lambda cell, seed: [row] if row else [], tmp_path)
    assert sentence in rows(tmp_path)["error"][0]


def test_ctrl_c_keeps_what_was_done_and_the_next_run_goes_on(tmp_path):
    def interrupted(cell: dict, seed: int) -> list[dict]:
        if cell == CELLS[3]:
            raise KeyboardInterrupt
        return draw(cell, seed)

    with pytest.raises(KeyboardInterrupt):
        runner.run(CELLS, interrupted, tmp_path)
    assert runner.status(CELLS, tmp_path) == runner.Summary(6, 3, 0)


KILLED = """
    import os, sys
    from multidraft.experiments import runner

    def draw(cell, seed):
        if cell["n"] == 3:
            os.kill(os.getpid(), 9)
        return [{"value": seed}]

    runner.run(runner.grid(n=[1, 2, 3, 4]), draw, sys.argv[1])
"""


def _start(code: str, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_a_killed_run_resumes_and_its_lock_is_gone(tmp_path):
    killed = _start(KILLED, str(tmp_path))
    assert killed.returncode == -9
    done = runner.status(runner.grid(n=[1, 2, 3, 4]), tmp_path).done
    assert 1 <= done <= 2
    (tmp_path / "parts" / ".000009.parquet.0123").write_bytes(b"half a part")
    again = _start(KILLED.replace("== 3", "== 9"), str(tmp_path))
    assert again.returncode == 0, again.stderr
    assert sorted(rows(tmp_path)["n"].to_list()) == [1, 2, 3, 4]
    assert not list((tmp_path / "parts").glob(".*"))


def test_two_processes_in_one_folder_are_refused(tmp_path):
    def nested(cell: dict, seed: int) -> list[dict]:
        code = KILLED.replace("== 3", "== 9")
        return [{"stderr": _start(code, str(tmp_path)).stderr}]

    runner.run([{"x": 1}], nested, tmp_path)
    assert "Refused: another process is computing in" in rows(tmp_path)["stderr"][0]


def test_a_killed_worker_costs_its_cells_and_the_run_goes_on(tmp_path):
    code = KILLED.replace("sys.argv[1])", "sys.argv[1], jobs=2)")
    assert _start(code, str(tmp_path)).returncode == 0
    frame = rows(tmp_path)
    assert sorted(frame["n"].to_list()) == [1, 2, 3, 4]
    killed = frame.filter(n=3)["error"][0]
    assert killed.startswith("Killed: a worker process was killed")
    assert "--retry-failed" in killed


def test_a_run_whose_workers_all_die_ends_with_one_sentence(tmp_path):
    code = KILLED.replace("== 3", "> 0").replace("[1, 2, 3, 4]", "list(range(1, 40))")
    ended = _start(code.replace("sys.argv[1])", "sys.argv[1], jobs=2)"), str(tmp_path))
    assert "Refused: worker processes were killed 4 times" in ended.stderr
    done = runner.status(runner.grid(n=list(range(1, 40))), tmp_path)
    assert 4 <= done.failed == done.done < 39


def test_a_folder_belongs_to_one_function(tmp_path):
    runner.run(CELLS, draw, tmp_path)
    with pytest.raises(InputError, match="holds results of .*draw; choose another"):
        runner.run(CELLS, fail_at_two, tmp_path)


def test_a_merged_file_holds_the_rows_and_where_they_come_from(tmp_path):
    runner.run(CELLS, draw, tmp_path, configuration={"trace": "frozen"})
    runner.merge(tmp_path, tmp_path / "merged.parquet", CELLS[:4])
    merged = results.read(tmp_path / "merged.parquet")
    assert set(merged.frame["key"]) == {runner.key(cell) for cell in CELLS[:4]}
    assert merged.header["configuration"]["trace"] == "frozen"
    assert merged.header["configuration"]["function"].endswith(".draw")
    assert merged.header["seeds"] == runner.SEEDS


def test_nested_values_and_missing_ones_fit_in_one_table(tmp_path):
    cells = [{"k": None, "spec": {"law": "iid", "n": 2}}, {"k": 10, "spec": {"law": "top"}}]
    runner.run(cells, draw_constant, tmp_path)
    frame = rows(tmp_path)
    assert set(frame["spec"]) == {'{"law":"iid","n":2}', '{"law":"top"}'}
    assert set(frame["k"]) == {None, 10}


def draw_constant(cell: dict, seed: int) -> list[dict]:
    return [{"value": 1.0}]


def test_an_empty_folder_says_so(tmp_path):
    with pytest.raises(InputError, match="no results yet"):
        runner.collect(tmp_path)


def test_a_folder_of_a_newer_version_is_not_touched(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "SCHEMA", results.SCHEMA + 1)
    monkeypatch.setattr("multidraft.results.provenance.SCHEMA", results.SCHEMA)
    runner.run(CELLS, draw, tmp_path)
    monkeypatch.undo()
    with pytest.raises(InputError, match="newer version"):
        runner.run(CELLS, draw, tmp_path)
