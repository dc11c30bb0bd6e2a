"""Rules that verify a drafted tree: one idea per file, one contract (`base`), one registry."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from multidraft.checks import choice
from multidraft.trees.rules.base import TreeRule

# name -> module and class
RULES: dict[str, tuple[str, str]] = {
    "top-down": ("top_down", "TopDown"),
    "block": ("block", "BlockVerification"),
    "greedy-multipath": ("greedy_multipath", "GreedyMultipath"),
    "traversal": ("traversal", "Traversal"),
    "univer": ("univer", "UniVer"),
    "bottom-up": ("bottom_up", "BottomUp"),
}


def names() -> tuple[str, ...]:
    """Names of all tree rules."""
    return tuple(RULES)


def get(name: str, **options: Any) -> TreeRule:
    """Return the tree rule `name`, configured with its options.

    Raises
    ------
    InputError
        For an unknown name or option.
    """
    module, kind = RULES[choice(name, RULES, "tree rule")]
    rule = getattr(import_module(f"multidraft.trees.rules.{module}"), kind)
    if unknown := options.keys() - rule.__dataclass_fields__.keys():
        choice(min(unknown), tuple(rule.__dataclass_fields__) or ("(none)",), f"option of {name}")
    return rule(**options)


def parse(text: str) -> TreeRule:
    """Return the rule that a text names, as commands and settings write it.

    Parameters
    ----------
    text : str
        A tree rule, such as ``traversal``; ``bottom-up:RULE`` or ``top-down:RULE`` with a token
        rule; or a token rule alone, which stands for its top-down form.

    Raises
    ------
    InputError
        No rule has this name.

    Examples
    --------
    >>> parse("interval")
    TopDown(rule='interval', merge=True)
    >>> parse("bottom-up:rrs").name
    'bottom-up'
    """
    from multidraft import verifiers

    form, _, token_rule = text.partition(":")
    if not token_rule and form not in RULES and form in verifiers.names():
        form, token_rule = "top-down", form
    if token_rule:
        choice(form, ("top-down", "bottom-up"), "form of a token rule")
        return get(form, rule=choice(token_rule, verifiers.names(), "token rule"))
    return get(choice(form, (*RULES, *verifiers.names()), "rule"))
