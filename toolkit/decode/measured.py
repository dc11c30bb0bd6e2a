r"""What a decoding run measures.

A *block* is what one row gets from one target call: D or fewer accepted drafts and one added token.
With A the number of accepted drafts of a block,

- **block efficiency** is the mean of A + 1 over all blocks, each as long as the rule made it, also
  where the text then ended inside;
- **mean acceptance** at position d = 1, ..., D is the share of blocks with :math:`A \ge d`;
- **conditional acceptance** at position d is the share with :math:`A \ge d` among those with
  :math:`A \ge d - 1`.

So mean acceptance at d is the product of the conditional ones up to d, and block efficiency is one
more than the sum of the mean ones.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from multidraft.results import clustered_mean
from multidraft.trees.rules.base import Block
from multidraft.trees.tree import Tree


@dataclass(frozen=True)
class Measured:
    """Numbers of one run; see the module's text for their definitions.

    Attributes
    ----------
    target_calls : calls of the target after the prompts were read
    blocks : pairs of a call and a row that was active in it
    tokens : tokens emitted, after cutting at end of sequence and limit
    block_efficiency : mean length of a block
    error : its standard error, clustered by row; nan for one row
    mean_acceptance, conditional_acceptance : (D,)
    slot_share : (S,) share of blocks whose accepted path holds the slot; 1 at the root
    slot_acceptance : (D, n) acceptance of the b-th child of an accepted slot, by the slot's depth;
        nan where no such slot was accepted
    seconds : by what was done: "prefill", "draft", "target", "verification", and "total"
    """

    target_calls: int
    blocks: int
    tokens: int
    block_efficiency: float
    error: float
    mean_acceptance: Float[np.ndarray, " D"]
    conditional_acceptance: Float[np.ndarray, " D"]
    slot_share: Float[np.ndarray, " S"]
    slot_acceptance: Float[np.ndarray, "D n"]
    seconds: dict[str, float]

    @property
    def tokens_per_second(self) -> float:
        """Tokens emitted by all rows together, per second of the whole run."""
        return self.tokens / self.seconds["total"]

    def as_data(self) -> dict[str, Any]:
        """The numbers as JSON: arrays become lists, nan becomes None."""
        return _as_json(asdict(self) | {"tokens_per_second": self.tokens_per_second})


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _as_json(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | list):
        return [_as_json(part) for part in np.asarray(value).tolist()]
    return None if value != value else value


@dataclass
class Clock:
    """Seconds spent, by what was done."""

    start: float = field(default_factory=time.perf_counter)
    spent: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def timing(self, what: str) -> Iterator[None]:
        """Add the time of the block below to `what`."""
        begin = time.perf_counter()
        yield
        self.spent[what] += time.perf_counter() - begin

    def seconds(self) -> dict[str, float]:
        """What was spent so far, with the total since the clock was made."""
        return {**self.spent, "total": time.perf_counter() - self.start}


class Log:
    """The blocks of a run, as the rule made them.

    Parameters
    ----------
    tree : Tree
        The shape of every drafted tree.
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.calls = 0
        self._rows: list[np.ndarray] = []
        self._paths: list[np.ndarray] = []

    def add(self, rows: Int[np.ndarray, " b"], block: Block) -> None:
        """Enter one call's blocks; `rows` says whose they are."""
        path = np.full((len(rows), self.tree.depth), -1)
        path[:, : block.path.shape[1]] = block.path
        self.calls += 1
        self._rows.append(rows)
        self._paths.append(path)

    @property
    def rows(self) -> Int[np.ndarray, " N"]:
        """Row of every block."""
        return np.concatenate(self._rows)

    @property
    def paths(self) -> Int[np.ndarray, "N D"]:
        """Accepted slots of every block, -1 beyond them."""
        return np.concatenate(self._paths)

    def lengths(self, batch: int) -> list[list[int]]:
        """Lengths of every row's blocks, in order."""
        found = (self.paths >= 0).sum(-1) + 1
        return [found[self.rows == row].tolist() for row in range(batch)]

    def measured(self, tokens: int, seconds: dict[str, float]) -> Measured:
        """The run's numbers."""
        paths, depth = self.paths, self.tree.depth
        accepted = (paths >= 0).sum(-1)
        reached = np.array([(accepted >= d).mean() for d in range(depth + 1)])
        efficiency, error = _mean(accepted + 1.0, self.rows)
        share = np.bincount(paths[paths >= 0], minlength=self.tree.slots) / len(paths)
        share[0] = 1.0
        return Measured(
            target_calls=self.calls,
            blocks=len(paths),
            tokens=tokens,
            block_efficiency=efficiency,
            error=error,
            mean_acceptance=reached[1:],
            conditional_acceptance=_over(reached[1:], reached[:-1]),
            slot_share=share,
            slot_acceptance=_by_depth(self.tree, share),
            seconds=seconds,
        )


def _mean(values: Float[np.ndarray, " N"], rows: Int[np.ndarray, " N"]) -> tuple[float, float]:
    """Mean and its standard error, clustered by row; nan for one row."""
    if np.unique(rows).size < 2:
        return float(values.mean()), float("nan")
    found = clustered_mean(values, rows)
    return found.mean, found.stderr


def _over(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """``part / whole``, nan for nothing of nothing."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1.0), np.nan)


def _by_depth(tree: Tree, share: Float[np.ndarray, " S"]) -> Float[np.ndarray, "D n"]:
    width = max(map(len, tree.children), default=0)
    accepted, reached = np.zeros((2, tree.depth, width))
    for slot, below in enumerate(tree.children):
        if below:
            accepted[tree.depths[slot], : len(below)] += share[list(below)]
            reached[tree.depths[slot], : len(below)] += share[slot]
    return _over(accepted, reached)
