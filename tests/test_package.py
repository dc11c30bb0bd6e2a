from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {
    "toolkit": "multidraft",
    "solvers": "multidraft/solvers",
    "experiments": "multidraft/experiments",
}
LEFT_OUT = {".pyc", ".nbi", ".nbc"}  # what Python and numba cache


def _files() -> set[str]:
    """Every file of the three folders, under the name it must have in the wheel."""
    return {
        f"{package}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, package in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix not in LEFT_OUT
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    """The wheel, built without a network from a copy, so that nothing is left in the checkout."""
    tree = tmp_path_factory.mktemp("tree")
    for name in (*FOLDERS, "src"):
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    code = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", code, str(tree / "dist")]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    return zipfile.ZipFile(next((tree / "dist").glob("*.whl")))


def test_the_wheel_holds_every_module_and_data_file_once(wheel):
    packed = [name for name in wheel.namelist() if ".dist-info/" not in name]
    assert sorted(packed) == sorted(_files())
    assert "multidraft/experiments/runner.py" in packed
    assert "multidraft/py.typed" in packed


def test_modules_in_the_wheel_are_the_files_and_no_links(wheel):
    source = (ROOT / "experiments" / "runner.py").read_bytes()
    assert wheel.read("multidraft/experiments/runner.py") == source


def test_the_wheel_installs_the_command_and_the_licence(wheel):
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    (licence,) = (name for name in wheel.namelist() if name.endswith("licenses/LICENSE"))
    assert "multidraft = multidraft.cli:main" in wheel.read(entry_points).decode()
    assert "Apache License" in wheel.read(licence).decode()


@pytest.mark.parametrize(
    ("link", "folder"),
    [
        ("src/multidraft", "toolkit"),
        ("toolkit/solvers", "solvers"),
        ("toolkit/experiments", "experiments"),
    ],
)
def test_the_links_are_relative(link, folder):
    assert (ROOT / link).readlink() == Path("..") / folder
