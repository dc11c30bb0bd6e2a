r"""Synthetic families of laws, and special cases whose optimum is known.

A family turns parameters and a seed into logits of a target and of n drafts, so that temperature,
top-k and top-p act on them as on a model's. One seed gives one instance, whatever is computed on it
afterwards. With z and e independent standard normals over the V tokens:

=============  ===================================================================================
``dirichlet``  q and each p_k independent, Dirichlet with all parameters ``concentration``: small
               is spiky, large is flat
``zipf``       q_i proportional to ``i^-exponent``; each p_k the same law with the ranks of
               ``moved`` (a share of the tokens, drawn at random) permuted among themselves
``normals``    target logits ``spread * z``, draft logits ``spread * (r z + sqrt(1 - r^2) e_k)``
               with r the ``correlation``
``equal``      a Dirichlet law (``concentration``) that the drafts share: accepted always
``disjoint``   uniform on the first and on the second half of the tokens: accepted never
``sure``       a target of one token, the drafts uniform
``sure-draft`` a target uniform, all drafts the first token
``two``        two tokens, target ``(first, 1 - first)``, drafts ``(draft, 1 - draft)``
=============  ===================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from multidraft import checks, results
from multidraft.errors import InputError

Generator = np.random.Generator
Laws = tuple[np.ndarray, np.ndarray]  # logits of the target (V,) and of the drafts (n, V)


@dataclass(frozen=True)
class Family:
    """A family of laws.

    Attributes
    ----------
    draw : callable
        ``draw(generator, n, **parameters)`` returns logits ``(V,)`` and ``(n, V)``.
    defaults : mapping
        Parameters with their default values.
    ranges : mapping
        Smallest and largest value of each parameter.
    optimum : callable, optional
        ``optimum(n, **parameters)``, the optimal acceptance for n iid drafts at temperature 1,
        where it has a closed form.
    """

    draw: Callable[..., Laws]
    defaults: Mapping[str, float]
    ranges: Mapping[str, tuple[float, float]]
    optimum: Callable[..., float] | None = None
    whole: frozenset[str] = field(default=frozenset({"vocabulary"}))


def names() -> tuple[str, ...]:
    """Names of all families."""
    return tuple(FAMILIES)


def complete(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters of a family, checked, defaults filled in.

    Raises
    ------
    InputError
        An unknown family or parameter, or a value out of its range.
    """
    family = FAMILIES[checks.choice(name, FAMILIES, "family")]
    for given, value in parameters.items():
        checks.choice(given, tuple(family.defaults), f"parameter of {name}")
        low, high = family.ranges[given]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not low <= value <= high or (given in family.whole and value % 1):
            kind = "whole number" if given in family.whole else "number"
            raise InputError(f"{given} is {value!r}: {name} takes a {kind} in {low:g}..{high:g}.")
    return {**family.defaults, **parameters}


def draw(
    name: str, parameters: Mapping[str, Any], instance: int, n: int = 1
) -> tuple[Float[np.ndarray, " V"], Float[np.ndarray, "n V"]]:
    """Return the logits of one instance: target ``(V,)`` and n drafts ``(n, V)``.

    Instances depend on family, parameters and number alone; the first draft does not depend on n.
    """
    parameters = complete(name, parameters)
    content = {"family": name, **parameters, "instance": instance}
    generator = np.random.default_rng(int(results.digest(content)[:15], 16))
    return FAMILIES[name].draw(generator, n, **parameters)


def optimum(name: str, parameters: Mapping[str, Any], n: int) -> float | None:
    """Optimal acceptance for n iid drafts at temperature 1, or None where no formula is known."""
    known = FAMILIES[name].optimum
    return None if known is None else known(n, **complete(name, parameters))


def _logs(probs: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(probs)


def _dirichlet_logits(rng: Generator, size: tuple[int, int], concentration: float) -> np.ndarray:
    """Logarithms of gamma variables, which a softmax makes Dirichlet.

    A gamma variable of parameter a is one of parameter a + 1 times ``u^(1/a)``: in logarithms
    nothing underflows, however small a is.
    """
    gammas = np.log(rng.standard_gamma(concentration + 1, size))
    return gammas + np.log1p(-rng.random(size)) / concentration


def _dirichlet(rng: Generator, n: int, vocabulary: int, concentration: float) -> Laws:
    rows = _dirichlet_logits(rng, (1, vocabulary), concentration)
    drafts = [_dirichlet_logits(rng, (1, vocabulary), concentration)[0] for _ in range(n)]
    return rows[0], np.stack(drafts)


def _zipf(rng: Generator, n: int, vocabulary: int, exponent: float, moved: float) -> Laws:
    logits = -exponent * np.log(np.arange(1, vocabulary + 1))
    drafts = np.tile(logits, (n, 1))
    for draft in drafts:
        chosen = np.flatnonzero(rng.random(vocabulary) < moved)
        draft[chosen] = draft[rng.permutation(chosen)]
    return logits, drafts


def _normals(rng: Generator, n: int, vocabulary: int, spread: float, correlation: float) -> Laws:
    z = rng.standard_normal(vocabulary)
    noise = rng.standard_normal((n, vocabulary))
    drafts = correlation * z + np.sqrt(1 - correlation**2) * noise
    return spread * z, spread * drafts


def _equal(rng: Generator, n: int, vocabulary: int, concentration: float) -> Laws:
    row = _dirichlet_logits(rng, (1, vocabulary), concentration)
    return row[0], np.tile(row, (n, 1))


def _disjoint(rng: Generator, n: int, vocabulary: int) -> Laws:
    first = np.arange(vocabulary) < vocabulary // 2
    return _logs(1.0 * first), np.tile(_logs(1.0 * ~first), (n, 1))


def _sure(rng: Generator, n: int, vocabulary: int) -> Laws:
    return _logs(1.0 * (np.arange(vocabulary) == 0)), np.zeros((n, vocabulary))


def _sure_draft(rng: Generator, n: int, vocabulary: int) -> Laws:
    return np.zeros(vocabulary), np.tile(_logs(1.0 * (np.arange(vocabulary) == 0)), (n, 1))


def _two(rng: Generator, n: int, first: float, draft: float) -> Laws:
    p = _logs(np.array([draft, 1 - draft]))
    return _logs(np.array([first, 1 - first])), np.tile(p, (n, 1))


def _two_optimum(n: int, first: float, draft: float) -> float:
    """Minimum of ``q(H) + 1 - p(H)^n`` over the sets {}, {0}, {1}."""
    return min(1.0, first + 1 - draft**n, 2 - first - (1 - draft) ** n)


_SIZE = {"vocabulary": (2, 2**20)}
_UNIT = (0.0, 1.0)
_CONCENTRATION = {"concentration": (1e-3, 1e6)}

FAMILIES: dict[str, Family] = {
    "dirichlet": Family(
        _dirichlet, {"vocabulary": 1000, "concentration": 0.1}, {**_SIZE, **_CONCENTRATION}
    ),
    "zipf": Family(
        _zipf,
        {"vocabulary": 1000, "exponent": 1.0, "moved": 0.1},
        {**_SIZE, "exponent": (0.0, 10.0), "moved": _UNIT},
    ),
    "normals": Family(
        _normals,
        {"vocabulary": 1000, "spread": 3.0, "correlation": 0.9},
        {**_SIZE, "spread": (0.0, 100.0), "correlation": _UNIT},
    ),
    "equal": Family(
        _equal,
        {"vocabulary": 1000, "concentration": 0.1},
        {**_SIZE, **_CONCENTRATION},
        lambda n, **_: 1.0,
    ),
    "disjoint": Family(_disjoint, {"vocabulary": 1000}, _SIZE, lambda n, **_: 0.0),
    "sure": Family(
        _sure, {"vocabulary": 1000}, _SIZE, lambda n, vocabulary: 1 - (1 - 1 / vocabulary) ** n
    ),
    "sure-draft": Family(
        _sure_draft, {"vocabulary": 1000}, _SIZE, lambda n, vocabulary: 1 / vocabulary
    ),
    "two": Family(
        _two, {"first": 0.5, "draft": 0.25}, {"first": _UNIT, "draft": _UNIT}, _two_optimum
    ),
}
