"""The trees of the literature, built by name: chains, k-ary trees, paths, delayed expansion."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from multidraft import checks
from multidraft.errors import InputError
from multidraft.trees.tree import MOST_SLOTS, Tree

LawLike = str | Mapping[str, Any]


def chain(length: int, law: LawLike = "iid") -> Tree:
    """One path of `length` drafted tokens.

    Examples
    --------
    >>> chain(3).parents
    (-1, 0, 1, 2)
    """
    return delayed(1, checks.count(length, "length"), 0, law)


def paths(n: int, length: int, law: LawLike = "iid") -> Tree:
    """`n` paths of `length` tokens that part at the root (SpecTr, 2310.15141; Khisti et al.).

    With ``law="iid"`` these are n independent draws of a whole path. Another law, for example
    ``"without-replacement"``, governs the n first tokens; below them every path goes on alone.

    Examples
    --------
    >>> paths(2, 2).parents
    (-1, 0, 0, 1, 2)
    """
    return delayed(n, 0, checks.count(length, "length"), law)


def delayed(n: int, trunk: int, branches: int, law: LawLike = "iid") -> Tree:
    """Delayed expansion (K, L1, L2) of 2602.16994: a trunk, then `n` paths from its end.

    Parameters
    ----------
    n : int
        Number of paths K.
    trunk, branches : int
        Drafted tokens before (L1) and after (L2) the expansion, not both zero.
    law : str or spec
        Law of the n tokens where the paths part; all others are single draws.
    """
    n = checks.count(n, "n")
    trunk, branches = checks.count(trunk, "trunk", 0), checks.count(branches, "branches", 0)
    checks.count(trunk + branches, "length of a path")
    _fits(trunk + n * branches)
    parents = list(range(-1, trunk))
    for depth in range(branches):
        last = len(parents) - n
        parents += [trunk] * n if depth == 0 else [last + i for i in range(n)]
    laws: list[LawLike] = ["iid"] * len(parents)
    if branches:
        laws[trunk] = law
    return Tree(parents, laws)


def k_ary(branching: int, depth: int, law: LawLike = "iid") -> Tree:
    """The full tree in which every inner node has `branching` children.

    SpecHub's logs (2411.05289) call a tree of `branching` b and depth d ``b^(d+1)``: their binary
    trees ``2^2`` to ``2^5`` hold 3 to 31 slots.

    Examples
    --------
    >>> k_ary(2, 4).slots
    31
    """
    branching, depth = checks.count(branching, "branching"), checks.count(depth, "depth")
    _fits(sum(float(branching) ** d for d in range(1, min(depth, 1000) + 1)))
    parents, level = [-1], [0]
    for _ in range(depth):
        above = [slot for slot in level for _ in range(branching)]
        level = list(range(len(parents), len(parents) + len(above)))
        parents += above
    return Tree(parents, law)


def _fits(nodes: float) -> None:
    if nodes >= MOST_SLOTS:
        raise InputError(
            f"a tree of {nodes:.3g} drafted tokens is larger than the {MOST_SLOTS} that one call "
            "can hold: lower its width or depth."
        )


def sequoia(
    acceptance: Any,
    nodes: int,
    depth: int | None = None,
    law: LawLike = "without-replacement",
) -> Tree:
    r"""The tree of `nodes` drafted tokens with the longest estimated block (Sequoia, 2402.12374).

    With `P[b]` the probability that the b-th child of a node is the accepted one, the same at every
    node, a tree has estimated block length :math:`\sum_v \prod_{u \le v} P[\mathrm{rank}(u)]`. The
    best tree of n slots whose root has b children obeys

    .. math:: T[n, b] = \max_m T[n - m, b - 1] + P[b] \max_j T[m, j].

    Parameters
    ----------
    acceptance : (b,)
        P[1], P[2], ...: probabilities that sum to at most 1; also the largest number of children.
    nodes : int
        Number of drafted tokens.
    depth : int, optional
        Longest path allowed; as long as the nodes last when not given.
    law : str or spec
        Law of the children.

    Raises
    ------
    InputError
        Numbers that are no acceptance vector, or more nodes than fit in the depth.

    Examples
    --------
    >>> sequoia([0.8, 0.1], nodes=3).parents
    (-1, 0, 1, 2)
    >>> sequoia([0.6, 0.39], nodes=3).parents
    (-1, 0, 0, 1)
    """
    chances = acceptance_vector(acceptance)
    nodes = checks.count(nodes, "nodes")
    _fits(nodes)
    depth = nodes if depth is None else min(checks.count(depth, "depth"), nodes)
    value, last = _sequoia_table(chances, nodes + 1, depth)
    if value[depth, nodes + 1].max() == -np.inf:
        raise InputError(
            f"no tree of depth {depth} with {len(chances)} children per node holds {nodes} nodes: "
            "allow more depth or fewer nodes."
        )
    return Tree(_sequoia_parents(value, last, nodes + 1, depth), law)


def acceptance_vector(acceptance: Any) -> Float[np.ndarray, " b"]:
    """Check a per-slot acceptance vector and return it in float64."""
    chances = np.asarray(acceptance, dtype=np.float64)
    if chances.ndim != 1 or chances.size == 0 or not (chances >= 0).all():
        raise InputError("acceptance is one probability per child, (b,): P[1], P[2], ...")
    if chances.sum() > 1 + 1e-9:
        raise InputError(
            f"acceptance sums to {chances.sum():.6g}, above 1: pass the probability that each "
            "child is the accepted one."
        )
    return chances


def _sequoia_table(
    chances: Float[np.ndarray, " b"], slots: int, depth: int
) -> tuple[np.ndarray, np.ndarray]:
    """Values T[depth, slots, children] and the slots given to the last child."""
    value = np.full((depth + 1, slots + 1, len(chances) + 1), -np.inf)
    last = np.zeros(value.shape, dtype=np.int64)
    value[:, 1, 0] = 1.0
    for d in range(1, depth + 1):
        subtree = value[d - 1].max(-1)
        possible = subtree > -np.inf
        for b in range(1, len(chances) + 1):
            gain = np.where(possible, chances[b - 1] * np.where(possible, subtree, 0.0), -np.inf)
            for n in range(2, slots + 1):
                sizes = np.arange(1, n)
                totals = value[d, n - sizes, b - 1] + gain[sizes]
                best = int(totals.argmax())
                value[d, n, b], last[d, n, b] = totals[best], sizes[best]
    return value, last


def _sequoia_parents(value: np.ndarray, last: np.ndarray, slots: int, depth: int) -> list[int]:
    """Parents of the best tree, read off the table level by level."""
    parents, waiting = [-1], deque([(0, slots, depth)])
    while waiting:
        root, n, d = waiting.popleft()
        sizes: list[int] = []
        for b in range(int(value[d, n].argmax()), 0, -1):
            sizes.append(int(last[d, n, b]))
            n -= sizes[-1]
        for size in reversed(sizes):
            waiting.append((len(parents), size, d - 1))
            parents.append(root)
    return parents
