"""Verification rules: which drafted token to accept, and what to draw otherwise.

One idea per file, one contract (`base`), one registry. Every rule is lossless for the draft laws
that it takes and refuses the others with a reason.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from multidraft.checks import choice

if TYPE_CHECKING:
    from multidraft.verifiers.base import Drafts, Rule
    from multidraft.verifiers.randomness import uniforms

__all__ = ["Drafts", "Rule", "get", "names", "uniforms"]

# name -> module and class
RULES: dict[str, tuple[str, str]] = {
    "naive": ("naive", "Naive"),
    "single": ("single", "Single"),
    "rrs": ("rrs", "RRS"),
    "rrsw": ("rrsw", "RRSW"),
    "k-seq": ("kseq", "KSeq"),
    "spechub": ("spechub", "SpecHub"),
    "greedy": ("greedy", "GreedyRule"),
    "importance": ("importance", "Importance"),
    "gls": ("gls", "GLS"),
    "from-plan": ("from_plan", "FromPlan"),
    "interval": ("from_plan", "IntervalRule"),
    "entropic": ("from_plan", "EntropicRule"),
    "global-resolution": ("from_plan", "GlobalResolutionRule"),
}


def names() -> tuple[str, ...]:
    """Names of all rules."""
    return tuple(RULES)


def get(name: str, **options: Any) -> Rule:
    """Return the rule `name`, configured with its options.

    Raises
    ------
    InputError
        For an unknown name or option.
    """
    module, kind = RULES[choice(name, RULES, "rule")]
    rule = getattr(import_module(f"multidraft.verifiers.{module}"), kind)
    if unknown := options.keys() - rule.__dataclass_fields__.keys():
        choice(min(unknown), tuple(rule.__dataclass_fields__) or ("(none)",), f"option of {name}")
    return rule(**options)


def __getattr__(name: str) -> Any:
    # torch is imported by the first rule or array that needs it, not by the list of names.
    if name in ("Drafts", "Rule"):
        return getattr(import_module("multidraft.verifiers.base"), name)
    if name == "uniforms":
        return import_module("multidraft.verifiers.randomness").uniforms
    raise AttributeError(f"module 'multidraft.verifiers' has no attribute {name!r}")
