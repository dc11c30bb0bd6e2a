"""How long the exact optimum takes at full vocabulary, in units of a sort of the same array.

All times of one vocabulary are measured in one run, as processor time of one thread; the steps take
turns, and the fastest of the repeats counts.  The unit is ``torch.sort`` of the float64 ratios
``q/p`` that the method itself would otherwise have to sort; ``numpy.argsort`` stands beside it,
because it is several times faster on processors with AVX-512.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

import multidraft as md
from multidraft import traces
from multidraft.experiments.one_thread import one_thread
from multidraft.problem import Problem
from multidraft.solvers import prefix
from multidraft.solvers.interval import IntervalPlan
from multidraft.solvers.partition import Partition

VOCABULARIES = (1000, 49_152, 128_256, 262_144)
COUNTS = (2, 4, 8)
UNIT = "torch.sort"
VERIFICATIONS = 100  # timed together, one is too short

Row = dict[str, Any]
Laws = tuple[Float[np.ndarray, " V"], Float[np.ndarray, " V"]]


def measure(
    vocabularies: Sequence[int] = VOCABULARIES,
    counts: Sequence[int] = COUNTS,
    *,
    repeats: int = 15,
    seed: int = 0,
) -> list[Row]:
    """Time every step for model-like laws of the given sizes, and for one recorded context.

    Parameters
    ----------
    vocabularies
        Sizes of the laws that are made; their logits are normal, the draft's a noisy copy.
    counts
        Numbers of iid drafts.
    repeats
        How often each step is timed; the fastest counts.
    seed
        Of the laws and of the drafts that are verified.

    Returns
    -------
    One row per laws, number of drafts and step: ``laws, vocabulary, n, step, milliseconds, units``
    (multiples of the sort of the same laws), and ``bytes`` that a prepared plan keeps.
    """
    sets = [("synthetic", _model_laws(size, seed)) for size in vocabularies]
    sets.append(("recorded", _recorded_laws()))
    with one_thread():
        return [
            {"laws": name, **row}
            for name, laws in sets
            for n in counts
            for row in _measure(laws, n, repeats, seed)
        ]


def table(rows: Sequence[Row]) -> str:
    """Lay the rows out in Markdown: milliseconds, multiples of the unit in brackets."""
    steps = list(dict.fromkeys(row["step"] for row in rows))
    places: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        places.setdefault((row["laws"], row["vocabulary"], row["n"]), {})[row["step"]] = row
    lines = [["laws", "V", "n", *steps, "bytes/V"], ["---"] + ["---:"] * (len(steps) + 3)]
    for (laws, vocabulary, n), found in places.items():
        cells = [f"{row['milliseconds']:.3g} ms ({row['units']:.2f})" for row in found.values()]
        size = found[steps[0]]["bytes"] / vocabulary
        lines.append([laws, str(vocabulary), str(n), *cells, f"{size:.0f}"])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _model_laws(size: int, seed: int) -> Laws:
    rng = np.random.default_rng(seed)
    logits = 3 * rng.normal(size=size)
    draft = logits + rng.normal(size=size)
    return md.normalise(np.exp(logits - logits.max())), md.normalise(np.exp(draft - draft.max()))


def _recorded_laws() -> Laws:
    """The first context of the trace that ships with the package, at temperature 1."""
    trace = traces.frozen()
    problem = Problem.from_logits(trace.target[0], trace.drafts[0, 0], "iid", n=1)
    return problem.target, problem.law.probs


def _measure(laws: Laws, n: int, repeats: int, seed: int) -> list[Row]:
    plan = _prepare(*laws, n)
    steps = _steps(*laws, n, plan, seed)
    fastest = dict.fromkeys(steps, np.inf)
    for _ in range(repeats + 1):  # the first round compiles
        for name, step in steps.items():
            start = time.thread_time()
            step()
            fastest[name] = min(fastest[name], time.thread_time() - start)
    fastest["verification"] /= VERIFICATIONS
    kept = _bytes(plan.partitions[0]) + plan.selection.nbytes
    return [
        {
            "vocabulary": len(laws[0]),
            "n": n,
            "step": name,
            "milliseconds": 1e3 * seconds,
            "units": seconds / fastest[UNIT],
            "bytes": kept,
        }
        for name, seconds in fastest.items()
    ]


def _steps(
    q: Float[np.ndarray, " V"],
    p: Float[np.ndarray, " V"],
    n: int,
    plan: IntervalPlan,
    seed: int,
) -> dict[str, Callable[[], object]]:
    """Return what is timed; verifications are of one drafted tuple after another."""
    import torch

    ratio = np.divide(q, p, out=np.full(len(q), np.inf), where=p > 0)
    tensor = torch.from_numpy(ratio)
    drafts = plan.problem.law.sample(VERIFICATIONS, np.random.default_rng(seed))
    _ = plan.test  # part of the preparation
    return {
        UNIT: lambda: torch.sort(tensor),
        "numpy.argsort": lambda: np.argsort(ratio),
        "optimum": lambda: prefix.iid_optimum(q, p, n),
        "interval preparation": lambda: _prepare(q, p, n),
        "verification": lambda: [plan.keep(row[None]) for row in drafts],
    }


def _prepare(q: Float[np.ndarray, " V"], p: Float[np.ndarray, " V"], n: int) -> IntervalPlan:
    """Ratios, minimising set, clip levels, selection law and partition."""
    problem = Problem(q, md.IID(p, n))
    plan = IntervalPlan.of(problem, prefix.iid_optimum(q, p, n)[1])
    _ = plan.partitions
    return plan


def _bytes(partition: Partition) -> int:
    arrays = (partition.region, partition.offsets, partition.rank, partition.survival)
    return sum(array.nbytes for array in arrays) + partition.length.nbytes
