"""``multidraft sweep``."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from multidraft import results
from multidraft.cli.output import Flag, Json, print_fields, print_json
from multidraft.errors import InputError
from multidraft.experiments import runner, sweep, sweep_file

command = App(
    name="sweep",
    help_epilogue="Example: multidraft sweep families.toml --jobs 8",
    default_parameter=Parameter(negative=()),
)

Output = Annotated[Path, Parameter(help="Folder that holds one folder for each sweep.")]
Contexts = Annotated[int | None, Parameter(help="Use only so many contexts, evenly spaced.")]


@command.default
def start(
    file: Path,
    *,
    output: Output = Path("results/sweeps"),
    contexts: Contexts = None,
    jobs: int | None = None,
    engine: Literal["loky", "dask"] = "loky",
    scheduler: str | None = None,
    memory: float | None = None,
    time_limit: float | None = None,
    retry_failed: Flag = False,
    fresh: Flag = False,
    estimate: Flag = False,
    json: Json = False,
) -> int:
    """Compute a sweep, or what an interrupted one lacks.

    The exit code is 1 when cells failed; their sentences are in the results.

    Parameters
    ----------
    file
        The sweep file, or the name of one that comes with the package.
    jobs
        Worker processes; all cores unless given.
    engine
        loky on this machine, or dask on an existing cluster.
    scheduler
        Address of the Dask scheduler, tcp://HOST:PORT.
    memory
        Gibibytes of address space for each worker; a cell that needs more fails.
    time_limit
        Seconds for each cell.
    retry_failed
        Try cells again that failed before.
    fresh
        Throw away what was computed before.
    estimate
        Time a sample (its results are kept), say what the rest costs, and stop.
    """
    found, folder = _found(file, output, contexts)
    workers = 1 if engine == "dask" else jobs or os.cpu_count() or 1
    options: dict[str, Any] = {
        "configuration": found.configuration(),
        "engine": runner.Engine(engine, workers, scheduler, memory),
    }
    function, state = found.function(time_limit), folder / "run"
    if fresh:
        runner.run([], function, state, resume=False, progress=False, **options)
    options["retry_failed"] = retry_failed
    cost = runner.estimate(found, function, state, **options)
    if estimate:
        (print_json if json else print_fields)(asdict(cost))
        return 0
    print(_in_words(cost), file=sys.stderr)
    summary = runner.run(found, function, state, **options)
    facts = {**asdict(summary), "left out": len(found.refused()), "folder": str(folder)}
    (print_json if json else print_fields)(facts)
    return 1 if summary.failed else 0


def _in_words(cost: runner.Estimate) -> str:
    minutes, seconds = divmod(round(cost.seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{cost.cells} cells, {cost.left} left: about {hours}:{minutes:02}:{seconds:02} and "
        f"{cost.bytes / 1e6:.1f} MB"
    )


@command.command(help_epilogue="Example: multidraft sweep status families.toml")
def status(
    file: Path,
    *,
    output: Output = Path("results/sweeps"),
    contexts: Contexts = None,
    json: Json = False,
) -> None:
    """Say how far a sweep is, and why combinations or cells are missing."""
    found, folder = _found(file, output, contexts)
    facts: dict[str, Any] = asdict(runner.status(found, folder / "run"))
    if facts["failed"]:
        errors = runner.collect(folder / "run", found).frame["error"].drop_nulls()
        facts["failures"] = errors.unique(maintain_order=True).to_list()
    facts["left out"] = found.refused()
    (print_json if json else print_fields)(facts)


@command.command(help_epilogue="Example: multidraft sweep merge families.toml")
def merge(
    file: Path,
    *,
    output: Output = Path("results/sweeps"),
    contexts: Contexts = None,
    json: Json = False,
) -> None:
    """Write all rows of a sweep to one Parquet file."""
    found, folder = _found(file, output, contexts)
    merged = sweep.merge(found, folder)
    facts = {"file": str(sweep.merged_file(found, folder)), "rows": len(merged.frame)}
    (print_json if json else print_fields)(facts)


@command.command(help_epilogue="Example: multidraft sweep table families.toml --format latex")
def table(
    file: Path,
    *,
    output: Output = Path("results/sweeps"),
    format: Literal["markdown", "latex", "csv"] = "markdown",
    write: Flag = False,
    json: Json = False,
) -> None:
    """Print the means of a merged sweep, as its file lays them out.

    Parameters
    ----------
    write
        Write the table in all formats beside the merged file instead.
    """
    from multidraft.experiments import sweep_page, sweep_report

    read, found, folder = _merged(file, output)
    if write:
        _print_paths(sweep_page.write_table(read, found, folder), json)
        return
    text = getattr(sweep_report.table(found.frame, read.table), format)()
    print_json({"table": text}) if json else print(text, end="")


@command.command(help_epilogue="Example: multidraft sweep plot families.toml --suffix svg")
def plot(
    file: Path,
    *,
    output: Output = Path("results/sweeps"),
    suffix: Literal["png", "svg"] = "png",
    json: Json = False,
) -> None:
    """Draw the figures of a merged sweep: those that its file describes, or sensible ones."""
    from multidraft.experiments import sweep_page

    _print_paths(sweep_page.write_figures(*_merged(file, output), suffix), json)


@command.command(help_epilogue="Example: multidraft sweep page families.toml")
def page(file: Path, *, output: Output = Path("results/sweeps"), json: Json = False) -> None:
    """Write table, figures and a README of a merged sweep, and the list of all sweeps."""
    from multidraft.experiments import sweep_page

    _print_paths([sweep_page.write(*_merged(file, output))], json)


def _print_paths(paths: list[Path], json: bool) -> None:
    names = [str(path) for path in paths]
    if json:
        print_json({"files": names})
    else:
        print(*names, sep="\n")


def _path(file: Path) -> Path:
    """The file, or the ready-made one of that name."""
    ready = sweep_file.READY / f"{file.name.removesuffix('.toml')}.toml"
    if file.is_file() or not ready.is_file() or file.parent != Path("."):
        return file
    return ready


def _found(file: Path, output: Path, contexts: int | None) -> tuple[sweep.Sweep, Path]:
    path = _path(file)
    if not path.is_file():
        names = ", ".join(sorted(ready.stem for ready in sweep_file.READY.glob("*.toml")))
        raise InputError(f"there is no sweep file {file}: write one, or use one of {names}.")
    read = sweep_file.read(path)
    return sweep.prepare(read, path.parent, contexts), output / read.name


def _merged(file: Path, output: Path) -> tuple[sweep_file.SweepFile, results.Results, Path]:
    read = sweep_file.read(_path(file))
    path = output / read.name / f"{read.name}.parquet"
    if not path.is_file():
        raise InputError(f"there is no {path}: run `multidraft sweep merge {file}` first.")
    return read, results.read(path), path.parent
