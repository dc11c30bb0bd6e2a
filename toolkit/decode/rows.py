"""The texts of a batch while they grow: where each stands, and when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from multidraft.checks import count
from multidraft.errors import InputError
from multidraft.models import Model, Tokenizer

Prompt = str | Sequence[int] | np.ndarray


class Rows:
    """Prompts, and the tokens added to each until end of sequence or the limit.

    Parameters
    ----------
    prompts : sequence of B integer arrays (T_b,)
    eos : ids that end a text
    limit : most tokens added to a text

    Attributes
    ----------
    active : (b,) rows that are not over, in order
    tokens : added tokens of every row
    accepted : for each of them, whether it is an accepted draft
    ended : "eos" or "limit" for every row that is over
    """

    def __init__(
        self, prompts: Sequence[Int[np.ndarray, " _"]], eos: frozenset[int], limit: int
    ) -> None:
        self.prompts, self.eos = list(prompts), eos
        self.limit = count(limit, "max_new_tokens")
        self.active = np.arange(len(self.prompts))
        self.tokens: list[list[int]] = [[] for _ in self.prompts]
        self.accepted: list[list[bool]] = [[] for _ in self.prompts]
        self.ended = [""] * len(self.prompts)

    def append(
        self, blocks: Int[np.ndarray, "b D1"], accepted: Int[np.ndarray, " b"]
    ) -> Bool[np.ndarray, " b"]:
        """Add a block to every active row, cut where the text is over; return who goes on.

        Parameters
        ----------
        blocks : (b, D + 1) emitted tokens, -1 beyond them
        accepted : (b,) how many of them, from the first on, are accepted drafts
        """
        for row, block, drafts in zip(
            self.active.tolist(), blocks.tolist(), accepted.tolist(), strict=True
        ):
            self._append(row, [token for token in block if token >= 0], drafts)
        going = np.array([not self.ended[row] for row in self.active])
        self.active = self.active[going]
        return going

    def _append(self, row: int, block: list[int], drafts: int) -> None:
        for place, token in enumerate(block):
            self.tokens[row].append(token)
            self.accepted[row].append(place < drafts)
            if token in self.eos:
                self.ended[row] = "eos"
            elif len(self.tokens[row]) == self.limit:
                self.ended[row] = "limit"
            if self.ended[row]:
                return


def encode(prompts: Prompt | Sequence[Prompt], model: Model) -> list[Int[np.ndarray, " _"]]:
    """Token ids of one prompt or several, behind the tokens that belong before any text.

    Raises
    ------
    InputError
        No prompt, or one without tokens.
    """
    several: list[Any] = [prompts] if isinstance(prompts, str) or _is_ids(prompts) else [*prompts]
    if not several:
        raise InputError("there is no prompt: pass prompts=, a text or a list of texts.")
    rows = [_ids(prompt, model) for prompt in several]
    if not all(len(row) for row in rows):
        raise InputError("a prompt has no tokens: give each at least one.")
    return rows


def _is_ids(prompts: Any) -> bool:
    return len(prompts) > 0 and isinstance(prompts[0], int | np.integer)


def _ids(prompt: Prompt, model: Model) -> Int[np.ndarray, " _"]:
    if isinstance(prompt, str):
        prompt = [*model.start, *model.tokenizer.encode(prompt, add_special_tokens=False)]
    return np.array(prompt, dtype=np.int64)


def end_tokens(eos: int | Sequence[int] | None, tokenizer: Tokenizer) -> frozenset[int]:
    """Ids that end a text: those given, or the tokenizer's end of sequence for None."""
    chosen = getattr(tokenizer, "eos_token_id", None) if eos is None else eos
    if chosen is None:
        return frozenset()
    return frozenset(np.atleast_1d(np.asarray(chosen, dtype=np.int64)).tolist())


def seed_rows(seeds: int | Sequence[int] | np.ndarray, batch: int) -> Int[np.ndarray, " B"]:
    """One seed per row; a single number counts on from row to row.

    Raises
    ------
    InputError
        Seeds that are not one whole number per prompt.
    """
    given = np.asarray(seeds)
    rows = given + np.arange(batch) if given.ndim == 0 else given
    if rows.shape != (batch,) or rows.dtype.kind not in "iu":
        raise InputError(f"seeds are one whole number, or one for each of the {batch} prompts.")
    return rows.astype(np.int64)
