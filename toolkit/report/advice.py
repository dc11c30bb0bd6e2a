"""Which law, rule and tree to use, in words, from the numbers of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from multidraft.report.means import mean, middle
from multidraft.report.source import Ends
from multidraft.report.words import LAWS, number, percent, system

_N = 4  # the number of drafts that the advice is about
_CLEAR = 2.0  # standard errors that make a difference clear
_FEW = 5  # contexts: smaller groups are not worth a sentence


def advice(
    content: Mapping[str, Any], ends: Mapping[Any, Ends], clusters: Int[np.ndarray, " N"]
) -> list[dict[str, str]]:
    """Paragraphs with a title each."""
    paragraphs = {
        "What is possible": _possible(content),
        "Law and rule": _law_and_rule(content, ends, clusters),
        "Against today's default": _default(content, ends, clusters),
        "Tree": _tree(content),
        "Where tokens are lost": _lost(content),
    }
    return [{"title": title, "text": text} for title, text in paragraphs.items()]


def _possible(content: Mapping[str, Any]) -> str:
    best = [row for row in content["optimum"] if row["n"] == _N]
    listed = "; ".join(f"{LAWS[row['law']]} {number(row)}" for row in best)
    one = number(content["summary"]["overlap"])
    return (
        f"One sampled draft token is accepted with probability {one}. With {_N} drafts no rule can "
        f"accept more than this, by draft law: {listed}."
    )


def _candidates(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Systems of `_N` drafts, the most accepted first; not those of which only bounds are known."""
    rows = [row for row in content["rules"] if row["n"] == _N and row["kind"] != "bound"]
    return sorted(rows, key=middle, reverse=True)


def _law_and_rule(
    content: Mapping[str, Any], ends: Mapping[Any, Ends], clusters: Int[np.ndarray, " N"]
) -> str:
    best, *others = _candidates(content)
    name = system(best["law"], best["rule"], _N)
    if not content["exact"]:
        open_ = [row for row in others if row["high"] > best["low"]]
        if open_:
            listed = "; ".join(_named(row) for row in (best, *open_))
            return f"These logs do not decide between: {listed}. See below what would narrow them."
        return f"Use {name}: {number(best)}, above every other system whatever the logs leave out."
    second = next(row for row in others if row["rule"] != best["rule"] or row["law"] != best["law"])
    apart = _difference(ends, best, second, clusters)
    verdict = "a clear one" if _is_clear(apart) else "not a clear one: take the simpler of the two"
    return (
        f"Use {name}: {number(best)}, {percent(best['share'])} of what its drafts can gain over "
        f"one draft. Next is {_named(second)}; the difference, context by context, is "
        f"{number(apart)}, {verdict}."
    )


def _named(row: Mapping[str, Any]) -> str:
    return f"{system(row['law'], row['rule'], _N)} ({number(dict(row))})"


def _difference(
    ends: Mapping[Any, Ends],
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    clusters: Int[np.ndarray, " N"],
) -> dict[str, Any]:
    """Paired difference of two systems."""
    a, b = (ends["rule", row["law"], row["n"], row["rule"]] for row in (first, second))
    return mean(Ends(a.lower - b.upper, a.upper - b.lower, a.kind), clusters)


def _is_clear(apart: Mapping[str, Any]) -> bool:
    return apart["low"] > _CLEAR * (apart["error"] or 0.0)


def _default(
    content: Mapping[str, Any], ends: Mapping[Any, Ends], clusters: Int[np.ndarray, " N"]
) -> str:
    rows = _candidates(content)
    default = next((row for row in rows if row["law"] == "top"), None)
    if default is None:
        return "The log lists too few draft tokens to say what the most probable ones are."
    sampled = next(row for row in rows if row["law"] != "top")
    apart = _difference(ends, sampled, default, clusters)
    return (
        f"Serving engines draft the {_N} most probable tokens and accept when the target's own "
        f"draw is among them: {number(default)}. {system(sampled['law'], sampled['rule'], _N)} "
        f"accept {number(sampled)}; the difference, context by context, is {number(apart)}."
    )


def _tree(content: Mapping[str, Any]) -> str:
    rows = sorted(content["trees"], key=lambda row: middle(row["speedup"]), reverse=True)
    if not rows:
        return "No tree can be estimated from these logs."
    best = rows[0]
    cost = content["settings"]["draft_cost"]
    return (
        f"If acceptance did not change with depth and a draft call took {cost:g} of a target "
        f"call, the fastest of the standard trees would be {best['tree']} ({best['tokens']} "
        f"tokens, depth {best['depth']}) with {system(best['law'], best['rule'])}: "
        f"{number(best['efficiency'], 2)} tokens per target call, {number(best['speedup'], 2)} "
        "times as fast as without drafts."
    )


def _lost(content: Mapping[str, Any]) -> str:
    by_kind = [row for row in content["losses"] if row["by"] == "token that follows"]
    most = max(by_kind, key=lambda row: row["share"])
    total = sum(row["contexts"] for row in by_kind)
    large = [row for row in content["losses"] if row["contexts"] >= max(_FEW, total / 20)]
    worst = max(large or by_kind, key=lambda row: row["share"] / row["contexts"])
    return (
        f"{percent(most['share'])} of all losses are where the token that follows is of the kind "
        f"“{most['group']}” ({percent(most['contexts'] / total)} of the contexts). Losses are "
        f"densest for {worst['by']}: {worst['group']} ({number(worst['one'])} lost per context "
        "with one draft)."
    )
