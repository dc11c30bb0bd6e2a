"""Block efficiency on a real language model: rule by draft law by depth, from recorded trees.

For every draft model one deep tree per draft law is recorded at the same contexts, see
`multidraft.trees.recording`; every shape below is read off it, and every rule of a law sees the
same drafts. A number is the mean over contexts of the expected block length given the drafted tree,
exact, at temperature 1 for both models.

``python -m multidraft.experiments.tree_table`` records, computes and reports; what is there already
is not made again.
"""

from __future__ import annotations

import sys
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from multidraft import results, trees
from multidraft.cli.record import default_trace
from multidraft.experiments import runner
from multidraft.experiments.tree_optimum import RULES as TREE_RULES
from multidraft.trees import efficiency, named, recorded
from multidraft.trees.recording import Recorder
from multidraft.trees.tree import Tree

DRAFTS = ("skip-8", "skip-4", "ngram-3")
CONTEXTS = 64
PATHS = 4
#: Name in tables -> registry name and options.
RULES = {**TREE_RULES, "top-down spechub": ("top-down", {"rule": "spechub"})}
BASELINE = "block"  # the best rule of a single path
_TOKEN = ("top-down naive", "top-down rrs", "top-down k-seq", "top-down interval")


class Family(NamedTuple):
    """Shapes of one kind.

    Attributes
    ----------
    shapes : depth, or where the paths part, -> the shape's text
    """

    name: str
    shapes: dict[int, str]


ONE = Family("one path", {depth: f"chain:{depth}" for depth in range(1, 7)})
FOUR = Family("4 paths", {depth: f"paths:{PATHS},{depth}" for depth in range(1, 5)})
DELAYED = Family("delayed", {trunk: f"delayed:{PATHS},{trunk},{4 - trunk}" for trunk in (1, 2, 3)})
BINARY = Family("binary", {depth: f"k-ary:2,{depth}" for depth in range(1, 5)})
FAMILIES = {family.name: family for family in (ONE, FOUR, DELAYED, BINARY)}
#: Draft law -> family -> the rules that are computed there.
LAWS: dict[str, dict[str, tuple[str, ...]]] = {
    "iid": {
        "one path": ("top-down rrs", "block"),
        "4 paths": (*_TOKEN, "greedy-multipath", "traversal"),
        "delayed": (*_TOKEN, "greedy-multipath", "traversal"),
        "binary": ("top-down rrs", "top-down interval", "traversal"),
    },
    "without-replacement": {
        "4 paths": ("top-down naive", "top-down rrsw", "traversal"),
        "delayed": ("top-down naive", "top-down rrsw", "traversal"),
        "binary": ("top-down naive", "top-down rrsw", "traversal"),
    },
    "top": dict.fromkeys(("one path", "4 paths", "binary"), ("top-down naive",)),
    "greedy": {"4 paths": ("top-down naive", "top-down greedy", "univer")},
    "hub": {"binary": ("top-down naive", "top-down spechub")},
}


def deepest(law: str) -> Tree:
    """The tree that is recorded for a draft law: the smallest that holds all its shapes."""
    shapes = [text for name in LAWS[law] for text in FAMILIES[name].shapes.values()]
    return named.parse("+".join(shapes), law)


def cells(trace: str, contexts: int, drafts: tuple[str, ...] = DRAFTS) -> list[dict[str, Any]]:
    """Every draft model, law, shape and rule; `trace` is the fingerprint of the trace."""
    return [
        {
            "trace": trace,
            "contexts": contexts,
            "draft": draft,
            "law": law,
            "family": family,
            "step": step,
            "tree": text,
            "rule": rule,
        }
        for draft in drafts
        for law, families in LAWS.items()
        for family, rules in families.items()
        for step, text in FAMILIES[family].shapes.items()
        for rule in rules
    ]


def compute(cell: dict[str, Any], seed: int, *, files: dict[str, str]) -> list[dict[str, Any]]:
    """Expected block length at every context; nothing is drawn, so `seed` is not used.

    `files` names the recording of every draft and law, as ``draft/law``.
    """
    recording = _opened(files[f"{cell['draft']}/{cell['law']}"])
    kind, options = RULES[cell["rule"]]
    tree = named.parse(cell["tree"], cell["law"])
    case = efficiency.Case(tree, trees.get(kind, **options))
    found = efficiency.lengths(recording, {"": case})[""]
    return [
        {"nodes": tree.nodes, "context": context, "passage": passage, "length": length}
        for context, passage, length in zip(
            recording.context.tolist(), recording.passage.tolist(), found.tolist(), strict=True
        )
    ]


@lru_cache(maxsize=1)
def _opened(path: str) -> recorded.Recording:
    return recorded.open(path)


def record(recorder: Recorder, drafts: tuple[str, ...] = DRAFTS) -> dict[str, str]:
    """Record the trees of every draft and law that are not there yet; return their files."""
    files = {}
    for draft in drafts:
        for law in LAWS:
            recorder.record(draft, deepest(law))
            files[f"{draft}/{law}"] = str(recorder.path(draft, deepest(law)))
    return files


def run(
    trace: Path,
    folder: Path,
    *,
    contexts: int = CONTEXTS,
    drafts: tuple[str, ...] = DRAFTS,
    jobs: int = 1,
) -> results.Results:
    """Record and compute what is missing, merge it to ``folder/lengths.parquet``, return it.

    Raises
    ------
    InputError
        A trace that cannot be read, or no room for the recordings.
    Refused
        A cell failed, with its sentence.
    """
    recorder = Recorder(trace, contexts=contexts)
    files = record(recorder, drafts)
    wanted = cells(recorder.fingerprint, contexts, drafts)
    configuration = {"trace": recorder.trace.header, "contexts": contexts, "drafts": list(drafts)}
    function = partial(compute, files=files)
    found = runner.whole(wanted, function, folder / "run", configuration=configuration, jobs=jobs)
    results.write(folder / "lengths.parquet", found.frame, found.header)
    return found


if __name__ == "__main__":
    run(
        default_trace("smollm2"),
        Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results/tree-decoding"),
    )
