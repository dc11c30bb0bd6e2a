"""``multidraft models``."""

from __future__ import annotations

import sys

from cyclopts import App

from multidraft import models
from multidraft.cli.output import Json, print_json, print_table

command = App(name="models", help_epilogue="Example: multidraft models fetch smollm2")


@command.default
@command.command(name="list")
def show(*, json: Json = False) -> None:
    """List the models that can be named as --target and --draft."""
    found = models.entries()
    if json:
        print_json([vars(entry) for entry in found])
        return
    rows = ((entry.name, entry.role, entry.status, entry.description) for entry in found)
    print_table(("name", "use as", "status", "what it is"), rows)


@command.command(help_epilogue="Example: multidraft models fetch smollm2")
def fetch(name: str, *, json: Json = False) -> None:
    """Download a model into the cache, check and convert it.

    Parameters
    ----------
    name
        smollm2.
    """
    folder = models.fetch(name, report=lambda stage: print(stage, file=sys.stderr))
    if json:
        print_json({"name": name, "folder": str(folder)})
    else:
        print(f"{name} is in {folder}")
