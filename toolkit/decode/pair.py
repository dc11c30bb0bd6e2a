"""The two models of a decoding run, from names, folders, loaded networks, or model objects."""

from __future__ import annotations

from typing import Any

from multidraft import models
from multidraft.errors import InputError
from multidraft.models import Model, Tokenizer, check_pair
from multidraft.models.transformer import Transformer


def wrap(module: Any, tokenizer: Tokenizer, name: str | None = None) -> Transformer:
    """Make a model of a loaded causal network of transformers.

    Parameters
    ----------
    module : transformers.PreTrainedModel
        Put into evaluation mode; it stays on its device and in its precision.
    tokenizer : Tokenizer
    name : str, optional
        What tables call it, the name of its class unless given.
    """
    name = type(module).__name__ if name is None else name
    return Transformer(name, module, tokenizer, {"kind": "loaded"})


def pair(target: Any, draft: Any, tokenizer: Tokenizer | None) -> tuple[Transformer, Model]:
    """Load or wrap a target and its draft.

    Parameters
    ----------
    target : Model, name, folder, or network of transformers
    draft : the same, or None for the target alone
    tokenizer : of networks, which come without one

    Raises
    ------
    InputError
        A target that is no transformer, a network without a tokenizer, a name that is unknown or
        not fetched, or two models with different tokenizers or widths.
    """
    chosen = load(target, tokenizer)
    return chosen, (chosen if draft is None else _draft(draft, chosen, tokenizer))


def load(target: Any, tokenizer: Tokenizer | None) -> Transformer:
    """Load or wrap a target; see :func:`pair`."""
    found = models.load(str(target)) if _is_name(target) else _wrapped(target, tokenizer, "target")
    if not isinstance(found, Transformer):
        raise InputError(
            f"the target {found.name} is no transformer, and one call on a whole tree needs one."
        )
    return found


def _draft(draft: Any, target: Transformer, tokenizer: Tokenizer | None) -> Model:
    if _is_name(draft):
        return models.load(str(draft), target)
    found = _wrapped(draft, tokenizer, "draft")
    check_pair(target, found)
    return found


def _is_name(model: Any) -> bool:
    return isinstance(model, str) or hasattr(model, "__fspath__")


def _wrapped(model: Any, tokenizer: Tokenizer | None, role: str) -> Model:
    if isinstance(model, Model):
        return model
    if not hasattr(model, "get_output_embeddings"):
        raise InputError(
            f"the {role} is a {type(model).__name__}: pass a name, a folder, a causal network of "
            "transformers, or a model of multidraft.models."
        )
    if tokenizer is None:
        raise InputError(f"the {role} is a network without a tokenizer: pass tokenizer= as well.")
    return wrap(model, tokenizer)
