"""The examples of the gallery, each run as a script; `make docs` shows what they print and draw."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from multidraft import plots

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "examples"
EXAMPLES = sorted(FOLDER.glob("plot_*.py"))


@pytest.fixture(autouse=True)
def own_settings(monkeypatch):
    """What an example sets for itself ends with it."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    with np.printoptions(), pyplot.rc_context():
        yield
    pyplot.close("all")


def shown(script: Path) -> list[Figure]:
    """Run a script; return the figures among its bare expressions, which the gallery shows."""
    tree, values = ast.parse(script.read_text("utf-8")), []
    for node in tree.body:
        if isinstance(node, ast.Expr):
            node.value = ast.Call(ast.Name("show", ast.Load()), [node.value], [])
    exec(compile(ast.fix_missing_locations(tree), script, "exec"), {"show": values.append})
    return [value for value in values if isinstance(value, Figure)]


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_it_runs_and_shows_a_figure(script: Path, tmp_path):
    figures = shown(script)
    assert figures
    for figure in figures:
        plots.save(figure, tmp_path / "figure.png")  # a warning while drawing is an error
