r"""UniVer (2605.04543): greedy drafts verified conditionally, from the leaves to the root.

At a node entered with weight w, with u the one random draft and r its law,

.. math:: Z = 1 - w + \sum_y (w q - r)_+, \qquad P(u) = \min(1, w q(u)/r(u)), \qquad
          P(y) = (1 - P(u))\,(w q(y) - r(y))_+ / Z \quad (y \ne u),

and rejection has the rest, :math:`(1 - P(u))(1 - w)/Z`. The sure drafts cost nothing: whatever P
gives them is the weight of their subtrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from multidraft import laws
from multidraft.trees.drafted import Group
from multidraft.trees.rules.base import pick, ratio
from multidraft.trees.rules.leaf_to_root import LeafToRoot, Node, from_table
from multidraft.trees.tree import Tree


@dataclass(frozen=True)
class UniVer(LeafToRoot):
    """Conditional leaf-to-root verification of trees with at most one random draft per node."""

    name: ClassVar[str] = "univer"

    def refuses(self, tree: Tree) -> str | None:
        for slot, spec in enumerate(tree.specs):
            if spec and spec["n"] > 1 and spec["law"] not in ("greedy", "hub", "top"):
                return (
                    f"univer takes greedy, hub and top drafts and single ones; slot {slot} has "
                    f"{spec['n']} {spec['law']} drafts."
                )
        return None

    def _node(
        self, group: Group, slot: int, weight: Float[np.ndarray, " k"], rows: Int[np.ndarray, " k"]
    ) -> Node:
        target, drafts = group.target(slot, rows), group.drafts(slot, rows)
        last, random = _random_draft(group.tree.spec(slot), group.draft(slot, rows), drafts)
        scaled = weight[:, None] * target
        left = np.maximum(scaled - last, 0.0)
        accept = np.minimum(1.0, ratio(pick(scaled, random), pick(last, random), empty=0.0))
        share = ratio(1 - accept, (1 - weight) + left.sum(-1), empty=0.0)
        chosen = share[:, None] * left
        there = np.flatnonzero(random >= 0)
        chosen[there, random[there]] = accept[there]
        return from_table(chosen, share * (1 - weight), drafts, target)


def _random_draft(
    spec: laws.Spec, probs: Float[np.ndarray, "k V"], drafts: Int[np.ndarray, "k n"]
) -> tuple[Float[np.ndarray, "k V"], Int[np.ndarray, " k"]]:
    """Law r of the one random draft of every row, and its token; zeros and -1 for none."""
    if spec["n"] == 1 and spec["law"] == "iid":
        return probs, drafts[:, 0]
    law = laws.make(spec, probs, check=False)
    assert isinstance(law, laws.SureAndLast)
    last, sure = law.last(), law.sure()
    beside = ~(drafts[:, :, None] == sure[:, None, :]).any(-1) & (drafts >= 0)
    token = np.where(beside, drafts, -1).max(-1)
    return last, np.where(last.any(-1), token, -1)
