"""Items: modules of one table or figure, found by name and run by the one runner."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import multidraft as md
from multidraft import results
from multidraft.checks import choice
from multidraft.experiments import papers, runner
from multidraft.experiments.one_thread import one_thread
from multidraft.experiments.papers.common import blocks, page
from multidraft.experiments.papers.common.setting import Setting

if TYPE_CHECKING:
    import polars

Needs = Literal["nothing", "trace", "trees"]


@dataclass(frozen=True)
class Item:
    """One table or figure.

    Attributes
    ----------
    name : str
        Of its module.
    title, text : str
        First line and rest of the module's docstring.
    needs : "nothing", a recorded "trace", or recorded "trees".
    cells : callable
        ``cells(setting)``, a list for the runner.
    compute : callable
        ``compute(cell, seed)``, with ``path=`` of the recording where one is needed.
    report : callable
        ``report(frame)``, a :class:`~multidraft.experiments.papers.common.page.Page`.
    alone : bool
        Whether it measures time, so that nothing else may run beside its cells.
    source : str
        A file below the results that another command makes and that serves as rows; or empty.
    """

    name: str
    title: str
    text: str
    needs: Needs
    cells: Callable[[Setting], list[dict[str, Any]]]
    compute: Callable[..., list[dict[str, Any]]]
    report: Callable[[polars.DataFrame], page.Page]
    alone: bool
    source: str


def names() -> tuple[str, ...]:
    """Names of all items: the modules of the package, in alphabetical order."""
    return tuple(
        module.name for module in pkgutil.iter_modules(papers.__path__) if not module.ispkg
    )


def get(name: str) -> Item:
    """Return an item by its name.

    Raises
    ------
    InputError
        There is no such item.
    """
    module = import_module(f"{papers.__name__}.{choice(name, names(), 'table or figure')}")
    title, _, text = (inspect.getdoc(module) or "").partition("\n")
    return Item(
        name,
        title.rstrip("."),
        text.strip(),
        module.NEEDS,
        module.cells,
        module.compute,
        module.report,
        getattr(module, "ALONE", False),
        getattr(module, "SOURCE", ""),
    )


def run(
    item: Item, setting: Setting, root: Path, *, jobs: int = 1, resume: bool = True
) -> page.Page:
    """Compute what an item lacks, and write its folder ``root/papers/NAME``.

    Raises
    ------
    Refused
        A cell failed, with its sentence.
    """
    folder = root / "papers" / item.name
    folder.mkdir(parents=True, exist_ok=True)
    borrowed = _borrowed(item, setting, root) if resume else None
    found = borrowed or _computed(item, setting, folder, 1 if item.alone else jobs, resume)
    rows = f"{item.name}.parquet" if borrowed is None else f"../../{item.source}"
    made = item.report(found.frame)
    page.write(made, folder, item.title, item.text, _provenance(item, found, rows))
    return made


def _borrowed(item: Item, setting: Setting, root: Path) -> results.Results | None:
    """The rows that another command made, where they are those of all cells."""
    source = root / item.source
    if not item.source or not source.is_file():
        return None
    found = results.read(source)
    wanted = {runner.key(cell) for cell in item.cells(setting)}
    return found if wanted <= set(found.frame["key"]) else None


def _computed(
    item: Item, setting: Setting, folder: Path, jobs: int, resume: bool
) -> results.Results:
    """Rows of all cells, in the file that the page is made from."""
    cells, function, configuration = item.cells(setting), item.compute, {"item": item.name}
    if item.needs == "trees":
        blocks.record(cells, str(setting.trace))
    if item.needs != "nothing":
        function = partial(function, path=str(setting.trace))
        configuration |= {"draft": setting.draft, "trace": md.traces.open(setting.trace).header}
    with one_thread() if item.alone else nullcontext():
        run = runner.whole(
            cells, function, folder / "run", configuration=configuration, jobs=jobs, resume=resume
        )
    path = folder / f"{item.name}.parquet"
    results.write(path, _compact(run.frame, set().union(*cells)), run.header)
    return results.read(path)


def _compact(frame: polars.DataFrame, given: set[str]) -> polars.DataFrame:
    """Single precision for what was computed from the `given` columns; no errors, no seeds."""
    import polars

    found = (
        name
        for name, kind in frame.schema.items()
        if kind == polars.Float64 and name not in given | {"seconds"}
    )
    narrow = [polars.col(name).cast(polars.Float32) for name in found]
    return frame.with_columns(*narrow).drop("error", "seed")


def _provenance(item: Item, found: results.Results, rows: str) -> str:
    """How the rows came about; `rows` is their file, from the item's folder."""
    header, frame = found.header, found.frame
    git, versions, machine = header["git"], header["versions"], header["machine"]
    code = "an installed package" if git is None else f"revision {git['revision'][:12]}"
    if git is not None and git["dirty"]:
        code += " with uncommitted changes"
    parts = [f"Made by `multidraft reproduce {item.name}`"]
    if item.needs != "nothing" and "trace" in header["configuration"]:
        pair = header["configuration"]
        parts.append(f"target {pair['trace']['target']['name']}, draft {pair['draft']}")
    if "context" in frame.columns:
        passages = frame["passage"].n_unique()
        parts.append(f"{frame['context'].n_unique()} contexts of {passages} passages")
    spent = frame.unique("key")["seconds"].sum()
    parts.append(f"{frame['key'].n_unique()} cells, {spent:.0f} s of one core")
    return (
        f"{'; '.join(parts)}. multidraft {versions['multidraft']} ({code}), numpy "
        f"{versions['numpy']}, torch {versions['torch']}, Python {versions['python']}, "
        f"{machine['cores']} cores, {header['written']}; configuration "
        f"{header['configuration_hash'][:12]}. Rows: [{rows.removeprefix('../../')}]({rows})."
    )
