"""Drafted trees: a batch of trees with their tokens and the two models' laws at every slot."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from jaxtyping import Bool, Float, Int

from multidraft import checks
from multidraft.arrays import is_torch
from multidraft.errors import InputError
from multidraft.files import atomic
from multidraft.trees.tree import Tree

FORMAT = 1
# A single draw of any of these laws, and the first k of its n children, are of the same law.
_PREFIX_LAWS = ("iid", "without-replacement", "top")


class DraftedTree:
    """B drafted trees; every array has one entry per slot, slot 0 is the root.

    Parameters
    ----------
    parents : (S,) or (B, S) integers
        As in :class:`Tree`; rows may differ in shape. A slot other than 0 with parent -1 is absent.
    laws : str, or sequence of S of str or None
        Name of the draft law of each slot's children.
    tokens : (B, S) integers
        Drafted token of every slot, -1 at the root, at absent slots, and below a draft law that ran
        out of tokens.
    target, draft : (B, S, V) floats
        Laws of the next token after every slot; the draft's is not read at leaves, and neither is
        read at a slot without a token. numpy or torch (moved to numpy, half precision raised).
    check : bool
        False skips the validation of tokens and laws.

    Raises
    ------
    InputError
        Shapes that do not match, malformed parents, laws that do not fit the number of children,
        ids out of range, a token below a slot without one, a token that the draft law cannot draw,
        or rows that are no probability laws.
    """

    parents: Int[np.ndarray, "B S"]
    laws: tuple[str | None, ...]
    tokens: Int[np.ndarray, "B S"]
    target: Float[np.ndarray, "B S V"]
    draft: Float[np.ndarray, "B S V"]

    def __init__(
        self,
        parents: Any,
        laws: str | Sequence[str | None],
        tokens: Any,
        target: Any,
        draft: Any,
        *,
        check: bool = True,
    ) -> None:
        self.tokens = _integers(tokens, "tokens")
        self.target, self.draft = _floats(target, "target"), _floats(draft, "draft")
        shape = self.tokens.shape
        if len(shape) != 2 or 0 in shape:
            raise InputError(f"tokens have shape {shape}: pass (B, S), one per slot.")
        if self.target.shape[:2] != shape or self.target.ndim != 3:
            raise InputError(
                f"target has shape {self.target.shape}: pass (B, S, V) for tokens {shape}."
            )
        if self.draft.shape != self.target.shape:
            raise InputError(
                f"draft has shape {self.draft.shape}, target {self.target.shape}: pass equal ones."
            )
        self.parents = _rows(_integers(parents, "parents"), shape)
        self.laws = (laws,) * shape[1] if isinstance(laws, str) else tuple(laws)
        if len(self.laws) != shape[1]:
            raise InputError(f"{shape[1]} slots have {len(self.laws)} laws: pass one per slot.")
        if check:
            self._check()

    @classmethod
    def of(
        cls, tree: Tree, tokens: Any, target: Any, draft: Any, *, check: bool = True
    ) -> DraftedTree:
        """Fill one tree's slots for a batch of contexts."""
        names = [None if spec is None else spec["law"] for spec in tree.specs]
        return cls(tree.parents, names, tokens, target, draft, check=check)

    def _check(self) -> None:
        if self.tokens.min() < -1 or self.tokens.max() >= self.vocabulary:
            raise InputError(f"tokens hold an id outside -1..{self.vocabulary - 1}.")
        if (self.tokens[:, 0] != -1).any():
            raise InputError("slot 0 is the root, where nothing is drafted: its token is -1.")
        absent = (self.parents < 0) & (self.tokens >= 0)
        if absent.any():
            raise InputError(f"slot {np.argwhere(absent)[0][1]} has a token but no parent.")
        live = self.live
        checks.law(self.target[live], "target")
        for group in self.groups:
            for slot, below in enumerate(group.tree.children):
                if below:
                    _check_children(group, slot, below)

    @property
    def batch(self) -> int:
        """Number of trees B."""
        return len(self.tokens)

    @property
    def slots(self) -> int:
        """Number of slots S, the root included."""
        return self.tokens.shape[1]

    @property
    def vocabulary(self) -> int:
        """Number of tokens V."""
        return self.target.shape[-1]

    @cached_property
    def live(self) -> Bool[np.ndarray, "B S"]:
        """Slots that hold something: the root, and every slot with a token."""
        live = self.tokens >= 0
        live[:, 0] = True
        return live

    @cached_property
    def depths(self) -> Int[np.ndarray, "B S"]:
        """Number of drafted tokens up to each slot."""
        return slot_depths(self.parents)

    @property
    def depth(self) -> int:
        """Length of the longest path with tokens, over the batch."""
        return int((self.depths * self.live).max())

    @property
    def tree(self) -> Tree:
        """The shape that all rows share.

        Raises
        ------
        InputError
            When they differ: take one row, or go through :attr:`groups`.
        """
        first, *others = self.groups
        if others:
            raise InputError("the trees of this batch differ in shape: take one, drafted[i].tree.")
        return first.tree

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The batch in groups of one shape each, absent slots left out."""
        shapes, inverse = np.unique(self.parents, axis=0, return_inverse=True)
        groups = []
        for i, parents in enumerate(shapes):
            slots = np.flatnonzero((parents >= 0) | (np.arange(self.slots) == 0))
            place = np.full(self.slots + 1, -1)  # the last entry is the root's parent, -1
            place[slots] = np.arange(len(slots))
            tree = Tree(place[parents[slots]], [self.laws[slot] for slot in slots])
            rows = np.flatnonzero(inverse.ravel() == i)
            here = np.ix_(rows, slots)
            arrays = self.tokens[here], self.live[here], self.target, self.draft
            groups.append(Group(tree, rows, slots, *arrays))
        return tuple(groups)

    def __len__(self) -> int:
        return self.batch

    def __getitem__(self, rows: int | slice | np.ndarray) -> DraftedTree:
        """Some of the trees, as a batch."""
        kept = [rows] if isinstance(rows, int) else rows
        arrays = (self.tokens[kept], self.target[kept], self.draft[kept])
        return DraftedTree(self.parents[kept], self.laws, *arrays, check=False)

    def __repr__(self) -> str:
        return f"DraftedTree(B={self.batch}, S={self.slots}, V={self.vocabulary})"

    def merged(self) -> DraftedTree:
        """Let siblings with equal tokens share their children.

        Paths with a common start are one path as far as they agree (SpecTr's active set): the first
        of several equal siblings takes over the children of the others, which stay as leaves. Only
        iid drafts repeat tokens; the children are then more iid drafts of the same law.
        """
        parents, twins = self._twins()
        if not twins:
            return self
        names = [name or "iid" for name in self.laws]
        return DraftedTree(parents, names, self.tokens, self.target, self.draft, check=False)

    def _twins(self) -> tuple[Int[np.ndarray, "B S"], bool]:
        """Parents after merging, and whether anything was merged."""
        parents, rows = self.parents.copy(), np.arange(self.batch)
        first = np.tile(np.arange(self.slots), (self.batch, 1))
        repeats = np.array([name == "iid" for name in self.laws])
        joins = [name in (None, "iid") for name in self.laws]
        found = False
        for slot in range(1, self.slots if repeats.any() else 0):
            present = parents[:, slot] >= 0
            parents[:, slot] = np.where(present, first[rows, parents[:, slot]], -1)
            for other in range(1, slot) if joins[slot] else ():
                same = parents[:, other] == parents[:, slot]
                same &= self.live[:, slot] & (self.tokens[:, other] == self.tokens[:, slot])
                same &= repeats[parents[:, slot]] & (first[:, slot] == slot) & joins[other]
                first[same, slot] = other
                found |= bool(same.any())
        return parents, found

    def restrict(self, tree: Tree) -> DraftedTree:
        """Read a smaller tree off this one: of every node's children the first few.

        Raises
        ------
        InputError
            When this batch's trees differ in shape, the smaller tree does not fit inside, or its
            law is not that of the first few children (greedy and hub drafts hold together).
        """
        whole = self.tree
        places = embedding(tree, whole)
        return DraftedTree.of(
            tree,
            self.tokens[:, places],
            self.target[:, places],
            self.draft[:, places],
            check=False,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the batch to one ``.npz`` file (arrays and a JSON header, no pickle)."""
        header = np.array(json.dumps({"format": FORMAT, "laws": self.laws}))
        arrays = {name: getattr(self, name) for name in ("parents", "tokens", "target", "draft")}
        with atomic(path) as temporary, open(temporary, "wb") as out:
            np.savez_compressed(out, allow_pickle=False, header=header, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a batch that :meth:`save` wrote, and validate it.

        Raises
        ------
        InputError
            No such file, damaged, or not such a file.
        """
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                arrays = [stored[name] for name in ("parents", "tokens", "target", "draft")]
                header = json.loads(str(stored["header"]))
            version, names = header["format"], [*header["laws"]]
        except FileNotFoundError:
            raise InputError(f"there is no file {os.fspath(path)}.") from None
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
            raise InputError(
                f"{os.fspath(path)} is damaged, or holds no drafted trees that save() wrote."
            ) from None
        if version != FORMAT:
            raise InputError(
                f"{os.fspath(path)} has format {version}; this version reads {FORMAT}."
            )
        parents, tokens, target, draft = arrays
        return cls(parents, names, tokens, target, draft)


@dataclass(frozen=True)
class Group:
    """Those trees of a batch that share one shape.

    It does not hold the batch itself: a cycle would keep its tables until the next collection.

    Attributes
    ----------
    tree : the shape, absent slots left out.
    rows : (b,) which trees.
    slots : (s,) where the slots of `tree` are among the batch's.
    tokens, live : (b, s) of these trees and slots
    target_laws, draft_laws : (B, S, V) of the whole batch
    """

    tree: Tree
    rows: Int[np.ndarray, " b"]
    slots: Int[np.ndarray, " s"]
    tokens: Int[np.ndarray, "b s"]
    live: Bool[np.ndarray, "b s"]
    target_laws: Float[np.ndarray, "B S V"]
    draft_laws: Float[np.ndarray, "B S V"]

    def target(
        self, slot: int | Int[np.ndarray, " k"], rows: Int[np.ndarray, " k"] | slice = slice(None)
    ) -> Float[np.ndarray, "k V"]:
        """Target laws after a slot, or one slot per row, in float64, of some of the rows."""
        return self.target_laws[self.rows[rows], self.slots[slot]].astype(np.float64)

    def draft(
        self, slot: int | Int[np.ndarray, " k"], rows: Int[np.ndarray, " k"] | slice = slice(None)
    ) -> Float[np.ndarray, "k V"]:
        """Draft laws after a slot, or one slot per row, in float64, of some of the rows."""
        return self.draft_laws[self.rows[rows], self.slots[slot]].astype(np.float64)

    def drafts(
        self, slot: int, rows: Int[np.ndarray, " k"] | slice = slice(None)
    ) -> Int[np.ndarray, "k n"]:
        """Tokens of a slot's children."""
        return self.tokens[rows][:, list(self.tree.children[slot])]


def slot_depths(parents: Int[np.ndarray, "B S"]) -> Int[np.ndarray, "B S"]:
    """Number of drafted slots from the root down to each slot."""
    depths, rows = np.zeros(parents.shape, dtype=np.int64), np.arange(len(parents))
    for slot in range(1, parents.shape[1]):
        depths[:, slot] = depths[rows, np.maximum(parents[:, slot], 0)] + 1
    return depths


def _check_children(group: Group, slot: int, below: tuple[int, ...]) -> None:
    """Check one slot's draft laws and that they can have drawn its children's tokens."""
    here, tokens = group.live[:, slot], group.drafts(slot)
    number = int(group.slots[slot])
    if (tokens[~here] >= 0).any():
        raise InputError(f"slot {number} has no token, but a slot below it does.")
    if not here.any():
        return
    probs = group.draft(slot, np.flatnonzero(here))
    checks.law(group.draft_laws[group.rows[here], number], f"draft law of slot {number}")
    chance = np.take_along_axis(probs, np.maximum(tokens[here], 0), axis=-1)
    if ((chance <= 0) & (tokens[here] >= 0)).any():
        raise InputError(
            f"a child of slot {number} holds a token of draft probability zero: verify with the "
            "law that the drafts were drawn from."
        )
    if group.tree.spec(slot)["law"] == "iid":
        return
    ordered = np.sort(np.where(tokens < 0, -1 - np.arange(len(below)), tokens), axis=-1)
    if (ordered[:, 1:] == ordered[:, :-1]).any():
        raise InputError(f"two children of slot {number} hold one token: only iid drafts repeat.")


def embedding(tree: Tree, whole: Tree) -> list[int]:
    """Slot of `whole` for every slot of `tree`, by position among the siblings.

    Raises
    ------
    InputError
        `tree` does not fit inside, or its laws are not those of the first few children.
    """
    places = [0]
    for slot in range(1, tree.slots):
        above = places[tree.parents[slot]]
        rank = int(tree.ranks[slot])
        if rank >= len(whole.children[above]):
            raise InputError(f"the smaller tree does not fit: slot {above} has no child {rank}.")
        places.append(whole.children[above][rank])
    for slot, spec in enumerate(tree.specs):
        if spec is not None and not _readable(spec, whole.specs[places[slot]]):
            raise InputError(
                f"slot {places[slot]} drafts by {whole.specs[places[slot]]}: {spec} cannot be read "
                "off it."
            )
    return places


def _readable(small: Any, large: Any) -> bool:
    """Whether the first children under the law `large` are distributed as under `small`."""
    if small == large:
        return True
    if small["n"] == 1 and small["law"] == "iid":
        return large["law"] in ("iid", "without-replacement")
    return small["law"] == large["law"] and small["law"] in _PREFIX_LAWS


def _integers(values: Any, name: str) -> Int[np.ndarray, ...]:
    array = np.asarray(values.detach().cpu() if is_torch(values) else values)
    if array.dtype.kind not in "iu":
        raise InputError(f"{name} are whole numbers; got {array.dtype}.")
    return array.astype(np.int64)


def _floats(values: Any, name: str) -> Float[np.ndarray, ...]:
    if is_torch(values):
        values = values.detach().cpu()
        values = (values if values.element_size() >= 4 else values.float()).numpy()
    array = np.asarray(values)
    if array.dtype not in (np.float32, np.float64):
        raise InputError(f"{name} laws have dtype {array.dtype}: pass float32 or float64.")
    return array


def _rows(parents: np.ndarray, shape: tuple[int, ...]) -> Int[np.ndarray, "B S"]:
    if parents.shape not in (shape, shape[1:]):
        raise InputError(
            f"parents have shape {parents.shape}: pass one per slot, {shape[1:]} or {shape}."
        )
    return np.array(np.broadcast_to(parents, shape))
