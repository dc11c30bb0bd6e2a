"""Trees written as text, and the smallest tree that holds several others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from multidraft.errors import InputError
from multidraft.trees import shapes
from multidraft.trees.drafted import embedding
from multidraft.trees.tree import Tree

#: Name in texts -> the function that builds the tree, and how many numbers it takes.
SHAPES: dict[str, tuple[Callable[..., Tree], int]] = {
    "chain": (shapes.chain, 1),
    "paths": (shapes.paths, 2),
    "k-ary": (shapes.k_ary, 2),
    "delayed": (shapes.delayed, 3),
}
_EXAMPLES = "chain:8, paths:4,5, k-ary:2,4 or delayed:4,2,3, joined by +"


def parse(text: str, law: shapes.LawLike = "iid") -> Tree:
    """Build a tree from its name: a shape with its numbers, or several joined by ``+``.

    Parameters
    ----------
    text : str
        ``chain:L``, ``paths:n,L``, ``k-ary:b,depth`` or ``delayed:n,trunk,branches``; see
        `multidraft.trees`. Several are united, see :func:`union`.
    law : str or spec
        Draft law of the children of every node.

    Raises
    ------
    InputError
        Anything else, or shapes that no tree of this law holds together.

    Examples
    --------
    >>> parse("paths:2,2").parents
    (-1, 0, 0, 1, 2)
    >>> parse("chain:3+k-ary:2,1").parents
    (-1, 0, 0, 1, 3)
    """
    return union([_parse(part.strip(), law) for part in text.split("+")])


def _parse(text: str, law: shapes.LawLike) -> Tree:
    name, _, numbers = text.partition(":")
    try:
        build, arguments = SHAPES[name]
        sizes = [int(number) for number in numbers.split(",")]
        if len(sizes) != arguments:
            raise ValueError
    except (KeyError, ValueError):
        raise InputError(f"{text!r} names no tree: write {_EXAMPLES}.") from None
    return Tree(build(*sizes).parents, law)


def union(trees: Sequence[Tree]) -> Tree:
    """The smallest tree from which each of `trees` can be read off.

    Slots are the same when the ranks on the way to them are. A node draws by the law of the tree in
    which it has the most children there.

    Raises
    ------
    InputError
        No tree, or trees that cannot be read off one, such as hub trees of different widths.

    Examples
    --------
    >>> union([shapes.chain(3), shapes.paths(2, 2)]).parents
    (-1, 0, 0, 1, 2, 3)
    """
    if not trees:
        raise InputError("a union needs at least one tree.")
    ways = {way for tree in trees for way in _ways(tree)}
    ordered = sorted(ways, key=lambda way: (len(way), way))
    place = {way: slot for slot, way in enumerate(ordered)}
    parents = [place[way[:-1]] if way else -1 for way in ordered]
    laws = [_widest(trees, way) for way in ordered]
    whole = Tree(parents, laws)
    for tree in trees:
        embedding(tree, whole)
    return whole


def _ways(tree: Tree) -> list[tuple[int, ...]]:
    """Ranks on the way from the root to every slot."""
    ways: list[tuple[int, ...]] = [()]
    for parent, rank in zip(tree.parents[1:], tree.ranks[1:].tolist(), strict=True):
        ways.append((*ways[parent], rank))
    return ways


def _widest(trees: Sequence[Tree], way: tuple[int, ...]) -> shapes.LawLike:
    """Law of the children at `way` in the tree that has the most of them there."""
    found = [(tree, _ways(tree)) for tree in trees]
    specs = [tree.specs[ways.index(way)] for tree, ways in found if way in ways]
    widest = max((spec for spec in specs if spec), key=lambda spec: spec["n"], default=None)
    return "iid" if widest is None else widest["law"]
