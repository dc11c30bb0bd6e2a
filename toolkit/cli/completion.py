"""``multidraft completion``."""

from __future__ import annotations

from typing import Literal

from multidraft.cli import app
from multidraft.cli.output import Json, print_json


def command(shell: Literal["bash", "zsh", "fish", "powershell"], /, *, json: Json = False) -> None:
    """Print the script that completes commands and options in a shell.

    Parameters
    ----------
    shell
        bash, zsh, fish or powershell.
    """
    script = app.generate_completion(shell=shell)
    if json:
        print_json({"shell": shell, "script": script})
    else:
        print(script)
