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
from multidraft.trees.named import parse, union
from multidraft.trees.rules import get, names
from multidraft.trees.rules.base import Block, Judgement, TreeRule
from multidraft.trees.shapes import chain, delayed, k_ary, paths, sequoia
from multidraft.trees.tree import Tree

if TYPE_CHECKING:
    from multidraft.trees import efficiency, recorded
    from multidraft.trees.pictures import outline, picture
    from multidraft.trees.recording import Recorder

# Public name -> module; not imported before it is asked for, since they need matplotlib or torch.
_HOME = {"outline": "pictures", "picture": "pictures", "Recorder": "recording"}
_MODULES = ("efficiency", "recorded")

__all__ = [
    "Block",
    "BlockLaw",
    "DraftedTree",
    "Group",
    "Judgement",
    "Markov",
    "Recorder",
    "Tree",
    "TreeOptimum",
    "TreeRule",
    "block_law",
    "chain",
    "delayed",
    "deviation",
    "draw",
    "draw_tokens",
    "efficiency",
    "enumerate_drafts",
    "estimate",
    "evaluate",
    "expected_length",
    "get",
    "k_ary",
    "names",
    "optimum",
    "outline",
    "parse",
    "paths",
    "picture",
    "recorded",
    "sequoia",
    "slot_acceptance",
    "top_probability",
    "tree_optimum",
    "union",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"multidraft.trees.{_HOME[name]}"), name)
    if name in _MODULES:
        return import_module(f"multidraft.trees.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
