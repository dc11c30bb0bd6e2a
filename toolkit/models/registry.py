"""Names of models: ``smollm2``, ``skip-4``, ``skip-8``, ``skip:17,12``, ``ngram-3``, a folder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from multidraft import texts
from multidraft.errors import InputError
from multidraft.models import cache, smollm2
from multidraft.models.base import Model, check_pair

# Chosen greedily on held-out text: leaving these layers out changes SmolLM2's laws the least.
SKIPS = {"skip-4": (17, 12, 4, 14), "skip-8": (17, 12, 4, 14, 3, 18, 5, 19)}


@dataclass(frozen=True)
class Entry:
    """One line of the list of models: a name or a family of names."""

    name: str
    role: str
    description: str
    status: str


def entries() -> list[Entry]:
    """Return the models that can be named, with what is in the cache."""
    ready = "in the cache" if cache.complete(smollm2.folder()) else "not fetched"
    return [
        Entry("smollm2", "target, draft", "SmolLM2-135M-Instruct, 30 layers, 49,152 tokens", ready),
        Entry("skip-4", "draft", "the target without layers 17, 12, 4, 14", "from the target"),
        Entry("skip-8", "draft", "skip-4 and without layers 3, 18, 5, 19", "from the target"),
        Entry("skip:LAYERS", "draft", "the target without these layers, as in skip:17,12", "any"),
        Entry("ngram-N", "draft", "Kneser-Ney on the held-out halves of the texts", "any order"),
        Entry("FOLDER", "target, draft", "a local Hugging Face folder of a causal model", "any"),
    ]


def fetch(name: str, report: Callable[[str], None] = lambda stage: None) -> Path:
    """Bring the named model into the cache and return its folder.

    Raises
    ------
    InputError
        Unknown name, no network, or a file that fails its check.
    """
    if name != "smollm2":
        raise InputError(f"{name!r} cannot be fetched: only smollm2 can.")
    return smollm2.fetch(report)


def load(name: str, target: Model | None = None) -> Model:
    """Return the named model, ready to compute logits.

    Parameters
    ----------
    name : str
        ``smollm2`` or a folder; with a `target`, also ``skip-4``, ``skip-8``, ``skip:LAYERS`` or
        ``ngram-N``.
    target : Model, optional
        The loaded target that the draft belongs to. Skipped-layer copies share its weights, n-gram
        models its tokenizer; any other draft must agree with it in tokenizer and width.

    Raises
    ------
    InputError
        Unknown name, model not fetched, or a draft that does not fit the target.
    """
    if name in SKIPS or name.startswith("skip:"):
        return _skip(name, target)
    if match := re.fullmatch(r"ngram-(\d+)", name):
        return ngram(int(match[1]), _needed(target, name), name)
    from multidraft.models.transformer import Transformer

    model = Transformer.from_folder(_folder(name), name=Path(name).name)
    if target is not None:
        check_pair(target, model)
    return model


def load_drafts(names: Iterable[str], target: Model) -> dict[str, Model]:
    """Return the named drafts of `target`, by name."""
    return {name: load(name, target) for name in names}


def ngram(order: int, target: Model, name: str, documents: Iterable[str] | None = None) -> Model:
    """Train an n-gram model over the target's tokens.

    `documents` defaults to the held-out half of every shipped work: `multidraft.record` takes its
    contexts from the other halves only.
    """
    from multidraft.models.ngram import NGram

    pieces = [work.held_out for work in texts.works()] if documents is None else documents
    tokens = [target.tokenizer.encode(piece, add_special_tokens=False) for piece in pieces]
    arrays = [np.array(item, dtype=np.int64) for item in tokens]
    return NGram(order, arrays, target.vocabulary, target.tokenizer, name)


def _folder(name: str) -> Path:
    if name == "smollm2":
        if not cache.complete(smollm2.folder()):
            raise InputError("smollm2 is not in the cache: run `multidraft models fetch smollm2`.")
        return smollm2.folder()
    if (place := Path(name).expanduser()).is_dir():
        return place
    known = ", ".join(entry.name for entry in entries())
    raise InputError(f"unknown model {name!r}: choose one of {known}.")


def _skip(name: str, target: Model | None) -> Model:
    from multidraft.models.transformer import Transformer

    model = _needed(target, name)
    if not isinstance(model, Transformer):
        raise InputError(f"{name} skips layers of a transformer, and {model.name} is none.")
    return model.without(SKIPS.get(name) or _layer_list(name), name)


def _layer_list(name: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in name.removeprefix("skip:").split(","))
    except ValueError:
        raise InputError(f"{name!r} lists no layers: write them as in skip:17,12.") from None


def _needed(target: Model | None, name: str) -> Model:
    if target is None:
        raise InputError(f"{name} is a draft made from a target: pass target=, such as smollm2.")
    return target
