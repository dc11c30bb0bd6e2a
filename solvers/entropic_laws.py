r"""Generating functions of draft laws, as algebra on sums over tokens.

    Psi(G) = E prod_i G(x_i)          G one number in [0, 1] per token, x the drafted tuple

Every law here has a Psi that touches the vocabulary only through sums ``M_r = C_r G^r`` (powers
token by token, one row of C_r per sum), so that ``Psi = f(M_1, M_2, ...)`` with f on a handful of
numbers. Derivatives of f come from automatic differentiation, those of the sums are the C_r again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from multidraft import laws
from multidraft.arrays import float64

# Sums M_r, each (K_r, S) for S functions G at once, to Psi, (S,).
Algebra = Callable[[list[Tensor]], Tensor]

_NEGLIGIBLE = -37.0  # logarithm of 1e-16


@dataclass(frozen=True)
class Generating:
    """Psi of one draft law.

    Attributes
    ----------
    rows : list of (K_r, V)
        Coefficients of the sums of ``G^r``, r = 1, 2, ...
    algebra : function
        From the sums to Psi.
    """

    rows: list[Float[np.ndarray, "_ V"]]
    algebra: Algebra


def generating(law: laws.Law, *, refine: int = 1) -> Generating:
    """Return Psi of iid drafts, independent drafts or drafts without replacement (one context)."""
    if isinstance(law, laws.Independent):
        return Generating([np.stack(law.parts)], lambda sums: sums[0].prod(0))
    probs = float64(law.probs)
    if isinstance(law, laws.IID):
        n = law.n
        return Generating([probs[None]], lambda sums: sums[0][0] ** n)
    n = min(law.n, int(np.count_nonzero(probs)))
    if n == 1:
        return Generating([probs[None]], lambda sums: sums[0][0])
    return _pairs(probs) if n == 2 else _arrivals(probs, n, refine)


def _pairs(probs: Float[np.ndarray, " V"]) -> Generating:
    r"""Two drafts without replacement: ``sum_{i != j} a_i p_j G_i G_j`` with ``a = p / (1 - p)``.

    The most probable token, whose a may be large, keeps sums of its own: among the others the
    difference ``(sum a G)(sum p G) - sum a p G^2`` loses nothing.
    """
    top = int(probs.argmax())
    light = np.where(np.arange(len(probs)) == top, 0.0, probs)
    rest = light.sum()
    odds = light / (1 - light)
    heavy_odds = probs[top] / rest
    unit = (np.arange(len(probs)) == top) * 1.0

    def algebra(sums: list[Tensor]) -> Tensor:
        (first, second, heavy), (same,) = sums
        return heavy * (heavy_odds * second + probs[top] * first) + first * second - same

    return Generating([np.stack([odds, light, unit]), (odds * light)[None]], algebra)


def _arrivals(probs: Float[np.ndarray, " V"], n: int, refine: int) -> Generating:
    r"""Three or more drafts without replacement, as the first n of exponential arrivals.

    Token j arrives at rate p_j. With ``k = e^{-p t}`` the n-th arrival is token i at time t with
    the others before it drafted:

    .. math:: \Psi = \int dt \sum_i p_i k_i G_i\,[z^{n-1}] \prod_{j \ne i} (k_j + z (1 - k_j) G_j)

    Heavy tokens multiply the polynomials in z one by one. Light ones enter through the power sums
    ``sum (c G)^m`` and ``sum p G (c G)^m``, ``c = e^{p t} - 1``, which is accurate because each of
    them is a small part of the light mass.
    """
    order = np.argsort(-probs, kind="stable")
    heavy = order[: _heavy_count(probs[order], n)]
    light = probs.copy()
    light[heavy] = 0.0
    rest = light.sum()
    times, weights = _arrival_nodes(probs[order], n, refine)
    growth = np.expm1(light * times[:, None])
    powers = [growth**m for m in range(n)]
    units = np.zeros((len(heavy), len(probs)))
    units[np.arange(len(heavy)), heavy] = 1.0
    rows = [np.concatenate([units, light[None], growth])]
    rows += [np.concatenate([light * powers[m], powers[m] * growth]) for m in range(1, n - 1)]
    rows += [light * powers[n - 1]]
    decay, masses = weights * np.exp(-rest * times), probs[heavy]

    def algebra(sums: list[Tensor]) -> Tensor:
        like = {"dtype": sums[0].dtype, "device": sums[0].device}
        t = torch.as_tensor(times, **like)[:, None]
        before, last = _light(sums, len(heavy), len(times), n)
        for mass, g in zip(masses, sums[0][: len(heavy)], strict=True):
            before, last = _arrive(before, last, float(mass), torch.exp(-mass * t), g, n)
        return torch.as_tensor(decay, **like) @ last[n - 1]

    return Generating(rows, algebra)


# A polynomial in z up to z^(n-1): one (T, S) tensor per coefficient.
Polynomial = list[Tensor]


def _light(sums: list[Tensor], heavy: int, times: int, n: int) -> tuple[Polynomial, Polynomial]:
    """Polynomials of the light tokens from their power sums.

    ``E = prod (1 + z c G) = exp(sum_m (-1)^(m+1) P_m z^m / m)`` and, with one light token arriving
    last, ``D = E * sum_m (-z)^m Q_m``.
    """
    arrived = [sums[0][heavy + 1 :]] + [block[times:] for block in sums[1 : n - 1]]
    ending = [sums[0][heavy : heavy + 1]] + [block[:times] for block in sums[1:]]
    before: Polynomial = [torch.ones_like(arrived[0])]
    for k in range(1, n):  # Newton's identities
        terms = [(-1) ** (m + 1) * arrived[m - 1] * before[k - m] for m in range(1, k + 1)]
        before.append(torch.stack(terms).sum(0) / k)
    last = [
        torch.stack([(-1) ** m * ending[m] * before[k - m] for m in range(k + 1)]).sum(0)
        for k in range(n)
    ]
    return before, last


def _arrive(
    before: Polynomial, last: Polynomial, mass: float, absent: Tensor, g: Tensor, n: int
) -> tuple[Polynomial, Polynomial]:
    """Multiply by ``k + z (1 - k) G``, or let this token be the last with density ``p k G``."""
    present = (1 - absent) * g
    ends = mass * absent * g
    last = [
        absent * last[k] + ends * before[k] + (present * last[k - 1] if k else 0.0)
        for k in range(n)
    ]
    before = [absent * before[k] + (present * before[k - 1] if k else 0.0) for k in range(n)]
    return before, last


def _heavy_count(descending: Float[np.ndarray, " V"], n: int) -> int:
    """Fewest heavy tokens that leave each light one at most 1/(2n) of the light mass."""
    light_mass = np.cumsum(descending[::-1])[::-1]
    fits = np.flatnonzero(2 * n * descending <= light_mass)
    return int(fits[0]) if fits.size else int(np.count_nonzero(descending))


def _arrival_nodes(
    descending: Float[np.ndarray, " V"], n: int, refine: int
) -> tuple[Float[np.ndarray, " T"], Float[np.ndarray, " T"]]:
    """Trapezoid nodes in log t for the n-th arrival, and their weights ``h t``.

    With ``P_i`` the mass of all tokens but the i - 1 heaviest, n tokens arrive by time t with
    probability at most ``prod_i min(1, P_i t)``, which gives the first node; after the last one
    fewer than n have arrived with probability about ``e^{-P_n t}``.
    """
    masses = np.cumsum(descending[::-1])[::-1][:n]
    smallest = np.cumsum(np.log(masses[::-1]))
    first = ((_NEGLIGIBLE - smallest) / np.arange(1, n + 1)).max()
    last = math.log((4 * n - _NEGLIGIBLE) / masses[-1])
    step = 2 * math.pi / (16 + 4 * n) / refine
    logs = np.arange(first, last + step, step)
    return np.exp(logs), step * np.exp(logs)
