"""Block efficiency on a real language model: rule by draft law by depth, from recorded trees.

For every draft model one deep tree per draft law is recorded at the same contexts, see
`multidraft.trees.recording`; every shape below is read off it, and every rule of a law sees the
same drafts. A number is the mean over contexts of the expected block length given the drafted tree,
exact, at temperature 1 for both models.

``python -m multidraft.experiments.tree_table_report`` records, computes and reports; what is there
already is not made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from multidraft import results
from multidraft.experiments import runner
from multidraft.trees import efficiency, named, recorded, rules
from multidraft.trees.recording import Recorder
from multidraft.trees.tree import Tree

CONTEXTS = 128
PATHS = 4
BASELINE = ("iid", "one path", "block")  # the best rule of a single path
#: Family of trees -> its shapes as text: a tree that is cut at every depth, or several trees.
FAMILIES: dict[str, tuple[str, ...]] = {
    "one path": ("chain:6",),
    "4 paths": (f"paths:{PATHS},4",),
    "delayed": tuple(f"delayed:{PATHS},{trunk},{4 - trunk}" for trunk in (1, 2, 3)),
    "binary": ("k-ary:2,4",),
}
#: Draft law -> family -> the rules that are computed there.
LAWS: dict[str, dict[str, tuple[str, ...]]] = {
    "iid": {
        "one path": ("rrs", "block"),
        "4 paths": ("naive", "rrs", "k-seq", "interval", "greedy-multipath", "traversal"),
        "delayed": ("rrs", "interval", "greedy-multipath", "traversal"),
        "binary": ("rrs", "traversal"),
    },
    "without-replacement": {
        "4 paths": ("naive", "rrsw", "traversal"),
        "delayed": ("rrsw", "traversal"),
        "binary": ("rrsw", "traversal"),
    },
    "top": {"one path": ("naive",), "4 paths": ("naive",), "binary": ("naive",)},
    "greedy": {"4 paths": ("greedy", "univer")},
    "hub": {"binary": ("spechub",)},
}
_MAIN = ("iid", "without-replacement", "top")
#: Draft model -> the laws that it drafts by here.
DRAFTS: dict[str, tuple[str, ...]] = {
    "skip-8": tuple(LAWS),
    "skip-4": _MAIN,
    "ngram-3": _MAIN,
}


def deepest(law: str) -> Tree:
    """The tree that is recorded for a draft law: the smallest that holds all its shapes."""
    return named.parse(deepest_text(law), law)


def deepest_text(law: str) -> str:
    """The same tree as text."""
    return "+".join(text for name in LAWS[law] for text in FAMILIES[name])


def cells(trace: str, contexts: int, drafts: Iterable[str] = DRAFTS) -> list[dict[str, Any]]:
    """Every draft model, law, tree and rule; `trace` is the fingerprint of the trace."""
    return [
        {
            "trace": trace,
            "contexts": contexts,
            "draft": draft,
            "law": law,
            "family": family,
            "tree": text,
            "rule": rule,
        }
        for draft in drafts
        for law in DRAFTS[draft]
        for family, wanted in LAWS[law].items()
        for text in FAMILIES[family]
        for rule in wanted
    ]


def compute(cell: dict[str, Any], seed: int, *, files: dict[str, str]) -> list[dict[str, Any]]:
    """Expected block length at every depth and context; nothing is drawn, `seed` is not used.

    A delayed tree counts as a whole; the others are cut at every depth. `files` names the recording
    of every draft and law, as ``draft/law``.
    """
    recording = _opened(files[f"{cell['draft']}/{cell['law']}"])
    tree = named.parse(cell["tree"], cell["law"])
    case = efficiency.Case(tree, rules.parse(cell["rule"]))
    if cell["family"] == "delayed":
        found = {tree.depth: efficiency.lengths(recording, {"": case})[""]}
    else:
        found = dict(enumerate(efficiency.by_depth(recording, case).T, start=1))
    return [
        {
            "depth": depth,
            "nodes": int((tree.depths <= depth).sum()) - 1,
            "context": int(context),
            "passage": int(passage),
            "length": float(length),
        }
        for depth, lengths in found.items()
        for context, passage, length in zip(
            recording.context, recording.passage, lengths, strict=True
        )
    ]


@lru_cache(maxsize=1)
def _opened(path: str) -> recorded.Recording:
    return recorded.open(path)


def record(recorder: Recorder, drafts: Iterable[str] = DRAFTS) -> dict[str, str]:
    """Record the trees of every draft and law that are not there yet; return their files."""
    files = {}
    for draft in drafts:
        for law in DRAFTS[draft]:
            recorder.record(draft, deepest(law))
            files[f"{draft}/{law}"] = str(recorder.path(draft, deepest(law)))
    return files


def run(
    trace: Path,
    folder: Path,
    *,
    contexts: int = CONTEXTS,
    drafts: Sequence[str] = tuple(DRAFTS),
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
