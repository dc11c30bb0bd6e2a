"""What a language model has to be able to do here: raw logits over its full vocabulary."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from multidraft.errors import InputError


@runtime_checkable
class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that is used."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of `text`."""
        ...

    def decode(self, token_ids: Any) -> Any:
        """Text of token ids (a list of texts for a batch)."""
        ...

    def get_vocab(self) -> dict[str, int]:
        """Token strings with their ids."""
        ...


@runtime_checkable
class Model(Protocol):
    """A target or draft model: next-token logits, at temperature 1 and untruncated.

    Attributes
    ----------
    name : str
        What tables call it.
    vocabulary : int
        Width V of the logits, padding columns included.
    tokenizer : Tokenizer
        Shared by a target and its drafts.
    """

    name: str
    vocabulary: int
    tokenizer: Tokenizer

    @property
    def start(self) -> list[int]:
        """Tokens that belong before any text: a beginning-of-sequence token, or none."""
        ...

    def logits(
        self, tokens: Int[np.ndarray, "*batch T"], positions: Int[np.ndarray, " m"] | None = None
    ) -> Float[np.ndarray, "*batch m V"]:
        """Return float32 logits after each prefix: entry t is the law of token t + 1.

        With `positions`, only these entries are computed.
        """
        ...

    def step(
        self, tokens: Int[np.ndarray, "B T"], state: Any = None
    ) -> tuple[Float[np.ndarray, "B V"], Any]:
        """Return the logits after `tokens` appended to `state`, and the new state."""
        ...

    def identity(self) -> dict[str, Any]:
        """Return what tells this model from any other (JSON): name, kind, hash."""
        ...


def tokenizer_hash(tokenizer: Tokenizer) -> str:
    """SHA-256 of the token strings with their ids: equal if and only if ids mean the same."""
    table = json.dumps(sorted(tokenizer.get_vocab().items()), ensure_ascii=True)
    return hashlib.sha256(table.encode()).hexdigest()


def check_pair(target: Model, draft: Model) -> None:
    """Raise InputError unless token ids and widths of `draft` are those of `target`."""
    if tokenizer_hash(target.tokenizer) != tokenizer_hash(draft.tokenizer):
        raise InputError(
            f"{draft.name} and {target.name} have different tokenizers: choose a draft with the "
            "target's tokenizer, or map its logits with multidraft.align(draft_to_target=...)."
        )
    if target.vocabulary != draft.vocabulary:
        raise InputError(
            f"{draft.name} has {draft.vocabulary} logits and {target.name} {target.vocabulary}: "
            "bring them to one width with multidraft.align(pad=True)."
        )
