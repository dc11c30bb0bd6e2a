"""Recording trees: draft one deep tree per context of a trace, and look at it with the target.

The drafts are drawn from the logits as they are stored, so what is verified later is exactly the
law that the tokens came from. Uniforms depend on the seed and the context alone: all draft models,
laws and temperatures share them, which makes their differences less noisy.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from tqdm import tqdm

from multidraft import models, results, tensors, traces
from multidraft import record as passages_of
from multidraft.checks import choice, count
from multidraft.errors import InputError
from multidraft.models import Model
from multidraft.models.tree_laws import TreeLaws
from multidraft.transform import probabilities
from multidraft.trees import recorded
from multidraft.trees.drawing import draw_tokens
from multidraft.trees.recorded import FORMAT, Recording
from multidraft.trees.tree import Tree

CONTEXTS = 64
_BATCH = 16  # contexts in one call: 150 MB of float32 logits at 48 slots and V = 49,152
_HELD = 12  # batches whose keys and values are held, at most 200 MB each for SmolLM2


@dataclass(frozen=True)
class Drafting:
    """How draft logits become the draft law, see `multidraft.transform.probabilities`."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        # 1 and 1.0 are one setting, and one file.
        object.__setattr__(self, "temperature", float(self.temperature))


class Recorder:
    """Records trees of one target behind the same contexts of one trace.

    Nothing is loaded before a tree is asked for that is not in the folder yet.

    Parameters
    ----------
    trace : path
        A trace that `multidraft record` made.
    target : Model or str
        The model that the trace is of, or its name.
    drafts : mapping of name to Model, optional
        Drafts that :meth:`record` cannot load by name.
    contexts : int
        N, dealt from passage to passage.
    seed : int
        Fixes the choice of contexts and the drafts.
    dtype : str
        Of the stored logits, float16 or float32.
    folder : path, optional
        Where files go; ``trees`` in the cache folder unless given.
    progress : bool
        Show a progress bar when standard error is a terminal.

    Raises
    ------
    InputError
        No such trace, or more contexts than it has.
    """

    def __init__(
        self,
        trace: str | os.PathLike[str],
        target: Model | str = "smollm2",
        *,
        drafts: Mapping[str, Model] | None = None,
        contexts: int = CONTEXTS,
        seed: int = 0,
        dtype: str = "float16",
        folder: str | os.PathLike[str] | None = None,
        progress: bool = True,
    ) -> None:
        self.trace, self.dtype = traces.open(trace), choice(dtype, passages_of.DTYPES, "dtype")
        self.seed, self.progress = count(seed, "seed", least=0), progress
        self.fingerprint = traces.fingerprint(trace)
        self.folder = recorded.folder() if folder is None else Path(folder)
        self.rows = _dealt(self.trace.passage, count(contexts, "contexts"), self.seed)
        self._target, self._drafts = target, dict(drafts or {})
        self._held: dict[tuple[str, int], TreeLaws] = {}

    @cached_property
    def target(self) -> Model:
        """The loaded target."""
        return models.load(self._target) if isinstance(self._target, str) else self._target

    @cached_property
    def contexts(self) -> list[Int[np.ndarray, " T"]]:
        """Tokens of every context, from an earlier recording or from the passages made again."""
        for earlier in self._earlier():
            return earlier.contexts
        passages = passages_of.passages(self.trace, self.target, progress=self.progress)
        places = zip(self.trace.passage[self.rows], self.trace.position[self.rows], strict=True)
        return [passages[passage][:position] for passage, position in places]

    def _earlier(self) -> Iterator[Recording]:
        """Recordings of the same contexts in the folder."""
        for place in recorded.found(self.folder):
            with contextlib.suppress(InputError):  # a damaged file is no reason to stop
                recording = recorded.open(place)
                same = recording.header["request"].get("trace") == self.fingerprint
                if same and np.array_equal(recording.context, self.rows):
                    yield recording

    def draft(self, name: str) -> Model:
        """The loaded draft model of a name."""
        if name not in self._drafts:
            self._drafts[name] = models.load(name, self.target)
        models.check_pair(self.target, self._drafts[name])
        return self._drafts[name]

    def path(self, draft: str, tree: Tree, **drafting: Any) -> Path:
        """Where the trees of :meth:`record` with the same arguments are or will be."""
        request = self._request(draft, tree, Drafting(**drafting))
        words = (request["target"], Path(draft).name, recorded.law_of(tree))
        name = "_".join((*words, results.digest(request)[:12]))
        return self.folder / f"{name.replace(':', '-').replace(',', '-')}.safetensors"

    def nbytes(self, tree: Tree) -> int:
        """Size of the logits in a file, in bytes."""
        rows = tree.slots + sum(1 for below in tree.children if below)
        return len(self.rows) * rows * self.trace.vocabulary * np.dtype(self.dtype).itemsize

    def record(
        self,
        draft: str,
        tree: Tree,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> Recording:
        """Return the trees that a draft model draws, recorded now unless the file is there.

        Parameters
        ----------
        draft : str
            Name of the draft model.
        tree : Tree
            The deepest tree, with its draft laws.
        temperature, top_k, top_p :
            Of the draft law.

        Raises
        ------
        InputError
            No room on the disk, a draft that does not fit the target, a trace of another model, or
            a tree deeper than the models' contexts.
        """
        drafting = Drafting(temperature, top_k, top_p)
        place = self.path(draft, tree, **asdict(drafting))
        if not place.exists():
            self._check_room(tree)
            self._write(place, draft, tree, drafting)
        return recorded.open(place)

    def _request(self, draft: str, tree: Tree, drafting: Drafting) -> dict[str, Any]:
        """All that decides a file's content, as JSON."""
        return {
            "trace": self.fingerprint,
            "target": self.trace.header["target"]["name"],
            "draft": draft,
            "tree": {"parents": list(tree.parents), "laws": list(tree.specs)},
            "drafting": asdict(drafting),
            "contexts": len(self.rows),
            "seed": self.seed,
            "dtype": self.dtype,
        }

    def _check_room(self, tree: Tree) -> None:
        existing = next(place for place in (self.folder, *self.folder.parents) if place.exists())
        needed, free = self.nbytes(tree), shutil.disk_usage(existing).free
        if needed > free:
            raise InputError(
                f"trees of {tree.slots} slots at {len(self.rows)} contexts take "
                f"{needed / 1e9:.3g} GB and {existing} has {free / 1e9:.3g} GB free: record a "
                "smaller tree or fewer contexts."
            )

    def _write(self, place: Path, name: str, tree: Tree, drafting: Drafting) -> None:
        header = self._header(name, tree, drafting)
        with tensors.create(place, self._shapes(tree), header) as sink:
            sink.put("context", self.rows)
            sink.put("text", self.trace.text[self.rows])
            sink.put("passage", self.trace.passage[self.rows])
            sink.put("prefix", _filled(self.contexts))
            for number, rows in enumerate(self._batches()):
                for key, block in self._batch(number, rows, name, tree, drafting).items():
                    for row, values in zip(rows, block, strict=True):
                        sink.put(key, values[None], int(row))

    def _shapes(self, tree: Tree) -> dict[str, tuple[str, tuple[int, ...]]]:
        count, width = len(self.rows), max(map(len, self.contexts))
        inner, vocabulary = sum(1 for below in tree.children if below), self.trace.vocabulary
        logits = np.dtype(self.dtype).newbyteorder("<").str
        return {
            "target": (logits, (count, tree.slots, vocabulary)),
            "draft": (logits, (count, inner, vocabulary)),
            "tokens": ("<i8", (count, tree.slots)),
            "prefix": ("<i8", (count, width)),
            **{name: ("<i8", (count,)) for name in ("context", "text", "passage")},
        }

    def _header(self, draft: str, tree: Tree, drafting: Drafting) -> dict[str, Any]:
        kept = {name: self.trace.header[name] for name in ("tokenizer", "texts", "passages")}
        return {
            "format": FORMAT,
            "request": self._request(draft, tree, drafting),
            "target": self.target.identity(),
            "draft": {**self.draft(draft).identity(), "name": draft},
            **kept,
            "versions": passages_of.versions(),
        }

    def _batches(self) -> Iterator[Int[np.ndarray, " b"]]:
        """Rows of similar length for one call; the same for every tree."""
        order = np.argsort([len(context) for context in self.contexts], kind="stable")
        hidden = None if self.progress else True
        with tqdm(total=len(order), desc="drafting", unit="tree", disable=hidden) as bar:
            for first in range(0, len(order), _BATCH):
                yield order[first : first + _BATCH]
                bar.update(len(order[first : first + _BATCH]))

    def _batch(
        self,
        number: int,
        rows: Int[np.ndarray, " b"],
        draft: str,
        tree: Tree,
        drafting: Drafting,
    ) -> dict[str, np.ndarray]:
        """Tokens and logits of one batch."""
        drafter = _Drafter(self._laws(draft, number, rows), self.dtype, drafting)
        tokens, _ = draw_tokens(tree, drafter, self._uniforms(rows, tree))
        parents = np.tile(tree.parents, (len(rows), 1))
        target = self._laws("", number, rows).logits_at(parents, tokens)
        return {"target": target, "draft": drafter.logits(tree), "tokens": tokens}

    def _laws(self, draft: str, number: int, rows: Int[np.ndarray, " b"]) -> TreeLaws:
        """A model, the target under no name, behind a batch of contexts.

        Reading the contexts takes longer than the trees: what was read is held for further trees.
        """
        if (draft, number) in self._held:
            laws = self._held[draft, number]
            laws.commit(np.empty((len(rows), 0), dtype=np.int64))  # forgets the last tree
            return laws
        model = self.draft(draft) if draft else self.target
        laws = TreeLaws.of(model, [self.contexts[row] for row in rows])
        if len(self._held) < _HELD:
            self._held[draft, number] = laws
        return laws

    def _uniforms(self, rows: Int[np.ndarray, " b"], tree: Tree) -> Float[np.ndarray, "b nodes"]:
        contexts = self.rows[rows].tolist()
        return np.stack(
            [np.random.default_rng([self.seed, row]).random(tree.nodes) for row in contexts]
        )


class _Drafter:
    """The draft law as drafting asks for it; keeps the logits of every level."""

    def __init__(self, laws: TreeLaws, dtype: str, drafting: Drafting) -> None:
        self._laws, self._dtype, self._drafting = laws, dtype, asdict(drafting)
        self._levels: list[np.ndarray] = []

    def __call__(self, paths: Int[np.ndarray, "B M d"]) -> Float[np.ndarray, "B M V"]:
        self._levels.append(self._laws.logits(paths).astype(self._dtype))
        return probabilities(self._levels[-1], **self._drafting)

    def logits(self, tree: Tree) -> Float[np.ndarray, "B I V"]:
        """Logits at the slots with children, in slot order; they were asked for by depth."""
        inner = np.flatnonzero([bool(below) for below in tree.children])
        asked = inner[np.argsort(tree.depths[inner], kind="stable")]
        return np.concatenate(self._levels, axis=1)[:, np.argsort(asked)]


def _dealt(passage: Int[np.ndarray, " N"], wanted: int, seed: int) -> Int[np.ndarray, " n"]:
    """So many contexts, one of every passage after the other, in the order of the trace."""
    if wanted > len(passage):
        raise InputError(f"the trace has {len(passage)} contexts, not {wanted}: ask for fewer.")
    shuffled = np.random.default_rng(seed).permutation(len(passage))
    turn = np.empty(len(passage), dtype=np.int64)
    for index in np.unique(passage):
        own = shuffled[passage[shuffled] == index]
        turn[own] = np.arange(len(own))
    return np.sort(np.lexsort((passage, turn))[:wanted])


def _filled(contexts: list[Int[np.ndarray, " _"]]) -> Int[np.ndarray, "N T"]:
    table = np.full((len(contexts), max(map(len, contexts))), -1)
    for row, context in zip(table, contexts, strict=True):
        row[: len(context)] = context
    return table
