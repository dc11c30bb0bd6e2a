"""Instances for hypothesis, by family and draft law; where a closed form is known, with the answer.

from strategies import instances

@given(instances())                                     # every family, every law, n = 1..4
@given(instances(families=["ties"], laws=["iid"]))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

import multidraft as md
from multidraft import laws

Draw = st.DrawFn
Pair = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Instance:
    """A problem, the family that it comes from, and its optimum where the family knows it."""

    problem: md.Problem
    family: str
    answer: float | None

    def __repr__(self) -> str:
        law = self.problem.law
        drafts = law.parts if isinstance(law, laws.Independent) else law.probs
        return f"Instance({self.family}, {law.spec}, target={self.problem.target!r}, {drafts!r})"


@st.composite
def instances(
    draw: st.DrawFn,
    families: Sequence[str] | None = None,
    laws: Sequence[str] = laws.names(),
    tokens: int = 5,
    drafts: int = 4,
) -> Instance:
    """Draw an instance with at most `tokens` tokens and `drafts` drafts."""
    family = draw(st.sampled_from(list(families or FAMILIES)))
    name = draw(st.sampled_from(list(laws)))
    n = 2 if name == "hub" else draw(st.integers(1, drafts))
    target, draft = FAMILIES[family](draw, tokens)
    law = _law(draw, name, draft, n)
    if family == "certain":
        target = _output_of_a_plan(draw, law)
    return Instance(md.Problem(target, law), family, _answer(family, target, law))


@st.composite
def pairs(draw: st.DrawFn, families: Sequence[str] | None = None, tokens: int = 5) -> Pair:
    """Draw a target and a draft of one family, two arrays of the same length."""
    return FAMILIES[draw(st.sampled_from(list(families or FAMILIES)))](draw, tokens)


# ------------------------------------------------------------------------------------- families


def _weights(draw: Draw, size: int, most: int = 1000) -> np.ndarray:
    """A law with full support."""
    return _law_of(draw(st.lists(st.integers(1, most), min_size=size, max_size=size)))


def _law_of(weights: object) -> np.ndarray:
    return md.normalise(np.asarray(weights, dtype=np.float64))


def _size(draw: Draw, tokens: int, least: int = 1) -> int:
    return draw(st.integers(least, max(least, tokens)))


def _random(draw: Draw, tokens: int) -> Pair:
    size = _size(draw, tokens)
    return _weights(draw, size), _weights(draw, size)


def _equal(draw: Draw, tokens: int) -> Pair:
    law = _weights(draw, _size(draw, tokens))
    return law, law


def _disjoint(draw: Draw, tokens: int) -> Pair:
    size = _size(draw, tokens, least=2)
    edge = draw(st.integers(1, size - 1))
    target, draft = np.zeros(size), np.zeros(size)
    target[:edge], draft[edge:] = _weights(draw, edge), _weights(draw, size - edge)
    return target, draft


def _one_hot(draw: Draw, tokens: int) -> Pair:
    """One law, or both, on a single token."""
    size = _size(draw, tokens)
    certain, other = (np.eye(size)[draw(st.integers(0, size - 1))] for _ in range(2))
    spread = _weights(draw, size)
    return draw(st.sampled_from([(certain, spread), (spread, certain), (certain, other)]))


def _near_zero(draw: Draw, tokens: int) -> Pair:
    """Masses over twenty orders of magnitude, zeros among them."""
    size = _size(draw, tokens)
    exponents = st.lists(st.integers(0, 20), min_size=size, max_size=size)
    target = np.array(draw(exponents)) * -1.0
    draft = np.array(draw(exponents)) * -1.0
    return _law_of(_powers(target)), _law_of(_powers(draft))


def _powers(exponents: np.ndarray) -> np.ndarray:
    """Ten to these powers relative to the largest, with 10^-20 standing for zero."""
    relative = exponents - exponents.max()
    return np.where((exponents <= -20) & (relative < 0), 0.0, 10.0**relative)


def _holes(draw: Draw, tokens: int) -> Pair:
    """Small integer masses with zeros: supports that overlap in part."""
    size = _size(draw, tokens)
    masses = st.lists(st.integers(0, 3), min_size=size, max_size=size).filter(any)
    return _law_of(draw(masses)), _law_of(draw(masses))


def _ties(draw: Draw, tokens: int) -> Pair:
    """Few distinct ratios of target and draft."""
    size = _size(draw, tokens)
    return _weights(draw, size, most=2), _weights(draw, size, most=2)


def _flat(draw: Draw, tokens: int) -> Pair:
    size = _size(draw, tokens)
    flat = np.full(size, 1 / size)
    return draw(st.sampled_from([flat, _weights(draw, size)])), flat


def _two_tokens(draw: Draw, tokens: int) -> Pair:
    return _weights(draw, 2), _weights(draw, 2)


FAMILIES: dict[str, Callable[[Draw, int], Pair]] = {
    "random": _random,
    "equal": _equal,
    "disjoint": _disjoint,
    "one-hot": _one_hot,
    "near-zero": _near_zero,
    "holes": _holes,
    "ties": _ties,
    "flat": _flat,
    "certain": _random,  # the target becomes what some plan puts out: acceptance 1
    "two tokens": _two_tokens,
}


# ----------------------------------------------------------------------------------------- laws


def _law(draw: Draw, name: str, draft: np.ndarray, n: int) -> laws.Law:
    """A law of the given name; further drafts and tables of tuples are drawn."""
    size = len(draft)
    if name == "independent":
        others = [draw(st.sampled_from([draft, _weights(draw, size)])) for _ in range(n - 1)]
        return laws.Independent([draft, *others])
    if name == "explicit":
        return _correlated(draw, draft, n)
    return laws.make({"law": name, "n": n, "short": "pad"}, draft)


def _correlated(draw: Draw, draft: np.ndarray, n: int) -> laws.Explicit:
    """A table on the draft's support, often with drafts that depend on each other."""
    support = st.sampled_from(np.flatnonzero(draft).tolist())
    row = st.lists(support, min_size=n, max_size=n)
    tuples = draw(st.lists(row, min_size=1, max_size=8))
    return laws.Explicit(tuples, _weights(draw, len(tuples)), vocabulary=len(draft))


def _output_of_a_plan(draw: Draw, law: laws.Law) -> np.ndarray:
    """The law of a drafted token that is picked by random weights: a target of acceptance 1."""
    tuples, mass = law.enumerate()
    likes = np.append(_weights(draw, law.vocabulary), 0.0)[tuples]
    share = mass[:, None] * likes / likes.sum(-1, keepdims=True)
    return _law_of(
        np.bincount(np.maximum(tuples, 0).ravel(), weights=share.ravel(), minlength=law.vocabulary)
    )


# -------------------------------------------------------------------------------------- answers


def _answer(family: str, target: np.ndarray, law: laws.Law) -> float | None:
    if family == "certain" or (family == "equal" and law.name in ("iid", "without-replacement")):
        return 1.0
    if family == "disjoint" and law.name != "independent":
        return 0.0
    if len(target) == 2:
        first, second = np.eye(2, dtype=bool)
        return float(min(1, target[0] + law.hit(second), target[1] + law.hit(first)))
    if target.max() == 1:
        return float(law.hit(target > 0))
    return None
