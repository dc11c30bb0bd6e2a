"""`multidraft new-rule`: what it writes works at once, is registered, and a broken copy is seen."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from multidraft import cli

ROOT = Path(__file__).resolve().parents[1]
HELPERS = ("conftest", "distinct_drafts", "matrices", "shape_checks", "strategies")
SUITE = ("test_acceptance", "test_verifiers")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    code = cli.main(["new-rule", *arguments, "--json"])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    return json.loads(out)


def fail(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = cli.main(["new-rule", *arguments])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("multidraft: ") and err.count("\n") == 1
    return err


def suite(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The project, with the folders that the command writes into copied and the rest linked."""
    toolkit = tmp_path / "toolkit"
    for folder in ("toolkit", "tests", "src"):
        (tmp_path / folder).mkdir()
    for path in (ROOT / "toolkit").iterdir():
        if path.name != "verifiers":
            (toolkit / path.name).symlink_to(path)
    # Compiled functions and times of the files come along, so that nothing is compiled again.
    shutil.copytree(ROOT / "toolkit" / "verifiers", toolkit / "verifiers")
    for name in (*HELPERS, *SUITE):
        shutil.copy(ROOT / "tests" / f"{name}.py", tmp_path / "tests")
    (tmp_path / "src" / "multidraft").symlink_to(toolkit)
    (tmp_path / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    return tmp_path


def test_the_suite_of_a_checkout_picks_the_rule_up(capsys, checkout: Path):
    written = run(capsys, "other-rule", "--folder", str(checkout / "tests"))
    assert written["rule"] == str(checkout / "toolkit" / "verifiers" / "other_rule.py")
    assert written["next"] == f"python -m pytest {Path('tests', 'test_rule_other_rule.py')}"
    picked = "other and (matrix or enumeration or law_of_the_target)"
    done = suite(checkout, "tests", "-v", "-k", picked)
    assert done.returncode == 0, done.stdout
    for name in (
        "test_rule_other_rule.py::test_the_output_has_the_law_of_the_target[iid]",
        "test_verifiers.py::test_lossless_by_enumeration[other-rule-iid]",
        "test_verifiers.py::test_matrix[other-rule]",
        "test_acceptance.py::test_formula_equals_enumeration_and_stays_below_the_optimum[other-rule]",
    ):
        assert f"{name} PASSED" in done.stdout
    files = [written["rule"], written["test"], written["registered in"]]
    options = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "check", *options, *files], cwd=checkout, check=True)
    subprocess.run([*ruff, "format", "--check", *options, *files], cwd=checkout, check=True)


FAULTS = {
    # Every draft is tested against the target, as if none had been rejected before it.
    "left = torch.where(drawn, (left - mass.to(left.dtype) * draft).relu(), left)": "pass",
    "Weights(left, spare=target)": "Weights(target)",
    "in_turn(torch.cat(accept, -1))": "torch.cat(accept, -1) / tokens.shape[-1]",
    "laws: ClassVar = (laws.IID,)": "laws: ClassVar = (laws.IID, laws.WithoutReplacement)",
}


def test_outside_of_a_checkout_the_rule_passes_and_every_fault_is_seen(capsys, tmp_path: Path):
    written = run(capsys, "my-rule", "--folder", str(tmp_path))
    assert {Path(written[part]).name for part in ("rule", "test")} == {
        "my_rule.py",
        "test_my_rule.py",
    }
    text = Path(written["rule"]).read_text()
    for i, (right, wrong) in enumerate(FAULTS.items()):
        assert text.count(right) == 1
        broken = tmp_path / f"broken_{i}"
        broken.mkdir()
        (broken / "my_rule.py").write_text(text.replace(right, wrong))
        test = Path(written["test"]).read_text().replace("from my_rule", f"from broken_{i}.my_rule")
        (tmp_path / f"test_broken_{i}.py").write_text(test)
    done = suite(tmp_path, str(tmp_path), "-k", "law_of_the_target")
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    for i in range(len(FAULTS)):
        assert any(f"test_broken_{i}.py" in line for line in failed)
    assert not any("test_my_rule.py" in line for line in failed)


def test_nothing_is_overwritten(capsys, tmp_path: Path):
    run(capsys, "my-rule", "--folder", str(tmp_path))
    (tmp_path / "my_rule.py").write_text("mine")
    assert "my_rule.py exists already" in fail(capsys, "my_rule", "--folder", str(tmp_path))
    (tmp_path / "my_rule.py").unlink()
    assert "test_my_rule.py exists already" in fail(capsys, "my-rule", "--folder", str(tmp_path))
    assert not (tmp_path / "my_rule.py").exists()


def test_names_that_are_taken_in_a_checkout_are_refused(capsys, checkout: Path):
    before = (checkout / "toolkit" / "verifiers" / "__init__.py").read_text()
    assert "a rule k-seq already" in fail(capsys, "k-seq", "--folder", str(checkout))
    assert "kernels.py exists already" in fail(capsys, "kernels", "--folder", str(checkout))
    assert (checkout / "toolkit" / "verifiers" / "__init__.py").read_text() == before


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("9lives", "is no name of a rule"),
        ("Mine", "is no name of a rule"),
        ("a b", "is no name of a rule"),
        ("my--rule", "is no name of a rule"),
        ("class", "is no name of a rule"),
        ("rule", "a word that the file itself uses"),
        ("weights", "a word that the file itself uses"),
        ("a" * 31, "has 31 letters: use at most 30"),
    ],
)
def test_bad_names_are_refused_in_one_sentence(capsys, tmp_path: Path, name: str, sentence: str):
    assert sentence in fail(capsys, name, "--folder", str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_named(capsys, tmp_path: Path):
    assert "is no folder" in fail(capsys, "my-rule", "--folder", str(tmp_path / "no"))
