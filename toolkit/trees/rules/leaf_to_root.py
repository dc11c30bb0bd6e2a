r"""Verification from the leaves to the root: the frame of traversal and UniVer.

A node is entered with a weight w, the probability with which its path may still be accepted (the
root's is 1). From the target q scaled by w, a *token rule on q and rejection* gives every child a
weight of its own: the probability that it is chosen, given that its elder siblings were not. Then

1. the children are tried in order, each by the same procedure;
2. when all are rejected the node itself is accepted with what is left of its weight, and a token is
   added from what is left of its target;
3. else it counts as rejected, and its next sibling's turn has come.

A leaf is accepted with its weight and adds a token from q. The path of a node is accepted somewhere
with probability w, whatever hangs below it; so the rule is lossless wherever the token rule is.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from multidraft.trees.drafted import Group
from multidraft.trees.rules.base import TreeRule, Verdict, normalised, ratio, split


@dataclass(frozen=True)
class Node:
    """What happens at a node, for k rows.

    Attributes
    ----------
    children : (k, n) weight of each child, given that its elder siblings are rejected
    own : (k,) probability that the node is accepted, given that all children are rejected
    bonus : (k, V) law of the token added then
    """

    children: Float[np.ndarray, "k n"]
    own: Float[np.ndarray, " k"]
    bonus: Float[np.ndarray, "k V"]


class LeafToRoot(TreeRule):
    """A rule that tries the deepest paths first."""

    @abstractmethod
    def _node(
        self, group: Group, slot: int, weight: Float[np.ndarray, " k"], rows: Int[np.ndarray, " k"]
    ) -> Node:
        """Treat a node with children, entered with `weight`."""

    def node(
        self, group: Group, slot: int, weight: Float[np.ndarray, " k"], rows: Int[np.ndarray, " k"]
    ) -> Node:
        """Treat any node: one without children is accepted with its weight."""
        if group.tree.children[slot]:
            return self._node(group, slot, weight, rows)
        return Node(np.empty((len(rows), 0)), weight, group.target(slot, rows))

    def _verdict(self, group: Group) -> Verdict:
        return UpwardVerdict.of(self, group)


@dataclass(frozen=True)
class UpwardVerdict(Verdict):
    """Weights of all nodes, and where the accepted path ends.

    Attributes
    ----------
    weights : (b, s) weight with which each slot is entered
    stop : (b, s) probability that the accepted path ends in each slot
    """

    rule: LeafToRoot
    group: Group
    weights: Float[np.ndarray, "b s"]
    stop: Float[np.ndarray, "b s"]

    @classmethod
    def of(cls, rule: LeafToRoot, group: Group) -> UpwardVerdict:
        tree, rows = group.tree, np.arange(len(group.rows))
        weights, own = np.ones(group.tokens.shape), np.zeros(group.tokens.shape)
        for slot, below in enumerate(tree.children):  # parents come first
            node = rule.node(group, slot, weights[:, slot], rows)
            weights[:, below] = np.where(group.live[:, below], node.children, 0.0)
            own[:, slot] = node.own
        stop, turn = np.zeros_like(own), np.ones(len(rows))
        for slot in tree.post_order:
            here = own[:, slot] if slot else 1.0  # the root is never rejected
            stop[:, slot] = turn * here
            turn = turn * (1 - here)
        return cls(rule, group, weights, stop)

    def bonus(self, slot: int, rows: Int[np.ndarray, " k"]) -> Float[np.ndarray, "k V"]:
        """Law of the token added after `slot`."""
        return self.rule.node(self.group, slot, self.weights[rows, slot], rows).bonus


def from_table(
    chosen: Float[np.ndarray, "k V"],
    rejected: Float[np.ndarray, " k"],
    drafts: Int[np.ndarray, "k n"],
    target: Float[np.ndarray, "k V"],
) -> Node:
    """Turn a law over tokens and rejection, given the drafts, into weights.

    Parameters
    ----------
    chosen, rejected : (k, V) and (k,), of sum 1
        Conditional law of a token rule on the scaled target.
    drafts : (k, n)
        Tokens of the children, -1 for none. The first of several equal ones has the weight.
    target : (k, V)
        Law of the added token where none is left (round-off: the case never comes up).
    """
    shares, left = split(chosen, drafts)
    beside = left.sum(-1)
    # What is left before each child: its own share and all that comes after it.
    ahead = np.cumsum(shares[:, ::-1], axis=-1)[:, ::-1] + (beside + rejected)[:, None]
    return Node(
        ratio(shares, ahead, empty=0.0),
        ratio(beside, beside + rejected, empty=1.0),
        normalised(left, target),
    )
