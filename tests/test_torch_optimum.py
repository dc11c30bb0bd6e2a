"""The differentiable optimum: values of the compiled kernel, gradients by finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from iid_instances import random_pairs

import multidraft as md
import multidraft.torch as mt
from multidraft.errors import InputError
from multidraft.solvers.prefix import iid_optimum


def test_values_are_those_of_the_kernel():
    for q, p, n in random_pairs(300, tokens=60, drafts=20, seed=0):
        value = mt.optimal_acceptance(torch.from_numpy(q), torch.from_numpy(p), n)
        assert value.item() == pytest.approx(float(iid_optimum(q, p, n)[0]), abs=1e-14)


def test_batch_broadcast_and_counts():
    rng = np.random.default_rng(1)
    q, p, counts = rng.dirichlet(np.ones(40), 6), rng.dirichlet(np.ones(40)), rng.integers(1, 5, 6)
    value = mt.optimal_acceptance(
        torch.from_numpy(q), torch.from_numpy(p), torch.from_numpy(counts)
    )
    assert value.shape == (6,)
    assert value.numpy() == pytest.approx(iid_optimum(q, p, counts)[0], abs=1e-14)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_gradient_by_finite_differences(n):
    """Through a softmax, so that perturbed laws stay laws; random logits have no ties."""
    torch.manual_seed(n)
    logits = [torch.randn(3, 7, dtype=torch.float64, requires_grad=True) for _ in range(2)]

    def acceptance(target: torch.Tensor, draft: torch.Tensor) -> torch.Tensor:
        return mt.optimal_acceptance(target.softmax(-1), draft.softmax(-1), n)

    assert torch.autograd.gradcheck(acceptance, logits, eps=1e-6, atol=1e-8)


def test_gradient_on_the_laws_themselves():
    q = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64, requires_grad=True)
    p = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64, requires_grad=True)
    mt.optimal_acceptance(q, p, 2).backward()
    assert q.grad is not None and q.grad.tolist() == [1, 1, 0]
    assert p.grad is not None and p.grad.tolist() == pytest.approx([-1.8, -1.8, 0])


def test_equal_laws_have_value_one_and_no_gradient():
    p = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64, requires_grad=True)
    value = mt.optimal_acceptance(p.detach(), p, 3)
    value.backward()
    assert value.item() == 1
    assert p.grad is not None and not p.grad.any()


def test_half_precision_is_summed_in_float64():
    torch.manual_seed(0)
    q, p = torch.randn(2, 5000, dtype=torch.float64).softmax(-1)
    exact = mt.optimal_acceptance(q, p, 2)
    rounded = mt.optimal_acceptance(q.float(), p.float(), 2)
    assert rounded.dtype == torch.float32
    assert rounded.item() == pytest.approx(exact.item(), abs=2e-7)


def test_a_step_along_the_gradient_helps():
    torch.manual_seed(0)
    target, draft = torch.randn(2, 50, dtype=torch.float64)
    draft.requires_grad_()
    before = mt.optimal_acceptance(target.softmax(-1), draft.softmax(-1), 2)
    before.backward()
    assert draft.grad is not None
    after = mt.optimal_acceptance(target.softmax(-1), (draft + draft.grad).softmax(-1), 2)
    assert after > before


def test_bad_input_is_refused():
    q = torch.full((4,), 0.25)
    with pytest.raises(InputError, match="align"):
        mt.optimal_acceptance(q, torch.full((5,), 0.2), 2)
    with pytest.raises(InputError, match="draft sums to"):
        mt.optimal_acceptance(q, 2 * q, 2)
    with pytest.raises(InputError, match="whole number"):
        mt.optimal_acceptance(q, q, 0)
    with pytest.raises(InputError, match="below 1"):
        mt.optimal_acceptance(q, q, torch.tensor(0))


def test_it_is_public():
    assert md.torch.optimal_acceptance is mt.optimal_acceptance
