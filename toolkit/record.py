"""Recording: run a target and its drafts over passages of text and keep their raw logits.

Passages come from the shipped works (their `contexts` halves) and, a quarter of them, are sampled
from the target itself. Contexts of one passage depend on each other: error bars are clustered by
passage, and a passage gives at most eight contexts.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from tqdm import tqdm

from multidraft import models
from multidraft import texts as library
from multidraft.arrays import search
from multidraft.checks import choice, count
from multidraft.errors import InputError
from multidraft.models import Model
from multidraft.texts import Work
from multidraft.traces import FORMAT, Passage, Trace

DTYPES = ("float16", "float32")
PACKAGES = ("multidraft", "numpy", "torch", "transformers", "tokenizers")


@dataclass(frozen=True)
class Settings:
    """What a recording covers; the defaults are those of the reported tables.

    Attributes
    ----------
    contexts : int
        N, spread evenly over the passages.
    passages : int
        Number of passages.
    sampled : int or None
        How many of them are sampled from the target; None for a quarter.
    contexts_per_passage : int
        At most so many contexts from one passage.
    tokens : int
        Length of a passage.
    history : int
        Least number of tokens before a context; also the prompt of a sampled passage.
    temperature : float
        Of the sampled passages. Recorded logits have none.
    dtype : str
        Of the stored logits. float16 halves the file; its rounding, at most 0.008 for logits
        below 16 in size, changes the recorded laws themselves, not their comparison.
    seed : int
        Fixes passages, positions and sampling.
    """

    contexts: int = 512
    passages: int = 64
    sampled: int | None = None
    contexts_per_passage: int = 8
    tokens: int = 256
    history: int = 32
    temperature: float = 1.0
    dtype: str = "float16"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("contexts", "passages", "contexts_per_passage", "history"):
            count(getattr(self, name), name)
        count(self.seed, "seed", least=0)
        choice(self.dtype, DTYPES, "dtype")
        if not 0 <= self.sampled_passages <= self.passages:
            raise InputError(f"sampled is {self.sampled}: it lies between 0 and passages.")
        if self.temperature <= 0:
            raise InputError(f"temperature is {self.temperature}: passages need a positive one.")
        if not self.passages <= self.contexts <= self.passages * self.contexts_per_passage:
            raise InputError(
                f"{self.contexts} contexts do not spread over {self.passages} passages with 1 to "
                f"{self.contexts_per_passage} each: change passages or contexts."
            )
        if self.tokens < self.history + self.contexts_per_passage:
            raise InputError("tokens leaves no room for the contexts after history: raise it.")

    @property
    def sampled_passages(self) -> int:
        """Number of passages sampled from the target."""
        return self.passages // 4 if self.sampled is None else self.sampled


@dataclass(frozen=True)
class _Excerpt:
    """A passage on its way into a trace."""

    work: int
    tokens: Int[np.ndarray, " T"]
    temperature: float | None = None
    seed: list[int] | None = None


def record(
    *,
    target: Model | str,
    drafts: Mapping[str, Model] | Iterable[str],
    texts: Sequence[Work] | None = None,
    progress: bool = True,
    **settings: Any,
) -> Trace:
    """Return the trace of `target` and `drafts` over passages of `texts`.

    The result depends on the arguments alone (up to rounding in the networks' sums).

    Parameters
    ----------
    target : Model or str
        A loaded model or its name.
    drafts : mapping of name to Model, or names
        Drafts on the target's vocabulary.
    texts : sequence of Work, optional
        The shipped works by default.
    progress : bool
        Show a progress bar when standard error is a terminal.
    **settings
        Fields of `Settings`: ``contexts``, ``passages``, ``seed`` and so on.

    Raises
    ------
    InputError
        A model that cannot be loaded, a draft that does not fit, or texts too short.
    """
    chosen = Settings(**settings)
    works = library.works() if texts is None else tuple(texts)
    target = models.load(target) if isinstance(target, str) else target
    if not isinstance(drafts, Mapping):
        drafts = models.load_drafts(drafts, target)
    if not drafts:
        raise InputError("a trace holds at least one draft: name one, such as skip-8.")
    for draft in drafts.values():
        models.check_pair(target, draft)
    generator = np.random.default_rng(chosen.seed)
    excerpts = _excerpts(target, works, chosen, generator, progress)
    positions = _spread(chosen, generator)
    logits = _logits([target, *drafts.values()], excerpts, positions, chosen, progress)
    header = _header(target, drafts, works, excerpts, chosen)
    rows = _rows(excerpts, positions)
    return Trace(logits[0], logits[1:], **rows, header=header)


def frozen(path: str | os.PathLike[str]) -> Path:
    """Record the small trace that ships with the package and write it to `path`.

    24 contexts from 24 passages of SmolLM2 with `skip-8`, float16: 4.7 MB.
    """
    trace = record(target="smollm2", drafts=["skip-8"], contexts=24, passages=24, seed=1)
    return trace.write(path)


def passages(
    trace: Trace, target: Model, texts: Sequence[Work] | None = None, progress: bool = True
) -> list[Int[np.ndarray, " T"]]:
    """Token ids of every passage of a recorded trace, made again as `record` made them.

    A trace keeps hashes of its passages, and each is checked against its own. Those that were
    sampled from the target are sampled again, with the same seeds.

    Raises
    ------
    InputError
        A trace that was imported, or of another target or other texts; or a passage that comes out
        differently here, as rounding on another machine can make one.
    """
    if "settings" not in trace.header:
        raise InputError("this trace was not recorded here: record one with multidraft record.")
    if trace.header["target"] != target.identity():
        raise InputError(
            f"the trace is of {trace.header['target']['name']} with other weights than "
            f"{target.name}: load the model that it was recorded from."
        )
    works = library.works() if texts is None else tuple(texts)
    chosen = Settings(**trace.header["settings"])
    generator = np.random.default_rng(chosen.seed)
    found = [excerpt.tokens for excerpt in _excerpts(target, works, chosen, generator, progress)]
    for index, (tokens, facts) in enumerate(zip(found, trace.passages, strict=True)):
        if _hash(tokens) != facts.sha256:
            raise InputError(
                f"passage {index} of the trace comes out differently here: give the texts that it "
                "was recorded from, or record the trace again on this machine."
            )
    return found


def _excerpts(
    target: Model,
    works: Sequence[Work],
    chosen: Settings,
    generator: np.random.Generator,
    progress: bool,
) -> list[_Excerpt]:
    blocks = _blocks(target, works, chosen, generator)
    written = [_Excerpt(*block) for block in blocks[chosen.sampled_passages :]]
    prompts = blocks[: chosen.sampled_passages]
    if not prompts:
        return written
    starts = np.stack([tokens[: chosen.history] for _, tokens in prompts])
    seeds = [[chosen.seed, row] for row in range(len(prompts))]
    length = chosen.tokens - chosen.history
    sampled = sample(target, starts, length, chosen.temperature, seeds, progress)
    tails = zip(prompts, sampled, seeds, strict=True)
    return written + [
        _Excerpt(work, tokens, chosen.temperature, seed) for (work, _), tokens, seed in tails
    ]


def _blocks(
    target: Model, works: Sequence[Work], chosen: Settings, generator: np.random.Generator
) -> list[tuple[int, Int[np.ndarray, " T"]]]:
    """Return as many disjoint blocks of text as there are passages, dealt from work to work."""
    fresh = chosen.tokens - len(target.start)
    piles = []
    for index, work in enumerate(works):
        tokens = target.tokenizer.encode(work.contexts, add_special_tokens=False)
        cuts = generator.permutation(len(tokens) // fresh) * fresh
        piles.append([(index, np.array(target.start + tokens[cut : cut + fresh])) for cut in cuts])
    rounds = range(max(map(len, piles), default=0))
    dealt = [pile[turn] for turn in rounds for pile in piles if turn < len(pile)]
    if len(dealt) < chosen.passages:
        raise InputError(
            f"the texts hold {len(dealt)} passages of {chosen.tokens} tokens, not "
            f"{chosen.passages}: ask for fewer or shorter passages, or give more texts."
        )
    return dealt[: chosen.passages]


def sample(
    model: Model,
    prompts: Int[np.ndarray, "B T"],
    length: int,
    temperature: float,
    seeds: Sequence[Sequence[int]],
    progress: bool = False,
) -> Int[np.ndarray, "B T+{length}"]:
    """Continue each prompt by `length` tokens drawn from the model; row b depends on seeds[b].

    An end-of-text token does not end a row: what follows is again a law of the model.
    """
    draws = np.stack([np.random.default_rng(seed).random(length) for seed in seeds])
    out, fresh, state = prompts, prompts, None
    for uniforms in tqdm(draws.T, "sampling", disable=None if progress else True):
        logits, state = model.step(fresh, state)
        fresh = search(_masses(logits, temperature).cumsum(-1), uniforms[:, None])
        out = np.concatenate([out, fresh], axis=1)
    return out


def _masses(logits: Float[np.ndarray, "B V"], temperature: float) -> Float[np.ndarray, "B V"]:
    scaled = logits.astype(np.float64) / temperature
    return np.exp(scaled - scaled.max(-1, keepdims=True))


def _spread(chosen: Settings, generator: np.random.Generator) -> list[Int[np.ndarray, " _"]]:
    """Return context positions per passage: one at random in each of equal stretches."""
    fair, over = divmod(chosen.contexts, chosen.passages)
    sizes = [fair + (index < over) for index in range(chosen.passages)]
    room = chosen.tokens - chosen.history
    return [
        chosen.history + ((np.arange(size) + generator.random(size)) * room / size).astype(np.int64)
        for size in sizes
    ]


def _logits(
    sources: Sequence[Model],
    excerpts: Sequence[_Excerpt],
    positions: Sequence[Int[np.ndarray, " _"]],
    chosen: Settings,
    progress: bool,
) -> Float[np.ndarray, "S N V"]:
    shape = (len(sources), chosen.contexts, sources[0].vocabulary)
    out = np.empty(shape, dtype=chosen.dtype)
    row = 0
    bar = tqdm(excerpts, "recording", unit="passage", disable=None if progress else True)
    for excerpt, places in zip(bar, positions, strict=True):
        for index, source in enumerate(sources):
            # The law of token t is read after token t - 1.
            out[index, row : row + len(places)] = source.logits(excerpt.tokens, places - 1)
        row += len(places)
    return out


def _rows(
    excerpts: Sequence[_Excerpt], positions: Sequence[Int[np.ndarray, " _"]]
) -> dict[str, Int[np.ndarray, " N"]]:
    sizes = [len(places) for places in positions]
    following = [item.tokens[places] for item, places in zip(excerpts, positions, strict=True)]
    return {
        "next_token": np.concatenate(following),
        "text": np.repeat([excerpt.work for excerpt in excerpts], sizes),
        "passage": np.repeat(np.arange(len(excerpts)), sizes),
        "position": np.concatenate(positions),
    }


def _header(
    target: Model,
    drafts: Mapping[str, Model],
    works: Sequence[Work],
    excerpts: Sequence[_Excerpt],
    chosen: Settings,
) -> dict[str, Any]:
    sources = [
        {"id": w.id, "title": w.title, "author": w.author, "sha256": w.sha256} for w in works
    ]
    passages = [
        Passage(works[e.work].id, e.temperature, e.seed, len(e.tokens), _hash(e.tokens))
        for e in excerpts
    ]
    return {
        "format": FORMAT,
        "target": target.identity(),
        "drafts": [{**draft.identity(), "name": name} for name, draft in drafts.items()],
        "tokenizer": {"sha256": models.tokenizer_hash(target.tokenizer)},
        "texts": sources,
        "passages": [asdict(passage) for passage in passages],
        "settings": asdict(chosen),
        "dtype": chosen.dtype,
        "versions": versions(),
    }


def _hash(tokens: Int[np.ndarray, " T"]) -> str:
    return hashlib.sha256(tokens.astype("<i8").tobytes()).hexdigest()


def versions() -> dict[str, str]:
    """Versions of python and of the packages that decide a recording."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
