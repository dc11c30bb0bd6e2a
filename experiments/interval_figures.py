"""Pictures of interval partitions for docs/interval-partition, one function for any context."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from multidraft import laws, traces
from multidraft.plots import canvas
from multidraft.problem import Problem
from multidraft.solvers.interval import IntervalPlan
from multidraft.solvers.partition import Partition
from multidraft.solvers.prefix import iid_optimum

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

FIVE = Problem([0.12, 0.18, 0.18, 0.22, 0.3], laws.IID([0.35, 0.25, 0.2, 0.15, 0.05], n=3))
CONTEXT, DRAFTS = 4, 4  # of the trace that ships with the package, at temperature 1
GREY = "#D0D0D0"


def write(folder: Path) -> list[Path]:
    """Draw both pictures of the page into ``folder``."""
    trace = traces.frozen()
    real = Problem.from_logits(trace.target[CONTEXT], trace.drafts[0, CONTEXT], "iid", n=DRAFTS)
    pictures = {"partition-five": FIVE, "partition-real": real}
    paths = [folder / f"{name}.png" for name in pictures]
    for path, problem in zip(paths, pictures.values(), strict=True):
        canvas.save(partition_figure(problem), path)
    return paths


def partition_figure(problem: Problem, shown: int = 6) -> Figure:
    """Draw the partition of one context under the density of the earliest time.

    The pieces of a token have its draft mass as their total length and its selection probability as
    the area above them.  Tokens that share pieces are drawn as one; all but the ``shown`` largest
    are grey.
    """
    plan = IntervalPlan.of(problem, iid_optimum(problem.target, problem.law.probs, problem.n)[1])
    pieces = plan.partitions[0]
    starts, stops = _places(pieces)
    listed = np.sort(np.argsort(-pieces.length)[:shown])  # regions are in decreasing b/p
    owner = np.repeat(np.arange(len(pieces.length)), np.diff(pieces.offsets))
    with canvas.style():
        figure, [axes] = canvas.panels(1, 1, 2.4)
        figure.set_figwidth(canvas.PAGE)
        handles = {}
        for i, k in enumerate(listed):
            spans = np.stack([starts[owner == k], stops[owner == k]], -1)
            label = _label(plan, np.flatnonzero(pieces.region == k))
            handles[label] = _fill(axes, spans, pieces.n, canvas.COLOURS[i])
        others = ~np.isin(owner, listed)
        if others.any():
            spans = np.stack([starts[others], stops[others]], -1)
            handles["other tokens"] = _fill(axes, spans, pieces.n, GREY)
        axes.set(xlim=(0, 1), ylim=(0, pieces.n), xlabel="time t", ylabel="density of the earliest")
        canvas.legend_below(figure, handles)
    return figure


def _places(pieces: Partition) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " K"]]:
    """Start and end of every piece, from the order and the lengths."""
    order = np.argsort(pieces.rank)
    stops = np.empty(len(order))
    stops[order] = np.cumsum(pieces.pieces[order])
    return stops - pieces.pieces, stops


def _label(plan: IntervalPlan, tokens: Int[np.ndarray, " k"]) -> str:
    name = f"token {tokens[0]}" if len(tokens) == 1 else f"{len(tokens)} tokens of equal b/p"
    laws = {"p": plan.problem.law.probs, "q": plan.problem.target, "b": plan.selection}
    return f"{name}: " + ", ".join(f"{x} {law[tokens].sum():.3f}" for x, law in laws.items())


def _fill(axes: Axes, spans: Float[np.ndarray, "k 2"], n: int, colour: str) -> PolyCollection:
    """Fill the area under the density over the spans, adjacent ones joined."""
    spans = spans[np.argsort(spans[:, 0])]
    new = np.append(True, spans[1:, 0] > spans[:-1, 1] + 1e-9)
    edges = np.stack([spans[new, 0], spans[np.append(new[1:], True), 1]], -1)
    # A nan ends each polygon.
    curves = [[*np.linspace(a, z, 2 + int(400 * (z - a))), np.nan] for a, z in edges]
    t = np.concatenate(curves)
    return axes.fill_between(t, n * (1 - t) ** (n - 1), color=colour, linewidth=0)
