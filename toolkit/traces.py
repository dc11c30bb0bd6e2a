"""Traces: raw logits of a target and its drafts at recorded contexts, in one safetensors file.

Nothing in a trace has been through a temperature, top-k or top-p: every setting is computed from
the same file. The full vocabulary is kept, since a truncated one inflates acceptance. Tensors:

==============  ==============  =========================================================
``target``      ``(N, V)``      logits of the target, float16 or float32
``drafts``      ``(D, N, V)``   logits of D drafts, in the order of the header's names
``next_token``  ``(N,)``        the token that follows in the passage
``text``        ``(N,)``        index into the header's texts
``passage``     ``(N,)``        index into the header's passages: the clusters of error bars
``position``    ``(N,)``        number of tokens of the passage that the context holds
==============  ==============  =========================================================

The header, JSON under the key ``multidraft``, names models, tokenizer and texts with their hashes,
the passages, the settings and the versions. Files are memory-mapped; nothing is unpickled.

>>> from multidraft import traces
>>> trace = traces.frozen()
>>> trace.target.shape, trace.names
((24, 49152), ('skip-8',))
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from multidraft import tensors
from multidraft.errors import InputError

FORMAT = 1
# The trace that ships with the package.
FROZEN = Path(__file__).parent / "data" / "frozen.safetensors"
# Dimensions of each tensor; V, N and D must agree between them.
SHAPES = {
    "target": "NV",
    "drafts": "DNV",
    "next_token": "N",
    "text": "N",
    "passage": "N",
    "position": "N",
}
HEADER_KEYS = ("format", "target", "drafts", "tokenizer", "texts", "passages", "versions")
KIND = tensors.Kind("trace", "record it again", FORMAT, SHAPES)


@dataclass(frozen=True)
class Passage:
    """A stretch of text whose contexts are not independent: one cluster.

    Attributes
    ----------
    text : str
        Id of the text that it is from, or that its prompt is from.
    temperature : float or None
        At which it was sampled from the target; None for a passage of the text itself.
    seed : list of int or None
        Of the generator that sampled it.
    tokens : int
        Its length.
    sha256 : str
        Hash of its token ids.
    """

    text: str
    temperature: float | None
    seed: list[int] | None
    tokens: int
    sha256: str


class Trace:
    """Raw logits at N contexts of a target and D drafts over V tokens.

    Parameters
    ----------
    target : (N, V)
        Logits, float16 or float32.
    drafts : (D, N, V)
        Logits of the drafts, same type.
    next_token, text, passage, position : (N,) int64
        See the module's table.
    header : dict
        JSON: names and hashes of models, tokenizer and texts, passages, versions.

    Raises
    ------
    InputError
        Shapes, types or indices that do not fit together.
    """

    def __init__(
        self,
        target: np.ndarray,
        drafts: np.ndarray,
        next_token: np.ndarray,
        text: np.ndarray,
        passage: np.ndarray,
        position: np.ndarray,
        header: dict[str, Any],
    ):
        self.target = target
        self.drafts = drafts
        self.next_token = next_token
        self.text = text
        self.passage = passage
        self.position = position
        self.header = header
        _check(self)

    def __len__(self) -> int:
        return self.target.shape[0]

    def __repr__(self) -> str:
        drafts = ", ".join(self.names)
        return f"Trace({len(self)} contexts of {self.vocabulary} tokens, drafts {drafts})"

    @property
    def vocabulary(self) -> int:
        """Width V of the logits."""
        return self.target.shape[1]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the drafts."""
        return tuple(draft["name"] for draft in self.header["drafts"])

    @property
    def texts(self) -> list[dict[str, str]]:
        """Id, title, author and hash of every text."""
        return self.header["texts"]

    @property
    def passages(self) -> list[Passage]:
        """The passages, in the order of the indices in `passage`."""
        return [Passage(**facts) for facts in self.header["passages"]]

    def draft(self, name: str) -> Float[np.ndarray, "N V"]:
        """Return the logits of the named draft, a view.

        Raises
        ------
        InputError
            The trace has no such draft.
        """
        if name not in self.names:
            raise InputError(
                f"the trace has no draft {name!r}: choose one of {', '.join(self.names)}, "
                "or record it."
            )
        return self.drafts[self.names.index(name)]

    def select(self, rows: Sequence[int] | slice, names: Sequence[str] | None = None) -> Trace:
        """Return the trace of some contexts and drafts; the header keeps every passage."""
        names = self.names if names is None else tuple(names)
        drafts = np.stack([self.draft(name)[rows] for name in names])
        kept = [self.header["drafts"][self.names.index(name)] for name in names]
        columns = {name: getattr(self, name)[rows] for name in SHAPES if SHAPES[name] == "N"}
        header = {**self.header, "drafts": kept}
        return Trace(self.target[rows], drafts, **columns, header=header)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Write the trace to `path`; an interruption leaves `path` as it was.

        Raises
        ------
        InputError
            A logit is NaN or +inf.
        """
        for name, logits in (("target", self.target), ("drafts", self.drafts)):
            if np.isnan(logits).any() or np.isposinf(logits).any():
                raise InputError(f"{name} holds NaN or +inf: only finite logits and -inf are laws.")
        return tensors.write(path, {name: getattr(self, name) for name in SHAPES}, self.header)


def open(path: str | os.PathLike[str]) -> Trace:
    """Open a trace; logits stay in the file until rows are read.

    Raises
    ------
    InputError
        No such file, a damaged or truncated one, or one of a newer format.
    """
    arrays, header = tensors.open(path, KIND)
    try:
        return Trace(**arrays, header=header)
    except InputError as fault:
        raise InputError(f"{os.fspath(path)}: {fault}") from None


def fingerprint(path: str | os.PathLike[str]) -> str:
    """What identifies the content of a trace: 16 hexadecimal digits of its hash."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def frozen() -> Trace:
    """Return the trace that ships with the package: 24 contexts from 24 passages, `skip-8`.

    float16, full vocabulary; made by ``multidraft.record.frozen(path)``.
    """
    return open(FROZEN)


def __getattr__(name: str) -> Any:
    # `traces.record` is `multidraft.record.record`, which itself needs this module.
    if name != "record":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from multidraft.record import record

    return record


def _check(trace: Trace) -> None:
    KIND.check_sizes({name: getattr(trace, name) for name in SHAPES})
    missing = [key for key in HEADER_KEYS if key not in trace.header]
    if missing:
        raise InputError(f"the header lacks {', '.join(missing)}.")
    _check_types(trace)
    _check_index(trace.next_token, trace.vocabulary, "next_token")
    _check_index(trace.text, len(trace.texts), "text")
    _check_index(trace.passage, len(trace.header["passages"]), "passage")
    if len(set(trace.names)) != len(trace.drafts):
        raise InputError(f"the header names {len(set(trace.names))} drafts of {len(trace.drafts)}.")


def _check_types(trace: Trace) -> None:
    kinds = {trace.target.dtype, trace.drafts.dtype}
    if len(kinds) != 1 or not kinds <= {np.dtype("<f2"), np.dtype("<f4")}:
        raise InputError("target and drafts must both be float16 or both float32.")


def _check_index(values: Int[np.ndarray, " N"], size: int, name: str) -> None:
    if values.dtype != np.int64 or values.min() < 0 or values.max() >= size:
        raise InputError(f"{name} must hold 64-bit integers in 0..{size - 1}.")
