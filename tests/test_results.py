from __future__ import annotations

import inspect
import json
import re

import numpy as np
import polars as pl
import pyarrow.parquet
import pytest

from multidraft import results
from multidraft.errors import InputError
from multidraft.files import atomic, write_text

CONFIGURATION = {"temperature": [0.6, 1.0], "n": [1, 2], "top_k": None}


@pytest.fixture
def frame() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "law": ["iid", "iid", "top", "top"],
            "n": [1, 2, 1, 2],
            "value": [0.47, 0.613, 0.5, 0.25],
            "stderr": [0.012, 0.00004, None, 0.0],
        }
    )


def test_a_result_file_returns_its_rows_and_header(tmp_path, frame):
    path = tmp_path / "new" / "rows.parquet"
    results.write(path, frame, results.header(CONFIGURATION, [3, 4]))
    back = results.read(path)
    assert back.frame.equals(frame)
    assert back.header["configuration"] == CONFIGURATION
    assert back.header["seeds"] == [3, 4]
    assert back.header["configuration_hash"] == results.digest(CONFIGURATION)
    assert back.header["versions"]["numpy"] == np.__version__
    assert back.header["machine"]["cores"] >= 1
    git = back.header["git"]
    assert git is None or re.fullmatch("[0-9a-f]{40}", git["revision"])


def test_writing_a_result_again_gives_the_same_bytes(tmp_path, frame):
    header = results.header(CONFIGURATION, [])
    for name in "ab":
        results.write(tmp_path / name, frame, header)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(InputError, match="no result file .*absent"):
        results.read(tmp_path / "absent")


def test_a_broken_file_is_refused(tmp_path, frame):
    path = tmp_path / "rows"
    results.write(path, frame, results.header(CONFIGURATION, []))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="not a readable Parquet file"):
        results.read(path)


def test_a_parquet_file_of_another_program_is_refused(tmp_path, frame):
    pyarrow.parquet.write_table(frame.to_arrow(), tmp_path / "rows")
    with pytest.raises(InputError, match="not written by multidraft"):
        results.read(tmp_path / "rows")


def _write_with(path, frame, **changes):
    results.write(path, frame, results.header(CONFIGURATION, []) | changes)


def test_a_newer_schema_names_the_version_that_reads_it(tmp_path, frame):
    _write_with(tmp_path / "rows", frame, schema=99, versions={"multidraft": "7.0"})
    with pytest.raises(InputError, match=r"schema 99.*use multidraft 7\.0"):
        results.read(tmp_path / "rows")


def test_an_altered_configuration_is_noticed(tmp_path, frame):
    _write_with(tmp_path / "rows", frame, configuration={"temperature": [0.6]})
    with pytest.raises(InputError, match="altered"):
        results.read(tmp_path / "rows")


def test_a_header_without_its_parts_is_refused(tmp_path, frame):
    results.write(tmp_path / "rows", frame, {"schema": results.SCHEMA})
    with pytest.raises(InputError, match="lacks configuration"):
        results.read(tmp_path / "rows")


@pytest.mark.parametrize("content", [{"x": float("nan")}, {"x": {1, 2}}, {"x": np.float64("inf")}])
def test_content_that_is_not_json_has_no_hash(content):
    with pytest.raises(InputError, match="not plain JSON"):
        results.digest(content)


def test_the_hash_ignores_the_order_of_keys_and_sees_every_value():
    assert results.digest({"a": 1, "b": 2}) == results.digest({"b": 2, "a": 1})
    assert results.digest({"a": 1, "b": 2}) != results.digest({"a": 1, "b": 2.5})


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    write_text(path, "old")
    with pytest.raises(KeyboardInterrupt), atomic(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_clustered_error_is_the_sum_over_pairs_of_one_cluster():
    rng = np.random.default_rng(0)
    values, clusters = rng.normal(size=40), rng.integers(7, size=40)
    centred, count = values - values.mean(), 7
    variance = sum(
        centred[i] * centred[j] for i in range(40) for j in range(40) if clusters[i] == clusters[j]
    )
    mean = results.clustered_mean(values, clusters)
    assert mean.mean == pytest.approx(values.mean(), abs=1e-14)
    assert mean.stderr == pytest.approx(np.sqrt(variance * count / (count - 1)) / 40, rel=1e-12)
    assert mean.clusters == 7


def test_single_observations_give_the_ordinary_standard_error():
    values = np.random.default_rng(1).normal(size=30)
    mean = results.clustered_mean(values, np.arange(30))
    assert mean.stderr == pytest.approx(values.std(ddof=1) / np.sqrt(30), rel=1e-12)


def test_clusters_may_have_names():
    values = np.array([0.0, 1.0, 5.0])
    named = results.clustered_mean(values, np.array(["a", "a", "b"]))
    assert named == results.clustered_mean(values, np.array([4, 4, 9]))


def test_intervals_cover_the_mean_at_their_level_when_clusters_are_unequal():
    # 4,000 samples: a level of 95% is known to 1.1 points (3 standard errors); an error that
    # ignores the clusters covers 73% here, the normal law without the correction 91%.
    generator = np.random.default_rng(2)
    sizes = np.repeat([4, 5, 6], 4)
    clusters = np.repeat(np.arange(12), sizes)
    covered = 0
    for _ in range(4000):
        values = generator.normal(size=12)[clusters] + generator.normal(size=60)
        low, high = results.clustered_mean(values, clusters).interval(0.95)
        covered += low <= 0 <= high
    assert abs(covered / 4000 - 0.95) < 0.011


def test_a_paired_difference_forgets_what_both_share():
    generator = np.random.default_rng(3)
    shared, clusters = 10 * generator.normal(size=50), np.repeat(np.arange(10), 5)
    first = shared + 0.1 * generator.normal(size=50)
    difference = results.paired_difference(first, shared, clusters)
    assert difference == results.clustered_mean(first - shared, clusters)
    assert difference.stderr < 0.1 < results.clustered_mean(first, clusters).stderr


@pytest.mark.parametrize(
    ("values", "clusters", "sentence"),
    [
        ([1.0, 2.0], [0, 0], "two clusters"),
        ([1.0, 2.0], [0, 1, 2], "same length"),
        ([1.0, np.nan], [0, 1], "finite"),
    ],
)
def test_data_without_a_standard_error_is_refused(values, clusters, sentence):
    with pytest.raises(InputError, match=sentence):
        # As users call it: under the tests' shape checks the lengths would be caught even earlier.
        inspect.unwrap(results.clustered_mean)(np.array(values), np.array(clusters))


def test_a_table_shows_errors_exact_values_and_gaps(frame):
    table = results.pivot(frame[:3], rows=["law"], columns="n")
    assert table.markdown() == (
        "| law | n=1 | n=2 |\n"
        "| --- | ---: | ---: |\n"
        "| iid | 0.470 ± 0.012 | 0.613 ± 4e-05 |\n"
        "| top | 0.500 (exact) | – |\n"
    )


def test_a_latex_table_escapes_and_aligns(frame):
    named = frame.with_columns(law=pl.lit("top_k 50%") + pl.col("n").cast(pl.String))[:1]
    assert results.pivot(named, rows=["law"], columns="n", digits=2).latex() == (
        "\\begin{tabular}{lr}\n\\toprule\nlaw & n=1 \\\\\n\\midrule\n"
        "top\\_k 50\\%1 & 0.47 $\\pm$ 0.01 \\\\\n\\bottomrule\n\\end{tabular}\n"
    )


def test_a_csv_table_keeps_every_digit(frame):
    third = frame.with_columns(value=pl.lit(1 / 3))
    text = results.pivot(third, rows=["law"], columns="n").csv()
    assert text.splitlines()[0] == "law,n=1,n=1 stderr,n=2,n=2 stderr"
    assert text.splitlines()[2] == f"top,{1 / 3!r},,{1 / 3!r},0.0"


def test_two_numbers_for_one_place_are_refused(frame):
    with pytest.raises(InputError, match="two numbers"):
        results.pivot(frame, rows=["law"], columns="law")


def test_an_unknown_column_is_refused(frame):
    with pytest.raises(InputError, match="'rule'.*law"):
        results.pivot(frame, rows=["rule"], columns="n")


def test_the_header_is_readable_without_this_package(tmp_path, frame):
    results.write(tmp_path / "rows", frame, results.header(CONFIGURATION, "from content"))
    metadata = pyarrow.parquet.read_schema(tmp_path / "rows").metadata
    assert json.loads(metadata[b"multidraft"])["seeds"] == "from content"


def test_a_header_is_its_owners_alone():
    first = results.header({}, [0])
    first["versions"].clear()
    assert "multidraft" in results.header({}, [0])["versions"]
