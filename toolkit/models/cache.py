"""The user's cache folder, and folders that are either complete or absent."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MARKER = "multidraft.json"


def folder() -> Path:
    """Return the cache folder: `MULTIDRAFT_CACHE`, or the platform's user cache folder."""
    chosen = os.environ.get("MULTIDRAFT_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("multidraft", appauthor=False))


def traces() -> Path:
    """Return the folder where recorded traces are kept by default."""
    return folder() / "traces"


def complete(place: Path) -> bool:
    """Whether `place` was finished: its marker lists every file with its size."""
    sizes = provenance(place).get("files")
    if not sizes:
        return False
    return all(
        (place / name).is_file() and (place / name).stat().st_size == size
        for name, size in sizes.items()
    )


def provenance(place: Path) -> dict[str, Any]:
    """Return what the marker of `place` says about its origin, empty if there is none."""
    try:
        return json.loads((place / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


@contextmanager
def building(place: Path, origin: dict[str, Any]) -> Iterator[Path]:
    """Yield a folder to fill; on success it gets its marker and becomes `place` in one rename.

    An interruption at any point leaves `place` absent or as it was: the next call starts afresh.
    Call it under `alone`, since the unfinished folder of an earlier run is swept away.
    """
    unfinished = place.with_name(place.name + ".partial")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    yield unfinished
    sizes = {path.name: path.stat().st_size for path in sorted(unfinished.iterdir())}
    marker = json.dumps({**origin, "files": sizes}, indent=1)
    (unfinished / MARKER).write_text(marker, encoding="utf-8")
    for path in unfinished.iterdir():
        sync(path)
    shutil.rmtree(place, ignore_errors=True)
    os.replace(unfinished, place)


@contextmanager
def scratch(place: Path) -> Iterator[Path]:
    """Yield `place` as an empty folder and remove it; what a killed run left there goes first."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """Hold the lock of `place`; a second process waits. The system frees it if this one dies."""
    from filelock import FileLock

    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{place}.lock"):
        yield


def sync(path: Path) -> None:
    """Force `path` to the disk, so that a rename after it never shows an empty file."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())
