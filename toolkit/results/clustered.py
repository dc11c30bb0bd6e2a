"""Means with standard errors when observations come in clusters (contexts of one passage)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from multidraft.errors import InputError

# Normal quantiles of .975 and .8: a difference of so many standard errors is found with power 0.8.
_DETECTABLE = 1.960 + 0.842


class Mean(NamedTuple):
    """A mean, its standard error, and the number of independent clusters behind both."""

    mean: float
    stderr: float
    clusters: int

    @property
    def detectable(self) -> float:
        """Smallest true mean that a two-sided 5 % test finds with power 0.8: 2.8 errors."""
        return _DETECTABLE * self.stderr

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Confidence interval from Student's law with ``clusters - 1`` degrees of freedom."""
        from scipy import stats

        half = float(stats.t.ppf((1 + level) / 2, self.clusters - 1)) * self.stderr
        return self.mean - half, self.mean + half


def clustered_mean(values: Float[np.ndarray, " N"], clusters: Shaped[np.ndarray, " N"]) -> Mean:
    r"""Mean of `values` and its cluster-robust standard error.

    With residual sums :math:`e_g = \sum_{i \in g} (x_i - \bar x)` over the G clusters,

    .. math:: \mathrm{se}^2 = \frac{G}{G-1} \, \frac{1}{N^2} \sum_g e_g^2,

    which is the ordinary standard error when every cluster holds one value, and that of the
    cluster means when clusters have equal sizes (the CR1 estimate of Cameron and Miller, "A
    practitioner's guide to cluster-robust inference", 2015, for a regression on a constant).

    Parameters
    ----------
    values : (N,)
        Finite observations.
    clusters : (N,)
        The cluster of each, as integers or strings.

    Raises
    ------
    InputError
        Fewer than two clusters, different lengths, or values that are not finite.
    """
    values = np.asarray(values, dtype=np.float64)
    if values.shape != np.shape(clusters) or values.ndim != 1:
        raise InputError("values and clusters must be one-dimensional and of the same length")
    if not np.isfinite(values).all():
        raise InputError("values must be finite; leave failed cells out before averaging")
    names, member = np.unique(clusters, return_inverse=True)
    count = len(names)
    if count < 2:
        raise InputError("a clustered standard error needs at least two clusters")
    mean = values.mean()
    sums = np.bincount(member, values - mean, minlength=count)
    stderr = np.sqrt(count / (count - 1) * (sums @ sums)) / len(values)
    return Mean(float(mean), float(stderr), count)


def paired_difference(
    first: Float[np.ndarray, " N"],
    second: Float[np.ndarray, " N"],
    clusters: Shaped[np.ndarray, " N"],
) -> Mean:
    """Mean of ``first - second`` over the same observations, clustered: see `clustered_mean`."""
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if first.shape != second.shape:
        raise InputError("paired values must have the same length, one pair per observation")
    return clustered_mean(first - second, clusters)
