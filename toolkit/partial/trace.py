"""Files of partially known laws: the K most probable tokens of a target and its drafts.

One safetensors file; the header, JSON under the key ``multidraft-partial``, holds names, the texts
of tokens, sources and what the import counted. Tensors:

==============  =========  ==================================================================
``next_token``  ``(N,)``   the token that follows, -1 where the log does not tell which it is
``passage``     ``(N,)``   index of the request: the clusters of error bars
``position``    ``(N,)``   number of tokens before it in the request
``ids.i``       ``(N,K)``  token ids, most probable first, -1 for padding (i = 0 is the target)
``probs.i``     ``(N,K)``  their probabilities
``cap.i``       ``(N,)``   bound on the probability of every unlisted token
==============  =========  ==================================================================
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from multidraft.errors import InputError
from multidraft.files import atomic
from multidraft.partial.pair import Listed, Pair

FORMAT = 1
KEY = "multidraft-partial"
_COLUMNS = ("next_token", "passage", "position")
_PARTS = ("ids", "probs", "cap")


@dataclass(frozen=True)
class PartialTrace:
    """What logs say about a target and its drafts at N contexts.

    Attributes
    ----------
    target : Listed
    drafts : dict of Listed, by name
    next_token, passage, position : (N,) int64
        See the module's table.
    tokens : dict
        Text of each token id that occurs, where the logs give it.
    header : dict
        JSON: ``target`` (its name), ``temperature``, ``vocabulary`` (None when unknown),
        ``sources`` and what was counted: ``dropped``, ``rounded``, ``ambiguous`` rows.
    """

    target: Listed
    drafts: dict[str, Listed]
    next_token: Int[np.ndarray, " N"]
    passage: Int[np.ndarray, " N"]
    position: Int[np.ndarray, " N"]
    tokens: dict[int, str]
    header: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.next_token)

    def __repr__(self) -> str:
        return f"PartialTrace({len(self)} contexts, drafts {', '.join(self.names)})"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the drafts."""
        return tuple(self.drafts)

    def draft(self, name: str) -> Listed:
        """Return the lists of the named draft.

        Raises
        ------
        InputError
            The trace has no such draft.
        """
        if name not in self.drafts:
            raise InputError(
                f"the trace has no draft {name!r}: choose one of {', '.join(self.names)}."
            )
        return self.drafts[name]

    def pair(self, name: str) -> Pair:
        """Return the target and the named draft side by side."""
        return Pair.of(self.target, self.draft(name))

    def select(self, rows: Int[np.ndarray, " M"] | slice) -> PartialTrace:
        """Return the trace of some contexts."""
        drafts = {name: listed.rows(rows) for name, listed in self.drafts.items()}
        columns = {name: getattr(self, name)[rows] for name in _COLUMNS}
        target, facts = self.target.rows(rows), {"tokens": self.tokens, "header": self.header}
        return PartialTrace(target, drafts, **columns, **facts)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the trace to `path`; an interruption leaves `path` as it was."""
        from safetensors.numpy import save

        arrays = {name: getattr(self, name) for name in _COLUMNS}
        for i, listed in enumerate([self.target, *self.drafts.values()]):
            arrays |= {f"{part}.{i}": getattr(listed, part) for part in _PARTS}
        tokens = {str(token): text for token, text in self.tokens.items()}
        header = {"format": FORMAT, "drafts": self.names, "tokens": tokens, **self.header}
        with atomic(path) as temporary:
            contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
            # Not save_file, whose files none but their owner can read.
            temporary.write_bytes(save(contiguous, metadata={KEY: json.dumps(header)}))
        return Path(path)


def open(path: str | os.PathLike[str]) -> PartialTrace:
    """Read a trace that :meth:`PartialTrace.write` wrote.

    Raises
    ------
    InputError
        No such file, another kind of file, or a damaged one.
    """
    from safetensors import SafetensorError, safe_open

    place = Path(path)
    try:
        with safe_open(place, framework="numpy") as file:
            header = json.loads((file.metadata() or {})[KEY])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header["format"] != FORMAT:
            raise InputError(f"{place} has format {header['format']}; this version reads {FORMAT}.")
        return _built(header, arrays)
    except OSError as fault:
        raise InputError(f"{place} cannot be read ({fault.strerror or 'no file'}).") from None
    except (SafetensorError, KeyError, TypeError, AttributeError) as fault:
        raise InputError(f"{place} is no trace of partial logs, or damaged: {fault}.") from None
    except InputError as fault:
        raise InputError(f"{place}: {fault}") from None


def _built(header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> PartialTrace:
    names = header.pop("drafts")
    lists = [Listed(*(arrays[f"{part}.{i}"] for part in _PARTS)) for i in range(len(names) + 1)]
    columns = {name: arrays[name] for name in _COLUMNS}
    sizes = {len(part) for part in (*lists, *columns.values())}
    if len(sizes) != 1 or 0 in sizes or not names:
        raise InputError("its tensors differ in length or are empty")
    del header["format"]
    tokens = {int(token): text for token, text in header.pop("tokens").items()}
    drafts = dict(zip(names, lists[1:], strict=True))
    return PartialTrace(lists[0], drafts, **columns, tokens=tokens, header=header)
