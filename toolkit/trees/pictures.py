"""Pictures of trees: structure, probabilities, acceptance, the accepted path."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from multidraft.errors import InputError
from multidraft.plots import canvas
from multidraft.trees.drafted import Group
from multidraft.trees.rules.base import Block, Judgement
from multidraft.trees.tree import Tree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ACCEPTED = canvas.COLOURS[1]
# Above this many slots numbers at the edges overlap.
_MOST_LABELS = 45


def outline(tree: Tree, title: str = "") -> Figure:
    """Draw the shape of a tree, the rank of every child at its slot.

    Examples
    --------
    >>> from multidraft.trees import k_ary
    >>> figure = outline(k_ary(2, 3), "2^4")
    """
    with canvas.style():
        figure, (axes,) = canvas.panels(1, 1, 0.35 * (tree.depth + 1))
        outline_on(axes, tree, title)
    return figure


def outline_on(axes: Axes, tree: Tree, title: str) -> None:
    """Draw the shape of a tree into axes."""
    places = _places(tree)
    _edges(axes, tree, places, set(range(1, tree.slots)), color="#777777", linewidth=0.8)
    size = 40 if tree.slots <= _MOST_LABELS else 8
    axes.scatter(*places.T, s=size, color="white", edgecolor="#333333", linewidth=0.8, zorder=2)
    _frame(axes, title)


def picture(
    judgement: Judgement,
    row: int = 0,
    *,
    block: Block | None = None,
    name: Callable[[int], str] = str,
    title: str = "",
) -> Figure:
    """Draw one drafted tree as a rule judges it.

    Every node shows its token; darker nodes are more likely to be accepted. Edges show the draft
    probability p and target probability q of the token, and the probability a that the path down
    to it is accepted. With a `block` the accepted path is thick and the added token hangs below it.

    Parameters
    ----------
    judgement : Judgement
        From :meth:`TreeRule.judge`.
    row : int
        Which tree of the batch.
    block : Block, optional
        What was emitted for the batch.
    name : callable
        Text of a token id.
    title : str

    Raises
    ------
    InputError
        A row that the batch does not have.
    """
    if not 0 <= row < judgement.drafted.batch:
        raise InputError(f"row {row} of a batch of {judgement.drafted.batch} trees.")
    group = judgement.drafted[row].groups[0]
    reach = judgement.reach[row, group.slots]
    with canvas.style():
        figure, (axes,) = canvas.panels(1, 1, 0.75 * (group.tree.depth + 1))
        figure.set_figwidth(max(canvas.COLUMN, 0.75 * len(_leaves(group.tree))))
        places = _places(group.tree)
        _edges(axes, group.tree, places, _live(group), color="#777777", linewidth=0.8)
        _nodes(axes, group, places, reach, name)
        if group.tree.slots <= _MOST_LABELS:
            _numbers(axes, group, places, reach)
        if block is not None:
            _accepted(axes, group, places, block, row, name)
        _frame(axes, title)
    return figure


def _leaves(tree: Tree) -> list[int]:
    return [slot for slot, below in enumerate(tree.children) if not below]


def _places(tree: Tree) -> Float[np.ndarray, "S 2"]:
    """Leaves side by side from left to right, every node over the middle of its children."""
    places = np.zeros((tree.slots, 2))
    places[:, 1] = -tree.depths
    used = 0
    for slot in tree.post_order:
        below = tree.children[slot]
        places[slot, 0] = places[list(below), 0].mean() if below else used
        used += not below
    return places


def _live(group: Group) -> set[int]:
    return set(np.flatnonzero(group.tokens[0] >= 0).tolist())


def _edges(axes: Axes, tree: Tree, places: np.ndarray, slots: set[int], **look: Any) -> None:
    for slot in sorted(slots):
        axes.plot(*places[[tree.parents[slot], slot]].T, zorder=1, **look)


def _nodes(
    axes: Axes, group: Group, places: np.ndarray, reach: np.ndarray, name: Callable[[int], str]
) -> None:
    slots = [0, *sorted(_live(group))]
    axes.scatter(
        *places[slots].T,
        s=190,
        c=reach[slots],
        cmap="Blues",
        vmin=0,
        vmax=1.6,  # the darkest shade still lets black text be read
        edgecolor="#333333",
        linewidth=0.8,
        zorder=3,
    )
    for slot in slots[1:]:
        text = name(int(group.tokens[0, slot]))
        axes.annotate(text, tuple(places[slot]), ha="center", va="center", zorder=4, fontsize=6.5)


def _numbers(axes: Axes, group: Group, places: np.ndarray, reach: np.ndarray) -> None:
    for slot in _live(group):
        above, token = group.tree.parents[slot], group.tokens[0, slot]
        draft, target = group.draft(above)[0, token], group.target(above)[0, token]
        middle = places[[above, slot, slot]].mean(0)
        axes.annotate(
            f"p {draft:.2f}  q {target:.2f}\na {reach[slot]:.2f}",
            tuple(middle),
            ha="center",
            va="center",
            fontsize=5,
            zorder=2,
            bbox={"boxstyle": "square,pad=0.1", "color": "white"},
        )


def _accepted(
    axes: Axes,
    group: Group,
    places: np.ndarray,
    block: Block,
    row: int,
    name: Callable[[int], str],
) -> None:
    path = np.searchsorted(group.slots, block.path[row][block.path[row] >= 0])
    _edges(axes, group.tree, places, set(path.tolist()), color=_ACCEPTED, linewidth=2.4)
    end = places[path[-1]] if path.size else places[0]
    added = name(int(block.tokens[row, block.length[row] - 1]))
    axes.annotate(
        f"+ {added}",
        tuple(end),
        xytext=(14, -12),
        textcoords="offset points",
        color=_ACCEPTED,
        ha="left",
        va="center",
        fontsize=7,
        zorder=5,
    )


def _frame(axes: Axes, title: str) -> None:
    axes.set_axis_off()
    axes.margins(0.12)
    axes.set_title(title)
