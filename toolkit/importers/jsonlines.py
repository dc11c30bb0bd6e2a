"""Logs of serving engines: JSON lines with the log-probabilities of the K most probable tokens.

A line is a response, one of its choices, or a bare ``prompt_logprobs`` list; the output of a batch
API (``{"custom_id": ..., "response": {"body": ...}}``) works too. Two shapes are read:

* ``"logprobs": {"tokens": [...], "token_logprobs": [...], "top_logprobs": [{text: logprob}, ...]}``
  of the OpenAI completions API. Tokens are named by their text, or as ``token_id:123`` when the
  server is asked for that.
* ``"prompt_logprobs": [null, {"123": {"logprob": ..., "rank": ..., "decoded_token": ...}}, ...]``
  of vLLM. Tokens are named by id; the first key of a position is the token that stands there.

In both, a position lists the K most probable tokens and, if it is not among them, the token that
stands there; null stands for a position without a law (the first).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from multidraft.errors import InputError

Key = str | int
ROUNDED = 1e-4  # a float32 softmax, printed, sums to 1 this well
_ID = "token_id:"


class Fault(Exception):
    """What is wrong with a line or a position of a log, as the end of a sentence."""


@dataclass(frozen=True)
class Entry:
    """One position of a log as it is written.

    Attributes
    ----------
    token : str or int
        The token that stands there, by text or id.
    logprobs : dict
        Log-probability of every listed token.
    ranks : dict
        Place among all tokens, 1 for the most probable, where the log says it.
    texts : dict
        Text of tokens that are named by id, where the log says it.
    """

    token: Key
    logprobs: dict[Key, float]
    ranks: dict[Key, int] = field(default_factory=dict)
    texts: dict[Key, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.token not in self.logprobs:
            raise Fault(f"does not list the token {self.token!r} that stands there")
        for token, value in self.logprobs.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not value <= 1e-6:
                raise Fault(f"gives {token!r} the log-probability {value!r}")
        if self.total > 1 + ROUNDED:
            raise Fault(f"has probabilities that sum to {self.total:.6g}, above 1")

    @property
    def total(self) -> float:
        """Sum of the listed probabilities."""
        return math.fsum(map(math.exp, self.logprobs.values()))

    @property
    def regular(self) -> int:
        """Number of listed tokens without the one that may have been added to the top K."""
        last = min(self.logprobs, key=self.logprobs.__getitem__)
        return len(self.logprobs) - (last == self.token and len(self.logprobs) > 1)


@dataclass(frozen=True)
class Text:
    """One text of a log: the line it is on, its id, and an entry for each position.

    An entry is None where the log gives no law, or the `Fault` of that position.
    """

    line: int
    name: str | None
    entries: list[Entry | Fault | None]


def read(path: Path) -> Iterator[Text | tuple[int, Fault]]:
    """Read a log line by line; a line that holds no log comes as its number and its fault.

    Raises
    ------
    InputError
        A file that cannot be read.
    """
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield from _line(number, line)
    except OSError as fault:
        raise InputError(f"{path} cannot be read ({fault.strerror}).") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is no UTF-8 text: give a file of JSON lines.") from None


def _line(number: int, line: str) -> Iterator[Text | tuple[int, Fault]]:
    try:
        name, choices = _choices(json.loads(line, object_pairs_hook=_Object.of))
        for choice in choices:
            yield Text(number, name, _entries(choice))
    except json.JSONDecodeError as fault:
        yield number, Fault(f"is no JSON ({fault.msg})")
    except Fault as fault:
        yield number, fault


class _Object(dict):
    """A JSON object that remembers a repeated key, which `dict` would drop."""

    repeated: str | None = None

    @classmethod
    def of(cls, pairs: list[tuple[str, Any]]) -> _Object:
        found = cls(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            found.repeated = next(name for i, name in enumerate(names) if name in names[:i])
        return found


def _choices(content: Any) -> tuple[str | None, list[Any]]:
    """The name of a line, and its texts."""
    if isinstance(content, list):
        return None, [{"prompt_logprobs": content}]
    if not isinstance(content, dict):
        raise Fault("is neither a response nor a list of positions")
    name = content.get("custom_id")
    if isinstance(response := content.get("response"), dict):
        content = response.get("body", response)
    choices = content.get("choices")
    if content.get("prompt_logprobs") is None and isinstance(choices, list) and choices:
        return name, choices
    return name, [content]


def _entries(choice: Any) -> list[Entry | Fault | None]:
    if isinstance(choice, dict) and isinstance(listed := choice.get("prompt_logprobs"), list):
        tokens = choice.get("prompt_token_ids") or [None] * len(listed)
        return _each(_by_id, listed, tokens)
    if isinstance(choice, dict) and isinstance(shape := choice.get("logprobs"), dict):
        parts = [shape.get(name) for name in ("top_logprobs", "tokens", "token_logprobs")]
        if all(isinstance(part, list) for part in parts):
            return _each(_by_text, *parts)
        if "content" in shape:
            raise Fault("is of the chat API: let both models score one text by completions instead")
    raise Fault("holds neither prompt_logprobs nor logprobs with top_logprobs: ask for them")


def _each(function: Callable[..., Entry | None], *columns: Any) -> list[Entry | Fault | None]:
    """Apply a function to every position, keeping its fault in its place."""
    if len({len(column) for column in columns}) != 1:
        raise Fault("has lists of tokens and of log-probabilities of different lengths")

    def tried(*items: Any) -> Entry | Fault | None:
        try:
            return function(*items)
        except Fault as fault:
            return fault
        except (TypeError, ValueError, KeyError, AttributeError, StopIteration):
            return Fault("is not in the shape of the API")

    return [tried(*items) for items in zip(*columns, strict=True)]


def _by_id(listed: _Object | None, token: int | None) -> Entry | None:
    """One position of vLLM, ``{"123": {"logprob": ..., "rank": ...}}`` or plain numbers."""
    if listed is None:
        return None
    _refuse_repeated(listed)
    facts = {
        int(key): value if isinstance(value, dict) else {"logprob": value}
        for key, value in listed.items()
    }
    return Entry(
        next(iter(facts)) if token is None else int(token),
        {key: value["logprob"] for key, value in facts.items()},
        {key: int(value["rank"]) for key, value in facts.items() if value.get("rank")},
        {key: value["decoded_token"] for key, value in facts.items() if value.get("decoded_token")},
    )


def _by_text(listed: _Object | None, token: str, logprob: float | None) -> Entry | None:
    """One position of the completions API, ``{text: logprob}``."""
    if listed is None or logprob is None:
        return None
    _refuse_repeated(listed)
    logprobs = {_key(text): value for text, value in listed.items()}
    return Entry(_key(token), {**logprobs, _key(token): logprob})


def _refuse_repeated(listed: _Object) -> None:
    if listed.repeated is not None:
        raise Fault(f"lists the token {listed.repeated!r} twice")


def _key(text: str) -> Key:
    return int(text.removeprefix(_ID)) if text.startswith(_ID) else text
