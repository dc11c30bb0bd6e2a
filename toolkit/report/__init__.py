"""One self-contained HTML page about a target and its drafts, and the numbers behind it."""

from multidraft.report.measure import Settings, measure
from multidraft.report.page import page
from multidraft.report.source import Sampling

__all__ = ["Sampling", "Settings", "measure", "page"]
