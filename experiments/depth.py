"""How far the quick estimate of a tree's block length is off, on a real pair.

The estimate multiplies acceptances of single steps, so it assumes that acceptance does not change
with depth. Here the model drafts whole trees from contexts of the shipped texts, and every rule's
expected block length is summed over its conditional laws, context by context; the difference is
paired. ``python -m multidraft.experiments.depth`` writes what ``multidraft report`` shows beside
its own estimates (about ten minutes on two cores).
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

import multidraft as md
from multidraft import models, texts, trees
from multidraft.files import write_text
from multidraft.models.tree_laws import TreeLaws
from multidraft.report.deeper import TREES, contributions
from multidraft.results import clustered_mean

CONTEXTS, HISTORY, SEED = 128, 32, 0
_BATCH = 32  # contexts at once: two tables of laws at 15 slots are 380 MB
_CHAINS, _WIDE = ("chain of 4", "chain of 8"), ("4 paths of 2", "2 children, depth 3")


class Case(NamedTuple):
    """A tree of the report with a draft law and a rule."""

    name: str
    law: str
    rule: str

    @property
    def tree(self) -> trees.Tree:
        """The tree, all of whose nodes draft by the law."""
        return trees.Tree(TREES[self.name](np.empty(0)).parents, self.law)


def cases() -> list[Case]:
    """What is measured: chains with two systems, wider trees with three."""
    single = ("iid", "rrs"), ("top", "naive")
    several = ("top", "naive"), ("without-replacement", "rrsw"), ("iid", "interval")
    chains = [Case(name, *system) for system in single for name in _CHAINS]
    return chains + [Case(name, *system) for system in several for name in _WIDE]


def contexts_of(model: models.Model) -> tuple[Int[np.ndarray, "B T"], Int[np.ndarray, " B"]]:
    """Stretches of the shipped texts, and the text that each is from."""
    generator = np.random.default_rng(SEED)
    works = texts.works()
    rows, owners = [], []
    for i in range(CONTEXTS):
        tokens = model.tokenizer.encode(works[i % len(works)].contexts, add_special_tokens=False)
        start = int(generator.integers(len(tokens) - HISTORY))
        rows.append(tokens[start : start + HISTORY])
        owners.append(i % len(works))
    return np.array(rows), np.array(owners)


def measure(
    case: Case,
    target: models.Model,
    draft: models.Model,
    rows: Int[np.ndarray, "B T"],
    owners: Int[np.ndarray, " B"],
) -> dict[str, Any]:
    """Estimated and real block length of one case, and the error of their difference."""
    parts = [
        _batch(case, TreeLaws.of(target, list(part)), TreeLaws.of(draft, list(part)), seed)
        for seed, part in enumerate(np.split(rows, range(_BATCH, len(rows), _BATCH)))
    ]
    real, accepted = (np.concatenate(part) for part in zip(*parts, strict=True))
    estimate = contributions(case.tree, accepted)
    return {
        "tree": case.name,
        "law": case.law,
        "rule": case.rule,
        "estimated": float(estimate.mean()),
        "measured": float(real.mean()),
        "error": clustered_mean(real - estimate, owners).stderr,
    }


def _batch(
    case: Case, target: TreeLaws, draft: TreeLaws, seed: int
) -> tuple[Float[np.ndarray, " B"], Float[np.ndarray, "B n"]]:
    """Real block lengths, and acceptance of one step by 1, 2, ... drafts at the same contexts."""
    tree = case.tree
    uniforms = np.random.default_rng([SEED, seed]).random((target.batch, tree.nodes))
    drafted = trees.draw(tree, target, draft, uniforms)
    real = trees.get("top-down", rule=case.rule).expected_length(drafted)
    laws = drafted.target[:, 0], drafted.draft[:, 0]
    width = max(map(len, tree.children))
    return real, np.column_stack([_acceptance(case, *laws, n) for n in range(1, width + 1)])


def _acceptance(
    case: Case, q: Float[np.ndarray, "B V"], p: Float[np.ndarray, "B V"], n: int
) -> Float[np.ndarray, " B"]:
    problem = md.Problem(q, md.laws.make({"law": case.law, "n": n, "short": "pad"}, p))
    if case.rule == "interval":
        return md.optimal_acceptance(problem)
    return md.verifiers.get(case.rule).acceptance(problem).value


def main() -> None:
    """Measure every case and write the file that reports read."""
    target = models.load("smollm2")
    draft = models.load("skip-8", target)
    rows, owners = contexts_of(target)
    content = {
        "pair": f"{target.name} with {draft.name}",
        "contexts": CONTEXTS,
        "rows": [measure(case, target, draft, rows, owners) for case in cases()],
    }
    place = Path(str(resources.files("multidraft.report") / "depth.json"))
    write_text(place, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
