"""The benchmark of the rules: what it measures, and what it writes. No time is asserted."""

from __future__ import annotations

from pathlib import Path

import polars
import pytest

import multidraft as md
from multidraft import results
from multidraft.experiments import bench_verifiers


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    return bench_verifiers.measure((1, 3), (500,), (2, 4), repeats=1)


def test_every_rule_is_measured_at_every_size(rows: list[dict]):
    sizes = {(row["batch"], row["vocabulary"], row["n"], row["rule"]) for row in rows}
    rules = bench_verifiers.rules()
    assert len(sizes) == len(rows) == 2 * (2 * len(rules) - 1)  # SpecHub at n = 2 only
    assert set(rules) >= {"naive", "rrs", "rrsw", "k-seq", "spechub", "greedy"}
    for row in rows:
        assert row["passes"] == pytest.approx(row["microseconds"] / row["unit"])
        assert (row["selection"] is not None) == (row["rule"] in ("spechub", "greedy"))
        assert min(row["microseconds"], row["rejected"], row["overhead"], row["loop"]) > 0
    needed = {(row["rule"], row["n"]): row["needed"] for row in rows}
    assert needed[("rrs", 4)] == 4 and needed[("k-seq", 2)] == 10 and needed[("greedy", 4)] == 3


def test_report_writes_table_figure_and_rows(rows: list[dict], tmp_path: Path):
    preparation = bench_verifiers.measure_preparation((1500,), (2,))
    assert "Preparation of the interval" in bench_verifiers.preparation_table(preparation)
    bench_verifiers.report(rows, tmp_path)
    text = bench_verifiers.table(rows)
    assert text.count("### B = ") == 2 and "| k-seq | 4 | 10 |" in text
    stored = results.read(tmp_path / "verifiers.parquet").frame
    assert stored.height == len(rows) and stored["passes"].dtype == polars.Float64
    assert (tmp_path / "verifiers.png").stat().st_size > 10_000


def test_a_missing_device_is_refused():
    with pytest.raises(md.Refused, match="there is no device cuda"):
        bench_verifiers.measure((1,), (100,), (2,), device="cuda:0")
