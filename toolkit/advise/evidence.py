"""Where expected block lengths come from: recorded trees, exact, or a trace, by the estimate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from multidraft.errors import InputError
from multidraft.experiments import runner
from multidraft.models import cache
from multidraft.report.deeper import SYSTEMS, contributions
from multidraft.report.source import Known
from multidraft.traces import Trace
from multidraft.transform import probabilities
from multidraft.trees import efficiency, recorded
from multidraft.trees.drafted import embedding
from multidraft.trees.recorded import Recording
from multidraft.trees.rules import parse as parse_rule
from multidraft.trees.tree import Tree

#: Draft law -> the rules worth advising: lossless, and the best of their kind.
RULES: dict[str, tuple[str, ...]] = {
    "iid": ("block", "traversal", "greedy-multipath", "rrs", "interval"),
    "without-replacement": ("traversal", "rrsw"),
    "greedy": ("univer", "greedy"),
    "hub": ("spechub",),
    "top": ("naive",),
}
ESTIMATED = 64  # contexts of an estimate
_WIDTH = 4  # children of a node in an estimate


class Candidate(NamedTuple):
    """What could be used: a tree, all of whose nodes draft by the law, and a rule."""

    law: str
    parents: tuple[int, ...]
    rule: str

    @property
    def tree(self) -> Tree:
        """The tree with its draft laws."""
        return Tree(self.parents, self.law)


class Evidence(ABC):
    """Expected block lengths at some contexts.

    Attributes
    ----------
    kind : "exact" (given the drafted trees) or "estimate"
    clusters : (N,) passage of every context
    """

    kind: str
    clusters: Int[np.ndarray, " N"]

    @property
    @abstractmethod
    def systems(self) -> list[tuple[str, str]]:
        """Draft laws with the rules that can be judged."""

    @abstractmethod
    def takes(self, candidate: Candidate) -> bool:
        """Whether the tree and its rule can be judged."""

    @abstractmethod
    def lengths(self, candidates: Sequence[Candidate]) -> dict[Candidate, Float[np.ndarray, " N"]]:
        """Numbers, one per context, whose mean is the block efficiency."""


def _fits(candidate: Candidate) -> bool:
    """Whether the law drafts such a tree and the rule verifies it.

    On one path all laws that draw are one, and block verification is the best of all rules.
    """
    try:
        tree = candidate.tree
    except InputError:  # such as hub drafts, which are two
        return False
    if parse_rule(candidate.rule).refuses(tree) is not None:
        return False
    branches = max(map(len, tree.children)) > 1
    return branches or candidate.rule in ("block", "traversal", "naive", "rrs")


class FromRecordings(Evidence):
    """Exact lengths from recorded trees of one pair at the same contexts.

    Parameters
    ----------
    files : paths of recordings
    temperature, top_k, top_p : of the target
    folder : where lengths are kept once computed; in the cache unless given
    """

    kind = "exact"

    def __init__(
        self,
        files: Sequence[Path],
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        folder: Path | None = None,
    ) -> None:
        self.sampling = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        self.folder = cache.folder() / "advice" if folder is None else folder
        self.recordings = {file.stem: recorded.open(file) for file in files}
        self.files = {file.stem: str(file) for file in files}
        if not files:
            raise InputError("no recorded trees: run `multidraft trees record` first.")
        self.clusters = next(iter(self.recordings.values())).passage

    @property
    def systems(self) -> list[tuple[str, str]]:
        laws = dict.fromkeys(recording.law for recording in self.recordings.values())
        return [(law, rule) for law in laws for rule in RULES.get(law, ())]

    def takes(self, candidate: Candidate) -> bool:
        return _fits(candidate) and self._home(candidate) is not None

    def _home(self, candidate: Candidate) -> str | None:
        """Name of a recording that the tree can be read off."""
        for name, recording in self.recordings.items():
            if recording.law == candidate.law and _reads(candidate.tree, recording.tree):
                return name
        return None

    def lengths(self, candidates: Sequence[Candidate]) -> dict[Candidate, Float[np.ndarray, " N"]]:
        cells = {candidate: self._cell(candidate) for candidate in candidates}
        function = partial(compute, files=self.files)
        frame = runner.whole(list(cells.values()), function, self.folder).frame
        parts = frame.partition_by("key", as_dict=True)
        return {
            candidate: parts[runner.key(cell),].sort("context")["length"].to_numpy()
            for candidate, cell in cells.items()
        }

    def _cell(self, candidate: Candidate) -> dict[str, Any]:
        return {
            "recording": self._home(candidate),
            "law": candidate.law,
            "parents": list(candidate.parents),
            "rule": candidate.rule,
            **self.sampling,
        }


def _reads(tree: Tree, whole: Tree) -> bool:
    try:
        embedding(tree, whole)
    except InputError:
        return False
    return True


def compute(cell: dict[str, Any], seed: int, *, files: Mapping[str, str]) -> list[dict[str, Any]]:
    """Expected length of one candidate at every context; nothing is drawn."""
    recording = _opened(files[cell["recording"]])
    case = efficiency.Case(Tree(cell["parents"], cell["law"]), parse_rule(cell["rule"]))
    sampling = {name: cell[name] for name in ("temperature", "top_k", "top_p")}
    found = efficiency.lengths(recording, {"": case}, **sampling)[""]
    pairs = zip(recording.context.tolist(), found.tolist(), strict=True)
    return [{"context": context, "length": length} for context, length in pairs]


@lru_cache(maxsize=4)
def _opened(path: str) -> Recording:
    return recorded.open(path)


class FromTrace(Evidence):
    """Estimated lengths from a trace: acceptance is taken to be the same at every depth.

    Parameters
    ----------
    trace : Trace
    draft : str
        Name of a draft of the trace.
    temperature, top_k, top_p : of both models
    contexts : most contexts that are looked at
    """

    kind = "estimate"

    def __init__(
        self,
        trace: Trace,
        draft: str,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        contexts: int = ESTIMATED,
    ) -> None:
        count = min(contexts, len(trace))
        rows = np.linspace(0, len(trace) - 1, count).astype(int)
        sampling = temperature, top_k, top_p
        target = probabilities(trace.target[rows], *sampling)
        self._known = Known(target, probabilities(trace.draft(draft)[rows], *sampling))
        self._steps: dict[tuple[str, str, int], Float[np.ndarray, " N"]] = {}
        self.clusters = trace.passage[rows]

    @property
    def systems(self) -> list[tuple[str, str]]:
        return [(system.law, system.rule) for system in SYSTEMS]

    def takes(self, candidate: Candidate) -> bool:
        return _fits(candidate) and max(map(len, candidate.tree.children)) <= _WIDTH

    def lengths(self, candidates: Sequence[Candidate]) -> dict[Candidate, Float[np.ndarray, " N"]]:
        return {
            candidate: contributions(candidate.tree, self._accepted(candidate))
            for candidate in candidates
        }

    def _accepted(self, candidate: Candidate) -> Float[np.ndarray, "N b"]:
        """Acceptance of as many drafts as the tree's nodes have, from one to most."""
        width = max(map(len, candidate.tree.children))
        steps = [self._step(candidate.law, candidate.rule, n) for n in range(1, width + 1)]
        return np.maximum.accumulate(np.column_stack(steps), axis=1)  # an estimate can fall

    def _step(self, law: str, rule: str, n: int) -> Float[np.ndarray, " N"]:
        if (law, rule, n) not in self._steps:
            best = self._known.optimum(law, n)
            found = best if rule == "interval" else self._known.acceptance(rule, law, n, best)
            self._steps[law, rule, n] = found.lower
        return self._steps[law, rule, n]
