from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

import multidraft as md
from multidraft import cli
from multidraft.cli.record import split_names

TARGET, DRAFT = [0.2, 0.3, 0.5], [0.6, 0.3, 0.1]
LAWS = ["--target", "0.2,0.3,0.5", "--draft", "0.6,0.3,0.1"]
COMMANDS = ["solve", "compare", "methods", "models", "models fetch", "record", "reproduce"]


def run(capsys, *arguments: str) -> str:
    """Standard output of a command that succeeds."""
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return out


def fail(capsys, *arguments: str) -> str:
    """The one sentence of a command that is refused."""
    code = cli.main(arguments)
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("multidraft: ")
    assert err.count("\n") == 1
    return err


def in_process(code: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)


def test_help_imports_nothing_heavy():
    code = """if True:
        import sys
        from multidraft import cli
        assert cli.main(["--help"]) == 0
        heavy = {"numpy", "torch", "scipy", "numba", "polars", "cvxpy", "matplotlib", "highspy"}
        print(sorted(heavy & sys.modules.keys()), file=sys.stderr)
    """
    done = in_process(code)
    assert done.stderr == "[]\n"
    assert "solve" in done.stdout


def test_every_module_imports_without_the_extras():
    """Without them only what needs one is refused, with the sentence that names the extra."""
    code = """if True:
        import importlib, pkgutil, sys
        for name in ("accelerate", "dask", "distributed", "gguf", "tokenizers", "transformers"):
            sys.modules[name] = None
        import multidraft
        for module in pkgutil.walk_packages(multidraft.__path__, "multidraft."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
        from multidraft import cli
        del sys.modules["transformers"]
        sys.path[:] = [place for place in sys.path if "site-packages" not in place]
        sys.exit(cli.main(["decode", "--prompt", "a", "--target", "."]))
    """
    done = in_process(code)
    assert done.returncode == 2, done.stderr
    assert done.stderr.endswith("transformers is missing: pip install 'multidraft[models]'.\n")


def test_solve_names_the_tokens_of_the_cut(capsys, tmp_path):
    texts = tmp_path / "texts.json"
    texts.write_text('["the", " a", "\\n"]')
    told = ["solve", *LAWS, "--n", "2", "--tokens", str(texts)]
    assert "2 of 3 tokens: 0 the, 1 ␣a" in run(capsys, *told)
    assert json.loads(run(capsys, *told, "--json"))["cut_texts"] == ["the", " a"]
    texts.write_text("no JSON")
    assert "give a tokenizer.json" in fail(capsys, *told)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_and_json(capsys, name):
    text = run(capsys, *name.split(), "--help")
    assert f"Example: multidraft {name.split()[0]}" in text
    assert "--json" in text


def test_help_has_no_colour_when_told_so():
    code = "from multidraft import cli; cli.main(['solve', '--help'])"
    colour = re.compile(r"\x1b\[(\d+;)*[39]\d[;m]")
    assert colour.search(in_process(code, FORCE_COLOR="1").stdout)
    assert not colour.search(in_process(code, FORCE_COLOR="1", NO_COLOR="1").stdout)


def test_solve_prints_the_value_and_its_certificate(capsys):
    text = run(capsys, "solve", *LAWS, "--n", "2")
    fields = dict(line.split("  ", 1) for line in text.splitlines())
    values = {name: value.strip() for name, value in fields.items()}
    assert float(values["acceptance"]) == pytest.approx(0.69)
    assert values["status"].startswith("optimal")
    assert float(values["gap"]) == pytest.approx(0, abs=1e-12)
    assert values["cut"] == "2 of 3 tokens: 0, 1"


@pytest.mark.parametrize("method", ["subset", "relaxed-lp"])
@pytest.mark.parametrize("law", ["iid", "without-replacement", "greedy", "hub", "top"])
def test_solve_agrees_with_the_library(capsys, law, method):
    problem = md.Problem(TARGET, md.laws.make({"law": law, "n": 2}, DRAFT))
    arguments = ["solve", *LAWS, "--law", law, "--n", "2", "--method", method, "--json"]
    data = json.loads(run(capsys, *arguments))
    assert data["acceptance"] == pytest.approx(float(md.optimal_acceptance(problem)), abs=1e-12)
    assert data["method"] == method
    assert data["law"]["law"] == law


def test_independent_drafts_take_one_law_each(capsys):
    data = json.loads(
        run(capsys, "solve", *LAWS, "--draft", "0.1,0.1,0.8", "--law", "independent", "--json")
    )
    law = md.Independent([DRAFT, [0.1, 0.1, 0.8]])
    expected = md.solve(md.Problem(TARGET, law), "relaxed-lp").acceptance
    assert data["acceptance"] == pytest.approx(float(expected), abs=1e-9)
    assert data["law"]["n"] == 2


def _npy(path, array):
    np.save(path, array)


def _csv(path, array):
    np.savetxt(path, np.atleast_2d(array), delimiter=",")


def _column(path, array):
    np.savetxt(path, np.asarray(array)[:, None], delimiter=",")


def _json(path, array):
    path.write_text(json.dumps(array))


@pytest.mark.parametrize(
    ("suffix", "write"), [("npy", _npy), ("csv", _csv), ("csv", _column), ("json", _json)]
)
def test_laws_come_from_files(capsys, tmp_path, suffix, write):
    for name, law in (("q", TARGET), ("p", DRAFT)):
        write(tmp_path / f"{name}.{suffix}", law)
    files = [str(tmp_path / f"{name}.{suffix}") for name in "qp"]
    arguments = ["solve", "--target", files[0], "--draft", files[1], "--n", "2", "--json"]
    assert json.loads(run(capsys, *arguments))["acceptance"] == pytest.approx(0.69)


def test_a_batch_has_a_row_per_context(capsys, tmp_path):
    _csv(tmp_path / "q.csv", [TARGET, DRAFT])
    arguments = ["solve", "--target", str(tmp_path / "q.csv"), "--draft", "[0.6, 0.3, 0.1]"]
    lines = run(capsys, *arguments, "--n", "2").splitlines()
    headings = ["row", "acceptance", "lower bound", "upper bound", "gap", "violation", "cut size"]
    assert lines[0].split() == " ".join(headings).split()
    assert [float(line.split()[1]) for line in lines[1:3]] == pytest.approx([0.69, 1.0])
    data = json.loads(run(capsys, *arguments, "--n", "2", "--json"))
    assert data["acceptance"] == pytest.approx([0.69, 1.0])
    assert data["cut"][0] == [0, 1]


def test_logits_are_shaped_only_when_they_are_said_to_be_logits(capsys):
    logits = ["--target", "-1,2,0", "--draft", "-1.5,1,.5", "--n", "2"]
    shape = ["--temperature", "0.6", "--top-k", "2", "--draft-temperature", "2"]
    data = json.loads(run(capsys, "solve", *logits, "--logits", *shape, "--json"))
    problem = md.Problem.from_logits(
        [-1, 2, 0], [-1.5, 1, 0.5], "iid", n=2, temperature=0.6, top_k=2, draft_temperature=2
    )
    assert data["acceptance"] == pytest.approx(float(md.optimal_acceptance(problem)), abs=1e-12)
    assert "--logits" in fail(capsys, "solve", *LAWS, "--n", "2", "--top-k", "2")


def test_laws_are_normalised_only_when_asked(capsys):
    counts = ["--target", "2,3,5", "--draft", "6,3,1", "--n", "2"]
    assert "sums to 10" in fail(capsys, "solve", *counts)
    data = json.loads(run(capsys, "solve", *counts, "--normalise", "--json"))
    assert data["acceptance"] == pytest.approx(0.69)


def test_a_saved_problem_and_the_plan_of_its_solution(capsys, tmp_path):
    problem = md.Problem(TARGET, md.IID(DRAFT, n=2))
    problem.save(tmp_path / "problem.npz")
    plan = tmp_path / "plan.npz"
    run(capsys, "solve", "--file", str(tmp_path / "problem.npz"), "--plan", str(plan))
    stored = np.load(plan, allow_pickle=False)
    np.testing.assert_array_equal(stored["target"], TARGET)
    assert stored["selection"].sum() == pytest.approx(1)
    kept = stored["flow"].sum()
    assert kept == pytest.approx(0.69)
    assert md.load_plan(plan).value() == pytest.approx(0.69)
    output = kept * 0 + stored["kept"] + (1 - kept) * stored["residual"]
    np.testing.assert_allclose(output, TARGET, atol=1e-12)


def test_compare_lists_every_method_and_every_refusal(capsys):
    data = json.loads(run(capsys, "compare", *LAWS, "--n", "2", "--json"))
    methods = {answer["method"]: answer["acceptance"] for answer in data["answers"]}
    assert methods.keys() | data["refused"].keys() == set(md.solvers.names())
    assert methods.pop("global-resolution") == pytest.approx(0.69, abs=1e-3)  # tau is 1e-4
    assert list(methods.values()) == pytest.approx([0.69] * len(methods), abs=1e-9)
    text = run(capsys, "compare", *LAWS, "--n", "2")
    assert "relaxed-lp" in text
    for name in data["refused"]:
        assert f"{name} refuses: " in text


def test_methods_says_which_checks_a_rule_passes(capsys, monkeypatch):
    from multidraft.verifiers import matrix

    whole = matrix.rows  # all rules are checked in test_verifiers.py
    monkeypatch.setattr(matrix, "rows", lambda: whole(["rrs"]))
    rows = json.loads(run(capsys, "methods", "--verifiers", "--json"))
    assert [row["law"] for row in rows] == ["iid", "independent"]
    assert not any("FAIL" in row.values() for row in rows)
    monkeypatch.setattr(matrix, "rows", lambda: [{"rule": "rrs", "law": "iid", "edges": "FAIL"}])
    assert cli.main(["methods", "--verifiers"]) == 1
    assert "FAIL" in capsys.readouterr().out


def test_methods_lists_the_registries(capsys):
    data = json.loads(run(capsys, "methods", "--json"))
    assert set(data["solver"]) == set(md.solvers.names())
    assert set(data["rule"]) == set(md.verifiers.names())
    assert set(data["draft law"]) == set(md.laws.names())
    assert set(data["bound"]) == set(md.bounds.names())
    assert data["bound"]["union"].startswith("upper bound of the optimal acceptance, for iid and")
    assert all(line for kind in data.values() for line in kind.values())


def test_models_lists_names(capsys):
    names = [entry["name"] for entry in json.loads(run(capsys, "models", "--json"))]
    assert names == [entry.name for entry in md.models.entries()]
    assert run(capsys, "models") == run(capsys, "models", "list")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["solve"], "give --target and --draft"),
        (["solve", *LAWS, "--n", "0"], "n is 0"),
        (["solve", "--target", "0.2,0.7", "--draft", "1,0", "--n", "1"], "or --normalise"),
        (["solve", *LAWS], "needs a number of drafts: give n."),
        (["solve", *LAWS, "--n", "2", "--law", "beam"], "unknown draft law 'beam'"),
        (["solve", *LAWS, "--n", "2", "--method", "magic"], "unknown method 'magic'"),
        (["solve", *LAWS, "--n", "two"], "--n"),
        (["solve", *LAWS, "--m", "2"], "--m"),
        (["solve", *LAWS, "--draft", "1,0,0", "--n", "2"], "takes one --draft"),
        (["solve", "--target", "0.2,x", "--draft", "1"], "target is '0.2,x'"),
        (["solve", "--target", "0.2,-", "--draft", "1"], "target: could not convert"),
        (["solve", "--target", "[[1],[0.5,0.5]]", "--draft", "1"], "rectangular"),
        (["solve", "--target", "none.npy", "--draft", "1"], "there is no file none.npy"),
        (["solve", "--file", "a.npz", *LAWS], "not both"),
        (["solve", "--file", "none.npz"], "no file none.npz"),
        (["solve", *LAWS, "--n", "2", "--plan", "plan.txt"], "written as .npz"),
        (["solve", "--target", "[[0.5,0.5]]", "--draft", "0.5,0.5", "--n", "2", "--method",
          "relaxed-lp"], "one context at a time"),
        (["reproduce", "--quick", "--trace", "x"], "leave out --trace"),
        (["reproduce", "--trace", "none"], "there is no trace none"),
        (["sing"], "sing"),
    ],
)  # fmt: skip
def test_a_fault_is_one_sentence_that_names_it(capsys, arguments, sentence):
    assert sentence in fail(capsys, *arguments)


def test_a_broken_file_is_named(capsys, tmp_path):
    for name, content in (("q.npy", b"no array"), ("q.csv", b"a,b\n"), ("q.json", b"{")):
        (tmp_path / name).write_bytes(content)
        sentence = fail(capsys, "solve", "--target", str(tmp_path / name), "--draft", "1")
        assert "target" in sentence


def test_a_missing_extra_is_named(capsys, monkeypatch):
    def missing(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'transformers'", name="transformers")

    monkeypatch.setattr("multidraft.models.fetch", missing)
    assert "pip install 'multidraft[models]'" in fail(capsys, "models", "fetch", "smollm2")


def test_an_interruption_is_clean(capsys, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("multidraft.solve", interrupted, raising=False)
    assert cli.main(["solve", *LAWS, "--n", "2"]) == 130
    out, err = capsys.readouterr()
    assert (out, err) == ("", "multidraft: interrupted; what was finished is kept.\n")


def test_a_closed_pipe_is_no_error():
    command = f"{sys.executable} -m multidraft models | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_names_of_drafts_are_split_at_commas_outside_layer_lists():
    assert split_names("skip-4,skip:17,12,4, ngram-3") == ["skip-4", "skip:17,12,4", "ngram-3"]
