"""How far the quick estimate of a block length is off when acceptance falls with depth.

The estimate takes one acceptance vector, measured at the root, for every node. Drafts of language
models get worse with every token drafted (2602.16994); here the draft's law at depth d is mixed
with the uniform law, which has the share ``1 - (1 - drift)^d``, and everything stays exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from multidraft import plots, results, trees
from multidraft.experiments.tree_optimum import finished
from multidraft.transform import probabilities
from multidraft.trees import Markov

if TYPE_CHECKING:
    import polars

TARGET = (0.7, 0.2, 0.1)  # one law everywhere, so that without drift the estimate is exact
TEMPERATURE = 2.0  # of the draft, before it drifts
DRIFTS = (0.0, 0.1, 0.3)
DEPTHS = (1, 2, 3, 4, 5, 6)
#: Shape -> its tree for a depth; two paths of six tokens are too many to list.
SHAPES = {
    "chain": lambda depth: trees.chain(depth),
    "two paths": lambda depth: trees.paths(2, depth, "without-replacement"),
}
RULE = ("top-down", {"rule": "rrsw"})


@dataclass(frozen=True)
class Drifting:
    """A model that forgets: its laws approach the uniform one with every token drafted."""

    model: Markov
    drift: float

    def __call__(self, paths: np.ndarray) -> Float[np.ndarray, "*batch V"]:
        kept = (1 - self.drift) ** paths.shape[-1]
        probs = self.model(paths)
        return kept * probs + (1 - kept) / probs.shape[-1]


def cells() -> list[dict[str, Any]]:
    """Every shape, drift and depth that can be listed."""
    return [
        {"shape": shape, "drift": drift, "depth": depth}
        for shape in SHAPES
        for drift in DRIFTS
        for depth in (DEPTHS if shape == "chain" else DEPTHS[:4])
    ]


def compute(cell: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Exact block length, and its estimate from the acceptances at the root. Nothing is drawn."""
    target = Markov.constant(TARGET)
    draft = Markov.constant(probabilities(np.log(TARGET), TEMPERATURE))
    tree, (kind, options) = SHAPES[cell["shape"]](cell["depth"]), RULE
    drafted, mass = trees.enumerate_drafts(tree, target, Drifting(draft, cell["drift"]))
    judged = trees.get(kind, **options).judge(drafted)
    # The first draft is tested as a single one is, so its number serves below the root too.
    slots = trees.slot_acceptance(judged, mass)
    return [
        {"kind": "exact", "length": float(mass @ judged.expected_length), "stderr": None},
        {"kind": "estimate", "length": trees.estimate(tree, slots[0]), "stderr": None},
    ]


def run(folder: Path, *, jobs: int = 1) -> results.Results:
    """Compute what ``folder/estimate/run`` lacks, merge it to ``folder/estimate.parquet``."""
    state = folder / "estimate" / "run"
    return finished(cells(), compute, state, folder / "estimate.parquet", jobs=jobs)


def figure(frame: polars.DataFrame) -> Any:
    """Exact and estimated length against depth, one panel per shape."""
    import polars

    rows = frame.sort("shape", "drift", "kind", "depth", descending=[False, False, True, False])
    rows = rows.with_columns(drift=polars.format("drift {}", "drift"))
    return plots.lines(
        rows,
        x="depth",
        colour="drift",
        dash="kind",
        panel="shape",
        y="length",
        xlabel="depth of the tree",
        ylabel="tokens per target call",
    )
