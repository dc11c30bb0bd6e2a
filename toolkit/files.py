"""Files that are either whole or absent."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path; on success flush it to the disk and rename it to `path`.

    The folder is created if needed. When the body raises (Ctrl-C included) the temporary file is
    removed and `path` is left as it was; after a crash at any moment `path` is the old file or the
    new one, never a part of it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield temporary
        with temporary.open("r+b") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        _flush_names(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    r"""Write `text` as UTF-8 with ``\n`` line ends, atomically."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _flush_names(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    if os.name == "nt":
        return  # no folder can be opened there, and none needs to be
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
