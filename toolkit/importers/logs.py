"""Partial traces from logs of a target and its drafts, matched by position and token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np

from multidraft import checks
from multidraft.errors import InputError
from multidraft.importers.jsonlines import Entry, Fault, Key, Text, read
from multidraft.partial.pair import Listed
from multidraft.partial.trace import PartialTrace

_BROKEN = "\ufffd"  # printed for a part of a character: many tokens look like this
_END = Fault("is missing")


def top_k(
    target: Path,
    drafts: Mapping[str, Path],
    *,
    name: str = "target",
    k: int | None = None,
    skip_bad_rows: bool = False,
    temperature: float = 1.0,
    vocabulary: int | None = None,
) -> PartialTrace:
    """Read the logs of a target and its drafts on the same texts.

    Texts are matched by ``custom_id`` where all lines have one, else by order; positions by their
    place and the token that stands there.

    Parameters
    ----------
    target : Path
        JSON lines, see `multidraft.importers.jsonlines`.
    drafts : mapping of name to Path
    name : str
        What tables call the target.
    k : int, optional
        How many top tokens the servers were asked for; seen from each log when not given.
    skip_bad_rows : bool
        Drop bad rows and count them in the header, instead of refusing the log.
    temperature : float
        At which the log-probabilities were taken: a label, nothing is rescaled.
    vocabulary : int, optional
        Number of tokens, which bounds the entropy.

    Raises
    ------
    InputError
        A file that cannot be read, a bad row (with its line and position), or logs that have
        nothing in common.
    """
    if k is not None:
        checks.count(k, "k")
    problems = _Problems(skip_bad_rows)
    paths, names = [target, *drafts.values()], [name, *drafts]
    logs = [_Log(path, _texts(path, problems)) for path in paths]
    _refuse_mixed_names(logs)
    rows = [row for texts in _together(logs, problems) for row in _matched(texts, problems)]
    if not rows:
        raise InputError("the logs have no position in common: log all models on the same texts.")
    tokens = _Tokens(rows, vocabulary)
    lists = [
        _listed([row.entries[i] for row in rows], k or log.asked, tokens)
        for i, log in enumerate(logs)
    ]
    header = {
        "target": {"name": name},
        "temperature": float(temperature),
        "vocabulary": vocabulary,
        "sources": [path.name for path in paths],
        "named_by": "id" if tokens.by_id else "text",
        "dropped": dict(problems.counts),
        "rounded": sum(entry.total > 1 for row in rows for entry in row.entries),
        "ambiguous": sum(tokens.ambiguous(row) for row in rows),
    }
    return PartialTrace(
        target=lists[0],
        drafts=dict(zip(names[1:], lists[1:], strict=True)),
        **tokens.columns(rows),
        tokens=tokens.texts,
        header=header,
    )


@dataclass
class _Problems:
    """What is wrong with the logs: the first fault is raised, or all are counted."""

    skip: bool
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, sentence: str) -> None:
        if not self.skip:
            raise InputError(f"{sentence}: mend the log, or drop bad rows with --skip-bad-rows.")
        self.counts[kind] += 1


@dataclass(frozen=True)
class _Log:
    path: Path
    texts: list[Text]

    @property
    def entries(self) -> Iterator[Entry]:
        return (item for text in self.texts for item in text.entries if isinstance(item, Entry))

    @property
    def asked(self) -> int:
        """The K that the log was made with."""
        return max((entry.regular for entry in self.entries), default=1)

    @property
    def named(self) -> dict[tuple[str | None, int], Text]:
        """Texts by name; those of one name are told apart by their order."""
        seen: Counter[str | None] = Counter()
        found = {}
        for text in self.texts:
            found[text.name, seen[text.name]] = text
            seen[text.name] += 1
        return found


def _texts(path: Path, problems: _Problems) -> list[Text]:
    found = []
    for item in read(path):
        if not isinstance(item, Text):
            number, fault = item
            problems.add("lines without a log", f"{path}, line {number} {fault}")
            item = Text(number, None, [])  # keeps its place: texts are matched by order
        found.append(item)
    if not any(text.entries for text in found):
        raise InputError(f"{path} holds no log-probabilities of top tokens.")
    return found


def _refuse_mixed_names(logs: Sequence[_Log]) -> None:
    by_text = {log.path for log in logs for entry in log.entries if isinstance(entry.token, str)}
    by_id = {log.path for log in logs for entry in log.entries if isinstance(entry.token, int)}
    if by_text and by_id:
        raise InputError(
            f"{min(by_text)} names tokens by text and {min(by_id)} by id: log all models the same "
            "way (vLLM: prompt_logprobs, or return_tokens_as_token_ids)."
        )


@dataclass(frozen=True)
class _Located:
    """The same text in every log, with where it is."""

    index: int
    where: list[str]
    texts: list[Text]


def _together(logs: Sequence[_Log], problems: _Problems) -> Iterator[_Located]:
    """The same text in every log: by name where all texts have one, else by order."""
    if all(text.name for log in logs for text in log.texts):
        columns = [log.named for log in logs]
        groups = [[column.get(name) for column in columns] for name in columns[0]]
    else:
        groups = [list(group) for group in zip_longest(*(log.texts for log in logs))]
    for index, group in enumerate(groups):
        present = [text for text in group if text is not None]
        where = [
            f"{log.path}, line {text.line}"
            for log, text in zip(logs, group, strict=True)
            if text is not None
        ]
        if len(present) == len(logs):
            yield _Located(index, where, present)
        else:
            problems.add("texts not in every log", f"{where[0]} has no counterpart in every log")


@dataclass(frozen=True)
class _Row:
    """One context: index of its text, its position in it, and an entry for each model."""

    text: int
    position: int
    entries: list[Entry]


def _matched(located: _Located, problems: _Problems) -> Iterator[_Row]:
    """The positions of one text that every log has a law for; up to the first difference."""
    columns = (text.entries for text in located.texts)
    for position, items in enumerate(zip_longest(*columns, fillvalue=_END)):
        if all(item is None for item in items):
            continue
        if other := _difference(items):
            sentence = f"{located.where[0]} and {located.where[other]}: position {position} differs"
            problems.add("texts that differ", f"{sentence} ({_words(items, other)})")
            return  # what follows it is in another context
        faults = [i for i, item in enumerate(items) if isinstance(item, Fault)]
        for i in faults[:1]:
            problems.add("bad rows", f"{located.where[i]}: position {position} {items[i]}")
        if not faults:
            entries = [item for item in items if isinstance(item, Entry)]
            yield _Row(located.index, position, entries)


def _difference(items: Sequence[Entry | Fault | None]) -> int:
    """The first log whose token differs from the first log's, or that ends or begins; else 0."""
    marks = [_mark(item) for item in items]
    known = [i for i, mark in enumerate(marks) if mark != "unreadable"]
    return next((i for i in known if marks[i] != marks[known[0]]), 0)


def _mark(item: Entry | Fault | None) -> tuple[Key] | str:
    if isinstance(item, Entry):
        return (item.token,)
    if item is None:
        return "no law"
    return "no position" if item is _END else "unreadable"


def _words(items: Sequence[Entry | Fault | None], other: int) -> str:
    marks = [_mark(items[i]) for i in (0, other)]
    return " against ".join(mark if isinstance(mark, str) else repr(mark[0]) for mark in marks)


class _Tokens:
    """Ids of tokens: the log's, or the order of first appearance of their texts."""

    def __init__(self, rows: Sequence[_Row], vocabulary: int | None) -> None:
        entries = [entry for row in rows for entry in row.entries]
        self.by_id = isinstance(entries[0].token, int)
        keys = dict.fromkeys(key for entry in entries for key in entry.logprobs)
        self._ids = (
            {key: int(key) for key in keys}
            if self.by_id
            else {key: i for i, key in enumerate(filter(_plain, keys))}
        )
        largest = max(self._ids.values(), default=0)
        if self.by_id and vocabulary is not None and largest >= vocabulary:
            raise InputError(f"the logs name token {largest}: the vocabulary is not {vocabulary}.")
        named = {key: text for entry in entries for key, text in entry.texts.items()}
        texts = named if self.by_id else {key: str(key) for key in self._ids}
        self.texts = {self._ids[key]: text for key, text in texts.items()}

    def id(self, key: Key) -> int:
        """Id of a token, -1 for a text that many tokens share."""
        return self._ids.get(key, -1)

    def ambiguous(self, row: _Row) -> bool:
        """Whether a model lists a text that many tokens share."""
        return any(self.id(key) < 0 for entry in row.entries for key in entry.logprobs)

    def columns(self, rows: Sequence[_Row]) -> dict[str, np.ndarray]:
        """Next token, text and position of every row."""
        columns = {
            "next_token": [self.id(row.entries[0].token) for row in rows],
            "passage": [row.text for row in rows],
            "position": [row.position for row in rows],
        }
        return {name: np.array(column, dtype=np.int64) for name, column in columns.items()}


def _plain(key: Key) -> bool:
    return key != "" and _BROKEN not in str(key)


def _listed(entries: Sequence[Entry], asked: int, tokens: _Tokens) -> Listed:
    """Sorted lists of all rows; tokens that are not told apart count as unlisted."""
    found = [_sorted(entry, asked, tokens) for entry in entries]
    width = max(len(ids) for ids, _, _ in found)
    ids, probs = np.full((len(found), width), -1), np.zeros((len(found), width))
    for i, (known, values, _) in enumerate(found):
        ids[i, : len(known)], probs[i, : len(known)] = known, values
    return Listed(ids, probs, np.array([cap for _, _, cap in found]))


def _sorted(entry: Entry, asked: int, tokens: _Tokens) -> tuple[list[int], list[float], float]:
    """Ids and probabilities of one position, most probable first, and the cap on all others."""
    scale = max(1.0, entry.total)
    order = sorted(entry.logprobs, key=lambda key: (-entry.logprobs[key], tokens.id(key)))
    probs = {key: float(np.exp(entry.logprobs[key])) / scale for key in order}
    known = [key for key in order if tokens.id(key) >= 0]
    rest = max(0.0, 1 - sum(probs[key] for key in known))
    hidden = max((probs[key] for key in order if tokens.id(key) < 0), default=0.0)
    top = _top(entry, asked)
    cap = rest if top is None else max(probs[order[top - 1]], hidden)
    return [tokens.id(key) for key in known], [probs[key] for key in known], min(cap, rest)


def _top(entry: Entry, asked: int) -> int | None:
    """How many of the listed tokens are the most probable ones; None when that is not certain."""
    if ranks := sorted(entry.ranks.values()):  # tokens of equal probability may share a rank
        places = enumerate(ranks, 1)
        return next((place - 1 for place, rank in places if rank > place), len(ranks)) or None
    if len(entry.logprobs) >= asked:
        return min(asked, len(entry.logprobs))
    # Two tokens of one text leave one entry; with ids the log was just asked for fewer.
    return entry.regular if isinstance(entry.token, int) else None
