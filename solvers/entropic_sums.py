r"""Sums ``sum_y C(k, y) e^{-s w(y)}`` over the vocabulary, for many s, and their adjoint.

`Dense` holds the table of all exponentials. `Panels` needs none: on an interval of unit length in
``log w`` the kernel ``exp(-s e^x)`` is a Chebyshev series of sixteen terms to 3e-13, so a token
only enters through sixteen polynomials of its own ``log w``, and the cost no longer grows with
tokens times nodes. Both hold the r-th powers of the exponentials too.
"""

from __future__ import annotations

import itertools
import math
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

_TERMS = 16
_MOST_ROWS = 8  # beyond, a matrix product with the table is faster than panels


class Sums(Protocol):
    """Sums of the r-th powers ``G^r = e^{-r s w}``, r counted from 1."""

    def down(self, rows: Float[Tensor, "K V"], r: int) -> Float[Tensor, "K S"]:
        """Sum over tokens, ``C G^r``, for every node s."""
        ...

    def up(self, values: Float[Tensor, "K S"], r: int) -> Float[Tensor, "K V"]:
        """Sum over nodes, the transpose of :meth:`down`."""
        ...


def sums(logs: Float[Tensor, " V"], nodes: Float[Tensor, " S"], rows: list[Tensor]) -> Sums:
    """Return the cheaper of the two for coefficients like `rows`."""
    many = max(len(block) for block in rows) > _MOST_ROWS
    return Dense(logs, nodes, len(rows)) if many else Panels(logs, nodes, len(rows))


class Dense:
    """The table of exponentials and its powers."""

    def __init__(self, logs: Float[Tensor, " V"], nodes: Float[Tensor, " S"], powers: int) -> None:
        table = torch.outer(-nodes, logs.exp()).exp_()
        self.tables = [table]
        for _ in range(1, powers):
            self.tables.append(self.tables[-1] * table)

    def down(self, rows: Float[Tensor, "K V"], r: int) -> Float[Tensor, "K S"]:
        return rows @ self.tables[r - 1].T

    def up(self, values: Float[Tensor, "K S"], r: int) -> Float[Tensor, "K V"]:
        return values @ self.tables[r - 1]


class Panels:
    """Chebyshev series on panels of unit length in ``log w``, tokens sorted by panel."""

    def __init__(self, logs: Float[Tensor, " V"], nodes: Float[Tensor, " S"], powers: int) -> None:
        place, self.order = torch.sort(logs - logs.min())
        panel = place.floor()
        sizes = torch.bincount(panel.to(torch.int64))
        occupied = sizes.nonzero()[:, 0]
        self.left = logs.min() + occupied
        ends = [0, *sizes[occupied].cumsum(0).tolist()]
        self.spans = [slice(start, end) for start, end in itertools.pairwise(ends)]
        self.basis = _chebyshev(2 * (place - panel) - 1)
        self.series = [self._series(r * nodes) for r in range(1, powers + 1)]

    def _series(self, nodes: Float[Tensor, " S"]) -> Float[Tensor, "S PT"]:
        """Coefficients of ``exp(-s e^x)`` on every panel, by interpolation at Chebyshev points."""
        index = torch.arange(_TERMS, dtype=nodes.dtype, device=nodes.device)
        angles = (index + 0.5) * (math.pi / _TERMS)
        points = torch.exp(self.left[:, None] + (torch.cos(angles) + 1) / 2)
        values = torch.exp(-nodes[:, None, None] * points)
        transform = torch.cos(angles[:, None] * index) * (2 / _TERMS)
        transform[:, 0] /= 2
        return (values @ transform).reshape(len(nodes), -1)

    def down(self, rows: Float[Tensor, "K V"], r: int) -> Float[Tensor, "K S"]:
        ordered = rows[:, self.order]
        moments = [ordered[:, span] @ self.basis[:, span].T for span in self.spans]
        return torch.cat(moments, -1) @ self.series[r - 1].T

    def up(self, values: Float[Tensor, "K S"], r: int) -> Float[Tensor, "K V"]:
        series = (values @ self.series[r - 1]).reshape(len(values), -1, _TERMS)
        found = values.new_empty(len(values), len(self.order))
        for panel, span in enumerate(self.spans):
            found[:, self.order[span]] = series[:, panel] @ self.basis[:, span]
        return found


def _chebyshev(x: Float[Tensor, " V"]) -> Float[Tensor, "T V"]:
    """Chebyshev polynomials T_0 .. T_15 of numbers in [-1, 1]."""
    rows = x.new_empty(_TERMS, len(x))
    rows[0], rows[1] = 1.0, x
    double = 2 * x
    for j in range(2, _TERMS):
        torch.mul(double, rows[j - 1], out=rows[j])
        rows[j] -= rows[j - 2]
    return rows
