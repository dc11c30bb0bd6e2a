r"""Traversal verification (2505.12398): recursive rejection from the leaves to the root.

A child c of a node entered with weight w is entered with :math:`\min(1, w\,q(c)/p(c))`. When its
whole subtree is rejected the node keeps what the draft law leaves,

.. math:: S = \sum_y (w q - p)_+, \qquad q \leftarrow (w q - p)_+ / S, \qquad
          w \leftarrow S / (S + 1 - w), \qquad p \leftarrow \text{law of the next child},

and the next child is entered with the new w, q and p. The law of the next child, given those before
it, is p itself for iid drafts and p without them for drafts without replacement; any other draft
law is a sequence of single draws too, so all are taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from multidraft.trees.drafted import Group
from multidraft.trees.rules.base import normalised, pick, ratio
from multidraft.trees.rules.leaf_to_root import LeafToRoot, Node
from multidraft.trees.rules.sequential import next_law
from multidraft.trees.tree import Tree


@dataclass(frozen=True)
class Traversal(LeafToRoot):
    """Leaf-to-root verification with recursive rejection, for every tree and draft law.

    Parameters
    ----------
    merge : bool
        Whether equal siblings share their children; False, as published, wastes a repeated draft.
    """

    name: ClassVar[str] = "traversal"
    merge: bool = True

    def refuses(self, tree: Tree) -> str | None:
        return None

    def _node(
        self, group: Group, slot: int, weight: Float[np.ndarray, " k"], rows: Int[np.ndarray, " k"]
    ) -> Node:
        spec, probs = group.tree.spec(slot), group.draft(slot, rows)
        drafts = group.drafts(slot, rows)
        target, entered = group.target(slot, rows), np.zeros(drafts.shape)
        for j, tokens in enumerate(drafts.T):
            draft = next_law(spec, probs, drafts[:, :j])
            there = tokens >= 0
            gain = ratio(pick(target, tokens), pick(draft, tokens), empty=0.0)
            entered[:, j] = np.minimum(1.0, weight * gain)
            left = np.maximum(weight[:, None] * target - draft, 0.0)
            kept = left.sum(-1)
            target = np.where(there[:, None], normalised(left, target), target)
            weight = np.where(there, ratio(kept, kept + (1 - weight), empty=1.0), weight)
        return Node(entered, weight, target)
