from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

import multidraft as md
from multidraft import cli, results
from multidraft.experiments import first_light as job
from multidraft.experiments import runner
from multidraft.experiments.first_light_report import report

CONTEXTS = 4


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A few contexts of the shipped trace."""
    path = tmp_path_factory.mktemp("trace") / "few.safetensors"
    return md.traces.frozen().select(slice(0, CONTEXTS)).write(path)


@pytest.fixture(scope="module")
def few(trace, tmp_path_factory):
    """The job at one temperature and two truncations: its rows, and its folder."""
    folder = tmp_path_factory.mktemp("job") / "first-light"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "TEMPERATURES", (1.0,))
        patch.setattr(job, "TOP_K", (10, None))
        found = job.run(trace, "skip-8", folder)
        report(found, folder, folder.parent / "README.md")
        yield found, folder


def test_the_cells_cover_every_setting_and_context_once():
    cells = job.cells("abc", "skip-8", 70)
    assert len({runner.key(cell) for cell in cells}) == len(cells)
    settings = {tuple(cell[name] for name in job.SETTING) for cell in cells}
    assert len(settings) == 2 * 4 * (4 * 4 + 1)
    for setting in settings:
        mine = [c for c in cells if tuple(c[name] for name in job.SETTING) == setting]
        covered = [i for cell in mine for i in range(cell["first"], cell["last"] + 1)]
        assert sorted(covered) == list(range(70))


def test_every_rule_of_the_job_takes_its_law():
    probs = np.array([0.4, 0.3, 0.2, 0.1])
    for law, rules in job.RULES.items():
        made = md.laws.make({"law": law, "n": 2}, probs)
        assert [md.verifiers.get(rule).refuses(made) for rule in rules] == [None] * len(rules)


def test_the_cells_of_another_trace_are_other_cells():
    keys = [{runner.key(c) for c in job.cells(name, "skip-8", 8)} for name in ("a", "b")]
    assert not keys[0] & keys[1]


def test_values_are_those_of_the_library(few, trace):
    frame = few[0].frame
    opened = md.traces.open(trace)
    for law, top_k in (("iid", None), ("greedy", 10)):
        problem = md.Problem.from_logits(
            opened.target, opened.draft("skip-8"), law, n=2, temperature=1.0, top_k=top_k
        )
        rows = frame.filter(pl.col("top_k").eq_missing(top_k), law=law, n=2).sort("context")
        optimum = rows.filter(method="optimum")["value"].to_numpy()
        np.testing.assert_allclose(optimum, md.optimal_acceptance(problem), rtol=0, atol=1e-12)
        naive = md.verifiers.get("naive").acceptance(problem).value
        found = rows.filter(method="naive")["value"].to_numpy()
        np.testing.assert_allclose(found, naive, rtol=0, atol=1e-12)


def test_no_rule_exceeds_the_optimum_and_one_that_does_is_noticed(few):
    frame = few[0].frame
    over = job.excess(frame)
    assert over.violations == 0
    assert over.largest < 1e-12
    rules = frame.filter(pl.col("method") != "optimum")
    assert over.comparisons == rules.filter(kind="exact").height
    estimates = job.with_optimum(frame).filter(kind="estimate")
    assert estimates["method"].unique().to_list() == ["rrsw"]
    assert (estimates["gap"] > -6 * estimates["stderr"] - 1e-12).all()
    planted = pl.when(pl.col("method") == "rrs").then(0.02).otherwise(0.0)
    wrong = job.excess(frame.with_columns(value=pl.col("value") + planted))
    assert wrong.violations > 0
    assert wrong.largest == pytest.approx(0.02, abs=1e-9)


def test_one_draft_makes_all_tests_one_test(few):
    single = few[0].frame.filter(pl.col("law") == "iid", n=1)
    values = single.pivot("method", index=["top_k", "context"], values="value")
    for rule in ("rrs", "k-seq"):
        gap = (values[rule] - values["optimum"]).to_numpy()
        np.testing.assert_allclose(gap, 0, atol=1e-12)


def test_means_are_clustered_by_passage(few):
    frame = few[0].frame
    means = job.means(frame)
    row = means.filter(pl.col("top_k").is_null(), law="iid", method="rrs", n=4).row(0, named=True)
    part = frame.filter(pl.col("top_k").is_null(), law="iid", method="rrs", n=4)
    expected = results.clustered_mean(part["value"].to_numpy(), part["passage"].to_numpy())
    assert (row["value"], row["stderr"]) == (expected.mean, expected.stderr)
    assert means["law"].unique(maintain_order=True).to_list() == list(job.RULES)


def test_the_report_shows_every_file_it_names(few):
    found, folder = few
    text = (folder.parent / "README.md").read_text()
    linked = {part.split(")")[0] for part in text.split("](")[1:]}
    assert len(linked) >= 10
    assert all((folder.parent / name).is_file() for name in linked)
    over = job.excess(found.frame)
    assert f"{over.comparisons:,} comparisons" in text
    assert "None exceeds it" in text
    value = job.means(found.frame).filter(
        pl.col("top_k").is_null(), law="iid", method="optimum", n=8
    )["value"][0]
    assert f"{value:.3f} ± " in text
    assert (folder / "acceptance.tex").read_text().startswith("\\begin{tabular}{llllrrrr}")


def test_the_merged_file_says_where_it_comes_from(few):
    header = results.read(few[1] / "first-light.parquet").header
    assert header["configuration"]["draft"] == "skip-8"
    assert header["configuration"]["contexts"] == CONTEXTS
    assert header["configuration"]["trace"]["target"]["name"] == "smollm2"


def test_a_second_run_computes_nothing(few, trace, monkeypatch):
    def never(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(job, "compute", never)
    monkeypatch.setattr(never, "__module__", "multidraft.experiments.first_light", raising=False)
    monkeypatch.setattr(never, "__qualname__", "compute", raising=False)
    again = job.run(trace, "skip-8", few[1])
    assert again.frame.equals(few[0].frame)


def test_a_failed_cell_stops_the_report_with_its_sentence(trace, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "RULES", {"iid": ("k-seq",), "greedy": ("k-seq",)})
    monkeypatch.setattr(job, "TEMPERATURES", (1.0,))
    monkeypatch.setattr(job, "TOP_K", (10,))
    monkeypatch.setattr(job, "COUNTS", (2,))
    with pytest.raises(md.Refused, match=r"1 of 2 cells failed.*Refused: k-seq is lossless"):
        job.run(trace, "skip-8", tmp_path)


def test_the_command_fails_when_a_rule_beats_the_optimum(trace, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(job, "TEMPERATURES", (1.0,))
    monkeypatch.setattr(job, "TOP_K", (None,))
    monkeypatch.setattr(job, "RULES", {law: job.RULES[law] for law in ("iid", "hub")})
    monkeypatch.setattr("multidraft.cli.reproduce.report", lambda *_: None)
    arguments = ["reproduce", "--trace", str(trace), "--output", str(tmp_path), "--jobs", "1"]
    assert cli.main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["violations"] == 0
    monkeypatch.setattr(job, "TOLERANCE", -1.0)
    assert cli.main(arguments) == 1
