"""How numbers, draft laws and rules are written in sentences, tables and on the page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_ROUND_OFF = 1e-9
LAWS = {
    "iid": "iid",
    "without-replacement": "without replacement",
    "greedy": "greedy",
    "hub": "hub",
    "top": "most probable",
}


def value(found: Mapping[str, Any], digits: int = 3) -> str:
    """A value, or an interval."""
    low, high = found["low"], found["high"]
    if low is None:
        return "not known"
    text = f"{low:.{digits}f}"
    if high is None:
        return f"at least {text}"
    top = f"{high:.{digits}f}"
    return text if top == text else f"{text} to {top}"


def error(found: Mapping[str, Any], digits: int = 3) -> str:
    """The standard error; one digit where it would round to zero, nothing where there is none."""
    size = found["error"]
    if size is None:
        return ""
    text = f"{size:.{digits}f}"
    return text if float(text) > 0 or size < _ROUND_OFF else f"{size:.0e}"


def number(found: Mapping[str, Any], digits: int = 3) -> str:
    """A value with its error, or an interval with that of its ends.

    Examples
    --------
    >>> number({"low": 0.6131, "high": 0.6131, "error": 0.0042, "kind": "exact"})
    '0.613 ± 0.004'
    >>> number({"low": 0.5, "high": 0.6, "error": None, "kind": "interval"})
    '0.500 to 0.600'
    """
    spread = error(found, digits)
    return value(found, digits) + (f" ± {spread}" if spread else "")


def percent(share: float | None) -> str:
    """A share in per cent, a dash where there is none.

    Examples
    --------
    >>> percent(0.754), percent(None)
    ('75 %', '–')
    """
    return "–" if share is None or not math.isfinite(share) else f"{100 * share:.0f} %"


def system(law: str, rule: str, n: int | None = None) -> str:
    """A draft law with its rule, in words.

    Examples
    --------
    >>> system("top", "naive", 4), system("without-replacement", "rrsw")
    ('4 most probable tokens, match (naive)', 'drafts without replacement, rrsw')
    """
    verified = {"naive": "match (naive)", "interval": "interval partition"}.get(rule, rule)
    count = "" if n is None else f"{n} "
    drafts = {
        "top": f"{count}most probable tokens",
        "without-replacement": f"{count}drafts without replacement",
    }.get(law, f"{count}{LAWS[law]} drafts")
    return f"{drafts}, {verified}"
