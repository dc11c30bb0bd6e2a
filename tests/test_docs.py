"""The documentation: its commands exist and print what it says, its tables are the tests' own.

Python in the pages (`pycon` blocks) runs as doctests: see `testpaths` and `doctest-glob`.
"""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest
from test_verifier_faults import EXPECTED

from multidraft import cli

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.M)


def sessions() -> list[object]:
    """Commands with what they print, one list for each page."""
    found = [(page, "".join(blocks(page, "console"))) for page in PAGES]
    return [pytest.param(text, id=page.name) for page, text in found if text]


@pytest.mark.parametrize("text", sessions())
def test_commands_print_what_the_page_says(text: str, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, expected = part.partition("\n")
        assert cli.main(shlex.split(command)[1:]) == 0, command
        printed = capsys.readouterr().out
        assert doctest.OutputChecker().check_output(expected, printed, OPTIONS), printed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_targets_exist(page: Path):
    text = page.read_text("utf-8")
    code = "\n".join([*blocks(page, "sh"), *re.findall(r"`([^`\n]+)`", text)])
    commands = set(re.findall(r"^(?:\$ )?multidraft ([a-z][a-z-]*)", code, re.M))
    targets = set(re.findall(r"^make ([a-z-]+)", code, re.M))
    assert commands <= {name for name in cli.app if not name.startswith("-")}
    assert targets <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


def test_no_python_of_a_page_goes_unrun():
    """Blocks with prompts are doctests. Those without have a test, or need a model or a kernel."""
    tested = {"README.md", "decoding-recipe.md"}
    elsewhere = {"notebooks.md", "papers.md", "recorded-trees.md", "decoding.md"}
    bare = {page.name for page in PAGES if blocks(page, "python")}
    assert tested <= bare <= tested | elsewhere
    for page in PAGES:
        for block in blocks(page, "pycon"):
            assert ">>> " in block and block.endswith("\n\n"), (page.name, block)


def test_the_matrix_of_faults_is_the_tests_own():
    text = (ROOT / "docs" / "how-we-test.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+ [^|]+?) \| (.) \| (.) \| (.) \| (.) \| (.) \| (.) \|$", text, re.M)
    assert {name: "".join(signs) for name, *signs in rows} == EXPECTED
