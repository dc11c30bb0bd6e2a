r"""The two convex duals of the entropic optimum, their marginals and their minimisation.

A block is a set of tokens with weights w that compete for the tuples in their reach. From
``log x = int_0^inf (e^{-s} - e^{-s x}) ds/s`` and the generating function Psi of the draft law,

    outer:  int [e^{-s} (all - none) - (Psi(e^{-s w}) - none)] ds/s - sum q log w
    inner:  int e^{-s} [all - Psi(e^{-s w})] ds/s - sum q log w

are the convex functions ``E log sum w`` and ``E log(1 + sum w)`` less ``sum q log w``, with
gradient ``b - q`` in log w. In the inner block a reject option of weight 1 competes as well. `none`
and `all` are Psi with the block's tokens at 0 and 1, other tokens fixed at either.

The integrals are trapezoid sums in log s: with a step h their error is of the order of
``e^{-pi^2 / h}``.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from multidraft.solvers.entropic_laws import Generating
from multidraft.solvers.entropic_sums import sums

STEP = 0.3  # 5e-15
_BELOW = 18.0  # range below log(1 / largest weight): what is left is of the order of e^{-36}
_ABOVE = math.log(40.0)  # range above log(1 / smallest weight): e^{-40} is left


class Block:
    """Tokens that compete for the tuples in their reach.

    Parameters
    ----------
    psi : Generating
        Generating function of the draft law.
    target : (V,)
        Law q.
    free : (V,) boolean
        The block's tokens, all with q > 0 and p > 0.
    ones : (V,) boolean
        Tokens fixed at G = 1: drafted, and out of the competition. All others are at G = 0: tuples
        that hold them are out of reach.
    reject : bool
        Whether a reject option of weight 1 competes (the inner problem).
    device : torch device
    """

    def __init__(
        self,
        psi: Generating,
        target: Float[np.ndarray, " V"],
        free: Bool[np.ndarray, " V"],
        ones: Bool[np.ndarray, " V"],
        *,
        reject: bool,
        device: str = "cpu",
    ) -> None:
        self.algebra, self.reject, self.free = psi.algebra, reject, free
        self.target = torch.tensor(target[free], device=device)
        self.rows = [torch.tensor(rows[:, free], device=device) for rows in psi.rows]
        self.fixed = [
            torch.tensor(rows[:, ones].sum(-1)[:, None], device=device) for rows in psi.rows
        ]
        self.none = float(self.algebra(self.fixed))
        self.all = float(self.algebra(self._whole()))

    def _whole(self) -> list[Tensor]:
        """Sums at G = 1 on the block's tokens."""
        return [
            f + rows.sum(-1, keepdim=True) for f, rows in zip(self.fixed, self.rows, strict=True)
        ]

    def slope_at_one(self) -> Float[Tensor, " V"]:
        """Slope of Psi in each token's G at G = 1: most mass that a token can be selected with."""
        whole = [total.requires_grad_() for total in self._whole()]
        slopes = torch.autograd.grad(self.algebra(whole).sum(), whole)
        pairs = enumerate(zip(self.rows, slopes, strict=True), 1)
        return torch.stack([r * (rows * slope).sum(0) for r, (rows, slope) in pairs]).sum(0)

    def at(self, logs: Float[Tensor, " V"], step: float = STEP) -> Point:
        """Return the block at log-weights `logs`, with quadrature nodes that far apart."""
        return Point(self, logs, *self._nodes(logs, step))

    def _nodes(self, logs: Tensor, step: float) -> tuple[Tensor, Tensor]:
        """Nodes s and their weights for ``ds/s``.

        Below the first node every integrand here is linear in s up to a relative e^{-18}, so the
        tail of the trapezoid sum is a geometric series that goes to the first node's weight.
        """
        high, low = float(logs.max()), float(logs.min())
        first = -_BELOW - (max(high, 0.0) if self.reject else high)
        last = _ABOVE if self.reject else _ABOVE - low
        count = math.ceil((last - first) / step) + 1
        like = {"dtype": logs.dtype, "device": logs.device}
        nodes = torch.exp(first + step * torch.arange(count, **like))
        weights = torch.full_like(nodes, step)
        weights[0] += step / math.expm1(step)
        if self.reject:
            weights = weights * torch.exp(-nodes)
        return nodes, weights


class Point:
    """A block at given weights: value, marginals, and products with the Hessian."""

    def __init__(self, block: Block, logs: Tensor, nodes: Tensor, weights: Tensor) -> None:
        self.block, self.logs, self.nodes, self.node_weights = block, logs, nodes, weights
        self.weights = logs.exp()
        self.over = sums(logs, nodes, block.rows)
        self.totals = [
            (fixed + self.over.down(rows, r)).requires_grad_()
            for r, (fixed, rows) in enumerate(zip(block.fixed, block.rows, strict=True), 1)
        ]
        self.psi = block.algebra(self.totals)
        self.slopes = torch.autograd.grad(self.psi.sum(), self.totals, create_graph=True)

    def value(self) -> float:
        """Value of the dual."""
        block, psi = self.block, self.psi.detach()
        if block.reject:
            inside = block.all - psi
        else:
            inside = torch.exp(-self.nodes) * (block.all - block.none) - (psi - block.none)
        return float(self.node_weights @ inside - block.target @ self.logs)

    def marginals(self) -> Float[Tensor, " V"]:
        """Mass b of every token of the block."""
        return self._gather([slope.detach() for slope in self.slopes], 1)

    def curvature(self) -> Float[Tensor, " V"]:
        """Diagonal of the Hessian without what a repeated draft adds, ``E share (1 - share)``."""
        return self.marginals() - self._gather([slope.detach() for slope in self.slopes], 2)

    def hessian(self, vector: Tensor, curvature: Tensor) -> Float[Tensor, " V"]:
        """Product of the Hessian with a vector, given `curvature`."""
        bending = [i for i, slope in enumerate(self.slopes) if slope.requires_grad]
        if not bending:  # one draft: Psi is linear
            return curvature * vector
        changes = [
            -r * self.nodes * self.over.down(rows * (vector * self.weights), r)
            for r, rows in enumerate(self.block.rows, 1)
        ]
        bent = torch.autograd.grad(
            [self.slopes[i] for i in bending],
            self.totals,
            [changes[i] for i in bending],
            retain_graph=True,
            materialize_grads=True,
        )
        return curvature * vector + self._gather(list(bent), 1)

    def _gather(self, slopes: list[Tensor], order: int) -> Tensor:
        """``sum_s weight (r s w)^order G^r C_r^T slope``, summed over r."""
        total = torch.zeros_like(self.logs)
        at_nodes = self.node_weights * self.nodes**order
        for r, (rows, slope) in enumerate(zip(self.block.rows, slopes, strict=True), 1):
            total += r**order * (rows * self.over.up(at_nodes * slope, r)).sum(0)
        return total * self.weights**order
