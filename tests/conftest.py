"""What every test runs under: one thread, checked array shapes, reproducible examples."""

from __future__ import annotations

import os

# Each is read once, when its library is first imported.
os.environ.update(
    {f"{pool}_NUM_THREADS": "1" for pool in ("OMP", "OPENBLAS", "MKL", "NUMBA")},
)

from pathlib import Path

from hypothesis import settings
from jaxtyping import install_import_hook
from matrices import pytest_terminal_summary  # noqa: F401 (a hook that pytest finds here)

_PACKAGES = {
    "toolkit": "multidraft",
    "solvers": "multidraft.solvers",
    "experiments": "multidraft.experiments",
}
_ROOT = Path(__file__).resolve().parents[1]


def _is_checked(path: Path) -> bool:
    """Whether the calls into a module can be checked at run time.

    Numba compiles the functions it finds and cannot compile the checking wrapper around them; the
    command line is parsed by cyclopts from the annotations themselves.
    """
    if path.name.startswith("__") or "cli" in path.relative_to(_ROOT).parts:
        return False
    return "import numba" not in (source := path.read_text()) and "from numba" not in source


def checked_modules() -> list[str]:
    """Names of the modules whose annotations (jaxtyping shapes included) are checked in tests."""
    return [
        ".".join((package, *path.relative_to(_ROOT / folder).with_suffix("").parts))
        for folder, package in _PACKAGES.items()
        for path in sorted((_ROOT / folder).rglob("*.py"))  # rglob follows no links
        if _is_checked(path)
    ]


# Only modules that were not imported yet can be hooked, so this runs before any test module.
install_import_hook(checked_modules(), "shape_checks.check")

settings.register_profile("multidraft", derandomize=True, deadline=None)
settings.load_profile("multidraft")
