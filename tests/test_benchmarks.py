"""Benchmarks by name, and the tables of Global Resolution on a few recorded contexts."""

from __future__ import annotations

import pytest

import multidraft as md
from multidraft.errors import InputError
from multidraft.experiments import benchmarks, open_laws
from multidraft.experiments import global_resolution_table as tables


def test_an_unknown_benchmark_is_named(tmp_path):
    with pytest.raises(InputError, match="full-vocabulary"):
        benchmarks.run("speed", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "SETTINGS", ((10, 2), (10, 5)))
        patch.setattr(tables, "BEYOND", ((1000, 4),))
        patch.setattr(tables, "ABLATED", ((10, 2),))
        methods = {k: v for k, v in tables.METHODS.items() if k not in ("full-lp", "entropic")}
        patch.setattr(tables, "METHODS", methods)
        rows = tables.run(md.traces.FROZEN, "skip-8", folder, contexts=2)
        tables.report(rows, folder)
    return rows.frame, (folder / "README.md").read_text()


def test_exact_methods_reach_the_optimum_and_the_published_one_stays_in_its_bounds(found):
    frame, _ = found
    solved = frame.filter(frame["success"])
    exact = solved.filter(solved["column"].is_in(["interval", "max-flow", "optimised-max-flow"]))
    assert len(exact) >= 10
    assert exact["gap"].abs().max() < 1e-12
    assert exact["deviation"].max() < 1e-12
    for tau in (1e-3, 1e-4):
        published = solved.filter(method="global-resolution", tau=tau)
        assert published["deviation"].max() <= 15 * tau
        assert published["gap"].abs().max() <= 10 * tau
        assert published["deviation"].min() > 0


def test_a_list_beyond_the_caps_is_a_failure_with_its_reason(found):
    frame, page = found
    failed = frame.filter(column="GR tau 1e-4", n=4, top_k=1000)
    assert not failed["success"].any()
    assert all("sets of drafts" in reason for reason in failed["reason"])
    assert "(0%)" in page
    assert "none succeeded" in page


def test_the_page_shows_published_times_beside_ours_and_says_whose_they_are(found):
    _, page = found
    assert "another machine" in page
    assert "5.27 ms" in page  # Table 1, k = 10, n = 2, tau = 1e-3
    assert "90.04 %" in page  # Table 2, 100 ms, tau = 1e-3


def test_merging_undrafted_tokens_changes_no_optimum():
    trace = md.traces.frozen()
    problem = md.Problem.from_logits(
        trace.target[0], trace.draft("skip-8")[0], "iid", n=3, draft_top_k=20
    )
    small = tables.listed(problem)
    assert small.vocabulary == 21
    assert float(md.optimal_acceptance(small)) == pytest.approx(
        float(md.optimal_acceptance(problem)), abs=1e-14
    )


def test_open_laws_are_solved_with_proof(tmp_path):
    cases = (("independent", 3, 40), ("without-replacement", 3, 40))
    rows = open_laws.run(md.traces.FROZEN, tmp_path, contexts=2, cases=cases)
    frame = rows.frame
    assert len(frame) == 4
    assert set(frame["status"]) == {"OPTIMAL"}
    assert (frame["gap"].abs() < 1e-10).all()
    assert (frame.filter(law="independent")["cut_gap"] < 1e-9).all()
    assert frame["acceptance"].is_between(0.01, 0.999).all()
    lines = open_laws.table(frame).splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == [law for law, _, _ in cases]
