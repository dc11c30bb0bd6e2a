"""Sphinx: Markdown pages, gallery, API from the docstrings, formulas as MathML (no network)."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version as installed
from pathlib import Path

from latex2mathml.converter import convert
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))  # for scraper.py

project = "multidraft"
copyright = "the multidraft developers"
release = installed("multidraft")
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
    "sphinxcontrib.bibtex",
]
bibtex_bibfiles = ["references.bib"]
myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
exclude_patterns = ["_build", "examples"]
autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
# Scripts called plot_* are executed, the shortest comes first; the others are shown.
sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "image_scrapers": "scraper.last_figure",
    "reset_modules": ("matplotlib",),
    "capture_repr": (),
    "min_reported_time": 60,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
}
html_theme = "pydata_sphinx_theme"
html_theme_options = {
    "show_prev_next": False,
    "navbar_center": [],
    "navbar_end": ["theme-switcher"],
    "article_header_start": [],
}
html_sidebars = {"**": ["globaltoc.html"]}
html_title = "multidraft"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_math_renderer = "mathml"


def _inline(writer, node) -> None:
    writer.body.append(_mathml(node.astext(), "inline"))
    raise_skip()


def _display(writer, node) -> None:
    writer.body.append(f'<div class="math">{_mathml(node.astext(), "block")}</div>')
    raise_skip()


def _mathml(formula: str, display: str) -> str:
    """MathML of a formula; set minus is a backslash, which every font has."""
    return convert(formula, display=display).replace("&#x029F5;", "&#x0005C;")


def raise_skip() -> None:
    """Leave the node: its formula is written."""
    from docutils.nodes import SkipNode

    raise SkipNode


def copy_verdicts(app: Sphinx) -> None:
    """Make the page of verdicts from that in the results; its links point to pages beside it."""
    docs = Path(app.srcdir)
    text = (docs.parent / "results" / "papers" / "README.md").read_text(encoding="utf-8")
    page = docs / "_api" / "verdicts.md"
    page.parent.mkdir(exist_ok=True)
    page.write_text(re.sub(r"\[([^]]+)\]\(\w+/README\.md\)", r"\1", text), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Register the renderer: browsers draw MathML themselves."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    app.connect("builder-inited", copy_verdicts)
