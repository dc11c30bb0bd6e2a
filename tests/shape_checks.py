"""The type checker that jaxtyping's import hook puts around the project's functions in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype

# An int is a float here, as it is for static type checkers.
_CONFIGURATION = BeartypeConf(is_pep484_tower=True)


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the arguments and the result of `function` at every call.

    The hook decorates methods one by one, outside their class, where beartype cannot know what
    ``Self`` is: such annotations are left to the static type checker.
    """
    annotations = function.__annotations__
    for name, hint in annotations.items():
        if "typing.Self" in str(hint):
            annotations[name] = Any
    return beartype(conf=_CONFIGURATION)(function)
