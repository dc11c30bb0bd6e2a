r"""Drafts without replacement when part of the draft law is unknown.

The drafts are the first n arrivals of independent exponential clocks with rates p. Of the unlisted
tokens only their total rate and a cap are known. Replace two of them by two of the same total rate
that are more equal: the chance that neither has arrived by time t stays, the chance that both have
grows. So the number of unlisted arrivals by time t is stochastically smallest when the rest comes
in as few pieces as the cap allows (all at the cap but one), and largest in the limit of many tiny
tokens, where it is a Poisson process. Between these two lies every completion, and every
probability below is monotone in that number.

With N(t) the number of arrivals among the tokens of a set H by time t, a set U of total rate u that
shares no token with H is hit by one of the drafts with probability

.. math:: \mathrm{hit}(U) = \int_0^\infty u\,e^{-u t} \Pr[N(t) < n]\,dt .

The integral is a trapezoid sum in log t: the integrand is analytic in the right half-plane, so the
error falls like :math:`e^{-\pi^2 / \mathrm{step}}`, here below 1e-15.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy.special import xlogy

_STEP = 0.25
_TIMES = np.exp(np.arange(-40.0, 80.0, _STEP))


class Arrivals:
    r"""Law of the number of arrivals by each node of time, cut at n: :math:`\Pr[N(t) = j], j < n`.

    Parameters
    ----------
    rows : int
        Number of contexts N.
    n : int
        Number of drafts.
    """

    def __init__(self, rows: int, n: int) -> None:
        self.n = n
        self.law = np.zeros((rows, n, _TIMES.size))
        self.law[:, 0] = 1.0

    def copy(self) -> Arrivals:
        """Return an independent copy."""
        other = Arrivals(0, self.n)
        other.law = self.law.copy()
        return other

    def add(self, rates: Float[np.ndarray, " N"]) -> None:
        """Add one token of the given rate to every context; rate 0 adds nothing."""
        waits = rates[:, None] * _TIMES
        yes, no = -np.expm1(-waits), np.exp(-waits)
        for j in range(self.n - 1, 0, -1):
            self.law[:, j] = no * self.law[:, j] + yes * self.law[:, j - 1]
        self.law[:, 0] *= no

    def add_each(self, rates: Float[np.ndarray, "N W"]) -> None:
        """Add every token of each context."""
        for column in rates.T:
            self.add(column)

    def add_stream(self, rates: Float[np.ndarray, " N"]) -> None:
        """Add infinitely many tiny tokens of the given total rate: a Poisson process."""
        waits = rates[:, None] * _TIMES
        self._convolve([xlogy(j, waits) - waits - _log_factorial(j) for j in range(self.n)])

    def add_pieces(self, rates: Float[np.ndarray, " N"], size: Float[np.ndarray, " N"]) -> None:
        """Add the given total rate in tokens of rate `size`, the last one smaller."""
        count = np.floor(rates / np.where(size > 0, size, np.inf))[:, None]
        waits = size[:, None] * _TIMES
        arrived = -np.expm1(-waits)
        self._convolve(
            [
                _log_choose(count, j) + xlogy(j, arrived) - np.maximum(count - j, 0) * waits
                for j in range(self.n)
            ]
        )
        self.add(np.maximum(rates - count[:, 0] * size, 0.0))

    def _convolve(self, logs: list[Float[np.ndarray, "N nodes"]]) -> None:
        """Add tokens of which j arrive with the probabilities whose logarithms are given."""
        terms = np.exp(np.stack(logs, axis=1))
        law = np.zeros_like(self.law)
        for j in range(self.n):
            law[:, j] = (terms[:, : j + 1] * self.law[:, j::-1]).sum(1)
        self.law = law

    def hit(
        self, rate: Float[np.ndarray, " N"], others: Arrivals | None = None
    ) -> Float[np.ndarray, " N"]:
        """Probability that a token of rate `rate` elsewhere is among the first n arrivals.

        `others` are independent arrivals that count as well.
        """
        if others is None:
            few = self.law.sum(1)
        else:
            few = (self.law * np.cumsum(others.law, 1)[:, ::-1]).sum(1)
        waits = rate[:, None] * _TIMES
        early = -np.expm1(-rate * _TIMES[0])  # before the first node nothing else has arrived
        return np.minimum(1.0, early + _STEP * (waits * np.exp(-waits) * few).sum(-1))

    def time(self) -> Float[np.ndarray, " N"]:
        """Expected time of the n-th arrival."""
        return _TIMES[0] + _STEP * (_TIMES * self.law.sum(1)).sum(-1)


def _log_factorial(j: int) -> float:
    return math.lgamma(j + 1)


def _log_choose(count: Float[np.ndarray, "N 1"], j: int) -> Float[np.ndarray, "N 1"]:
    """Logarithm of the number of ways to choose j of `count`; -inf where there are fewer."""
    with np.errstate(divide="ignore"):
        ways = [np.log(np.maximum(count - i, 0.0)) for i in range(j)]
    return sum(ways, np.zeros_like(count)) - _log_factorial(j)


def inclusion(listed: Float[np.ndarray, "N W"], rest: Arrivals, n: int) -> Float[np.ndarray, "N W"]:
    """Probability that each listed token is drafted, given the arrivals of the unlisted ones."""
    width = listed.shape[1]
    before = [rest.copy()]
    for i in range(width - 1):
        before.append(before[-1].copy())
        before[-1].add(listed[:, i])
    after, out = Arrivals(len(listed), n), np.zeros(listed.shape)
    for i in range(width - 1, -1, -1):
        out[:, i] = before[i].hit(listed[:, i], after)
        after.add(listed[:, i])
    return out
