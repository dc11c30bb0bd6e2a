"""``multidraft methods``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import multidraft as md
from multidraft.cli.output import Json, print_json, print_table


def command(*, json: Json = False) -> None:
    """List solvers, rules and draft laws, each with one line."""
    kinds = {
        "solver": _described(md.solvers.names(), lambda name: type(md.solvers.get(name))),
        "rule": _described(md.verifiers.names(), lambda name: type(md.verifiers.get(name))),
        "draft law": _described(md.laws.names(), md.laws.LAWS.__getitem__),
    }
    if json:
        print_json(kinds)
        return
    rows = ((kind, name, line) for kind, found in kinds.items() for name, line in found.items())
    print_table(("kind", "name", "what it is"), rows)


def _described(names: Iterable[str], find: Callable[[str], Any]) -> dict[str, str]:
    """The first line of the docstring behind each name."""
    return {name: (find(name).__doc__ or "").strip().splitlines()[0] for name in names}
