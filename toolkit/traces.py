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

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Float, Int

from multidraft.errors import InputError

FORMAT = 1
KEY = "multidraft"
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
_DTYPES = {"F16": "<f2", "F32": "<f4", "I64": "<i8"}


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
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished = place.with_name(f".{place.name}.{os.getpid()}.partial")
        try:
            with unfinished.open("wb") as file:
                _write(file, {name: getattr(self, name) for name in SHAPES}, self.header)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, place)
        finally:
            unfinished.unlink(missing_ok=True)
        return place


def open(path: str | os.PathLike[str]) -> Trace:
    """Open a trace; logits stay in the file until rows are read.

    Raises
    ------
    InputError
        No such file, a damaged or truncated one, or one of a newer format.
    """
    place = Path(path)
    entries, header, start = _read_header(place)
    _check_names(place, entries, header)
    tensors = {name: _map(place, name, entries[name], start) for name in SHAPES}
    small = {name: np.array(tensors[name]) for name in SHAPES if SHAPES[name] == "N"}
    try:
        return Trace(**{**tensors, **small}, header=header)
    except InputError as fault:
        raise InputError(f"{place}: {fault}") from None


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
    sizes: dict[str, int] = {}
    for name, letters in SHAPES.items():
        array = getattr(trace, name)
        if array.ndim != len(letters):
            raise InputError(f"tensor {name} has {array.ndim} dimensions, not {len(letters)}.")
        for letter, size in zip(letters, array.shape, strict=True):
            if sizes.setdefault(letter, size) != size or size == 0:
                raise InputError(f"tensor {name} has {size} where {letter} = {sizes[letter]}.")
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


def _write(file: BinaryIO, tensors: dict[str, np.ndarray], header: dict[str, Any]) -> None:
    # By hand, tensor by tensor: the library would first copy the whole trace into one buffer.
    codes = {kind: code for code, kind in _DTYPES.items()}
    entries: dict[str, Any] = {"__metadata__": {KEY: json.dumps(header)}}
    end = 0
    for name, array in tensors.items():
        begin, end = end, end + array.nbytes
        entry = {"dtype": codes[array.dtype.newbyteorder("<").str], "shape": array.shape}
        entries[name] = {**entry, "data_offsets": [begin, end]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)  # so that every tensor is aligned
    file.write(len(text).to_bytes(8, "little") + text)
    for array in tensors.values():
        for block in array:
            file.write(block.astype(array.dtype.newbyteorder("<")).tobytes())


def _read_header(place: Path) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return the tensors' entries, our header and the offset of the data, all checked in size."""
    try:
        with place.open("rb") as file:
            total = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= total - 8:
                raise _damaged(place, "its header does not fit into the file")
            entries = json.loads(file.read(length))
    except OSError as fault:
        raise InputError(f"{place} cannot be read ({fault.strerror}): give a trace file.") from None
    except ValueError as fault:
        if isinstance(fault, InputError):
            raise
        raise _damaged(place, "its header is no JSON") from None
    try:
        header = json.loads(entries.pop("__metadata__")[KEY])
        sizes = {name: _size(entry) for name, entry in entries.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _damaged(place, "its header is not that of a trace") from None
    for name, (begin, end, needed) in sizes.items():
        if not 0 <= begin <= end <= total - 8 - length or end - begin != needed:
            raise _damaged(place, f"tensor {name} does not fit into the file")
    return entries, header, 8 + length


def _size(entry: dict[str, Any]) -> tuple[int, int, int]:
    begin, end = (int(offset) for offset in entry["data_offsets"])
    shape = [int(size) for size in entry["shape"]]
    if min(shape, default=0) < 0:
        raise ValueError
    return begin, end, np.dtype(_DTYPES[entry["dtype"]]).itemsize * math.prod(shape)


def _check_names(place: Path, entries: dict[str, Any], header: dict[str, Any]) -> None:
    unknown = ", ".join(sorted(set(entries) - set(SHAPES)))
    version = header.get("format")
    if version != FORMAT:
        holds = f" with tensors {unknown}" if unknown else ""
        raise InputError(
            f"{place} has format {version}{holds}, this version reads format {FORMAT}: "
            "upgrade multidraft or record it again."
        )
    missing = ", ".join(sorted(set(SHAPES) - set(entries)))
    if missing or unknown:
        fault = f"lacks tensor {missing}" if missing else f"has unknown tensor {unknown}"
        raise _damaged(place, f"it {fault}")


def _map(place: Path, name: str, entry: dict[str, Any], start: int) -> np.ndarray:
    if 0 in entry["shape"]:
        raise _damaged(place, f"tensor {name} is empty")
    offset = start + int(entry["data_offsets"][0])
    shape = tuple(int(size) for size in entry["shape"])
    return np.memmap(place, _DTYPES[entry["dtype"]], mode="r", offset=offset, shape=shape)


def _damaged(place: Path, fault: str) -> InputError:
    return InputError(f"{place} is no trace or is damaged, {fault}: record it again.")
