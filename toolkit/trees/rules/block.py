r"""Block verification (2403.10444): one path, one joint test of every prefix.

With :math:`w_0 = 1` and :math:`w_i = \min(1, w_{i-1} q(x_i) / p(x_i))`, position i < L passes with
probability :math:`h_i = S_i / (S_i + 1 - w_i)`, where :math:`S_i = \sum_y (w_i q - p)_+` under the
laws after :math:`x_i`, and the last with :math:`h_L = w_L`. All positions are tested, the *largest*
that passes is where the accepted path ends, and the added token comes from
:math:`(w_i q - p)_+`, or from q after the last. No rule that sees one drafted path emits longer
blocks (see also 2602.16961).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from multidraft.trees.drafted import Group
from multidraft.trees.rules.base import TreeRule, Verdict, normalised, pick, ratio
from multidraft.trees.rules.sequential import next_law
from multidraft.trees.tree import Tree

# Target and draft law after i tokens of a path, for some rows: (i, rows) -> two (k, V) arrays.
Laws = Callable[[int, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class BlockVerification(TreeRule):
    """Block verification of a chain."""

    name: ClassVar[str] = "block"

    def refuses(self, tree: Tree) -> str | None:
        if max(map(len, tree.children)) > 1:
            return "block verifies one path, and this tree branches: use greedy-multipath."
        return None

    def _verdict(self, group: Group) -> Verdict:
        def laws(i: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return group.target(i, rows), _single_draft(group, i, rows)

        return PathVerdict.of(laws, group.tokens[:, 1:])


def _single_draft(group: Group, slot: int, rows: np.ndarray) -> Float[np.ndarray, "k V"]:
    """Law of the only child of a slot; at a leaf, where it is not used, zeros."""
    spec, probs = group.tree.specs[slot], group.draft(slot, rows)
    if spec is None:
        return np.zeros_like(probs)
    return next_law(spec, probs, np.empty((len(probs), 0), dtype=np.int64))


@dataclass(frozen=True)
class PathVerdict(Verdict):
    """Block verification of one path of L drafted tokens in every row.

    Attributes
    ----------
    laws : target and draft law after i tokens
    lengths : (b,) number of drafted tokens there are
    weights : (b, L + 1) the weights w
    stop : (b, L + 1) probability that the accepted path has i tokens
    """

    laws: Laws
    lengths: Int[np.ndarray, " b"]
    weights: Float[np.ndarray, "b L1"]
    stop: Float[np.ndarray, "b L1"]

    @classmethod
    def of(cls, laws: Laws, tokens: Int[np.ndarray, "b L"]) -> PathVerdict:
        """Judge paths of tokens, -1 where a path is shorter."""
        lengths = (tokens >= 0).sum(-1)
        rows = np.arange(len(tokens))
        weights = np.ones((len(tokens), tokens.shape[1] + 1))
        passes = np.ones_like(weights)
        for i in range(weights.shape[1]):
            target, draft = laws(i, rows)
            if i > 0:
                passes[:, i] = _pass(weights[:, i], target, draft, lengths - i)
            if i < tokens.shape[1]:
                gain = ratio(pick(target, tokens[:, i]), pick(draft, tokens[:, i]), empty=0.0)
                weights[:, i + 1] = np.minimum(1.0, weights[:, i] * gain)
        later = np.cumprod(1 - passes[:, :0:-1], axis=-1)[:, ::-1]  # no position after i passes
        stop = passes * np.append(later, np.ones((len(tokens), 1)), axis=-1)
        return cls(laws, lengths, weights, stop)

    def bonus(self, slot: int, rows: Int[np.ndarray, " k"]) -> Float[np.ndarray, "k V"]:
        """Law of the token added after `slot` accepted tokens."""
        target, draft = self.laws(slot, rows)
        last = (self.lengths[rows] == slot)[:, None]
        left = np.maximum(self.weights[rows, slot, None] * target - draft, 0.0)
        return np.where(last, target, normalised(left, target))


def _pass(
    weights: Float[np.ndarray, " b"],
    target: Float[np.ndarray, "b V"],
    draft: Float[np.ndarray, "b V"],
    beyond: Int[np.ndarray, " b"],
) -> Float[np.ndarray, " b"]:
    """Probability h that a position passes, `beyond` tokens before the end of its path."""
    left = np.maximum(weights[:, None] * target - draft, 0.0).sum(-1)
    inner = ratio(left, left + (1 - weights), empty=0.0)
    return np.where(beyond > 0, inner, np.where(beyond == 0, weights, 0.0))
