"""Logs as serving engines write them, made from laws."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

VOCABULARY, POSITIONS, TEXTS = 60, 12, 4
#: Texts of the tokens; some would be markup, some are white space.
WORDS = [
    " <script>alert(1)</script>",
    "</script>",
    " the",
    "ing",
    "\n",
    "&amp;",
    '"',
    " 42",
    ",",
    *(f" w{i}" for i in range(VOCABULARY - 9)),
]


def laws(seed: int = 0) -> dict[str, np.ndarray]:
    """Target and draft laws (TEXTS, POSITIONS, V), and the tokens that follow."""
    generator = np.random.default_rng(seed)
    q, other = generator.dirichlet(np.full(VOCABULARY, 0.15), (2, TEXTS, POSITIONS))
    q[..., 0] += 0.1  # a token that would be markup is in every list
    q /= q.sum(-1, keepdims=True)
    p = 0.3 * q + 0.7 * other
    tokens = np.array([[generator.choice(VOCABULARY, p=row) for row in rows] for rows in q])
    return {"target": q, "draft": p, "tokens": tokens}


def position(law: np.ndarray, token: int, k: int) -> list[tuple[int, float, int]]:
    """Id, log-probability and rank of what a server lists: the token there first, then the top."""
    order = np.argsort(-law, kind="stable")
    ranks = {int(other): rank for rank, other in enumerate(order, 1)}
    ids = [token, *(int(other) for other in order[:k] if other != token)]
    return [(i, float(np.log(law[i])), ranks[i]) for i in ids]


def vllm(path: Path, law: np.ndarray, tokens: np.ndarray, k: int) -> Path:
    """One response per line with ``prompt_logprobs``."""
    lines = []
    for rows, following in zip(law, tokens, strict=True):
        listed: list[Any] = [None]
        for row, token in zip(rows, following, strict=True):
            listed.append(
                {
                    str(i): {"logprob": value, "rank": rank, "decoded_token": WORDS[i]}
                    for i, value, rank in position(row, int(token), k)
                }
            )
        choice = {"index": 0, "text": "", "logprobs": None, "prompt_logprobs": listed}
        lines.append({"id": "cmpl-1", "object": "text_completion", "choices": [choice]})
    return write(path, lines)


def openai(path: Path, law: np.ndarray, tokens: np.ndarray, k: int, words=WORDS) -> Path:
    """One response per line in the shape of the completions API, with ``echo``."""
    lines = []
    for rows, following in zip(law, tokens, strict=True):
        lists = [position(row, int(token), k) for row, token in zip(rows, following, strict=True)]
        logprobs = {
            "tokens": ["<s>", *(words[token] for token in following)],
            "token_logprobs": [None, *(entries[0][1] for entries in lists)],
            "top_logprobs": [None, *({words[i]: v for i, v, _ in entries} for entries in lists)],
            "text_offset": list(range(len(lists) + 1)),
        }
        lines.append({"choices": [{"index": 0, "text": "", "logprobs": logprobs}]})
    return write(path, lines)


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path
