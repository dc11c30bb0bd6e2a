"""Minimisation of a block's convex dual: L-BFGS-B, then Newton's method on the gradient."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import minimize as scipy_minimize
from torch import Tensor

from multidraft.solvers.entropic_dual import Block, Point

_FARTHEST = 100.0  # log-weights that run off are stopped here
_MEMORY = 20  # corrections kept by L-BFGS-B
_HANDOVER = 1e-4  # L1 norm of the gradient below which Newton's method is faster
_CONJUGATE = 100  # most conjugate-gradient steps for one Newton step
_FLAT = 1e-10  # curvature relative to the diagonal's that counts as none
_SHORTEST = 1e-3  # shortest part of a Newton step that is tried


class State:
    """A block at a point, with the part of the gradient that no bound holds back.

    Log-weights of an outer block are at most 0: that bound is the inequality ``b <= q``.
    """

    def __init__(self, block: Block, logs: Float[Tensor, " V"]) -> None:
        self.logs = logs.clamp(-_FARTHEST, highest(block))
        self.point: Point = block.at(self.logs)
        self.gradient = self.point.marginals() - block.target
        down, up = self.gradient > 0, self.gradient < 0
        held = (down & (self.logs <= -_FARTHEST)) | (up & (self.logs >= highest(block)))
        self.residual = torch.where(held, 0.0, self.gradient)
        self.norm = float(self.residual.abs().sum())


def highest(block: Block) -> float:
    """Upper bound of the log-weights."""
    return _FARTHEST if block.reject else 0.0


def minimise(
    block: Block, *, tolerance: float, iterations: int, finish: bool
) -> tuple[Float[Tensor, " V"], float]:
    """Return log-weights and the L1 norm of the projected gradient there.

    With `finish`, L-BFGS-B only goes as far as Newton's method needs; without, until it stalls.
    """
    state = State(block, start(block))
    state = descend(block, state, tolerance=_HANDOVER if finish else tolerance, most=iterations)
    if finish:
        state = newton(block, state, tolerance=tolerance, most=iterations)
    return state.logs, state.norm


def start(block: Block) -> Float[Tensor, " V"]:
    """Log-weights to start from: equal in an outer block, each token's own odds in an inner one.

    A token alone against the reject option gets the share ``w / (1 + w)`` of the mass that it could
    have at most, its slope of Psi at G = 1.
    """
    if not block.reject:
        return torch.zeros_like(block.target)
    most = block.slope_at_one()
    return (block.target / torch.clamp(most - block.target, min=0.05 * block.target)).log()


def descend(block: Block, state: State, *, tolerance: float, most: int) -> State:
    """Minimise by L-BFGS-B until the projected gradient's L1 norm is below `tolerance`.

    Variables are scaled so that the Hessian's diagonal starts at one. Round-off of the value ends
    the line search at a norm of the order of 1e-9.
    """
    if state.norm <= tolerance:
        return state
    scale = state.point.curvature().clamp(min=1e-30).sqrt()
    best = state

    def value_and_gradient(scaled: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best
        here = State(block, torch.as_tensor(scaled, device=scale.device) / scale)
        best = here if here.norm < best.norm else best
        return here.point.value(), (here.gradient / scale).cpu().numpy()

    def stop(_: np.ndarray) -> None:
        if best.norm <= tolerance:
            raise StopIteration

    lowest = -_FARTHEST * scale.cpu().numpy()
    scipy_minimize(
        value_and_gradient,
        (state.logs * scale).cpu().numpy(),
        jac=True,
        method="L-BFGS-B",
        bounds=None if block.reject else [(low, 0.0) for low in lowest.tolist()],
        callback=stop,
        options={"maxiter": most, "maxfun": 2 * most, "maxcor": _MEMORY, "ftol": 0.0, "gtol": 0.0},
    )
    return best


def newton(block: Block, state: State, *, tolerance: float, most: int) -> State:
    """Newton's method on the projected gradient; the value, with its round-off, is not used."""
    for _ in range(most):
        if state.norm <= tolerance:
            break
        direction, size = _direction(state), 1.0
        new = State(block, state.logs + direction)
        while new.norm >= state.norm and size > _SHORTEST:
            size /= 4
            new = State(block, state.logs + size * direction)
        if new.norm >= state.norm:
            break
        state = new
    return state


def _direction(state: State) -> Float[Tensor, " V"]:
    """Solve ``Hessian d = -residual`` by conjugate gradients on the tokens that may move."""
    curvature = state.point.curvature()
    moving = state.residual != 0
    inverse = torch.where(moving, 1 / curvature.clamp(min=1e-300), 0.0)
    d, r = torch.zeros_like(curvature), -state.residual
    p = inverse * r
    product = r @ p
    goal = min(0.1, state.norm**0.5) * state.norm
    for _ in range(_CONJUGATE):
        hp = torch.where(moving, state.point.hessian(p, curvature), 0.0)
        curve = p @ hp
        # A common factor of all weights is free where everything is accepted: no curvature there.
        if curve <= _FLAT * (p @ (curvature * p)) or float(r.abs().sum()) <= goal:
            break
        d, r = d + (product / curve) * p, r - (product / curve) * hp
        z = inverse * r
        product, before = r @ z, product
        p = z + (product / before) * p
    return d
