"""``multidraft record``."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from multidraft import traces
from multidraft.cli.output import Flag, Json, print_fields, print_json
from multidraft.models import cache
from multidraft.record import Settings, record


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """What a recording covers."""

    contexts: int = Settings.contexts
    """Number of contexts, spread evenly over the passages."""

    passages: int = Settings.passages
    """Number of passages; error bars are clustered by passage."""

    sampled: int | None = None
    """How many passages are sampled from the target; a quarter unless given."""

    tokens: int = Settings.tokens
    """Length of a passage."""

    temperature: float = Settings.temperature
    """Temperature of the sampled passages (recorded logits have none)."""

    dtype: str = Settings.dtype
    """Stored type of the logits, float16 or float32."""

    seed: int = Settings.seed
    """Fixes passages, positions and sampling."""


DEFAULTS = Options()


def command(
    *,
    target: str = "smollm2",
    draft: Annotated[str, Parameter(help="Drafts, separated by commas.")] = "skip-8",
    output: Path | None = None,
    force: Flag = False,
    options: Options = DEFAULTS,
    json: Json = False,
) -> None:
    """Record the laws of a target and its drafts on the shipped texts.

    Parameters
    ----------
    target
        A name from `multidraft models`, or a folder.
    output
        The trace to write; in the cache folder, under the target's name, unless given.
    force
        Record again where a trace with these drafts and settings is there already.
    """
    place = default_trace(target) if output is None else output
    names = split_names(draft)
    if force or not _is_there(place, target, names, options):
        record(target=target, drafts=names, **asdict(options)).write(place)
    trace = traces.open(place)
    facts = {
        "trace": str(place),
        "contexts": len(trace),
        "passages": len(trace.passages),
        "vocabulary": trace.vocabulary,
        "drafts": ", ".join(trace.names),
    }
    (print_json if json else print_fields)(facts)


def default_trace(target: str) -> Path:
    """Where the trace of a target is kept unless the user says otherwise."""
    return cache.traces() / f"{Path(target).name}.safetensors"


def split_names(text: str) -> list[str]:
    """Split names at commas, except inside ``skip:17,12``.

    Examples
    --------
    >>> split_names("skip-4,skip:17,12,ngram-3")
    ['skip-4', 'skip:17,12', 'ngram-3']
    """
    return [name.strip() for name in re.split(r",(?!\d)", text)]


def _is_there(place: Path, target: str, drafts: list[str], options: Options) -> bool:
    if not place.exists():
        return False
    trace = traces.open(place)
    same = trace.header["target"]["name"] == Path(target).name
    same = same and trace.header.get("settings") == asdict(Settings(**asdict(options)))
    return same and set(drafts) <= set(trace.names)
