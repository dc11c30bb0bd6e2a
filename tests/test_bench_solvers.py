"""The bench of solvers: one process for each solve, and what is written of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import multidraft as md
from multidraft import laws, results
from multidraft.experiments import bench_solvers as bench

SIZE = bench.Size("explicit", 8, 2)


@pytest.fixture(scope="module")
def rows() -> list[bench.Row]:
    return bench.measure([SIZE], ["full-lp", "max-flow", "pair"])


def test_rows_hold_time_memory_certificate_and_speedup(rows: list[bench.Row]):
    full, flow, refused = rows
    optimum = float(md.optimal_acceptance(bench.instance(SIZE)))
    for row in (full, flow):
        assert row["reason"] is None and row["status"] == "optimal" and row["proof"] is not None
        assert row["acceptance"] == pytest.approx(optimum, abs=1e-9)
        assert 0 < row["seconds"] < 60 and row["megabytes"] >= 0
    assert full["speedup"] == 1
    assert flow["speedup"] == pytest.approx(full["seconds"] / flow["seconds"])
    assert "not explicit" in refused["reason"] and refused["seconds"] is None


def test_a_solve_that_takes_too_long_is_ended():
    slow = bench.Size("iid", 60, 2)  # many seconds in the full program
    (row,) = bench.measure([slow], ["full-lp"], timeout=0.0)
    assert row["reason"] == "over 0 s" and row["speedup"] is None


def test_the_report(rows: list[bench.Row], tmp_path: Path):
    bench.report(rows, tmp_path)
    stored = results.read(tmp_path / "solvers.parquet")
    assert stored.frame["method"].to_list() == ["full-lp", "max-flow", "pair"]
    assert (tmp_path / "solvers.png").stat().st_size > 1000
    text = bench.table(rows)
    assert "### explicit, V = 8, n = 2" in text
    assert "| max-flow | " in text and "- pair: pair is for drafts from one law" in text


def test_every_size_names_a_law_and_every_variant_a_method():
    assert {size.law for size in bench.SIZES} <= set(laws.names())
    for name in bench.methods():
        assert bench.VARIANTS.get(name, (name, {}))[0] in md.solvers.names()
