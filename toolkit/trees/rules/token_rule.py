"""Token-level rules at the nodes of a tree: numpy in, numpy out, equal contexts computed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from multidraft import laws
from multidraft.laws import Spec
from multidraft.trees.tree import Tree

if TYPE_CHECKING:
    from multidraft.verifiers.base import Rule


def refuses(name: str, tree: Tree) -> str | None:
    """Why the rule does not take some node of the tree, or None."""
    for slot, spec in enumerate(tree.specs):
        if spec is not None and (reason := _reason(at_node(name, spec), spec)):
            return f"slot {slot}: {reason}"
    return None


def _reason(rule: Rule, spec: Spec) -> str | None:
    law = _example(spec)
    if (reason := rule.refuses(law)) is None and rule.draft_draws(law) != law.draws:
        return f"{rule.name} needs the noise that its drafts were drawn from; a tree keeps none."
    return reason


def at_node(name: str, spec: Spec) -> Rule:
    """The rule to use at a node: one that does not take a single draft is `single` there."""
    from multidraft import verifiers

    rule = verifiers.get(name)
    alone = spec["n"] == 1 and spec["law"] == laws.IID.name
    return verifiers.get("single") if alone and rule.refuses(_example(spec)) else rule


def conditional(
    name: str,
    spec: Spec,
    target: Float[np.ndarray, "k V"],
    probs: Float[np.ndarray, "k V"],
    drafts: Int[np.ndarray, "k n"],
) -> Float[np.ndarray, "k V"]:
    """Law of the output token given the drafts, row by row; equal rows are computed once."""
    import torch

    seen: dict[bytes, int] = {}
    rows = zip(target, probs, drafts, strict=True)
    keys = (b"".join(part.tobytes() for part in row) for row in rows)
    inverse = np.array([seen.setdefault(key, len(seen)) for key in keys], dtype=np.int64)
    first = np.unique(inverse, return_index=True)[1]
    law = laws.make(spec, probs[first], check=False)
    prepared = at_node(name, spec).prepare(target[first], law, check=False)
    return prepared.conditional(torch.from_numpy(drafts[first])).numpy()[inverse]


def verify(
    name: str,
    spec: Spec,
    target: Float[np.ndarray, "k V"],
    probs: Float[np.ndarray, "k V"],
    drafts: Int[np.ndarray, "k n"],
    uniforms: Float[np.ndarray, "k 2"],
) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " k"]]:
    """Output token of every row, and the first draft that it equals, or -1."""
    import torch

    from multidraft.verifiers.base import Drafts

    law = laws.make(spec, probs, check=False)
    prepared = at_node(name, spec).prepare(target, law, check=False)
    tokens = Drafts(torch.from_numpy(drafts))
    outcome = prepared.verify(tokens, uniforms=torch.from_numpy(np.ascontiguousarray(uniforms)))
    return outcome.token.numpy(), outcome.draft.numpy()


def _example(spec: Spec) -> laws.Law:
    """Some law of this spec: rules decide by its kind and number of drafts."""
    return laws.make(spec, np.full(spec["n"] + 1, 1 / (spec["n"] + 1)))
