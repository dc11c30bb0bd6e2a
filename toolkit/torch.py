"""The optimal acceptance as a differentiable torch function, for training and tuning drafts."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from multidraft import checks
from multidraft.errors import InputError


def optimal_acceptance(
    target: Tensor,
    draft: Tensor,
    n: int | Tensor,
    *,
    check: bool = True,
) -> Float[Tensor, "*batch"]:
    r"""Optimal acceptance of ``n`` iid drafts, batched, on any device, differentiable.

    .. math:: \alpha^* = \min_H\; q(H) + 1 - p(H)^n, \qquad
              \frac{\partial \alpha^*}{\partial q} = 1_H, \quad
              \frac{\partial \alpha^*}{\partial p} = -n\,p(H)^{n-1}\,1_H

    with H the minimising set, a prefix of the tokens in increasing ``q/p``.  Where two sets tie
    the optimum has a kink and the gradient is that of one of them; where the optimum is 1 it is 0.

    Parameters
    ----------
    target, draft
        Laws q and p, ``(V,)`` or ``(B, V)``, broadcast against each other; a softmax, usually.
    n
        Number of drafts, one integer or a tensor of one per batch element.
    check
        False skips the check that the rows are laws and never synchronises with the device.

    Returns
    -------
    ``()`` or ``(B,)``, in the dtype of ``target`` (summed in float64 where the device has it).

    Raises
    ------
    InputError
        Shapes that do not match, rows that are no laws, or n < 1.

    Examples
    --------
    >>> target = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    >>> draft = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64, requires_grad=True)
    >>> value = optimal_acceptance(target, draft, n=2)
    >>> round(value.item(), 12)
    0.69
    >>> value.backward()
    >>> draft.grad
    tensor([-1.8000, -1.8000,  0.0000], dtype=torch.float64)
    """
    batch = checks.broadcast(tuple(target.shape[:-1]), tuple(draft.shape[:-1]))
    if target.shape[-1:] != draft.shape[-1:]:
        raise InputError(
            f"target has {target.shape[-1]} tokens and draft {draft.shape[-1]}: "
            "see multidraft.align."
        )
    if check:
        checks.law(target, "target")
        checks.law(draft, "draft")
    shape = (*batch, target.shape[-1])
    counts = _counts(n, batch, target.device, check)
    wide = torch.float32 if target.device.type == "mps" else torch.float64
    q, p = target.to(wide).expand(shape), draft.to(wide).expand(shape)
    return _OptimalAcceptance.apply(q, p, counts.to(wide)).to(target.dtype)  # type: ignore[union-attr]


def _counts(n: Any, batch: tuple[int, ...], device: torch.device, check: bool) -> Tensor:
    if not isinstance(n, Tensor):
        return torch.full(batch, checks.count(n, "n"), device=device)
    if n.is_floating_point() or (check and bool((n < 1).any())):
        raise InputError("n is no integer or below 1: pass a number of drafts, or one per row.")
    return n.to(device).expand(batch)


class _OptimalAcceptance(torch.autograd.Function):
    """The minimum over prefixes, with the minimising set kept for the gradient."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, p: Tensor, n: Tensor) -> Tensor:
        value, cut = _minimum(q, p, n)
        ctx.save_for_backward(p, n, cut)
        return value

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor, Tensor, None]:
        p, n, cut = ctx.saved_tensors
        into_target = grads[0].unsqueeze(-1) * cut
        mass = (p * cut).sum(-1)
        slope = n * mass ** (n - 1)
        return into_target, -into_target * slope.unsqueeze(-1), None


def _minimum(
    q: Float[Tensor, "*batch V"], p: Float[Tensor, "*batch V"], n: Float[Tensor, "*batch"]
) -> tuple[Float[Tensor, "*batch"], Bool[Tensor, "*batch V"]]:
    """Evaluate every prefix of the tokens with p > 0, by sums that keep small values accurate."""
    ratio = torch.where(p > 0, q / p, torch.inf)
    order = ratio.argsort(dim=-1)
    inside = q.gather(-1, order).cumsum(-1)
    sorted_draft = p.gather(-1, order)
    reversed_sums = sorted_draft.flip(-1).cumsum(-1).flip(-1)
    outside = torch.cat([reversed_sums[..., 1:], torch.zeros_like(inside[..., :1])], -1)
    hit = -torch.expm1(n.unsqueeze(-1) * torch.log1p(-outside.clamp(max=1.0)))
    values = torch.where(sorted_draft > 0, inside + hit, torch.inf)
    best, last = values.min(-1)
    short = best < 1 - 8 * torch.finfo(q.dtype).eps  # closer to 1 is round-off
    first = torch.arange(q.shape[-1], device=q.device) <= last.unsqueeze(-1)
    cut = first.scatter(-1, order, first & short.unsqueeze(-1))
    return torch.where(short, best, 1.0), cut
