"""Pictures of the gallery: a cell shows its last value, as it does in a notebook."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

from multidraft import plots


def last_figure(block: Any, script: dict[str, Any], gallery: dict[str, Any]) -> str:
    """Save the figure that a cell ends with; return the reStructuredText that shows it."""
    names = script["example_globals"]
    figure, names["___"] = names.get("___"), None  # where Sphinx-Gallery keeps the last value
    if not isinstance(figure, Figure):
        return ""
    path = next(script["image_path_iterator"])
    plots.save(figure, path)
    return figure_rst([path], gallery["src_dir"])
