"""What a step of decoding costs: seconds of model calls by their size, and of verification.

A step makes one call of the draft per level of the tree, on the slots of that level that have
children, then one call of the target on all slots, the root included, then verifies. A file of
costs is JSON::

    {
     "format": 1,
     "target": {"slots": [1, 8, 32, 64], "seconds": [0.041, 0.083, 0.102, 0.151]},
     "draft": {"slots": [1, 8, 32], "seconds": [0.029, 0.06, 0.08]},
     "verification": {"rrs": 0.004, "traversal": 0.006}
    }

``slots`` grow and begin at 1; between them seconds are interpolated. ``verification``, seconds per
step by rule, may be left out; a rule without a number there costs nothing.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from multidraft import results
from multidraft.errors import InputError
from multidraft.files import write_text
from multidraft.models import Model, cache
from multidraft.trees.rules import parse as parse_rule
from multidraft.trees.tree import Tree

FORMAT = 1
SLOTS = (1, 2, 4, 8, 16, 32, 64)  # of the calls that are timed
REPEATS = 3  # of which the fastest counts
CONTEXT = 128  # tokens before a timed call


@dataclass(frozen=True)
class Calls:
    """Seconds of one call of a model by its number of slots.

    Raises
    ------
    InputError
        Numbers that do not grow from 1, or no positive seconds.
    """

    slots: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        growing = all(a < b for a, b in zip(self.slots, self.slots[1:], strict=False))
        if not self.slots or self.slots[0] != 1 or not growing:
            raise InputError(f"slots are {list(self.slots)}: they grow and begin at 1.")
        if len(self.seconds) != len(self.slots) or not all(
            0 < seconds < np.inf for seconds in self.seconds
        ):
            raise InputError("seconds are one positive number for each entry of slots.")

    def at(self, slots: int) -> float:
        """Seconds of a call on so many slots.

        Raises
        ------
        InputError
            More than were timed.
        """
        if slots > self.slots[-1]:
            raise InputError(
                f"calls were timed up to {self.slots[-1]} slots, not {slots}: lower the budget, or "
                "give --costs with larger calls."
            )
        return float(np.interp(slots, self.slots, self.seconds))


@dataclass(frozen=True)
class Costs:
    """Seconds of the parts of a step.

    Attributes
    ----------
    target, draft : Calls
    verification : seconds per step by rule, as `multidraft.trees.rules.parse` reads its name
    source : where the numbers come from, in words
    """

    target: Calls
    draft: Calls
    verification: Mapping[str, float] = field(default_factory=dict)
    source: str = "given"

    def step(self, tree: Tree, rule: str) -> float:
        """Seconds of one step with a tree and a rule."""
        levels = [sum(1 for v in tree.level(d) if tree.children[v]) for d in range(tree.depth)]
        drafting = sum(self.draft.at(inner) for inner in levels)
        return self.target.at(tree.slots) + drafting + self.verification.get(rule, 0.0)

    @property
    def plain(self) -> float:
        """Seconds of one token without drafts."""
        return self.target.at(1)

    def as_data(self) -> dict[str, Any]:
        """The content of a file of costs."""
        calls = {
            name: {"slots": list(found.slots), "seconds": list(found.seconds)}
            for name, found in (("target", self.target), ("draft", self.draft))
        }
        return {"format": FORMAT, **calls, "verification": dict(self.verification)}


def load(path: str | os.PathLike[str], source: str | None = None) -> Costs:
    """Read a file of costs.

    Raises
    ------
    InputError
        No such file, or content that is not as the module's text says.
    """
    name = os.fspath(path)
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as fault:
        raise InputError(f"{name} cannot be read ({fault.strerror}): give a costs file.") from None
    except ValueError:
        raise InputError(
            f"{name} is no JSON: see `multidraft advise --help` for its form."
        ) from None
    try:
        if content["format"] != FORMAT:
            raise InputError(f"format is {content['format']}, this version reads {FORMAT}.")
        verification = _verification(content.get("verification", {}))
        target, draft = _calls(content["target"]), _calls(content["draft"])
        return Costs(target, draft, verification, source or name)
    except InputError as fault:
        raise InputError(f"{name}: {fault}") from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(
            f"{name} holds no costs: it needs format, and slots and seconds under target and draft."
        ) from None


def _calls(content: Mapping[str, Any]) -> Calls:
    return Calls(tuple(map(int, content["slots"])), tuple(map(float, content["seconds"])))


def _verification(content: Mapping[str, Any]) -> dict[str, float]:
    found = {str(rule): float(seconds) for rule, seconds in content.items()}
    for rule, seconds in found.items():
        parse_rule(rule)
        if not 0 <= seconds < np.inf:
            raise InputError(f"verification of {rule} takes {seconds} seconds: give 0 or more.")
    return found


# ----------------------------------------------------------------------------------------- measured


def measured(
    target: Model, draft: Model, rules: Mapping[str, Tree], *, fresh: bool = False
) -> Costs:
    """Costs on this machine, timed once and kept in the cache.

    Parameters
    ----------
    target, draft : Model
    rules : mapping
        Rules to time, each with a tree that it takes.
    fresh : bool
        Time again.
    """
    machine = results.header({}, [])["machine"]
    pair = {"target": target.identity(), "draft": draft.identity(), "rules": sorted(rules)}
    name = results.digest({**pair, "machine": machine, "threads": _threads()})[:12]
    place = cache.folder() / "costs" / f"{target.name}_{draft.name.replace(':', '-')}_{name}.json"
    source = f"timed on this machine ({machine['cores']} cores), {place}"
    if fresh or not place.exists():
        verification = {
            rule: _timed_rule(rule, tree, target.vocabulary) for rule, tree in rules.items()
        }
        costs = Costs(_timed_calls(target), _timed_calls(draft), verification)
        write_text(place, json.dumps(costs.as_data(), indent=1) + "\n")
    return load(place, source)


def _threads() -> int:
    import torch

    return torch.get_num_threads()


def _fastest(function: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _timed_calls(model: Model) -> Calls:
    """Time calls on trees of one level behind a context."""
    from multidraft.models.tree_laws import TreeLaws

    generator = np.random.default_rng(0)
    laws = TreeLaws.of(model, [generator.integers(model.vocabulary, size=CONTEXT)])
    nothing = np.empty((1, 0), dtype=np.int64)

    def call(slots: int) -> None:
        tokens = np.append(-1, generator.permutation(model.vocabulary)[: slots - 1])[None]
        laws.logits_at(np.append(-1, np.zeros(slots - 1, dtype=np.int64))[None], tokens)
        laws.commit(nothing)  # forgets the slots, keeps the context

    call(1)
    sizes = tuple(slots for slots in SLOTS if slots <= model.vocabulary)
    return Calls(sizes, tuple(_fastest(lambda slots=slots: call(slots)) for slots in sizes))


def _timed_rule(rule: str, tree: Tree, vocabulary: int) -> float:
    """Time one verification of a tree that was drafted from random laws."""
    from multidraft.trees.drawing import draw

    generator = np.random.default_rng(0)
    target, draft = (_constant(generator.standard_normal(vocabulary)) for _ in range(2))
    drafted = draw(tree, target, draft, generator.random((1, tree.nodes)))
    chosen = parse_rule(rule)
    uniforms = generator.random((1, chosen.draws(tree.depth)))
    chosen.verify(drafted, uniforms)
    return _fastest(lambda: chosen.verify(drafted, uniforms))


def _constant(scores: Float[np.ndarray, " V"]) -> Callable[[np.ndarray], np.ndarray]:
    """A model with one law everywhere, about as uneven as a language model's."""
    from multidraft.transform import probabilities

    law = probabilities(4 * scores)
    return lambda paths: np.broadcast_to(law, (*paths.shape[:-1], len(law)))
