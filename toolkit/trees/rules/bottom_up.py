r"""Any token rule, from the leaves to the root.

Traversal (recursive rejection) and UniVer (the greedy rule) are two cases of one idea: at a node
entered with weight w, apply a token rule to the target :math:`(w q, 1 - w)` on the vocabulary
extended by "reject", which is never drafted. Whatever the rule gives a child is the weight of that
child's subtree. So every token rule, the optimal ones included, has a leaf-to-root form; where a
node has one draft, every rule but naive matching emits as long blocks as block verification.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from multidraft.trees.drafted import Group
from multidraft.trees.rules import token_rule
from multidraft.trees.rules.leaf_to_root import LeafToRoot, Node, from_table
from multidraft.trees.tree import Tree


@dataclass(frozen=True)
class BottomUp(LeafToRoot):
    """A token rule on the target scaled by the node's weight.

    Parameters
    ----------
    rule : str
        A name from ``multidraft.verifiers.names()``.
    merge : bool
        Whether equal siblings share their children.
    """

    name: ClassVar[str] = "bottom-up"
    rule: str = "naive"
    merge: bool = True

    def refuses(self, tree: Tree) -> str | None:
        return token_rule.refuses(self.rule, tree)

    def _node(
        self, group: Group, slot: int, weight: Float[np.ndarray, " k"], rows: Int[np.ndarray, " k"]
    ) -> Node:
        spec, target = group.tree.spec(slot), group.target(slot, rows)
        drafts = group.drafts(slot, rows)
        scaled = np.column_stack([weight[:, None] * target, 1 - weight])
        probs = np.column_stack([group.draft(slot, rows), np.zeros(len(rows))])
        law = np.zeros_like(scaled)
        law[:, -1] = 1.0  # where there is no token there is nothing to accept
        live = group.live[rows, slot]
        law[live] = token_rule.conditional(self.rule, spec, scaled[live], probs[live], drafts[live])
        return from_table(law[:, :-1], law[:, -1], drafts, target)
