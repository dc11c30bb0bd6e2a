"""Sweeps: from a file to cells, from a cell to rows.

A cell is one method at one setting on some contexts: its content decides its key and its seed, so a
value added to an axis adds cells and changes no other. Contexts of synthetic families depend on the
family and their number alone: all methods see the same instances.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import multidraft as md
from multidraft import bounds, laws, results, solvers, traces, verifiers
from multidraft.errors import InputError, Refused
from multidraft.experiments import families, runner
from multidraft.experiments.sweep_file import (
    ALL,
    OPTIMUM,
    SAME,
    FamilySource,
    Grid,
    ModelSource,
    Source,
    SweepFile,
    TraceSource,
)

#: Axes of a grid, in the order in which cells are made; the last varies fastest.
AXES = ("temperature", "top_k", "top_p", "draft_temperature", "law", "n", "method")
BLOCK = 2**23  # uniforms that a measurement draws at a time: 64 MB

Row = dict[str, Any]
Cell = dict[str, Any]


@dataclass(frozen=True)
class Sweep:
    """A sweep whose source is there: an iterable of cells that are made anew each time.

    Attributes
    ----------
    file : SweepFile
    traces : dict
        Fingerprint of each trace -> its path on this machine.
    contexts : tuple of int
        Contexts of the trace, or numbers of the instances.
    """

    file: SweepFile
    traces: dict[str, str]
    contexts: tuple[int, ...]

    def __iter__(self) -> Iterator[Cell]:
        for grid in self.file.grid:
            yield from self._cells(grid)

    def _cells(self, grid: Grid) -> Iterator[Cell]:
        chunk = self.file.source.chunk
        starts = range(0, len(self.contexts), chunk)
        for laws_from, start in itertools.product(self._laws(grid), starts):
            contexts = list(self.contexts[start : start + chunk])
            for values in itertools.product(*(getattr(grid, axis) for axis in AXES)):
                setting: Cell = dict(zip(AXES, values, strict=True))
                if refusal(setting["law"], setting["n"], setting["method"]) is None:
                    yield _cell(laws_from, setting, contexts, grid.draws)

    def _laws(self, grid: Grid) -> list[Cell]:
        """What names the laws: trace and draft, or family and parameters."""
        source = self.file.source
        if isinstance(source, FamilySource):
            return [
                {"family": source.name, **families.complete(source.name, parameters)}
                for parameters in runner.grid(**source.parameters)
            ]
        return [{"trace": name, "draft": draft} for name in self.traces for draft in grid.draft]

    def refused(self) -> list[str]:
        """Why combinations of the grids are left out, each sentence once."""
        axes = (itertools.product(grid.law, grid.n, grid.method) for grid in self.file.grid)
        sentences = (refusal(*setting) for setting in itertools.chain.from_iterable(axes))
        return list(dict.fromkeys(sentence for sentence in sentences if sentence))

    def function(self, time_limit: float | None = None) -> runner.Function:
        """Return what computes a cell, with `time_limit` seconds for it."""
        return partial(compute, places=self.traces, time_limit=time_limit)

    def configuration(self) -> dict[str, Any]:
        """Return what the header of the results records."""
        names = {fingerprint: Path(path).name for fingerprint, path in self.traces.items()}
        return {"sweep": self.file.model_dump(mode="json", by_alias=True), "traces": names}


def _cell(laws_from: Cell, setting: Cell, contexts: list[int], draws: int) -> Cell:
    cell = {**laws_from, **setting, "contexts": contexts}
    cell["top_k"] = None if cell["top_k"] == ALL else cell["top_k"]
    cell["draft_temperature"] = (
        None if cell["draft_temperature"] == SAME else cell["draft_temperature"]
    )
    return cell | ({"draws": draws} if cell["method"].startswith("measure:") else {})


def prepare(file: SweepFile, base: Path, contexts: int | None = None) -> Sweep:
    """Find the source of a sweep; a model pair is recorded when it is not in the cache yet.

    Parameters
    ----------
    file : SweepFile
    base : path
        Folder that relative paths of the file start from.
    contexts : int, optional
        Fewer contexts than the file says: a shorter look at the same sweep.

    Raises
    ------
    InputError
        A trace that is missing, damaged or too short, or a draft that it does not hold.
    """
    source = file.source
    wanted = min(filter(None, (source.contexts, contexts)), default=None)
    if isinstance(source, FamilySource):
        return Sweep(file, {}, tuple(range(wanted or source.contexts)))
    path = _trace(source, base)
    trace = traces.open(path)
    for name in {part for grid in file.grid for draft in grid.draft for part in draft.split("+")}:
        trace.draft(name)
    return Sweep(file, {_fingerprint(path): str(path)}, _spaced(len(trace), wanted, path))


def _trace(source: Source, base: Path) -> Path:
    if isinstance(source, ModelSource):
        return _recorded(source)
    assert isinstance(source, TraceSource)  # families have no trace
    if source.path == "frozen":
        return traces.FROZEN
    from multidraft.models import cache

    path = cache.traces() / "smollm2.safetensors" if source.path == "default" else None
    path = path or base / Path(source.path).expanduser()
    if not path.is_file():
        raise InputError(f"there is no trace {path}: make it with `multidraft record`.")
    return path


def _recorded(source: ModelSource) -> Path:
    """The trace of a model pair in the cache, recorded when it is not there."""
    from multidraft.models import cache

    settings = source.model_dump(include={"target", "drafts", "contexts", "passages", "seed"})
    path = cache.traces() / f"sweep-{results.digest(settings)[:16]}.safetensors"
    with cache.alone(path):
        if not path.is_file():
            traces.record(**settings).write(path)
    return path


def _spaced(total: int, wanted: int | None, path: Path) -> tuple[int, ...]:
    """Contexts at equal distances, so that few of them still come from many passages."""
    count = total if wanted is None else wanted
    if count > total:
        raise InputError(f"{path} has {total} contexts, the sweep asks for {count}: record more.")
    return tuple(i * total // count for i in range(count))


def _fingerprint(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


@cache
def refusal(law: str, n: int, method: str) -> str | None:
    """Why a method does not take a law with n drafts, judged on a tiny law; None when it does."""
    probs = np.full(n + 2, 1 / (n + 2))
    kind, _, name = method.partition(":")
    try:
        made = _law(law, n, [probs] * n)
        if kind in ("rule", "measure"):
            return verifiers.get(name).refuses(made)
        if kind == "bound":
            bounds.get(name, md.Problem(probs, made))
        if kind == "solver":
            return solvers.get(name).refuses(md.Problem(probs, made))
    except (InputError, Refused) as error:
        return str(error)
    return None


def _law(name: str, n: int, parts: list[np.ndarray]) -> laws.Law:
    """A law of n drafts; independent ones take the parts in turn, others the first."""
    probs = [parts[i % len(parts)] for i in range(n)] if name == "independent" else parts[0]
    return laws.make({"law": name, "n": n, "short": "pad"}, probs)


# --------------------------------------------------------------------------------------- computing


def compute(
    cell: Cell, seed: int, *, places: dict[str, str], time_limit: float | None = None
) -> list[Row]:
    """Rows of one cell, one for each context.

    ``value`` is the method's acceptance (for a solver that of its plan; for a bound the bound),
    ``lower`` and ``upper`` what is certain about it, ``kind`` one of exact, bound, estimate,
    ``stderr`` null unless it is an estimate; ``tested`` is a rule's rate of accepting tests.

    Raises
    ------
    Refused
        The method refuses the problem, or the cell took longer than `time_limit` seconds.
    """
    target, parts = _probabilities(_laws_of(cell), tuple(cell["contexts"]), places=_frozen(places))
    problem = md.Problem(target, _law(cell["law"], cell["n"], parts))
    kind, _, name = cell["method"].partition(":")
    clock = _Clock(time_limit)
    found = _METHODS[kind](problem, name, cell, seed, clock)
    clock.check()
    clusters, short = _clusters(cell, places), problem.law.short_rows
    return [
        {
            "context": context,
            "cluster": clusters[i],
            "short": bool(short[i]),
            **{column: _item(values, i) for column, values in found.items()},
        }
        for i, context in enumerate(cell["contexts"])
    ]


class _Clock:
    """The cooperative time limit of a cell, checked between steps."""

    def __init__(self, limit: float | None) -> None:
        self.limit, self.start = limit, time.monotonic()

    def check(self) -> None:
        if self.limit is not None and time.monotonic() - self.start > self.limit:
            raise Refused(f"the cell took longer than its limit of {self.limit:g} s")

    def left(self) -> float | None:
        if self.limit is None:
            return None
        return max(0.0, self.limit - (time.monotonic() - self.start))


def _item(values: Any, i: int) -> Any:
    if isinstance(values, np.ndarray):
        return values[i].item()
    return values


def _laws_of(cell: Cell) -> str:
    """The part of a cell that decides its laws, as a text that can be remembered by."""
    left_out = {"method", "contexts", "draws"} | ({"law", "n"} - _varying(cell))
    return results.canonical({name: cell[name] for name in cell if name not in left_out})


def _varying(cell: Cell) -> set[str]:
    """Families make one draft for each of n independent drafts; else law and n change nothing."""
    return {"law", "n"} if "family" in cell and cell["law"] == "independent" else set()


def _frozen(places: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(places.items())


@lru_cache(maxsize=2)  # consecutive cells share their laws
def _probabilities(
    laws_of: str, contexts: tuple[int, ...], *, places: tuple[tuple[str, str], ...]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Target ``(B, V)`` and drafts, each ``(B, V)``, of a cell's laws."""
    cell = json.loads(laws_of)
    target, drafts = (
        _drawn(cell, contexts) if "family" in cell else _read(cell, contexts, dict(places))
    )
    problem = md.Problem.from_logits(
        target,
        drafts,
        "independent",
        temperature=cell["temperature"],
        top_k=cell["top_k"],
        top_p=cell["top_p"],
        draft_temperature=cell["draft_temperature"],
    )
    assert isinstance(problem.law, laws.Independent)  # asked for above
    return problem.target, list(problem.law.parts)


def _drawn(cell: Cell, contexts: tuple[int, ...]) -> tuple[np.ndarray, list[np.ndarray]]:
    name = cell["family"]
    parameters = {key: cell[key] for key in families.FAMILIES[name].defaults}
    rows = [families.draw(name, parameters, i, n=cell.get("n", 1)) for i in contexts]
    target = np.stack([row[0] for row in rows])
    return target, list(np.stack([row[1] for row in rows], axis=1))


def _read(
    cell: Cell, contexts: tuple[int, ...], places: dict[str, str]
) -> tuple[np.ndarray, list[np.ndarray]]:
    trace, rows = _opened(places[cell["trace"]]), list(contexts)
    return trace.target[rows], [trace.draft(name)[rows] for name in cell["draft"].split("+")]


@lru_cache(maxsize=4)
def _opened(path: str) -> traces.Trace:
    return traces.open(path)


def _clusters(cell: Cell, places: dict[str, str]) -> list[int]:
    """What error bars are clustered by: the passage, or the instance itself."""
    if "family" in cell:
        return list(cell["contexts"])
    return _opened(places[cell["trace"]]).passage[cell["contexts"]].tolist()


def _optimum(problem: md.Problem, name: str, cell: Cell, seed: int, clock: _Clock) -> Row:
    value = md.optimal_acceptance(problem)
    return {"value": value, "lower": value, "upper": value, "kind": "exact", "stderr": None}


def _rule(problem: md.Problem, name: str, cell: Cell, seed: int, clock: _Clock) -> Row:
    found = verifiers.get(name).acceptance(problem)
    return {
        "value": found.value,
        "lower": found.lower,
        "upper": found.upper,
        "kind": found.kind,
        "stderr": found.stderr if found.kind == "estimate" else None,
        "tested": found.tested,
    }


def _bound(problem: md.Problem, name: str, cell: Cell, seed: int, clock: _Clock) -> Row:
    bound = bounds.get(name, problem)
    lower = bound.value if bound.side == "lower" else np.zeros(problem.batch)
    upper = bound.value if bound.side == "upper" else np.ones(problem.batch)
    return {"value": bound.value, "lower": lower, "upper": upper, "kind": "bound", "stderr": None}


def _solver(problem: md.Problem, name: str, cell: Cell, seed: int, clock: _Clock) -> Row:
    """Solve context by context, each within what is left of the time."""
    found: dict[str, list[Any]] = {"value": [], "lower": [], "upper": [], "kind": []}
    for i in range(len(problem)):
        clock.check()
        solution = md.solve(problem[i], name, **_limits(name, clock.left()))
        lower, upper = float(solution.certificate.lower), float(solution.certificate.upper)
        optimal = solution.status in (md.Status.OPTIMAL, md.Status.VALUE_ONLY)
        kind = "exact" if optimal else "bound"
        values = (float(solution.acceptance), lower, upper, kind)
        for column, value in zip(found.values(), values, strict=True):
            column.append(value)
    return {column: np.array(values) for column, values in found.items()} | {"stderr": None}


def _limits(name: str, left: float | None) -> dict[str, float]:
    limit = {} if left is None else {"time_limit": left}
    return limit if hasattr(solvers.get(name), "time_limit") else {}


def _measure(problem: md.Problem, name: str, cell: Cell, seed: int, clock: _Clock) -> Row:
    """Draft and verify `draws` times for each context, and count drafts that come out."""
    draws = cell["draws"]
    hits = np.array(
        [
            _hits(problem[i], verifiers.get(name), draws, seed + context * draws, clock)
            for i, context in enumerate(cell["contexts"])
        ]
    )
    smooth = (hits + 1) / (draws + 2)  # so that no hits, or only hits, still have an error
    return {
        "value": hits / draws,
        "lower": np.zeros(problem.batch),
        "upper": np.ones(problem.batch),
        "kind": "estimate",
        "stderr": np.sqrt(smooth * (1 - smooth) / draws),
    }


def _hits(problem: md.Problem, rule: verifiers.Rule, draws: int, seed: int, clock: _Clock) -> int:
    wide = rule.draft_draws(problem.law)
    block, hits = max(1, BLOCK // max(wide, 1)), 0
    prepared = rule.prepare(problem.target, problem.law)
    for start in range(0, draws, block):
        clock.check()
        seeds = np.arange(seed + start, seed + min(start + block, draws))
        uniforms = [md.uniforms(seeds, wide), md.uniforms(seeds, prepared.draws, stream=1)]
        drafts = rule.sample_drafts(problem.target, problem.law, uniforms=uniforms[0])
        hits += int((prepared.verify(drafts, uniforms=uniforms[1]).draft >= 0).sum())
    return hits


_METHODS: dict[str, Callable[..., Row]] = {
    OPTIMUM: _optimum,
    "rule": _rule,
    "measure": _measure,
    "bound": _bound,
    "solver": _solver,
}


def merged_file(sweep: Sweep, folder: Path) -> Path:
    """Where the merged rows of a sweep lie."""
    return folder / f"{sweep.file.name}.parquet"


def merge(sweep: Sweep, folder: Path) -> results.Results:
    """Write the rows of a sweep to one Parquet file in its folder, and return them."""
    path = merged_file(sweep, folder)
    runner.merge(folder / "run", path, sweep)
    return results.read(path)
