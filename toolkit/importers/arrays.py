"""Traces from full logits: .npy, .npz and safetensors files, nothing unpickled."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from multidraft import __version__, traces
from multidraft.alignment import align
from multidraft.errors import InputError
from multidraft.problem import _arrays as read_npz

_COLUMNS = ("ids", "passage", "position")


def logits(
    target: Path,
    drafts: Mapping[str, Path],
    *,
    name: str = "target",
    ids: Path | None = None,
    pad: bool = False,
    draft_to_target: Path | None = None,
) -> traces.Trace:
    """Read full logits of a target and its drafts at the same contexts.

    Parameters
    ----------
    target : Path
        ``(N, V)`` logits: a .npy file, or the array ``target``, ``logits`` or the only other one of
        a .npz or safetensors file. Beside it may stand ``ids`` (N,), the tokens that follow the
        contexts, and ``passage`` and ``position`` (N,), the text that each context is from and its
        place there; without them all rows are taken as one text.
    drafts : mapping of name to Path
        ``(N, W)`` logits each: the array of that name, or ``draft``, ``logits``, or the only one.
    name : str
        What tables call the target.
    ids : Path, optional
        .npy file of the ids, where the target's file holds none.
    pad, draft_to_target
        As in :func:`multidraft.align`, for padded or reduced draft vocabularies; the map is a file.

    Raises
    ------
    InputError
        Files that cannot be read, shapes that do not fit, ids that are missing or differ.
    """
    files = {name: _read(target)} | {draft: _read(path) for draft, path in drafts.items()}
    values = {name: _logits(files[name], name, "target", target)}
    values |= {draft: _logits(files[draft], draft, "draft", drafts[draft]) for draft in drafts}
    if ids is not None:
        files[name]["ids"] = _only(_read(ids), ids)
    columns = _columns(files, name, len(values[name]))
    mapping = None if draft_to_target is None else _only(_read(draft_to_target), draft_to_target)
    pairs = [align(values[name], values[draft], mapping, pad) for draft in drafts]
    if len({pair[0].shape for pair in pairs} | {pair[1].shape for pair in pairs}) > 1:
        raise InputError("the drafts differ in width: import them into separate traces.")
    return _trace(name, pairs[0][0], {n: p[1] for n, p in zip(drafts, pairs, strict=True)}, columns)


def _read(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a file by name; that of a .npy file has none."""
    if path.suffix not in _READERS:
        raise InputError(f"{path} is neither .npy, .npz nor .safetensors.")
    if not path.is_file():
        raise InputError(f"there is no file {path}.")
    try:
        return _READERS[path.suffix](path)
    except Exception as fault:  # each format has its own errors
        raise InputError(f"{path} cannot be read: {fault}") from None


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:  # numpy has no bfloat16
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    wide = {name: t.float() if t.dtype.itemsize == 2 else t for name, t in tensors.items()}
    return {name: tensor.numpy() for name, tensor in wide.items()}


_READERS = {
    ".npy": lambda path: {"": np.load(path, mmap_mode="r", allow_pickle=False)},
    ".npz": read_npz,
    ".safetensors": _read_safetensors,
}


def _only(arrays: Mapping[str, np.ndarray], path: Path) -> np.ndarray:
    if len(arrays) != 1:
        raise InputError(f"{path} holds the arrays {', '.join(sorted(arrays))}: give one.")
    return next(iter(arrays.values()))


def _logits(arrays: Mapping[str, np.ndarray], name: str, role: str, path: Path) -> np.ndarray:
    """The logits of a model in a file, as float16 or float32."""
    wanted = (name, role, "logits")
    others = {key: array for key, array in arrays.items() if key not in _COLUMNS}
    found = next((others[key] for key in wanted if key in others), None)
    if found is None:
        found = _only(others, path)
    if found.ndim != 2 or 0 in found.shape or found.dtype.kind != "f":
        raise InputError(
            f"{path}: the logits of {name} are {found.dtype} of shape {found.shape}: give floats "
            "(N, V)."
        )
    return found if found.dtype == np.float16 else found.astype(np.float32, copy=False)


def _columns(
    files: Mapping[str, Mapping[str, np.ndarray]], name: str, rows: int
) -> dict[str, Int[np.ndarray, " N"]]:
    """Next tokens, passages and positions, and whether all files agree about them."""
    own = files[name]
    if "ids" not in own:
        raise InputError(
            "the ids of the tokens that follow the contexts are missing: give --ids, a .npy file "
            "of N whole numbers, or an array ids beside the target's logits."
        )
    nothing = {"passage": np.zeros(rows, dtype=np.int64), "position": np.arange(rows)}
    found = {key: np.asarray(own.get(key, nothing.get(key))) for key in _COLUMNS}
    for key, column in found.items():
        if column.shape != (rows,) or column.dtype.kind not in "iu":
            raise InputError(f"{key} must be {rows} whole numbers, one for each row of the logits.")
    for other, arrays in files.items():
        for key in arrays.keys() & found.keys():
            _refuse_mismatch(found[key], np.asarray(arrays[key]), key, name, other)
    return {key: column.astype(np.int64) for key, column in found.items()}


def _refuse_mismatch(
    first: np.ndarray, second: np.ndarray, key: str, name: str, other: str
) -> None:
    if first.shape != second.shape:
        raise InputError(f"{key} has {len(first)} rows in {name} and {len(second)} in {other}.")
    if (apart := np.flatnonzero(first != second)).size:
        row = int(apart[0])
        raise InputError(
            f"{key} differs at row {row} between {name} ({first[row]}) and {other} "
            f"({second[row]}): both files must hold the same contexts."
        )


def _trace(
    name: str,
    target: Float[np.ndarray, "N V"],
    drafts: Mapping[str, Float[np.ndarray, "N V"]],
    columns: Mapping[str, Int[np.ndarray, " N"]],
) -> traces.Trace:
    everything = [target, *drafts.values()]
    dtype = np.float16 if all(part.dtype == np.float16 for part in everything) else np.float32
    _, passage = np.unique(columns["passage"], return_inverse=True)
    return traces.Trace(
        target.astype(dtype, copy=False),
        np.stack([part.astype(dtype, copy=False) for part in drafts.values()]),
        columns["ids"],
        np.zeros(len(target), dtype=np.int64),
        passage.astype(np.int64),
        columns["position"],
        _header(name, list(drafts), columns["ids"], passage, np.dtype(dtype).name),
    )


def _header(
    name: str, drafts: list[str], ids: np.ndarray, passage: np.ndarray, dtype: str
) -> dict[str, Any]:
    groups = [ids[passage == i] for i in range(int(passage.max()) + 1)]
    passages = [
        traces.Passage("imported", None, None, len(group), _hash(group)) for group in groups
    ]
    return {
        "format": traces.FORMAT,
        "target": {"name": name, "kind": "imported"},
        "drafts": [{"name": draft, "kind": "imported"} for draft in drafts],
        "tokenizer": {"sha256": None},
        "texts": [{"id": "imported", "title": "imported", "author": "", "sha256": _hash(ids)}],
        "passages": [asdict(item) for item in passages],
        "dtype": dtype,
        "versions": {"python": platform.python_version(), "multidraft": __version__},
    }


def _hash(ids: np.ndarray) -> str:
    return hashlib.sha256(ids.astype("<i8").tobytes()).hexdigest()
