from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from jupytext.cli import jupytext
from nbclient.exceptions import CellExecutionError
from notebook_files import FOLDER, SCRIPTS, execute, read_script
from numpy.testing import assert_allclose

MOST_BYTES = 300_000  # of one notebook with its pictures
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
PAGE = FOLDER.parent / "docs" / "notebooks.md"

by_name = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)


def committed(script: Path) -> nbformat.NotebookNode:
    return nbformat.read(script.with_suffix(".ipynb"), as_version=4)


def printed(cell: nbformat.NotebookNode, stream: str = "stdout") -> str:
    outputs = cell.get("outputs", [])
    return "".join(out.text for out in outputs if out.get("name") == stream)


def pictures(cell: nbformat.NotebookNode) -> int:
    return sum("image/png" in out.get("data", {}) for out in cell.get("outputs", []))


def same_output(fresh: nbformat.NotebookNode, kept: nbformat.NotebookNode) -> None:
    """Assert that a cell prints the committed text, to three units of its printed numbers."""
    texts = [printed(cell) for cell in (fresh, kept)]
    assert NUMBER.sub("#", texts[0]) == NUMBER.sub("#", texts[1])
    for one, other in zip(*map(NUMBER.findall, texts), strict=True):
        digits = len(other.partition(".")[2]) if "e" not in other else 0
        assert_allclose(float(one), float(other), rtol=1e-3, atol=3 * 10.0**-digits)
    assert pictures(fresh) == pictures(kept)


@by_name
def test_it_runs_in_an_empty_folder_and_shows_what_is_committed(script, tmp_path):
    fresh, kept = execute(read_script(script), tmp_path), committed(script)
    for cell, other in zip(fresh.cells, kept.cells, strict=True):
        assert printed(cell, "stderr") == "", "a warning"
        same_output(cell, other)


def test_scripts_and_notebooks_are_in_step(tmp_path):
    # As an editor would: jupytext writes the script anew from its notebook.
    shutil.copy(FOLDER / "jupytext.toml", tmp_path)
    for script in SCRIPTS:
        shutil.copy(script.with_suffix(".ipynb"), tmp_path)
    notebooks = sorted(map(str, tmp_path.glob("*.ipynb")))
    assert jupytext(["--quiet", "--sync", *notebooks]) == 0
    assert {path.stem for path in tmp_path.glob("*.py")} == {script.stem for script in SCRIPTS}
    for script in SCRIPTS:
        assert (tmp_path / script.name).read_text() == script.read_text(), "run make notebooks"
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == {script.stem for script in SCRIPTS}


@by_name
def test_it_stays_small(script):
    assert script.with_suffix(".ipynb").stat().st_size < MOST_BYTES


@by_name
def test_it_has_pictures_and_exercises_and_is_listed(script):
    cells = committed(script).cells
    assert sum(map(pictures, cells)) >= 3
    exercises = cells[-2].source.partition("## Exercises\n")[2]
    asked = len(re.findall(r"^\*\*\d\.\*\*", exercises, flags=re.MULTILINE))
    assert asked >= 2
    assert exercises.count("<details>") == exercises.count("</details>") == asked
    assert "truth" in cells[-1].source and "assert" in cells[-1].source
    assert f"notebooks/{script.stem}.ipynb" in PAGE.read_text()


def test_the_way_of_the_page_works(tmp_path):
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.M)
    (name,) = re.findall(r"\w+\.ipynb", code)
    shutil.copy(FOLDER / name, tmp_path)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_a_failing_cell_a_warning_and_drift_are_seen(tmp_path):
    sources = ["print('value 0.50')", "import warnings\nwarnings.warn('look out')", "assert 1 == 2"]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    with pytest.raises(CellExecutionError, match="AssertionError"):
        execute(notebook, tmp_path)
    assert "look out" in printed(cells[1], "stderr")
    output = nbformat.v4.new_output("stream", name="stdout", text="value 0.56\n")
    with pytest.raises(AssertionError, match="Mismatched"):
        same_output(cells[0], nbformat.v4.new_code_cell(outputs=[output]))
