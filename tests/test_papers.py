from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import tiny_model

import multidraft as md
from multidraft import cli, results, traces
from multidraft.experiments import results_page, runner
from multidraft.experiments.papers import khisti_fig2, spechub_slots
from multidraft.experiments.papers.common import (
    acceptance,
    blocks,
    exact,
    frames,
    item,
    page,
    published,
    verdict,
)
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.papers.spechub_peak import FACTS, RIVALS, TEMPERATURES, _binned
from multidraft.results import Mean
from multidraft.trees.recording import Recorder

NAMES = item.names()
# Those that take long even on few contexts, or need a language model.
SLOW = {
    *("khisti_table2", "globalres_tables_1_2", "globalres_fig4_5", "ours_calibration"),
    *("globalres_fig2_3", "hu_acceptance", "ours_law_or_rule"),
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A few contexts of the shipped trace, each of its own passage."""
    path = tmp_path_factory.mktemp("trace") / "few.safetensors"
    return md.traces.frozen().select(slice(0, 6)).write(path)


@pytest.fixture(scope="module")
def setting(trace):
    return Setting(trace, "skip-8", contexts=3, quick=True)


# ------------------------------------------------------------------------------------ discovery


def test_items_are_found_by_name():
    assert {"khisti_table3", "globalres_fig1", "spechub_peak", "ours_share"} <= set(NAMES)
    assert len(set(NAMES)) == len(NAMES) >= 18
    assert "common" not in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_item_says_what_it_is_and_lists_its_cells(name, setting):
    one = item.get(name)
    assert one.title and len(one.text) > 100
    assert one.needs in ("nothing", "trace", "trees")
    cells = one.cells(setting)
    assert cells
    assert len({runner.key(cell) for cell in cells}) == len(cells)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(md.InputError, match="khisti_fig2"):
        item.get("khisti_fig3000")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.long] if name in SLOW else [])
        for name in NAMES
        if item.get(name).needs != "trees"
    ],
)
def test_an_item_runs_from_cells_to_page(name, setting, tmp_path):
    one = item.get(name)
    made = item.run(one, setting, tmp_path)
    folder = tmp_path / "papers" / name
    text = (folder / "README.md").read_text(encoding="utf-8")
    linked = {part.split(")")[0] for part in text.split("](")[1:]}
    local = {link for link in linked if not link.startswith("..")}
    assert {f"{name}.parquet", "figure.png", "table.tex"} <= local
    assert all((folder / link).is_file() for link in local)
    assert text.startswith(f"# {one.title}\n") and one.text.splitlines()[0] in text
    assert made.verdicts
    assert all(v.claim in text and v.words in text for v in made.verdicts)


@pytest.fixture(scope="module")
def recorder(tmp_path_factory):
    """Records trees of a tiny random model."""
    target = md.models.load(str(tiny_model.write(tmp_path_factory.mktemp("models") / "tiny")))
    settings = {"contexts": 8, "passages": 4, "tokens": 48, "progress": False}
    found = traces.record(target=target, drafts=["skip:1"], **settings)
    path = found.write(tmp_path_factory.mktemp("traces") / "tiny.safetensors")
    folder = tmp_path_factory.mktemp("trees")
    return Recorder(path, target, contexts=4, folder=folder, progress=False), path


@pytest.mark.parametrize("name", [name for name in NAMES if item.get(name).needs == "trees"])
def test_an_item_on_recorded_trees_runs_from_cells_to_page(name, recorder, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "_recorder", lambda path, contexts: recorder[0])
    made = item.run(item.get(name), Setting(recorder[1], "skip:1", contexts=4), tmp_path)
    assert made.verdicts
    frame = results.read(tmp_path / "papers" / name / f"{name}.parquet").frame
    assert frame["context"].n_unique() == 4
    lengths = frame["value"].to_numpy()
    assert ((lengths >= 1) & (lengths <= 9)).all()  # the added token alone, the deepest tree and it


def test_lengths_are_those_of_the_library(recorder, monkeypatch):
    monkeypatch.setattr(blocks, "_recorder", lambda path, contexts: recorder[0])
    one = {"deepest": "paths:2,3", "law": "iid", "tree": "paths:2,2", "rule": "rrs"}
    (cell,) = blocks.cells(Setting(recorder[1], "skip:1", contexts=4), [one])
    rows = blocks.compute(cell, 0, path=str(recorder[1]))
    recording = recorder[0].record("skip:1", md.trees.parse("paths:2,3"))
    rule = md.trees.get("top-down", rule="rrs")
    known = md.trees.efficiency.block_efficiency(recording, rule, md.trees.parse("paths:2,2"))
    assert np.mean([row["value"] for row in rows]) == pytest.approx(known.mean)
    with pytest.raises(md.InputError, match="recorded trees are of all texts"):
        blocks.cells(Setting(recorder[1], "skip:1", texts=("alice",)), [one])


# ------------------------------------------------------------------------------------ computing


def test_the_toy_figure_is_the_recomputed_one(setting):
    rows = [row for cell in khisti_fig2.cells(setting) for row in khisti_fig2.compute(cell, 0)]
    distances = [row["distance"] for row in rows if row["distance"] is not None]
    assert len(distances) == 72  # every row of the file
    assert max(distances) < 1e-9


def test_the_formula_of_the_conjecture_is_the_program():
    found = exact.both((0.2, 0.3, 0.5), (0.6, 0.3, 0.1), 3)
    assert found["distance"] < 1e-12
    assert found["agrees"] and not found["full"]
    assert exact.room(np.array([0.5, 0.5]), np.array([0.5, 0.5]), 2) == 0.0
    assert exact.room(np.array([0.2, 0.8]), np.array([0.5, 0.5]), 2) == pytest.approx(-0.05)


def test_laws_are_those_of_the_library(trace):
    setting = Setting(trace, "skip-8", contexts=3)
    shape = {"temperature": 1.0, "draft_temperature": 1.2, "draft_top_k": 50, "law": "iid", "n": 2}
    (cell,) = setting.cells([shape])
    opened = md.traces.open(trace)
    rows = [0, 2, 5]  # spread evenly
    expected = md.Problem.from_logits(
        opened.target[rows],
        opened.draft("skip-8")[rows],
        "iid",
        n=2,
        draft_temperature=1.2,
        draft_top_k=50,
    )
    problem = acceptance.problem(cell, str(trace))
    np.testing.assert_array_equal(problem.target, expected.target)
    np.testing.assert_array_equal(problem.law.probs, expected.law.probs)
    assert [place["context"] for place in acceptance.where(cell, str(trace))] == rows


def test_contexts_can_be_those_of_some_texts(trace):
    opened = md.traces.open(trace)
    one = opened.texts[int(opened.text[0])]["id"]
    setting = Setting(trace, "skip-8", texts=(one,))
    (cell,) = setting.cells([{"law": "iid", "n": 1}])
    rows = [place["context"] for place in acceptance.where(cell, str(trace))]
    assert rows == np.flatnonzero(opened.text == opened.text[0]).tolist()
    with pytest.raises(md.InputError, match="no text 'bible'"):
        Setting(trace, "skip-8", texts=("bible",)).count()


def test_rows_of_another_command_serve_where_they_are_those_of_all_cells(setting, tmp_path):
    one = replace(item.get("khisti_fig2"), source="other/rows.parquet")
    keys = [runner.key(cell) for cell in one.cells(setting)]
    assert item._borrowed(one, setting, tmp_path) is None
    for held, serves in ((keys, True), (keys[1:], False)):
        path = tmp_path / one.source
        path.parent.mkdir(exist_ok=True)
        results.write(path, pl.DataFrame({"key": held}), results.header({}, []))
        assert (item._borrowed(one, setting, tmp_path) is not None) is serves


def test_slots_add_up_to_the_acceptance(setting, trace):
    cells = spechub_slots.cells(setting)
    (cell,) = [c for c in cells if c["label"] == "SpecHub" and c["temperature"] == 1.0]
    rows = spechub_slots.compute(cell, 0, path=str(trace))
    sums = dict.fromkeys(sorted({row["context"] for row in rows}), 0.0)
    for row in rows:
        sums[row["context"]] += row["value"]
    problem = acceptance.problem(cell, str(trace))
    whole = md.verifiers.get("spechub").acceptance(problem).value
    np.testing.assert_allclose(list(sums.values()), whole, atol=1e-12)
    assert all(row["value"] > -1e-12 for row in rows)


def test_every_rival_has_its_bins_of_the_top_probability():
    tops = {"0 to 0.1": 0.05, "0.3 to 0.5": 0.4}
    rows = [
        {"temperature": heat, "context": i, "passage": i % 2, "SpecHub": 0.5, FACTS[0]: top}
        | {rival: 0.1 * place for place, rival in enumerate(RIVALS)}
        for heat in TEMPERATURES
        for i, top in enumerate(top for top in tops.values() for _ in range(2))
    ]
    binned = _binned(pl.DataFrame(rows))
    assert binned.rows_by_key(["temperature", "rival"], unique=False).keys() == {
        (heat, rival) for heat in TEMPERATURES for rival in RIVALS
    }
    for heat, rival, name, value in binned.select("temperature", "rival", "bin", "value").rows():
        assert name in tops and heat in TEMPERATURES
        assert value == pytest.approx(0.5 - 0.1 * RIVALS.index(rival))


# --------------------------------------------------------------------------------------- frames


@pytest.fixture
def frame():
    rows = [
        {"context": i, "passage": i // 2, "n": n, "method": method, "value": value + 0.1 * i}
        for i in range(6)
        for n in (2, 4)
        for method, value in (("a", 0.1 * n), ("b", 0.3))
    ]
    return pl.DataFrame(rows).sample(fraction=1, shuffle=True, seed=0)


def test_means_are_clustered_and_in_the_order_asked_for(frame):
    means = frames.means(frame, method=("b", "a"), n=None)
    assert means["method"].to_list() == ["b", "b", "a", "a"]
    part = frames.chosen(frame, method="a", n=4)
    known = results.clustered_mean(part["value"].to_numpy(), part["passage"].to_numpy())
    row = means.row(3, named=True)
    assert (row["value"], row["stderr"]) == pytest.approx((known.mean, known.stderr))


def test_differences_are_paired_by_context(frame):
    found = frames.gaps(frame, "a", "b", n=(2, 4))
    assert list(found) == ["n=2", "n=4"]
    assert found["n=2"].mean == pytest.approx(-0.1)
    assert found["n=4"].mean == pytest.approx(0.1)
    assert found["n=4"].stderr < 1e-12  # the same in every context
    with pytest.raises(md.InputError, match="nothing is paired"):
        frames.difference(frame.filter(pl.col("context") > 0), {"n": 2, "method": "c"}, {"n": 2})
    half = frame.filter((pl.col("context") > 2) | (pl.col("method") == "a"))
    with pytest.raises(md.InputError, match="not on the same contexts"):
        frames.gaps(half, "a", "b", n=(2,))


def test_the_error_of_a_ratio_is_that_of_its_linearisation():
    generator = np.random.default_rng(0)
    below = generator.random(400) + 1
    above = 0.5 * below + 0.01 * generator.standard_normal(400)
    passages = np.arange(400)
    drawn = [
        above[rows].sum() / below[rows].sum() for rows in generator.integers(400, size=(2000, 400))
    ]
    found = frames.ratio(above, below, passages)
    assert found.mean == pytest.approx(above.sum() / below.sum())
    assert found.stderr == pytest.approx(np.std(drawn), rel=0.1)


# ------------------------------------------------------------------------------------- verdicts


@pytest.mark.parametrize(
    ("mean", "stderr", "outcome"),
    [
        (0.02, 0.004, "confirmed"),
        (-0.02, 0.004, "contradicted"),
        (0.005, 0.004, "not resolved at this size"),
        (0.0, 0.0, "contradicted"),  # "more" is not "as much"
    ],
)
def test_a_verdict_compares_the_interval_with_the_claim(mean, stderr, outcome):
    found = verdict.judge("A beats B", Mean(mean, stderr, 32))
    assert found.outcome == outcome
    assert found.size.startswith(f"{mean:+.3f} ± ")


def test_a_range_has_two_ends():
    inside, above = Mean(0.035, 0.001, 64), Mean(0.06, 0.001, 64)
    wide = Mean(0.035, 0.01, 64)
    outcomes = [
        verdict.judge("gains", mean, low=0.03, high=0.04).outcome for mean in (inside, above, wide)
    ]
    assert outcomes == ["confirmed", "contradicted", "not resolved at this size"]


def test_the_student_law_decides_with_few_passages():
    assert verdict.judge("", Mean(0.02, 0.008, 100)).outcome == "confirmed"
    assert verdict.judge("", Mean(0.02, 0.008, 3)).outcome.startswith("not resolved")


def test_all_settings_must_confirm_and_one_contradicts():
    good, bad, open_ = Mean(1.0, 0.1, 32), Mean(-1.0, 0.1, 32), Mean(0.1, 0.1, 32)
    assert verdict.together("", {"x": good, "y": good}).outcome == "confirmed"
    assert verdict.together("", {"x": good, "y": open_}).outcome.startswith("not resolved")
    assert verdict.together("", {"x": good, "y": bad, "z": open_}).outcome == "contradicted"


def test_many_settings_are_told_in_a_few_words():
    found = {f"n={n}": Mean(0.01 * n, 0.001 * n, 32) for n in (1, 2, 4)}
    assert verdict.together("", found).brief == "+0.010 to +0.040 in 3 settings, ± at most 0.004"
    assert verdict.together("", {"n=1": found["n=1"]}).brief == ""


def test_words_say_on_which_pair():
    confirmed = Mean(1.0, 0.1, 32)
    assert verdict.judge("", confirmed).words == "confirmed on our pair"
    assert verdict.judge("", confirmed, about="models").words == "same direction on our pair"
    found = verdict.judge("", Mean(-1.0, 0.1, 32), about="models")
    assert found.words == "contradicted on our pair"
    assert verdict.always("", np.array([True]), "cases").words == "confirmed"
    assert verdict.untestable("", "no data").words == "not testable here"


def test_one_exception_contradicts_what_always_holds():
    held = verdict.always("", np.array([True, True]), "cases")
    assert (held.outcome, held.size) == ("confirmed", "holds in 2 of 2 cases")
    assert verdict.always("", np.array([True, False]), "cases").outcome == "contradicted"
    assert verdict.always("", np.array([], dtype=bool), "cases").outcome == "not testable here"


def test_what_could_have_been_seen_is_said():
    assert verdict.judge("", Mean(0.0, 0.01, 32)).detectable == "0.028"


# ------------------------------------------------------------------------------------ published


def test_published_numbers_are_shown_as_they_are_printed():
    with (published.FOLDER / "khisti2024_table3.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ours = pl.DataFrame({"n": [2], "method": ["importance"], "value": [0.5], "stderr": [0.01]})
    text = published.beside(
        "khisti2024_table3", ours, methods={"IS": "importance"}, on={"n_drafts": "n"}
    )
    lines = text.splitlines()[2:]
    for row in (row for row in rows if row["method"] == "IS"):
        start = f"| {row['target_model']} | {row['draft_model']} | {row['dataset']} |"
        end = "0.500 ± 0.010 |" if row["n_drafts"] == "2" else "– |"
        wanted = f"{start} {row['n_drafts']} | IS | {row['value']} | {row['provenance']} | {end}"
        assert wanted in lines
    assert not any("| SpecTr |" in line for line in lines)
    assert f"- Note in the source: {rows[0]['note']}." in lines


def test_every_published_file_is_described_and_has_its_provenance():
    readme = (published.FOLDER / "README.md").read_text(encoding="utf-8")
    for path in published.FOLDER.glob("*.csv"):
        assert f"`{path.name}`" in readme
        frame = published.read(path.stem)
        assert {"provenance", "note", "uncertainty"} <= set(frame.columns)
        assert frame["provenance"].null_count() == 0


# ---------------------------------------------------------------------------------------- pages


@pytest.fixture
def outcome(tmp_path):
    """Results with one item and a page."""
    folder = tmp_path / "papers" / "one"
    folder.mkdir(parents=True)
    kept = {
        "title": "Table 1",
        "verdicts": [
            vars(verdict.judge("A beats B", Mean(0.1, 0.01, 8))),
            vars(verdict.untestable("C", "no data")),
        ],
    }
    (folder / page.VERDICTS).write_text(json.dumps(kept))
    (tmp_path / "README.md").write_text("# Results\n\nText.\n\n## Further results\n\n- old\n")
    return tmp_path


def test_the_page_of_all_results_shows_one_line_per_item(outcome):
    page.overview(outcome / "papers")
    for _ in range(2):  # a second time changes nothing
        results_page.renew(outcome)
        text = (outcome / "README.md").read_text()
        assert text.startswith("# Results\n\nText.\n")
        assert text.count(page.HEADING) == 1
        assert "| [Table 1](papers/one/README.md) | A beats B | **confirmed on our pair** |" in text
        assert "| 1 confirmed, 1 not testable here |" in text
        assert "- old" not in text
        assert "](papers/README.md)" in text
    assert (
        "| C | **not testable here** | no data | – |"
        in (outcome / "papers" / "README.md").read_text()
    )


def test_without_items_there_is_no_section(tmp_path):
    assert results_page.rest(tmp_path) == ""
    results_page.renew(tmp_path)
    assert not (tmp_path / "README.md").exists()


# --------------------------------------------------------------------------------- command line


def test_the_command_lists_and_runs(tmp_path, capsys):
    assert cli.main(["reproduce", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in listed] == list(NAMES)
    arguments = ["reproduce", "khisti_fig2", "--quick", "--output", str(tmp_path), "--jobs", "1"]
    assert cli.main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["khisti_fig2"]
    assert set(found.values()) == {"confirmed"}
    assert (tmp_path / "quick" / "papers" / "README.md").is_file()


def test_what_needs_no_trace_runs_without_one(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MULTIDRAFT_CACHE", str(tmp_path / "empty"))
    assert cli.main(["reproduce", "khisti_fig2", "--output", str(tmp_path), "--jobs", "1"]) == 0
    assert "confirmed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nonsense"], "khisti_fig2"),
        (["--contexts", "3"], "give a name"),
        (["khisti_fig2", "--quick", "--trace", "x"], "leave out --trace"),
        (["khisti_table3", "--target", "nobody"], "models fetch nobody"),
        (["khisti_fig2", "--trace", "none.safetensors"], "there is no trace none.safetensors"),
        (["khisti_fig2", "--quick", "--texts", "nothing"], "no text 'nothing'"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence, capsys):
    assert cli.main(["reproduce", *arguments]) == 2
    assert sentence in capsys.readouterr().err
