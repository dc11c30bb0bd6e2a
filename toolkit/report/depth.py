"""How far the estimate from one step is off on a real pair, since acceptance changes with depth.

``depth.json`` is written by ``python -m multidraft.experiments.depth``: SmolLM2 drafting with
skipped layers, trees drafted by the model itself, block lengths summed over the rules' conditional
laws.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def measured() -> dict[str, Any]:
    """The measurement: pair, contexts, and rows of tree, law, rule, estimated, measured, error."""
    text = (resources.files("multidraft.report") / "depth.json").read_text(encoding="utf-8")
    return json.loads(text)
