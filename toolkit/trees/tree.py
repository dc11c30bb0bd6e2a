"""The structure of a draft tree: who hangs below whom, and by which law children are drawn.

Slots are numbered from 0, the root: the context, where nothing is drafted. Every other slot holds
one drafted token and comes after its parent. A node with children names the draft law of their
tokens as :attr:`multidraft.laws.Law.spec` does, with as many drafts as it has children.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from jaxtyping import Int

from multidraft import checks, laws
from multidraft.errors import InputError
from multidraft.files import write_text
from multidraft.laws import Spec

FORMAT = 1
# A tree that a target model checks in one call has dozens of nodes; beyond this it is a mistake.
MOST_SLOTS = 100_000
# Laws with one table of probabilities per node.
LAWS = ("iid", "without-replacement", "greedy", "hub", "top")


class Tree:
    """A rooted, ordered tree of slots, with the draft law of every node's children.

    Parameters
    ----------
    parents : sequence of S integers
        Parent of every slot, -1 for the root, which is slot 0. Parents come before children;
        children are ordered by slot.
    law : str, mapping, or sequence of S of these
        Law of the children: a name such as ``"iid"``, or a spec; one for all nodes, or one per slot
        (ignored at leaves). A number of drafts in a spec must be the number of children.

    Raises
    ------
    InputError
        Cyclic, disconnected or unordered parents, or a law that does not fit the children.

    Examples
    --------
    >>> tree = Tree([-1, 0, 0, 1], "without-replacement")
    >>> tree.nodes, tree.depth, tree.children[0]
    (3, 2, (1, 2))
    """

    parents: tuple[int, ...]
    specs: tuple[Spec | None, ...]

    def __init__(self, parents: Any, law: str | Mapping[str, Any] | Sequence[Any]) -> None:
        self.parents = _checked_parents(parents)
        shared = isinstance(law, str | Mapping)
        if not shared and len(law) != self.slots:
            raise InputError(f"{self.slots} slots have {len(law)} laws: pass one, or one per slot.")
        each = [law] * self.slots if shared else law
        self.specs = tuple(
            _fitted(each[v], v, len(below)) if below else None
            for v, below in enumerate(self.children)
        )

    @property
    def slots(self) -> int:
        """Number of slots S, the root included."""
        return len(self.parents)

    @property
    def nodes(self) -> int:
        """Number of drafted tokens, S - 1."""
        return self.slots - 1

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Slots below each slot, in order."""
        below: list[list[int]] = [[] for _ in self.parents]
        for slot, parent in enumerate(self.parents[1:], start=1):
            below[parent].append(slot)
        return tuple(map(tuple, below))

    @cached_property
    def depths(self) -> Int[np.ndarray, " S"]:
        """Number of drafted tokens on the way from the root to each slot, itself included."""
        depths = np.zeros(self.slots, dtype=np.int64)
        for slot, parent in enumerate(self.parents[1:], start=1):
            depths[slot] = depths[parent] + 1
        return depths

    @property
    def depth(self) -> int:
        """Length of the longest path of drafted tokens."""
        return int(self.depths.max())

    @cached_property
    def ranks(self) -> Int[np.ndarray, " S"]:
        """Position of each slot among its siblings; 0 for the root."""
        ranks = np.zeros(self.slots, dtype=np.int64)
        for below in self.children:
            ranks[list(below)] = np.arange(len(below))
        return ranks

    @cached_property
    def post_order(self) -> tuple[int, ...]:
        """Every slot after all slots below it, the first child's first; the root is last."""
        # The reverse of: node, last child's subtree, ..., first child's subtree.
        order, waiting = [], [0]
        while waiting:
            order.append(waiting.pop())
            waiting.extend(self.children[order[-1]])
        return tuple(reversed(order))

    def path(self, slot: int) -> tuple[int, ...]:
        """Drafted slots from the root's child down to `slot`."""
        path: list[int] = []
        while slot > 0:
            path.append(slot)
            slot = self.parents[slot]
        return tuple(reversed(path))

    def level(self, depth: int) -> tuple[int, ...]:
        """Slots at one depth."""
        return tuple(np.flatnonzero(self.depths == depth).tolist())

    def spec(self, slot: int) -> Spec:
        """Draft law of the children of a slot that has some."""
        spec = self.specs[slot]
        if spec is None:
            raise InputError(f"slot {slot} is a leaf: it has no draft law.")
        return spec

    def law_names(self) -> frozenset[str]:
        """Names of the draft laws in the tree."""
        return frozenset(spec["law"] for spec in self.specs if spec is not None)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the tree as JSON."""
        content = {"format": FORMAT, "parents": self.parents, "laws": self.specs}
        write_text(Path(path), json.dumps(content, indent=1) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a tree that :meth:`save` wrote.

        Raises
        ------
        InputError
            No such file, or not such a file.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            version, parents, specs = content["format"], content["parents"], [*content["laws"]]
        except FileNotFoundError:
            raise InputError(f"there is no file {os.fspath(path)}.") from None
        except (OSError, ValueError, KeyError, TypeError):
            raise InputError(
                f"{os.fspath(path)} is damaged, or not a tree that save() wrote."
            ) from None
        if version != FORMAT:
            raise InputError(
                f"{os.fspath(path)} has format {version}; this version reads {FORMAT}."
            )
        return cls(parents, specs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and (self.parents, self.specs) == (
            other.parents,
            other.specs,
        )

    def __hash__(self) -> int:
        return hash(self.parents)

    def __repr__(self) -> str:
        laws_used = ", ".join(sorted(self.law_names())) or "no drafts"
        return f"Tree({self.nodes} nodes, depth {self.depth}, {laws_used})"


def _checked_parents(parents: Any) -> tuple[int, ...]:
    try:
        array = np.asarray(parents)
    except ValueError:  # ragged
        array = np.empty(0)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InputError("parents are one whole number per slot, (S,), -1 for the root, slot 0.")
    if array.size > MOST_SLOTS:
        raise InputError(f"a tree of {array.size} slots is too large: at most {MOST_SLOTS}.")
    if array[0] != -1:
        raise InputError(f"slot 0 is the root: its parent is -1, not {array[0]}.")
    below = array[1:]
    if (stray := np.flatnonzero((below < 0) | (below >= array.size))).size:
        slot = int(stray[0]) + 1
        raise InputError(
            f"the tree is disconnected: slot {slot} has parent {array[slot]}, which is no slot."
        )
    if (early := np.flatnonzero(below > np.arange(below.size))).size:
        slot = int(early[0]) + 1
        if _reaches_root(array, slot):
            raise InputError(
                f"slot {slot} comes before its parent {array[slot]}: number slots by depth."
            )
        raise InputError(f"the tree is cyclic: the parents of slot {slot} never reach the root.")
    return tuple(int(parent) for parent in array)


def _reaches_root(parents: np.ndarray, slot: int) -> bool:
    for _ in range(parents.size):
        slot = int(parents[slot])
        if slot <= 0:
            return True
    return False


def _fitted(law: Any, slot: int, count: int) -> Spec:
    """The full spec of a node with `count` children.

    One draft without replacement, or one greedy draft, is one draw from p: ``iid`` by name.
    """
    if not isinstance(law, str | Mapping):
        raise InputError(f"slot {slot} has {count} children but no draft law.")
    spec = {"law": law} if isinstance(law, str) else dict(law)
    name = checks.choice(str(spec.pop("law", None)), LAWS, "draft law of a tree")
    wanted = 2 if name == laws.Hub.name else spec.pop("n", count)
    if wanted != count or spec.pop("n", count) != count:
        raise InputError(
            f"slot {slot} has {count} children, but its law {name} drafts {wanted}: "
            "change the tree or the law."
        )
    if unknown := spec.keys() - {"short"}:
        raise InputError(f"unknown option {min(unknown)!r} of the draft law of slot {slot}.")
    if count == 1 and name in (laws.WithoutReplacement.name, laws.Greedy.name):
        name = laws.IID.name
    return {"law": name, "n": count, "short": "pad"}
