"""Recorded trees of two small Markov models, whose expectations can be listed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from multidraft import tensors, trees
from multidraft.trees.recorded import KIND, law_of

TARGET = trees.Markov([0.5, 0.3, 0.2], [[0.1, 0.6, 0.3], [0.4, 0.4, 0.2], [0.3, 0.0, 0.7]])
DRAFT = trees.Markov([0.2, 0.3, 0.5], [[0.3, 0.3, 0.4], [0.6, 0.2, 0.2], [0.3, 0.2, 0.5]])


def record_markov(tree: trees.Tree, size: int, folder: Path) -> Path:
    """Record trees of the two models behind `size` equal contexts, one passage each."""
    uniforms = np.random.default_rng(0).random((size, tree.nodes))
    drafted = trees.draw(tree, TARGET, DRAFT, uniforms)
    inner = [slot for slot, below in enumerate(tree.children) if below]
    index = np.arange(size)
    with np.errstate(divide="ignore"):
        arrays = {
            "target": np.log(drafted.target).astype(np.float32),
            "draft": np.log(drafted.draft[:, inner]).astype(np.float32),
            "tokens": drafted.tokens,
            "prefix": np.zeros((size, 1), dtype=np.int64),
            "context": index,
            "text": 0 * index,
            "passage": index,
        }
    request = {
        "tree": {"parents": list(tree.parents), "laws": list(tree.specs)},
        "drafting": {"temperature": 1.0, "top_k": None, "top_p": None},
        "trace": "none",
        "target": "markov",
        "draft": "markov",
    }
    names = {"target": {"name": "markov"}, "draft": {"name": "markov"}, "versions": {}}
    facts = {"texts": [{}], "passages": [{}] * size, "request": request}
    path = folder / f"markov_markov_{law_of(tree)}_{tree.slots}.safetensors"
    return tensors.write(path, arrays, {"format": KIND.format, **names, **facts})
