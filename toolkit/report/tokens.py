"""Texts of tokens, how they are shown, and what kind of token they are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multidraft.errors import InputError
from multidraft.models import cache
from multidraft.partial import PartialTrace
from multidraft.traces import Trace

#: Kinds of tokens, in the order of the report.
KINDS = (
    "start of a word",
    "inside a word",
    "number",
    "punctuation",
    "space or line break",
    "other",
    "not known",
)
_MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}


def read(path: Path) -> dict[int, str]:
    """Read token texts from a Hugging Face ``tokenizer.json``, or a JSON list or object of texts.

    Raises
    ------
    InputError
        No such file, or another kind of file.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(f"{path} is no readable JSON: give a tokenizer.json.") from None
    if isinstance(content, list):
        return {i: str(text) for i, text in enumerate(content)}
    if isinstance(content, dict) and isinstance(content.get("model"), dict):
        return _hugging_face(content, path)
    if isinstance(content, dict) and all(isinstance(token, int) for token in content.values()):
        return {token: text for text, token in content.items()}
    raise InputError(f"{path} holds no token texts: give a tokenizer.json, a list, or text: id.")


def of(trace: Trace | PartialTrace) -> dict[int, str]:
    """Texts of a trace's tokens: those of the logs, or those of the target in the cache, if any."""
    if isinstance(trace, PartialTrace):
        return trace.tokens
    known = cache.folder() / "models" / trace.header["target"]["name"] / "tokenizer.json"
    recorded = trace.header["target"].get("kind") != "imported"
    return read(known) if recorded and known.is_file() else {}


def _hugging_face(content: dict[str, Any], path: Path) -> dict[int, str]:
    vocabulary = content["model"].get("vocab")
    if isinstance(vocabulary, list):  # unigram: pairs of text and score
        vocabulary = {pair[0]: i for i, pair in enumerate(vocabulary)}
    if not isinstance(vocabulary, dict):
        raise InputError(f"{path} holds no vocabulary that this version can read.")
    plain = _from_bytes if "ByteLevel" in json.dumps(content.get("decoder")) else _from_pieces
    texts = {int(token): plain(text) for text, token in vocabulary.items()}
    return texts | {item["id"]: item["content"] for item in content.get("added_tokens", ())}


def _from_pieces(text: str) -> str:
    return text.replace("▁", " ")


def _from_bytes(text: str) -> str:
    """Undo the byte-level alphabet; bytes that are no whole character show as U+FFFD."""
    known = (_BYTES[c] for c in text) if all(c in _BYTES for c in text) else None
    return text if known is None else bytes(known).decode("utf-8", errors="replace")


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins: printable bytes are themselves, others count up from U+0100."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    return table | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTES = _byte_alphabet()


def visible(text: str) -> str:
    """Make spaces and control characters of a token visible.

    Examples
    --------
    >>> visible(" the"), visible(chr(10))
    ('␣the', '⏎')
    """
    return "".join(
        _MARKS.get(c, c if c.isprintable() else c.encode("unicode_escape").decode()) for c in text
    )


def shown(token: int, texts: Mapping[int, str]) -> str:
    """How the page shows a token: its text made visible, or its id."""
    text = texts.get(token)
    return (visible(text) or "(empty)") if text is not None else f"#{token}"


def kind(text: str | None) -> str:
    """What kind of token a text is: one of `KINDS`.

    Examples
    --------
    >>> [kind(text) for text in (" the", "ing", " 42", ",", None)]
    ['start of a word', 'inside a word', 'number', 'punctuation', 'not known']
    """
    if text is None:
        return "not known"
    core = text.strip()
    if not core:
        return "space or line break"
    if core[0].isalpha():
        return "start of a word" if text[0].isspace() else "inside a word"
    if core[0].isdigit():
        return "number"
    return "punctuation" if len(core) <= 3 and not any(map(str.isalnum, core)) else "other"
