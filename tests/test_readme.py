from __future__ import annotations

import re
from pathlib import Path

import pytest

from multidraft import __version__

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_example_of_the_readme_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    acceptance, gap = map(float, capsys.readouterr().out.splitlines()[0].split())
    assert 0 < acceptance <= 1
    assert abs(gap) < 1e-9


def test_the_commands_of_the_readme_are_targets_of_the_makefile():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"^make ([a-z-]+)", TEXT, re.MULTILINE)
    assert set(named) == {"reproduce", "test"}
    assert set(named) <= set(targets)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_inside_the_project_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    inside = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    made = {"results/README.md"}  # written by `make reproduce`
    assert [link for link in inside if link not in made and not (ROOT / link).exists()] == []


def test_the_readme_is_short_and_cites_this_version():
    assert len(TEXT.splitlines()) < 150
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    (version,) = re.findall(r"version = \{(.*)\}", TEXT)
    assert version == __version__ and f"version: {version}" in cited
    assert re.findall(r" title = \{(.*)\}", TEXT)[0] in cited
