"""Where a number comes from: configuration, versions, revision, machine."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from multidraft.errors import InputError

#: Version of the header and of the column conventions; it grows when a reader must know.
SCHEMA = 1

_PACKAGES = ("multidraft", "highspy", "numba", "numpy", "ortools", "scipy", "torch", "transformers")
_JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
_CODE = ("toolkit", "solvers", "experiments", "pyproject.toml", "constraints.txt")


def canonical(content: Any) -> str:
    """The one JSON text of `content`: sorted keys, no spaces, no NaN.

    Raises
    ------
    InputError
        When `content` is not JSON (other types, NaN, infinities).

    Examples
    --------
    >>> canonical({"n": 2, "law": "iid"})
    '{"law":"iid","n":2}'
    """
    try:
        return _JSON.encode(content)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"this content is not plain JSON ({error}); use numbers, strings, lists and dicts"
        ) from None


def digest(content: Any) -> str:
    """SHA-256 of the canonical JSON of `content`, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def header(configuration: Mapping[str, Any], seeds: str | list[int]) -> dict[str, Any]:
    """Provenance of a result that is made now, in this process.

    Parameters
    ----------
    configuration : mapping
        All that decides the numbers, as JSON.
    seeds : list of int, or str
        The seeds used, or the sentence that says how they follow from the configuration.
    """
    return {
        "schema": SCHEMA,
        "configuration": json.loads(canonical(configuration)),
        "configuration_hash": digest(configuration),
        "seeds": seeds,
        "versions": dict(_versions()),  # a copy: the cached one is everybody's
        "git": _git(),
        "machine": _machine(),
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def made_by(header: Mapping[str, Any]) -> str:
    """What made a result, from its header, as the end of a sentence."""
    git = header["git"]
    code = "an installed package" if git is None else f"revision {git['revision'][:12]}"
    if git is not None and git["dirty"]:
        code += " with uncommitted changes"
    versions, machine = header["versions"], header["machine"]
    torch = f", torch {versions['torch']}" if "torch" in versions else ""
    return (
        f"multidraft {versions['multidraft']} ({code}), numpy {versions['numpy']}{torch}, "
        f"Python {versions['python']}, {machine['cores']} cores, {header['written']}; "
        f"configuration {header['configuration_hash'][:12]}"
    )


@cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # an optional package that cannot have taken part
    return found


@cache
def _git() -> dict[str, Any] | None:
    """Revision of the checkout this code runs from, and whether its code was changed since."""
    root = Path(__file__).resolve().parents[2]
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        return None  # installed from a wheel: the version says it all

    def ask(*arguments: str) -> str:
        command = [git, "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = ask("status", "--porcelain", "--untracked-files=all", "--", *_CODE)
        return {"revision": ask("rev-parse", "HEAD"), "dirty": bool(changed)}
    except subprocess.CalledProcessError:
        return None  # no commit yet, or a repository that git declines to read


@cache
def _machine() -> dict[str, Any]:
    import psutil

    return {
        "system": platform.platform(terse=True),
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
    }
