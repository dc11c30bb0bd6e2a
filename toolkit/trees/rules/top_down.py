"""Top-down verification: a token rule at every node, from the root on.

At each node the token rule chooses an output given the children's tokens. An output that is a child
leads on to that child; the first that is none ends the block. At a leaf one more token is drawn
from the target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from multidraft.arrays import search
from multidraft.trees.drafted import DraftedTree, Group
from multidraft.trees.rules import token_rule
from multidraft.trees.rules.base import Block, TreeRule, Verdict, block, normalised, split
from multidraft.trees.tree import Tree


@dataclass(frozen=True)
class TopDown(TreeRule):
    """Any token rule at every node.

    Parameters
    ----------
    rule : str
        A name from ``multidraft.verifiers.names()``; "naive" takes every tree.
    merge : bool
        Whether equal siblings share their children, as in SpecTr; False keeps them apart.
    """

    name: ClassVar[str] = "top-down"
    rule: str = "naive"
    merge: bool = True

    def refuses(self, tree: Tree) -> str | None:
        return token_rule.refuses(self.rule, tree)

    def draws(self, depth: int) -> int:
        return 2 * (depth + 1)

    def _verdict(self, group: Group) -> Verdict:
        return TopDownVerdict.of(self.rule, group)

    def verify(self, drafted: DraftedTree, uniforms: Any) -> Block:
        """Walk down: every level takes two uniforms, and only the nodes passed are looked at."""
        self.require_all(drafted)
        pairs = self._uniforms(drafted, uniforms).reshape(drafted.batch, -1, 2)
        drafted = self._merged(drafted)
        slots, extra = np.zeros(drafted.batch, dtype=np.int64), np.full(drafted.batch, -1)
        for level in range(pairs.shape[1]):
            for group in drafted.groups:
                going = group.rows[extra[group.rows] < 0]
                for slot in np.unique(slots[going]):
                    here = going[slots[going] == slot]
                    found, child = self._step(group, int(slot), here, pairs[here, level])
                    slots[here], extra[here] = child, found
        return block(drafted, slots, extra)

    def _step(
        self,
        group: Group,
        slot: int,
        trees: Int[np.ndarray, " k"],
        pairs: Float[np.ndarray, "k 2"],
    ) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " k"]]:
        """Added token, or -1 where the path goes on, and the slot reached."""
        place, rows = int(np.searchsorted(group.slots, slot)), np.searchsorted(group.rows, trees)
        target, spec = group.target(place, rows), group.tree.specs[place]
        if spec is None:
            return search(np.cumsum(target, -1), pairs[:, 1:])[:, 0], np.full(len(rows), slot)
        arguments = (target, group.draft(place, rows), group.drafts(place, rows), pairs)
        token, draft = token_rule.verify(self.rule, spec, *arguments)
        below = group.slots[list(group.tree.children[place])]
        return np.where(draft < 0, token, -1), np.where(draft < 0, slot, below[draft])


@dataclass(frozen=True)
class TopDownVerdict(Verdict):
    """Conditional laws of a token rule along every path.

    Attributes
    ----------
    stop : (b, s) probability that the accepted path ends in each slot
    """

    rule: str
    group: Group
    stop: Float[np.ndarray, "b s"]

    @classmethod
    def of(cls, rule: str, group: Group) -> TopDownVerdict:
        stop, reach = np.zeros(group.tokens.shape), np.zeros(group.tokens.shape)
        reach[:, 0] = 1.0
        verdict = cls(rule, group, stop)
        for slot, below in enumerate(group.tree.children):  # parents come first
            here = np.flatnonzero(reach[:, slot] > 0)
            if below and here.size:
                shares, left = verdict._node(slot, here)
                reach[np.ix_(here, np.array(below))] = reach[here, slot, None] * shares
                stop[here, slot] = reach[here, slot] * left.sum(-1)
            else:
                stop[:, slot] = reach[:, slot]
        return verdict

    def _node(
        self, slot: int, rows: Int[np.ndarray, " k"]
    ) -> tuple[Float[np.ndarray, "k n"], Float[np.ndarray, "k V"]]:
        """Probability of every child, and what is left for other tokens."""
        spec, drafts = self.group.tree.spec(slot), self.group.drafts(slot, rows)
        target, probs = self.group.target(slot, rows), self.group.draft(slot, rows)
        return split(token_rule.conditional(self.rule, spec, target, probs, drafts), drafts)

    def bonus(self, slot: int, rows: Int[np.ndarray, " k"]) -> Float[np.ndarray, "k V"]:
        """Law of the token added after `slot`."""
        target = self.group.target(slot, rows)
        if not self.group.tree.children[slot]:
            return target
        return normalised(self._node(slot, rows)[1], target)
