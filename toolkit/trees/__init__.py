"""Draft trees: shapes, drafting, rules that verify them, exact expectations, the true optimum.

>>> import numpy as np
>>> import multidraft as md
>>> target = md.trees.Markov.constant([0.2, 0.3, 0.5])
>>> draft = md.trees.Markov.constant([0.6, 0.3, 0.1])
>>> drafted = md.trees.draw(md.trees.chain(2), target, draft, np.array([[0.1, 0.7]]))
>>> drafted.tokens
array([[-1, 0, 1]])
>>> rule = md.trees.get("block")
>>> rule.expected_length(drafted)
array([1.72727273])
>>> rule.verify(drafted, np.array([[0.9, 0.5]])).tokens
array([[0, 1, 2]])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from multidraft.trees.block_program import TreeOptimum, optimum, tree_optimum
from multidraft.trees.drafted import DraftedTree, Group
from multidraft.trees.drawing import Markov, draw, draw_tokens, evaluate, top_probability
from multidraft.trees.exact import BlockLaw, block_law, deviation, enumerate_drafts
from multidraft.trees.expected import estimate, expected_length, slot_acceptance
from multidraft.trees.rules import get, names
from multidraft.trees.rules.base import Block, Judgement, TreeRule
from multidraft.trees.shapes import chain, delayed, k_ary, paths, sequoia
from multidraft.trees.tree import Tree

if TYPE_CHECKING:
    from multidraft.trees.pictures import outline, picture

__all__ = [
    "Block",
    "BlockLaw",
    "DraftedTree",
    "Group",
    "Judgement",
    "Markov",
    "Tree",
    "TreeOptimum",
    "TreeRule",
    "block_law",
    "chain",
    "delayed",
    "deviation",
    "draw",
    "draw_tokens",
    "enumerate_drafts",
    "estimate",
    "evaluate",
    "expected_length",
    "get",
    "k_ary",
    "names",
    "optimum",
    "outline",
    "paths",
    "picture",
    "sequoia",
    "slot_acceptance",
    "top_probability",
    "tree_optimum",
]


def __getattr__(name: str) -> Any:
    if name in ("outline", "picture"):  # they need matplotlib
        return getattr(import_module("multidraft.trees.pictures"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
