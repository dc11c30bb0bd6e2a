"""What a decoding run returns: texts, where their tokens came from, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from multidraft.decode.measured import Measured
from multidraft.decode.rows import Rows
from multidraft.models import Tokenizer


@dataclass(frozen=True)
class Decoded:
    """The continuations of B prompts.

    Attributes
    ----------
    prompts : token ids of every prompt
    tokens : token ids added to every prompt, an end-of-sequence token included
    accepted : for each of them, whether it is an accepted draft
    ended : per row, "eos" or "limit"
    lengths : per row, the lengths of its blocks as the rule made them
    measured : Measured
    settings : what was asked for (JSON)
    """

    prompts: list[list[int]]
    tokens: list[list[int]]
    accepted: list[list[bool]]
    ended: list[str]
    lengths: list[list[int]]
    measured: Measured
    settings: dict[str, Any]
    tokenizer: Tokenizer = field(repr=False)

    @classmethod
    def of(
        cls,
        rows: Rows,
        lengths: list[list[int]],
        measured: Measured,
        settings: dict[str, Any],
        tokenizer: Tokenizer,
    ) -> Decoded:
        """Take over the texts of a finished batch."""
        prompts = [prompt.tolist() for prompt in rows.prompts]
        texts = (rows.tokens, rows.accepted, rows.ended)
        return cls(prompts, *texts, lengths, measured, settings, tokenizer)

    @property
    def texts(self) -> list[str]:
        """Text added to every prompt, without the end-of-sequence token."""
        return [str(self.tokenizer.decode(self._visible(row))) for row in range(len(self.tokens))]

    def _visible(self, row: int) -> list[int]:
        ids = self.tokens[row]
        return ids[:-1] if self.ended[row] == "eos" else ids

    def pieces(self, row: int) -> list[tuple[str, bool]]:
        """The text of one row in pieces, and whether each is an accepted draft.

        A character that several tokens share belongs to the last of them.
        """
        ids, shown, pieces = self._visible(row), "", []
        for end, accepted in enumerate(self.accepted[row][: len(ids)], start=1):
            text = str(self.tokenizer.decode(ids[:end]))
            if text.endswith("\ufffd") and end < len(ids):
                continue
            pieces.append((text[len(shown) :], accepted))
            shown = text
        return pieces

    def as_data(self) -> dict[str, Any]:
        """Everything as JSON."""
        texts = zip(
            self.prompts, self.texts, self.tokens, self.accepted, self.ended, self.lengths,
            strict=True,
        )  # fmt: skip
        names = ("prompt", "text", "tokens", "accepted", "ended", "block_lengths")
        return {
            "settings": self.settings,
            "rows": [dict(zip(names, row, strict=True)) for row in texts],
            "measured": self.measured.as_data(),
        }
