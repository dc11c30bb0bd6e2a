"""Figures as functions of result tables; each returns a new matplotlib figure."""

from multidraft.plots.calibration import calibration
from multidraft.plots.canvas import save
from multidraft.plots.distribution import ecdf, histogram
from multidraft.plots.dots import dots
from multidraft.plots.heat import heat_map
from multidraft.plots.lines import lines

__all__ = ["calibration", "dots", "ecdf", "heat_map", "histogram", "lines", "save"]
