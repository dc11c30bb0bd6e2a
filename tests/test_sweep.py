from __future__ import annotations

import json
import re
import shutil
import textwrap
from typing import Any

import numpy as np
import polars as pl
import pytest

import multidraft as md
from multidraft import cli, plots, results
from multidraft.errors import InputError
from multidraft.experiments import families, runner, sweep, sweep_file, sweep_report
from multidraft.transform import probabilities

SMALL = """
    schema = 1
    name = "small"

    [source]
    kind = "family"
    name = "normals"
    contexts = 6
    chunk = 4
    parameters.vocabulary = 12
    parameters.correlation = [0.5, 0.9]

    [[grid]]
    law = ["iid", "hub"]
    n = [1, 2]
    method = ["optimum", "rule:rrs", "measure:rrs", "bound:union", "solver:relaxed-lp"]
    draws = 400
"""
FROZEN = """
    schema = 1
    name = "frozen"
    source = {kind = "trace", path = "frozen", contexts = 3}

    [[grid]]
    draft = "skip-8"
    top_k = [10, "all"]
    law = "iid"
    n = 2
"""


def write(folder, text: str):
    path = folder / "sweep.toml"
    path.write_text(textwrap.dedent(text))
    return path


def prepared(folder, text: str, **options) -> sweep.Sweep:
    return sweep.prepare(sweep_file.read(write(folder, text)), folder, **options)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The small sweep, computed and merged by the command line: its rows, folder and file."""
    folder = tmp_path_factory.mktemp("small")
    path = write(folder, SMALL)
    where = ["--output", str(folder / "out")]
    assert cli.main(["sweep", str(path), "--jobs", "1", *where]) == 0
    assert cli.main(["sweep", "merge", str(path), *where]) == 0
    return results.read(folder / "out" / "small" / "small.parquet"), folder, path


def test_cells_are_the_cross_product_without_what_is_refused(tmp_path):
    found = prepared(tmp_path, SMALL)
    cells = list(found)
    # iid: five methods for two n; hub: two drafts only, and neither rrs nor the union bound.
    assert len(cells) == 2 * 2 * (5 * 2 + 2)
    assert {cell["n"] for cell in cells if cell["law"] == "hub"} == {2}
    assert [cell["contexts"] for cell in cells[::12]][:2] == [[0, 1, 2, 3], [4, 5]]
    refused = found.refused()
    assert any("two tokens, not n=1" in sentence for sentence in refused)
    assert any(sentence.startswith("rrs is lossless") for sentence in refused)


def test_adding_a_value_changes_no_other_cell(tmp_path):
    before = {runner.key(cell) for cell in prepared(tmp_path, SMALL)}
    more = SMALL.replace("n = [1, 2]", "n = [4, 1, 2]").replace('"rule:rrs",', '"rule:*",')
    after = {runner.key(cell) for cell in prepared(tmp_path, more)}
    assert before < after


def test_values_are_those_of_the_library(small):
    frame = small[0].frame
    for correlation in (0.5, 0.9):
        parameters = {"vocabulary": 12, "correlation": correlation}
        draws = [families.draw("normals", parameters, i) for i in range(6)]
        target = probabilities(np.stack([target for target, _ in draws]))
        draft = probabilities(np.stack([drafts[0] for _, drafts in draws]))
        problem = md.Problem(target, md.IID(draft, n=2))
        mine = frame.filter(correlation=correlation, law="iid", n=2).sort("context")
        expected = {
            "optimum": md.optimal_acceptance(problem),
            "rule:rrs": md.verifiers.get("rrs").acceptance(problem).value,
            "bound:union": md.bounds.get("union", problem).value,
            "solver:relaxed-lp": md.optimal_acceptance(problem),
        }
        for method, values in expected.items():
            found = mine.filter(method=method)["value"].to_numpy()
            np.testing.assert_allclose(found, values, atol=1e-9)


def test_measured_rates_agree_with_theory_and_a_wrong_theory_is_noticed(small):
    rows = sweep_report.measured(small[0].frame)
    assert len(rows) == 2 * 2 * 6
    z = (rows["value"] - rows["theory"]) / rows["stderr"]
    assert z.abs().max() < 4  # type: ignore[operator]
    wrong = (rows["value"] - rows["theory"] - 0.1) / rows["stderr"]
    assert wrong.abs().max() > 4  # type: ignore[operator]


def test_a_trace_gives_the_values_of_its_problems(tmp_path):
    found = prepared(tmp_path, FROZEN)
    summary = runner.run(found, found.function(), tmp_path / "run")
    assert summary == runner.Summary(2, 2, 0)
    trace = md.traces.frozen()
    frame = runner.collect(tmp_path / "run").frame.filter(top_k=10).sort("context")
    rows = frame["context"].to_list()
    assert rows == [0, 8, 16]  # evenly spaced
    problem = md.Problem.from_logits(
        trace.target[rows], trace.draft("skip-8")[rows], "iid", n=2, top_k=10
    )
    np.testing.assert_allclose(frame["value"], md.optimal_acceptance(problem), atol=1e-12)
    assert frame["cluster"].to_list() == trace.passage[rows].tolist()


def test_independent_drafts_take_the_named_ones_in_turn(tmp_path):
    text = FROZEN.replace('"skip-8"', '"skip-8+skip-8"').replace('"iid"', '"independent"')
    found = prepared(tmp_path, text.replace("contexts = 3", "contexts = 1"))
    (row,) = sweep.compute(next(iter(found)), 0, places=found.traces)
    same = sweep.compute({**next(iter(found)), "draft": "skip-8"}, 0, places=found.traces)
    assert row["value"] == pytest.approx(same[0]["value"], abs=1e-12)


def test_the_time_limit_of_a_cell_is_a_failure_with_its_sentence(tmp_path):
    text = SMALL.replace('"iid", "hub"', '"iid"')
    found = prepared(tmp_path, text)
    summary = runner.run(found, found.function(time_limit=0.0), tmp_path)
    assert summary.failed == summary.cells == 40
    (sentence,) = runner.collect(tmp_path).frame["error"].unique()
    assert sentence == "Refused: the cell took longer than its limit of 0 s"
    again = runner.run(found, found.function(), tmp_path, retry_failed=True)
    assert again == runner.Summary(40, 40, 0)


@pytest.mark.parametrize(
    ("old", "new", "line", "sentence"),
    [
        ('"hub"]', '"hubb"]', 14, "grid.law: unknown draft law 'hubb': choose one of greedy, hub"),
        ("n = [1, 2]", "n = [1, 0]", 15, "grid.n: this entry is 0: pass a whole number"),
        ("n = [1, 2]", "m = [1, 2]", 15, "unknown key 'm': choose one of draft, temperature"),
        ('"rule:rrs"', '"rule:rss"', 16, "unknown rule 'rss': choose one of entropic"),
        ('"optimum"', '"best"', 16, "unknown method 'best': choose one of optimum, rule:NAME"),
        ('"family"', '"familly"', 6, "source.kind: choose one of trace, models, family"),
        ('"normals"', '"normal"', 5, "unknown family 'normal': choose one of dirichlet"),
        ("[0.5, 0.9]", "[0.5, 9]", 5, "correlation is 9: normals takes a number in 0..1"),
        ("contexts = 6", "context = 6", 8, "unknown key 'context': choose one of kind, name"),
        ("schema = 1", "", 1, "schema: this key is missing: add it, see docs/sweeps.md"),
        ("schema = 1", "schema = 2", 2, "schema 2 is not 1, which this version reads"),
        ('law = ["iid"', 'top_k = "al"\nlaw = ["iid"', 14, "'al' is not .*, or \"all\""),
    ],
)
def test_a_fault_names_its_line_and_what_is_allowed(tmp_path, old, new, line, sentence):
    assert old in SMALL
    path = write(tmp_path, SMALL.replace(old, new))
    with pytest.raises(InputError, match=f"sweep.toml, line {line}: .*{sentence}"):
        sweep_file.read(path)


def test_files_that_are_no_sweep_say_so(tmp_path, capsys):
    with pytest.raises(InputError, match=r"is no TOML: Invalid value \(at line 2"):
        sweep_file.read(write(tmp_path, "\nname = \n"))
    with pytest.raises(InputError, match="needs a draft"):
        sweep_file.read(write(tmp_path, FROZEN.replace('draft = "skip-8"', "")))
    assert cli.main(["sweep", str(tmp_path / "none.toml")]) == 2
    assert "use one of bounds, calibration, dirichlet" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(sweep_file.READY.glob("*.toml")), ids=lambda p: p.stem)
def test_every_ready_made_sweep_is_valid_and_each_method_takes_some_law(path):
    found = sweep_file.read(path)
    assert found.name == path.stem
    for grid in found.grid:
        for method in grid.method:
            sentences = {sweep.refusal(law, n, method) for law in grid.law for n in grid.n}
            assert None in sentences or "not installed" in str(sentences)


def test_an_estimate_keeps_its_sample_and_foretells_the_rest(tmp_path, capsys):
    path, where = write(tmp_path, SMALL), ["--output", str(tmp_path), "--jobs", "1", "--json"]
    assert cli.main(["sweep", str(path), "--estimate", *where]) == 0
    cost = json.loads(capsys.readouterr().out)
    done = runner.status(prepared(tmp_path, SMALL), tmp_path / "small" / "run").done
    assert cost["cells"] == 48
    assert cost["left"] == 48 - done == 39
    assert 0 < cost["seconds"] < 60
    assert cli.main(["sweep", str(path), *where]) == 0
    size = sum(part.stat().st_size for part in tmp_path.rglob("parts/*"))
    assert size / 10 < cost["bytes"] < 10 * size


def test_status_counts_cells_and_gives_reasons(small, capsys):
    _, folder, path = small
    assert cli.main(["sweep", "status", str(path), "--output", str(folder / "out"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["cells"], facts["done"], facts["failed"]) == (48, 48, 0)
    assert any("hub" in sentence for sentence in facts["left out"])
    assert cli.main(["sweep", "status", str(path), "--output", str(folder / "out")]) == 0
    assert " ".join(facts["left out"]) in capsys.readouterr().out


def test_the_merged_file_holds_file_seeds_and_every_start(small):
    header = small[0].header
    assert header["configuration"]["sweep"]["grid"][0]["draws"] == 400
    assert header["seeds"] == runner.SEEDS
    assert header["starts"]
    assert all({"git", "machine", "versions"} <= set(start) for start in header["starts"])


def test_tables_print_means_with_errors(small, capsys):
    _, folder, path = small
    where = ["--output", str(folder / "out")]
    assert cli.main(["sweep", "table", str(path), *where]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("| correlation | law | method | n=1 | n=2 |")
    frame = small[0].frame.filter(correlation=0.9, law="iid", n=2, method="optimum")
    mean = results.clustered_mean(frame["value"].to_numpy(), frame["cluster"].to_numpy())
    assert f"{mean.mean:.3f} ± {mean.stderr:.3f}" in printed
    assert cli.main(["sweep", "table", str(path), "--write", *where]) == 0
    assert {p.suffix for p in (folder / "out" / "small").glob("small.*")} == {
        ".parquet", ".md", ".tex", ".csv",
    }  # fmt: skip


def test_plots_have_sensible_defaults(small, capsys):
    found, folder, path = small
    assert cli.main(["sweep", "plot", str(path), "--output", str(folder / "out"), "--json"]) == 0
    names = [name.rsplit("/", 1)[1] for name in json.loads(capsys.readouterr().out)["files"]]
    assert names == ["acceptance.png", "gap.png", "calibration.png"]
    assert all((folder / "out" / "small" / name).stat().st_size > 5000 for name in names)
    spec = sweep_file.PlotSpec(name="heat", kind="heat", y="correlation", where={"law": ["iid"]})
    figure = sweep_report.figure(found.frame, spec)
    assert len(figure.axes) == 5 + 1  # a panel for each method, and the colour bar


def test_an_axis_is_logarithmic_where_its_values_double():
    assert sweep_report._doubles(np.array([1, 2, 4, 8]))
    assert sweep_report._doubles(np.array([10, 100, 1000]))
    assert not sweep_report._doubles(np.arange(1, 13))
    assert not sweep_report._doubles(np.array([0.0, 0.5, 1.0]))


def test_a_page_shows_the_table_and_figures_and_is_listed(small):
    _, folder, path = small
    out = folder / "pages"
    shutil.copytree(folder / "out", out)
    assert cli.main(["sweep", "page", str(path), "--output", str(out)]) == 0
    page = (out / "small" / "README.md").read_text()
    assert "| correlation | law | method | n=1 | n=2 |" in page
    shown = re.findall(r"!\[.*?\]\((.*?)\)", page)
    assert shown == ["acceptance.png", "gap.png", "calibration.png"]
    assert all((out / "small" / name).is_file() for name in shown)
    assert "(small/README.md)" in (out / "README.md").read_text()


def test_the_header_names_traces_by_file_not_by_place():
    read = sweep_file.read(sweep_file.READY / "bounds.toml")
    found = sweep.Sweep(read, {"f": "/somewhere/private/own.safetensors"}, (0,))
    assert found.configuration()["traces"] == {"f": "own.safetensors"}


def test_gaps_are_taken_context_by_context(small):
    rows = sweep_report.gaps(small[0].frame)
    assert rows.filter(method="solver:relaxed-lp")["gap"].abs().max() < 1e-9  # type: ignore[operator]
    assert rows.filter(method="rule:rrs", n=2)["gap"].min() > -1e-12  # type: ignore[operator]
    loss = (
        small[0]
        .frame.filter(method="rule:rrs")
        .with_columns(method=pl.lit("bound:truncation-loss"))
    )
    with_loss = sweep_report.gaps(pl.concat([small[0].frame, loss]))
    assert with_loss["method"].unique().sort().equals(rows["method"].unique().sort())
    with pytest.raises(InputError, match="need the optimum"):
        sweep_report.gaps(small[0].frame.filter(pl.col("method") != "optimum"))


def test_filters_that_fit_nothing_say_so(small):
    with pytest.raises(InputError, match="unknown setting 'lawn': choose one of"):
        sweep_report.chosen(small[0].frame, {"lawn": ["iid"]})
    with pytest.raises(InputError, match="no rows are left"):
        sweep_report.chosen(small[0].frame, {"law": ["top"]})


def test_calibration_puts_a_right_theory_inside_its_band():
    rng = np.random.default_rng(0)
    theory = rng.uniform(0.2, 0.8, 300)
    frame = pl.DataFrame({"m": rng.binomial(500, theory) / 500, "t": theory, "c": 500, "r": "x"})
    columns = {"measured": "m", "theory": "t", "count": "c", "colour": "r"}
    labels = {"xlabel": "exact", "ylabel": "measured"}

    def outside(frame: pl.DataFrame) -> float:
        area: Any = plots.calibration(frame, **columns, **labels).axes[1]
        band = area.collections[0].get_paths()[0].vertices
        x, y = area.lines[1].get_data()
        half = len(band) // 2
        low = np.interp(x, band[1:half, 0], band[1:half, 1])
        return float((y < low - 0.05).mean())

    assert outside(frame) < 0.1
    assert outside(frame.with_columns(t=pl.col("t") + 0.05)) > 0.9
    with pytest.raises(InputError, match="nothing can be calibrated"):
        outside(frame.with_columns(t=pl.lit(1.0)))
