"""``multidraft import``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import Parameter

from multidraft import importers
from multidraft.cli.output import Flag, Json, print_fields, print_json
from multidraft.errors import InputError
from multidraft.partial import PartialTrace
from multidraft.traces import Trace

_LOGS = (".jsonl", ".json", ".ndjson")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """For JSON lines with top-K log-probabilities."""

    k: int | None = None
    """How many top tokens the servers were asked for; seen from each log unless given."""

    skip_bad_rows: Flag = False
    """Drop bad rows and count them, instead of refusing the log."""

    temperature: float | None = None
    """At which the log-probabilities were taken, as a label; 1 unless given."""

    vocabulary: int | None = None
    """Number of tokens, which bounds the entropy."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LogitOptions:
    """For arrays of full logits."""

    ids: Path | None = None
    """.npy file: the token that follows each context, where no array ids is beside the logits."""

    pad: Flag = False
    """Token ids agree and the wider model only has padding columns."""

    draft_to_target: Path | None = None
    """.npy file: target token of each draft token, for a reduced draft vocabulary."""


def command(
    *,
    target: Path,
    draft: list[str],
    name: str = "target",
    output: Path = Path("trace.safetensors"),
    logs: LogOptions | None = None,
    logits: LogitOptions | None = None,
    json: Json = False,
) -> None:
    """Make a trace from your own logs or logits.

    Parameters
    ----------
    target
        JSON lines (.jsonl) as a server returns them: OpenAI completions with logprobs, or vLLM
        prompt_logprobs. Or full logits (N, V): .npy, .npz or .safetensors.
    draft
        FILE or NAME=FILE, of the same kind and on the same texts. Repeat it for several drafts.
    name
        What tables call the target.
    output
        The trace to write.
    """
    drafts = _named(draft)
    files = [target, *drafts.values()]
    kinds = {path.suffix in _LOGS for path in files}
    if len(kinds) > 1:
        raise InputError("give logs (.jsonl) or logits (.npy, .npz, .safetensors), not both.")
    arguments = {"name": name}
    if kinds == {True}:
        options = _only(logs, logits, "full logits")
        trace = importers.top_k(target, drafts, **arguments, **options)
    else:
        options = _only(logits, logs, "logs of top tokens")
        trace = importers.logits(target, drafts, **arguments, **options)
    trace.write(output)
    facts = {"trace": str(output), **_facts(trace)}
    if json:
        print_json(facts)
    else:
        print_fields({**facts, "next": f"multidraft report {output}"})


def _named(drafts: list[str]) -> dict[str, Path]:
    """Files of drafts by name, the stem of the file unless given as NAME=FILE."""
    pairs = [text.partition("=") for text in drafts]
    named = {
        (name if equals else Path(name).stem): Path(path if equals else name)
        for name, equals, path in pairs
    }
    if len(named) < len(drafts):
        raise InputError("two drafts have one name: tell them apart with --draft NAME=FILE.")
    return named


def _only(wanted: Any, other: Any, what: str) -> dict[str, Any]:
    """The options that were given, none of which may belong to the other kind of file."""
    for option, value in (vars(other) if other else {}).items():
        if value not in (None, False):
            raise InputError(f"--{option.replace('_', '-')} is for {what}: leave it out.")
    return {
        option: value
        for option, value in (vars(wanted) if wanted else {}).items()
        if value is not None
    }


def _facts(trace: Trace | PartialTrace) -> dict[str, Any]:
    facts: dict[str, Any] = {"contexts": len(trace), "drafts": ", ".join(trace.names)}
    if isinstance(trace, Trace):
        return {**facts, "vocabulary": trace.vocabulary, "holds": "full logits"}
    lists = [trace.target, *trace.drafts.values()]
    header = trace.header
    return {
        **facts,
        "texts": len(set(trace.passage.tolist())),
        "holds": f"the {min(part.top.max() for part in lists)} most probable tokens",
        "unlisted probability": ", ".join(f"{part.rest.mean():.4f}" for part in lists),
        "dropped": sum(header["dropped"].values()),
        "dropped because": header["dropped"],
        "rounded rows": header["rounded"],
        "rows with tokens of one text": header["ambiguous"],
    }
