"""The notebooks: percent scripts, executed by this interpreter, and the .ipynb files made of them.

``python tests/notebook_files.py [name ...]`` executes scripts and writes their notebooks anew, with
text and pictures, so that the committed files show what the code does now (``make notebooks``).
"""

from __future__ import annotations

import base64
import io
import os
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image
from traitlets import default

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
SCRIPTS = sorted(FOLDER.glob("*.py"))
COLOURS = 256  # of a committed picture, which then takes a quarter of the bytes
MOST_SECONDS = 300  # of one cell, and of the start: what hangs must not hang the tests
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def read_script(path: Path) -> NotebookNode:
    """Read a percent script as a notebook without outputs."""
    notebook = jupytext.read(path)
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL})
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    return notebook


class OwnKernel(AsyncKernelManager):
    """Starts this interpreter, whatever kernels the user has installed."""

    @default("kernel_spec_manager")
    def _without_installed_kernels(self) -> KernelSpecManager:
        return KernelSpecManager(kernel_dirs=[])  # none is found, so the native one is used


def execute(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Run a notebook in `folder`, in place; a cell that raises raises here.

    Warnings that Python would hide are shown, on the cell's standard error.
    """
    client = NotebookClient(
        notebook,
        kernel_manager_class=OwnKernel,
        kernel_name=KERNEL["name"],
        extra_arguments=["--log-level=ERROR"],
        timeout=MOST_SECONDS,
        startup_timeout=MOST_SECONDS,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=os.environ | {"PYTHONWARNINGS": "default"})
    return notebook


def slim(notebook: NotebookNode) -> NotebookNode:
    """Reduce the pictures to a palette, and leave out what changes from machine to machine."""
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL})
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _palette(output.data["image/png"])
                output.metadata = nbformat.from_dict({})
    return notebook


def _palette(picture: str) -> str:
    image = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB")
    out = io.BytesIO()
    image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        out, "PNG", optimize=True
    )
    return base64.b64encode(out.getvalue()).decode()


def write(script: Path) -> Path:
    """Execute a script in an empty folder and write its notebook beside it."""
    with tempfile.TemporaryDirectory() as empty:
        notebook = execute(read_script(script), Path(empty))
    target = script.with_suffix(".ipynb")
    nbformat.write(slim(notebook), target)
    return target


def main(names: list[str]) -> None:
    """Write the notebooks of the named scripts, or of all."""
    for script in SCRIPTS:
        if not names or script.stem in names:
            target = write(script)
            print(f"{target.relative_to(FOLDER.parent)}: {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
