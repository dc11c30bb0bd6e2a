"""Named arrays under a JSON header in one safetensors file: written whole or not, read by mapping.

The header is JSON text under the key ``multidraft`` of the file's metadata. Reading checks every
size against the file before anything is allocated; nothing is unpickled.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Shaped

from multidraft.errors import InputError
from multidraft.files import atomic

KEY = "multidraft"
_DTYPES = {"F16": "<f2", "F32": "<f4", "I64": "<i8"}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes
    ----------
    noun, remedy : str
        What such a file is called, and what mends a damaged one: the ends of sentences.
    format : int
        The format that is read and written.
    shapes : mapping
        Dimensions of every tensor, a letter each: equal letters are equal sizes.
    """

    noun: str
    remedy: str
    format: int
    shapes: Mapping[str, str]

    def small(self) -> list[str]:
        """Names of the tensors of one number per row, which are read at once."""
        return [name for name, letters in self.shapes.items() if len(letters) == 1]

    def check_sizes(self, tensors: Mapping[str, Shaped[np.ndarray, ...]]) -> dict[str, int]:
        """Size of every letter.

        Raises
        ------
        InputError
            Tensors whose dimensions do not agree, or are empty.
        """
        sizes: dict[str, int] = {}
        for name, letters in self.shapes.items():
            shape = tensors[name].shape
            if len(shape) != len(letters):
                raise InputError(f"tensor {name} has {len(shape)} dimensions, not {len(letters)}.")
            for letter, size in zip(letters, shape, strict=True):
                if sizes.setdefault(letter, size) != size or size == 0:
                    raise InputError(f"tensor {name} has {size} where {letter} = {sizes[letter]}.")
        return sizes

    def damaged(self, place: Path, fault: str) -> InputError:
        """The error that says what is wrong with a file."""
        return InputError(f"{place} is no {self.noun} or is damaged, {fault}: {self.remedy}.")


@dataclass(frozen=True)
class Sink:
    """A file whose tensors are being filled, row by row in any order."""

    file: BinaryIO
    starts: Mapping[str, int]
    dtypes: Mapping[str, str]

    def put(self, name: str, rows: Shaped[np.ndarray, "b ..."], first: int = 0) -> None:
        """Write `rows` to rows ``first, first + 1, ...`` of a tensor."""
        for i, row in enumerate(rows):  # one at a time: no second copy of a large tensor
            data = row.astype(self.dtypes[name]).tobytes()
            self.file.seek(self.starts[name] + (first + i) * len(data))
            self.file.write(data)


@contextmanager
def create(
    path: str | os.PathLike[str],
    tensors: Mapping[str, tuple[str, Sequence[int]]],
    header: Mapping[str, Any],
) -> Iterator[Sink]:
    """Yield a sink for a file of the given types and shapes; `path` changes when all is written.

    Parameters
    ----------
    path : path
    tensors : mapping of name to (dtype, shape)
        ``<f2``, ``<f4`` or ``<i8``.
    header : mapping
        JSON.
    """
    entries: dict[str, Any] = {"__metadata__": {KEY: json.dumps(header)}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + np.dtype(dtype).itemsize * math.prod(shape)
        entry = {"dtype": _CODES[dtype], "shape": [*shape]}
        entries[name] = {**entry, "data_offsets": [begin, end]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)  # so that every tensor is aligned
    data = 8 + len(text)
    starts = {name: data + entries[name]["data_offsets"][0] for name in tensors}
    with atomic(path) as temporary, temporary.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        yield Sink(file, starts, {name: dtype for name, (dtype, _) in tensors.items()})


def write(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Shaped[np.ndarray, ...]],
    header: Mapping[str, Any],
) -> Path:
    """Write arrays and their header; an interruption leaves `path` as it was."""
    little = {name: array.dtype.newbyteorder("<").str for name, array in tensors.items()}
    shapes = {name: (little[name], array.shape) for name, array in tensors.items()}
    with create(path, shapes, header) as sink:
        for name, array in tensors.items():
            sink.put(name, array)
    return Path(path)


def open(
    path: str | os.PathLike[str], kind: Kind
) -> tuple[dict[str, Shaped[np.ndarray, ...]], dict[str, Any]]:
    """Return the tensors of a file and its header; large tensors stay in the file until read.

    Raises
    ------
    InputError
        No such file, a damaged or truncated one, one of another kind or of a newer format.
    """
    place = Path(path)
    entries, header, start = _read_header(place, kind)
    _check_names(place, entries, header, kind)
    tensors = {name: _map(place, name, entries[name], start, kind) for name in kind.shapes}
    return tensors | {name: np.array(tensors[name]) for name in kind.small()}, header


def _read_header(place: Path, kind: Kind) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return the tensors' entries, our header and the offset of the data, all checked in size."""
    try:
        with place.open("rb") as file:
            total = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= total - 8:
                raise kind.damaged(place, "its header does not fit into the file")
            entries = json.loads(file.read(length))
    except OSError as fault:
        raise InputError(
            f"{place} cannot be read ({fault.strerror}): give a {kind.noun} file."
        ) from None
    except ValueError as fault:
        if isinstance(fault, InputError):
            raise
        raise kind.damaged(place, "its header is no JSON") from None
    try:
        header = dict(json.loads(entries.pop("__metadata__")[KEY]))
        sizes = {name: _size(entry) for name, entry in entries.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise kind.damaged(place, f"its header is not that of a {kind.noun}") from None
    for name, (begin, end, needed) in sizes.items():
        if not 0 <= begin <= end <= total - 8 - length or end - begin != needed:
            raise kind.damaged(place, f"tensor {name} does not fit into the file")
    return entries, header, 8 + length


def _size(entry: dict[str, Any]) -> tuple[int, int, int]:
    begin, end = (int(offset) for offset in entry["data_offsets"])
    shape = [int(size) for size in entry["shape"]]
    if min(shape, default=0) < 0:
        raise ValueError
    return begin, end, np.dtype(_DTYPES[entry["dtype"]]).itemsize * math.prod(shape)


def _check_names(place: Path, entries: dict[str, Any], header: dict[str, Any], kind: Kind) -> None:
    unknown = ", ".join(sorted(set(entries) - set(kind.shapes)))
    version = header.get("format")
    if version != kind.format:
        holds = f" with tensors {unknown}" if unknown else ""
        raise InputError(
            f"{place} has format {version}{holds}, this version reads format {kind.format}: "
            f"upgrade multidraft or {kind.remedy}."
        )
    missing = ", ".join(sorted(set(kind.shapes) - set(entries)))
    if missing or unknown:
        fault = f"lacks tensor {missing}" if missing else f"has unknown tensor {unknown}"
        raise kind.damaged(place, f"it {fault}")


def _map(place: Path, name: str, entry: dict[str, Any], start: int, kind: Kind) -> np.ndarray:
    if 0 in entry["shape"]:
        raise kind.damaged(place, f"tensor {name} is empty")
    offset = start + int(entry["data_offsets"][0])
    shape = tuple(int(size) for size in entry["shape"])
    return np.memmap(place, _DTYPES[entry["dtype"]], mode="r", offset=offset, shape=shape)
