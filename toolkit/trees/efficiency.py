r"""Block efficiency from recorded trees: expected block lengths, exact given each drafted tree.

The block efficiency of a rule is the mean over contexts of its expected block length given the
drafted tree, so what is left of chance is which contexts were recorded and which tokens were
drafted. All rules and all smaller trees see the same drafts: their differences are paired, and far
more certain than either number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from multidraft.results import Mean, clustered_mean, paired_difference
from multidraft.trees.drafted import DraftedTree
from multidraft.trees.named import union
from multidraft.trees.recorded import Recording
from multidraft.trees.rules.base import TreeRule
from multidraft.trees.tree import Tree

_MEMORY = 2**26  # bytes of the two tables of laws in a batch; rules need several times as much

Key = TypeVar("Key")


class Case(NamedTuple):
    """A tree, to be read off the recorded one, and the rule that verifies it."""

    tree: Tree
    rule: TreeRule


def lengths(
    recording: Recording,
    cases: Mapping[Key, Case],
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> dict[Key, Float[np.ndarray, " N"]]:
    """Expected block length of every case at every recorded context, the added token included.

    Parameters
    ----------
    recording : Recording
    cases : mapping
        What is asked for, under names of your own.
    temperature, top_k, top_p :
        Of the target.

    Raises
    ------
    InputError
        A tree that cannot be read off the recorded one.
    Refused
        A rule that does not take its tree.

    Examples
    --------
    >>> def best_of(recording):
    ...     rule = md.trees.get("top-down", rule="interval")
    ...     cases = {n: Case(md.trees.paths(n, 4), rule) for n in (1, 2, 4)}
    ...     return {n: clustered_mean(length, recording.passage).mean
    ...             for n, length in lengths(recording, cases).items()}
    """
    settings: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    whole = union([case.tree for case in cases.values()])
    parts = [_part(drafted, cases) for drafted in _batches(recording, whole, **settings)]
    return {key: np.concatenate([part[key] for part in parts]) for key in cases}


def _batches(recording: Recording, tree: Tree, **settings: Any) -> Iterator[DraftedTree]:
    size = max(1, _MEMORY // (16 * tree.slots * recording.vocabulary))
    for first in range(0, len(recording), size):
        yield recording.drafted(slice(first, first + size), tree, **settings)


def _part(drafted: DraftedTree, cases: Mapping[Key, Case]) -> dict[Key, Float[np.ndarray, " b"]]:
    smaller: dict[Tree, DraftedTree] = {}
    found = {}
    for key, (tree, rule) in cases.items():
        if tree not in smaller:
            smaller[tree] = drafted.restrict(tree)
        found[key] = rule.expected_length(smaller[tree])
    return found


def by_depth(
    recording: Recording,
    case: Case,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Float[np.ndarray, "N D"]:
    """Expected block lengths of a case cut at depth 1, 2, ..., D.

    A top-down rule tests a node without a look below it, so one judgement of the whole tree gives
    all depths: a cut at d leaves the probabilities to reach the slots above. Other rules judge
    every cut. Parameters and errors are those of :func:`lengths`.
    """
    settings: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    if case.rule.name != "top-down":
        cuts = {d: Case(cut(case.tree, d), case.rule) for d in range(1, case.tree.depth + 1)}
        return np.column_stack(list(lengths(recording, cuts, **settings).values()))
    level = case.tree.depths <= np.arange(1, case.tree.depth + 1)[:, None]
    return np.concatenate(
        [
            case.rule.judge(drafted).reach @ level.T.astype(np.float64)
            for drafted in _batches(recording, case.tree, **settings)
        ]
    )


def cut(tree: Tree, depth: int) -> Tree:
    """The tree down to a depth.

    Examples
    --------
    >>> cut(Tree([-1, 0, 1, 1], "iid"), 1).parents
    (-1, 0)
    """
    kept = np.flatnonzero(tree.depths <= depth).tolist()
    laws = [tree.specs[slot] if tree.depths[slot] < depth else None for slot in kept]
    return Tree([kept.index(p) if p >= 0 else -1 for p in np.array(tree.parents)[kept]], laws)


def block_efficiency(
    recording: Recording,
    rule: TreeRule,
    tree: Tree | None = None,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Mean:
    """Tokens per target call of a rule: the mean over contexts, its error clustered by passage.

    Parameters and errors are those of :func:`lengths`; the tree is the recorded one unless given.
    """
    case = {"": Case(recording.tree if tree is None else tree, rule)}
    found = lengths(recording, case, temperature=temperature, top_k=top_k, top_p=top_p)
    return clustered_mean(found[""], recording.passage)


def compare(
    recording: Recording,
    first: Case,
    second: Case,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Mean:
    """Difference in block efficiency, first minus second, on the same drafts.

    Its error is clustered by passage; ``.detectable`` is the smallest true difference that these
    contexts would have shown.
    """
    cases = {0: first, 1: second}
    found = lengths(recording, cases, temperature=temperature, top_k=top_k, top_p=top_p)
    return paired_difference(found[0], found[1], recording.passage)
