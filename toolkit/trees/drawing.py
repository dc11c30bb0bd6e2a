"""Drafting: fill a tree's slots with tokens, level by level, from a model and uniforms.

A *model* here is any function from the tokens drafted so far to the law of the next one,
``(B, M, d) -> (B, M, V)``: M paths of d tokens behind each of B contexts. It is called once per
depth, from the root down. A path with a missing token (a draft law ran out) is filled up with token
0, and its answer is not used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from multidraft import checks, laws
from multidraft.arrays import float64, largest
from multidraft.errors import InputError
from multidraft.trees.drafted import DraftedTree, slot_depths
from multidraft.trees.tree import Tree

Model: TypeAlias = Callable[[Any], Any]


class Markov:
    """A model whose next token depends on the last one only.

    Parameters
    ----------
    start : (V,)
        Law of the first token after the context.
    rows : (V, V)
        Row x is the law of the token after token x.

    Raises
    ------
    InputError
        Rows that are no laws, or shapes that do not match.
    """

    def __init__(self, start: Any, rows: Any) -> None:
        self.start = checks.law(float64(checks.as_floats(start, "start")), "start")
        self.rows = checks.law(float64(checks.as_floats(rows, "rows")), "rows")
        if self.rows.shape != (self.start.size, self.start.size):
            raise InputError(
                f"rows have shape {self.rows.shape}: pass one law for each of the "
                f"{self.start.size} tokens."
            )

    @classmethod
    def constant(cls, probs: Any) -> Markov:
        """The model that has one law everywhere."""
        start = float64(checks.as_floats(probs, "probs"))
        return cls(start, np.tile(start, (start.shape[-1], 1)))

    def after(self, token: int) -> Markov:
        """The same model in the context that ends in `token`."""
        return Markov(self.rows[token], self.rows)

    def __call__(self, paths: Int[np.ndarray, "*batch d"]) -> Float[np.ndarray, "*batch V"]:
        if paths.shape[-1] == 0:
            return np.broadcast_to(self.start, (*paths.shape[:-1], self.start.size))
        return self.rows[paths[..., -1]]


def draw(tree: Tree, target: Model, draft: Model, uniforms: Any) -> DraftedTree:
    """Draft B trees and evaluate both models at their slots.

    Parameters
    ----------
    tree : Tree
        With N drafted nodes.
    target, draft : models
        See the module's text.
    uniforms : (B, N)
        Column v - 1 belongs to slot v. A law that draws n children takes the columns of the first
        of them, as many as it needs.

    Raises
    ------
    InputError
        Uniforms of the wrong shape or outside [0, 1), or laws that do not fit into memory.
    """
    tokens, drafted = draw_tokens(tree, draft, uniforms)
    parents = np.tile(tree.parents, (len(tokens), 1))
    everywhere = np.ones(tokens.shape, dtype=bool)
    return DraftedTree.of(tree, tokens, evaluate(target, parents, tokens, everywhere), drafted)


def draw_tokens(
    tree: Tree, draft: Model, uniforms: Any
) -> tuple[Int[np.ndarray, "B S"], Float[np.ndarray, "B S V"]]:
    """Draft the tokens of B trees; also return the draft laws (zeros at leaves)."""
    uniforms = np.asarray(uniforms, dtype=np.float64)
    if uniforms.ndim != 2 or uniforms.shape[1] != tree.nodes or len(uniforms) == 0:
        raise InputError(f"uniforms have shape {uniforms.shape}: pass (B, {tree.nodes}).")
    if not ((uniforms >= 0) & (uniforms < 1)).all():
        raise InputError("uniforms lie in [0, 1).")
    tokens = np.full((len(uniforms), tree.slots), -1)
    table: np.ndarray | None = None
    for depth in range(tree.depth):
        inner = [slot for slot in tree.level(depth) if tree.children[slot]]
        ways = np.array([tree.path(slot) for slot in inner], dtype=np.int64)
        probs = _laws(draft, np.maximum(tokens[:, ways], 0))
        table = law_table(tokens, probs.shape[-1]) if table is None else table
        table[:, inner] = probs
        for i, slot in enumerate(inner):
            below = list(tree.children[slot])
            drawn = _children(tree.spec(slot), probs[:, i], uniforms[:, np.subtract(below, 1)])
            reached = (tokens[:, slot, None] >= 0) | (slot == 0)
            tokens[:, below] = np.where(reached, drawn, -1)
    if table is None:
        raise InputError("the tree has no drafted slot: there is nothing to draw.")
    return tokens, table


def evaluate(
    model: Model,
    parents: Int[np.ndarray, "B S"],
    tokens: Int[np.ndarray, "B S"],
    wanted: Bool[np.ndarray, "B S"],
) -> Float[np.ndarray, "B S V"]:
    """Laws of the next token after every wanted slot, zeros elsewhere; one call per depth.

    Parameters
    ----------
    model : see the module's text
    parents, tokens : (B, S) as in :class:`DraftedTree`
    wanted : (B, S) slots that are asked for, the root among them
    """
    depths, rows = slot_depths(parents), np.arange(len(tokens))[:, None]
    table: np.ndarray | None = None
    for depth in range(int(depths[wanted].max()) + 1):
        here = wanted & (depths == depth)
        slots = np.argsort(~here, axis=-1, kind="stable")[:, : here.sum(-1).max()]
        probs = _laws(model, _paths(parents, tokens, slots, depth))
        table = law_table(tokens, probs.shape[-1]) if table is None else table
        found, columns = np.nonzero(here[rows, slots])
        table[found, slots[found, columns]] = probs[found, columns]
    assert table is not None  # the root is wanted
    return table


def _paths(parents: np.ndarray, tokens: np.ndarray, slots: np.ndarray, depth: int) -> np.ndarray:
    """Tokens on the way to slots of one depth, ``(B, M, depth)``; 0 for a missing one."""
    paths, rows = np.zeros((*slots.shape, depth), dtype=np.int64), np.arange(len(slots))[:, None]
    for place in range(depth - 1, -1, -1):
        paths[..., place] = np.maximum(tokens[rows, slots], 0)
        slots = np.maximum(parents[rows, slots], 0)
    return paths


def law_table(tokens: Int[np.ndarray, "B S"], vocabulary: int) -> Float[np.ndarray, "B S V"]:
    """Zeros for the laws at all slots, unless two such tables are larger than the free memory."""
    import psutil

    batch, slots = tokens.shape
    needed, free = 16.0 * batch * slots * vocabulary, psutil.virtual_memory().available
    if needed > free:
        raise InputError(
            f"the laws of {batch} trees of {slots} slots over {vocabulary} tokens take "
            f"{needed / 2**30:.3g} GiB and {free / 2**30:.3g} GiB are free: use a smaller tree or "
            "fewer trees at a time."
        )
    return np.zeros((batch, slots, vocabulary))


def _laws(model: Model, paths: Int[np.ndarray, "B M d"]) -> Float[np.ndarray, "B M V"]:
    """The model's laws after paths."""
    probs = float64(model(paths))
    if probs.ndim != 3 or probs.shape[:2] != paths.shape[:2]:
        raise InputError(
            f"the model returns shape {probs.shape} for paths {paths.shape}: it should be "
            f"{(*paths.shape[:2], 'V')}."
        )
    return probs


def _children(spec: Any, probs: np.ndarray, uniforms: np.ndarray) -> Int[np.ndarray, "B n"]:
    law = laws.make(spec, probs, check=False)
    return law.draw(uniforms[:, None, : law.draws])[:, 0]


def top_probability(
    target: Model, draft: Model, *, width: int, depth: int, nodes: int, batch: int = 1
) -> DraftedTree:
    """Draft trees of the most probable paths, whose shape depends on the context (EAGLE-2).

    Down to `depth`, the `width` most probable paths of every depth are each extended by their
    `width` most probable tokens; of all paths so found the `nodes` most probable stay (2406.16858).
    Nothing is random: every node has the law ``top`` with as many drafts as it has children.

    Parameters
    ----------
    target, draft : models
        See the module's text.
    width, depth, nodes : int
    batch : int
        Number of contexts B that the models hold.

    Returns
    -------
    DraftedTree
        With ``nodes + 1`` slots; fewer where the draft law has no more tokens.
    """
    width, depth = checks.count(width, "width"), checks.count(depth, "depth")
    search = _TopSearch.empty(checks.count(batch, "batch"))
    for level in range(depth):
        search.extend(draft, level, width)
    kept, parents, tokens = search.best(checks.count(nodes, "nodes"))
    live = tokens >= 0
    live[:, 0] = True
    target_laws = evaluate(target, parents, tokens, live)
    return DraftedTree(parents, "top", tokens, target_laws, search.laws_at(kept))


@dataclass
class _TopSearch:
    """Paths found so far: parent, token and probability of every slot, (B, C) each.

    Attributes
    ----------
    frontier : (B, F) slots to be extended next
    expanded : per depth, the slots extended there and their draft laws, (B, F) and (B, F, V)
    """

    parents: Int[np.ndarray, "B C"]
    tokens: Int[np.ndarray, "B C"]
    chances: Float[np.ndarray, "B C"]
    frontier: Int[np.ndarray, "B F"]
    expanded: list[tuple[np.ndarray, np.ndarray]]

    @classmethod
    def empty(cls, batch: int) -> _TopSearch:
        minus = np.full((batch, 1), -1)
        return cls(minus, minus, np.ones((batch, 1)), minus + 1, [])

    def extend(self, draft: Model, depth: int, width: int) -> None:
        """Extend the slots of the frontier and choose the next one among their children."""
        rows, first = np.arange(len(self.frontier))[:, None], self.tokens.shape[1]
        probs = _laws(draft, _paths(self.parents, self.tokens, self.frontier, depth))
        self.expanded.append((self.frontier, probs))
        ids = largest(probs, width)
        chances = self.chances[rows, self.frontier, None] * np.take_along_axis(probs, ids, -1)
        found = chances.reshape(len(rows), -1)
        above = np.repeat(self.frontier, ids.shape[-1], axis=-1)
        self.parents = np.append(self.parents, above, axis=-1)
        self.tokens = np.append(self.tokens, ids.reshape(found.shape), axis=-1)
        self.chances = np.append(self.chances, found, axis=-1)
        self.frontier = first + largest(found, width)

    def best(self, nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The most probable slots, the root included; their parents and tokens, -1 pads.

        A slot is never more probable than its parent, and of equals the earlier wins, so parents
        are always kept.
        """
        rows = np.arange(len(self.tokens))[:, None]
        kept = np.sort(largest(self.chances, nodes + 1), axis=-1)
        above = self.parents[rows, kept]
        places = np.stack([np.searchsorted(k, a) for k, a in zip(kept, above, strict=True)])
        missing = (self.chances[rows, kept] <= 0) | (kept == 0)
        return kept, np.where(missing, -1, places), np.where(missing, -1, self.tokens[rows, kept])

    def laws_at(self, kept: Int[np.ndarray, "B S"]) -> Float[np.ndarray, "B S V"]:
        """Draft laws at those of the kept slots that were extended, zeros at the others."""
        draft = np.zeros((*kept.shape, self.expanded[0][1].shape[-1]))
        for slots, probs in self.expanded:
            rows, places, found = np.nonzero(kept[:, :, None] == slots[:, None, :])
            draft[rows, places] = probs[rows, found]
        return draft
