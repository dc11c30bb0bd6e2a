"""Verification rules: which drafted token to accept, and what to draw otherwise.

One idea per file, one contract (`base`), one registry. Every rule is lossless for the draft laws
that it takes and refuses the others with a reason.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from multidraft.checks import choice

if TYPE_CHECKING:
    from multidraft.verifiers.base import Acceptance, Drafts, Outcome, Rule
    from multidraft.verifiers.logits import from_logits
    from multidraft.verifiers.randomness import uniforms

__all__ = [
    "Acceptance",
    "Drafts",
    "Outcome",
    "Rule",
    "from_logits",
    "get",
    "names",
    "uniforms",
]

# Public name -> module. torch is imported by the first rule or array that needs it.
_HOME = {
    "Acceptance": "base",
    "Drafts": "base",
    "Outcome": "base",
    "Rule": "base",
    "from_logits": "logits",
    "uniforms": "randomness",
}

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
    if name in _HOME:
        return getattr(import_module(f"multidraft.verifiers.{_HOME[name]}"), name)
    raise AttributeError(f"module 'multidraft.verifiers' has no attribute {name!r}")
