"""Seeded pairs of laws for the iid kernels: thousands per second, by family, any size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import multidraft as md

Pair = tuple[np.ndarray, np.ndarray]


def random_pairs(
    count: int, *, tokens: int, drafts: int, seed: int = 0
) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yield target, draft and number of drafts, the families in turn."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        size = int(rng.integers(1, tokens + 1))
        q, p = FAMILIES[i % len(FAMILIES)](rng, size)
        yield md.normalise(q), md.normalise(p), int(rng.integers(1, drafts + 1))


def _dirichlet(rng: np.random.Generator, size: int) -> Pair:
    """Peaked and flat laws."""
    spread = 10 ** rng.uniform(-1.5, 1, 2)
    return (
        rng.dirichlet(np.full(size, spread[0])) + 1e-300,
        rng.dirichlet(np.full(size, spread[1])) + 1e-300,
    )


def _near(rng: np.random.Generator, size: int) -> Pair:
    """Nearly equal laws: the optimum hides between cuts of nearly the same value."""
    q, _ = _dirichlet(rng, size)
    return q, q * np.exp(10 ** rng.uniform(-12, -1) * rng.normal(size=size))


def _equal(rng: np.random.Generator, size: int) -> Pair:
    q, _ = _dirichlet(rng, size)
    return q, q.copy()


def _zeros(rng: np.random.Generator, size: int) -> Pair:
    """Tokens that only one of the laws has, tokens that neither has."""
    q, p = _dirichlet(rng, size)
    q, p = q * (rng.random(size) < 0.6), p * (rng.random(size) < 0.6)
    q[rng.integers(size)] += 1e-9
    p[rng.integers(size)] += 1e-9
    return q, p


def _ties(rng: np.random.Generator, size: int) -> Pair:
    """Few distinct values, so few distinct ratios."""
    q, p = rng.integers(0, 4, size).astype(float), rng.integers(0, 4, size).astype(float)
    q[rng.integers(size)] += 1
    p[rng.integers(size)] += 1
    return q, p


def _tiny_draft(rng: np.random.Generator, size: int) -> Pair:
    """Draft masses down to 1e-300."""
    return _dirichlet(rng, size)[0], 10.0 ** rng.uniform(-300, 0, size)


def _tiny_target(rng: np.random.Generator, size: int) -> Pair:
    return 10.0 ** rng.uniform(-300, 0, size), _dirichlet(rng, size)[0]


def _model(rng: np.random.Generator, size: int) -> Pair:
    """Two softmax laws of correlated logits, with tails as long as a language model's."""
    logits = rng.normal(size=size) * rng.uniform(1, 12)
    draft = logits + rng.uniform(0.1, 2) * rng.normal(size=size)
    return np.exp(logits - logits.max()), np.exp(draft - draft.max())


def _one_hot(rng: np.random.Generator, size: int) -> Pair:
    q, p = np.zeros(size), np.zeros(size)
    q[rng.integers(size)] = p[rng.integers(size)] = 1.0
    return q, p


FAMILIES = (
    _dirichlet,
    _near,
    _equal,
    _zeros,
    _ties,
    _tiny_draft,
    _tiny_target,
    _model,
    _one_hot,
    _model,
)
