"""The type checker that jaxtyping's import hook puts around the project's functions in tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beartype import BeartypeConf, beartype

# An int is a float here, as it is for static type checkers.
_CONFIGURATION = BeartypeConf(is_pep484_tower=True)


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the arguments and the result of `function` at every call."""
    annotations = function.__annotations__
    annotations.update({name: Any for name, hint in annotations.items() if _is_static(hint)})
    return beartype(conf=_CONFIGURATION)(function)


def _is_static(hint: Any) -> bool:
    """Whether only a static type checker can judge a hint.

    ``Self``, since the hook decorates methods one by one, outside their class; and protocols that
    are not declared checkable at run time.
    """
    protocol = getattr(hint, "_is_protocol", False)
    return "typing.Self" in str(hint) or (protocol and not hint._is_runtime_protocol)
