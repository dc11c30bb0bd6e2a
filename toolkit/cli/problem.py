"""The options that describe a problem, shared by `solve` and `compare`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

import multidraft as md
from multidraft.cli.output import Flag
from multidraft.errors import InputError

Numbers = Annotated[str | None, Parameter(allow_leading_hyphen=True)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ProblemOptions:
    """A problem on the command line."""

    file: Path | None = None
    """A problem that Problem.save wrote (.npz), in place of all other options of the problem."""

    target: Numbers = None
    """Target law: numbers such as 0.2,0.3,0.5, or a .npy, .csv or .json file, a row per context."""

    draft: Annotated[list[str], Parameter(allow_leading_hyphen=True)] = field(default_factory=list)
    """Draft law, likewise. Give it once per draft for the law independent."""

    law: str = "iid"
    """How drafts are drawn: iid, independent, without-replacement, greedy, hub, top."""

    n: int | None = None
    """Number of drafts (the law independent has one for each --draft, hub has 2)."""

    short: str = "refuse"
    """What to do with a draft that has fewer than n tokens: refuse, or pad."""

    normalise: Flag = False
    """Divide the given laws by their sums; without it a law that does not sum to 1 is refused."""

    logits: Flag = False
    """The numbers are logits; only then may they be shaped by the options below."""

    temperature: float | None = None
    """Divide logits by this; 0 keeps the largest one only. 1 unless given."""

    draft_temperature: float | None = None
    """The same for the draft, where it differs."""

    top_k: int | None = None
    """Keep the k most probable tokens."""

    top_p: float | None = None
    """Keep the most probable tokens that hold this mass."""

    def problem(self) -> md.Problem:
        """Build the problem.

        Raises
        ------
        InputError
            Options that contradict each other, files that cannot be read, data that is no law.
        """
        if self.file is not None:
            if self.target is not None or self.draft:
                raise InputError("give --file, or --target and --draft, not both.")
            return md.load(self.file)
        if self.target is None or not self.draft:
            raise InputError("give --target and --draft (see --help for an example), or --file.")
        target = read_numbers(self.target, "target")
        drafts = [read_numbers(text, "draft") for text in self.draft]
        if self.law != md.laws.Independent.name and len(drafts) > 1:
            raise InputError(f"the law {self.law} takes one --draft, only independent takes more.")
        if self.logits:
            return self._from_logits(target, drafts)
        self._refuse_shaping()
        if self.normalise:
            target, drafts = md.normalise(target), [md.normalise(draft) for draft in drafts]
        law = md.laws.make(self._spec(), drafts if self._independent else drafts[0])
        return md.Problem(target, law)

    @property
    def _independent(self) -> bool:
        return self.law == md.laws.Independent.name

    def _spec(self) -> dict[str, Any]:
        return {"law": self.law, "short": self.short} | ({} if self.n is None else {"n": self.n})

    def _from_logits(self, target: np.ndarray, drafts: list[np.ndarray]) -> md.Problem:
        if self.normalise:
            raise InputError("--normalise is for probabilities: leave it out with --logits.")
        return md.Problem.from_logits(
            target,
            drafts if self._independent else drafts[0],
            self.law,
            n=self.n,
            temperature=1.0 if self.temperature is None else self.temperature,
            draft_temperature=self.draft_temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            short=self.short,  # type: ignore[arg-type]
        )

    def _refuse_shaping(self) -> None:
        for name in ("temperature", "draft_temperature", "top_k", "top_p"):
            if getattr(self, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise InputError(f"{option} shapes logits: add --logits, or leave it out.")


NOTHING = ProblemOptions()


def read_numbers(text: str, name: str) -> np.ndarray:
    """Read an array from inline numbers or a file.

    Parameters
    ----------
    text : str
        ``0.2,0.3``, ``[[0.2, 0.8], [0.5, 0.5]]``, or the path of a .npy, .csv or .json file.
    name : str
        What it is, for the message.

    Raises
    ------
    InputError
        Neither numbers nor a readable file.

    Examples
    --------
    >>> read_numbers("0.25, 0.75", "target")
    array([0.25, 0.75])
    """
    if text.lstrip().startswith("["):
        return _from_json(text, name)
    if re.fullmatch(r"[-+.\deE,\s]+", text):
        return _inline(text, name)
    path = Path(text)
    if path.suffix not in _READERS:
        raise InputError(f"{name} is {text!r}: give numbers, or a .npy, .csv or .json file.")
    if not path.is_file():
        raise InputError(f"{name}: there is no file {path}.")
    try:
        return _READERS[path.suffix](path, name)
    except (ValueError, EOFError) as error:
        raise InputError(f"{name}: {path} cannot be read: {error}") from None


def _inline(text: str, name: str) -> np.ndarray:
    try:
        return np.array([float(number) for number in text.replace(",", " ").split()])
    except ValueError as error:
        raise InputError(f"{name}: {error}.") from None


def _from_json(text: str, name: str) -> np.ndarray:
    try:
        return np.array(json.loads(text), dtype=np.float64)
    except (ValueError, TypeError):
        raise InputError(f"{name} is not a list of numbers or a rectangular table.") from None


def _from_csv(path: Path, name: str) -> np.ndarray:
    table = np.loadtxt(path, delimiter=",", ndmin=2, dtype=np.float64)
    return table.ravel() if 1 in table.shape else table


_READERS = {
    ".npy": lambda path, name: np.load(path, allow_pickle=False),
    ".csv": _from_csv,
    ".json": lambda path, name: _from_json(path.read_text(encoding="utf-8"), name),
}
