"""``multidraft methods``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import multidraft as md
from multidraft.cli.output import Flag, Json, print_json, print_table


def command(*, verifiers: Flag = False, json: Json = False) -> int:
    """List solvers, rules, draft laws and bounds, each with one line.

    Parameters
    ----------
    verifiers
        Check every rule on every draft law that it takes instead, and print what passed. The exit
        code is 1 when a check failed.
    """
    return _checks(json) if verifiers else _list(json)


def _checks(json: bool) -> int:
    """Print the matrix rule x draft law x check."""
    from multidraft.verifiers import matrix

    rows = matrix.rows()
    if json:
        print_json(rows)
    else:
        print_table(tuple(rows[0]), (tuple(row.values()) for row in rows))
    return int(any("FAIL" in row.values() for row in rows))


def _list(json: bool) -> int:
    kinds = {
        "solver": _described(md.solvers.names(), lambda name: type(md.solvers.get(name))),
        "rule": _described(md.verifiers.names(), lambda name: type(md.verifiers.get(name))),
        "draft law": _described(md.laws.names(), md.laws.LAWS.__getitem__),
        "bound": {name: md.bounds.describe(name) for name in md.bounds.names()},
    }
    if json:
        print_json(kinds)
        return 0
    rows = ((kind, name, line) for kind, found in kinds.items() for name, line in found.items())
    print_table(("kind", "name", "what it is"), rows)
    return 0


def _described(names: Iterable[str], find: Callable[[str], Any]) -> dict[str, str]:
    """The first line of the docstring behind each name."""
    return {name: (find(name).__doc__ or "").strip().splitlines()[0] for name in names}
