"""``multidraft trees``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from multidraft.cli.output import Json, print_json, print_table
from multidraft.cli.record import default_trace, split_names
from multidraft.trees import named, recorded

_EXAMPLE = "multidraft trees record --law iid,without-replacement --tree paths:4,5+k-ary:2,4"

command = App(name="trees", help_epilogue=f"Example: {_EXAMPLE}")


@command.default
@command.command(name="list")
def show(*, folder: Path | None = None, json: Json = False) -> None:
    """List the recorded trees.

    Parameters
    ----------
    folder
        Where they are; in the cache unless given.
    """
    files = [(place, recorded.open(place)) for place in recorded.found(folder)]
    rows = [
        {
            "file": str(place),
            "target": recording.header["target"]["name"],
            "draft": recording.header["draft"]["name"],
            "law": recording.law,
            "nodes": recording.tree.nodes,
            "depth": recording.tree.depth,
            **recording.drafting,
            "contexts": len(recording),
            "MB": round(place.stat().st_size / 1e6),
        }
        for place, recording in files
    ]
    if json:
        print_json(rows)
    elif rows:
        print_table(tuple(rows[0]), [tuple(row.values()) for row in rows])
    else:
        print(f"no trees are recorded in {folder or recorded.folder()}. Try: {_EXAMPLE}")


@command.command(help_epilogue=f"Example: {_EXAMPLE}")
def record(
    *,
    tree: str = "paths:4,5",
    law: Annotated[str, Parameter(help="Draft laws, separated by commas.")] = "iid",
    target: str = "smollm2",
    draft: Annotated[str, Parameter(help="Draft models, separated by commas.")] = "skip-8",
    trace: Path | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    contexts: int = 64,
    seed: int = 0,
    folder: Path | None = None,
    json: Json = False,
) -> None:
    """Draft one tree per context of a trace and keep both models' logits at its nodes.

    Each draft model and law makes one file, and those that are there are not made again, so an
    interrupted command goes on where it was.

    Parameters
    ----------
    tree
        The deepest tree: chain:L, paths:n,L, k-ary:b,depth, delayed:n,trunk,branches, or several
        joined by + for the smallest tree that holds them all. Others are read off it later.
    target
        A name from `multidraft models`, or a folder.
    trace
        A trace of the target; what `multidraft record` wrote last for it, unless given.
    temperature
        Of the draft law. The target's stays free.
    top_k, top_p
        Truncation of the draft law.
    contexts
        How many contexts of the trace, dealt from passage to passage.
    seed
        Fixes contexts and drafts.
    folder
        Where the files go; in the cache unless given.
    """
    from multidraft.trees.recording import Recorder

    place = default_trace(target) if trace is None else trace
    recorder = Recorder(place, target, contexts=contexts, seed=seed, folder=folder)
    drafting = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    wanted = [
        (name, named.parse(tree, kind)) for name in split_names(draft) for kind in law.split(",")
    ]
    missing = [job for job in wanted if not recorder.path(*job, **drafting).exists()]
    size = sum(recorder.nbytes(shape) for _, shape in missing) / 1e6
    print(f"{len(missing)} of {len(wanted)} files to record, {size:.0f} MB", file=sys.stderr)
    rows = []
    for name, shape in wanted:
        found = recorder.record(name, shape, **drafting)
        path = str(recorder.path(name, shape, **drafting))
        rows.append({"draft": name, "tree": repr(found.tree), "file": path})
    if json:
        print_json(rows)
    else:
        print_table(tuple(rows[0]), [tuple(row.values()) for row in rows])
