"""``multidraft bench``: every benchmark by name, its rows, and the page that shows them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from multidraft import results
from multidraft.errors import InputError
from multidraft.files import write_text


@dataclass(frozen=True)
class Options:
    """What a benchmark may be told.

    Attributes
    ----------
    quick : bool
        Fewer sizes and repeats.
    trace : path or None
        Recorded laws for the benchmarks that use them; the frozen trace unless given.
    device : str
        Where verifiers run: ``"cpu"``, or a CUDA device.
    """

    quick: bool = False
    trace: Path | None = None
    device: str = "cpu"


def run(name: str, output: Path, options: Options = Options()) -> Path:
    """Run one benchmark and write its page, rows and figures to the folder `name` in `output`.

    Parameters
    ----------
    name : str
        One of :data:`BENCHES`.
    output : path
    options : Options

    Returns
    -------
    The page, a Markdown file.

    Raises
    ------
    InputError
        For an unknown name.
    Refused
        There is no such device.
    """
    if name not in BENCHES:
        raise InputError(f"unknown benchmark {name!r}: choose one of {', '.join(BENCHES)}.")
    folder = output / name
    page = BENCHES[name](folder, options)
    if page is not None:
        write_text(folder / "README.md", page)
    return folder / "README.md"


def _full_vocabulary(folder: Path, options: Options) -> str:
    import polars

    from multidraft.experiments import bench_full_vocabulary as bench

    sizes = bench.VOCABULARIES[:2] if options.quick else bench.VOCABULARIES
    rows = bench.measure(sizes, repeats=5 if options.quick else 15)
    header = results.header({"bench": "full-vocabulary", "sizes": list(sizes)}, seeds=[0])
    results.write(folder / "full-vocabulary.parquet", polars.DataFrame(rows), header)
    return (
        "# The exact optimum at full vocabulary: time in units of one sort\n\n"
        f"{_machine('full-vocabulary', header)} Processor time of one thread, the fastest of the "
        "repeats; in brackets multiples of `torch.sort` of the same float64 ratios q/p. *optimum* "
        "is the value and its cut, *interval preparation* all that an optimal verifier needs "
        "(ratios, cut, clip levels, partition), *verification* one drafted tuple with a prepared "
        "plan.\n\n"
        f"{bench.table(rows)}"
    )


def _solvers(folder: Path, options: Options) -> str:
    from multidraft.experiments import bench_solvers as bench

    rows = bench.measure(bench.QUICK if options.quick else bench.SIZES)
    header = bench.report(rows, folder)
    return (
        "# Every exact formulation: time, memory, gap\n\n"
        f"{_machine('solvers', header)} One process and one thread for each solve; a line without "
        "numbers says why.\n\n![Time against the number of token sets](solvers.png)\n\n"
        + bench.table(rows)
    )


def _verifiers(folder: Path, options: Options) -> str:
    from multidraft.experiments import bench_verifiers as bench

    vocabularies = bench.VOCABULARIES[:1] if options.quick else bench.VOCABULARIES
    repeats = 3 if options.quick else 7
    rows = bench.measure(vocabularies=vocabularies, repeats=repeats, device=options.device)
    prepared = bench.measure_preparation(vocabularies)
    header = bench.report(rows, folder)
    return (
        "# Verification rules, in passes over the laws\n\n"
        f"{_machine('verifiers', header)} The unit is one pass `torch.relu(q - c * p).sum(-1)` "
        "over the same arrays.\n\n![Passes measured per pass needed](verifiers.png)\n\n"
        + bench.table(rows)
        + bench.preparation_table(prepared)
    )


def _global_resolution(folder: Path, options: Options) -> None:
    from multidraft import traces
    from multidraft.experiments import global_resolution_table as bench

    contexts = 8 if options.quick else 32
    found = bench.run(options.trace or traces.FROZEN, "skip-8", folder, contexts=contexts)
    bench.report(found, folder)


def _open_laws(folder: Path, options: Options) -> str:
    from multidraft import traces
    from multidraft.experiments import open_laws as bench

    cases, contexts = (bench.CASES[:6], 2) if options.quick else (bench.CASES, 8)
    found = bench.run(options.trace or traces.FROZEN, folder, contexts=contexts, cases=cases)
    machine = _machine("open-laws", found.header)
    return bench.PAGE.format(machine=machine, table=bench.table(found.frame))


def _sweep(folder: Path, options: Options) -> str:
    import polars

    from multidraft.experiments import bench_sweep as bench

    source = "frozen" if options.quick else "default"
    row = bench.measure(960 if options.quick else bench.CELLS, trace=str(options.trace or source))
    header = results.header({"bench": "sweep", "trace": str(options.trace or source)}, seeds=[])
    results.write(folder / "sweep.parquet", polars.DataFrame([row]), header)
    return (
        "# What a sweep costs beside its cells\n\n"
        f"{_machine('sweep', header)} Cells: the optimum of iid drafts at full vocabulary, one "
        "recorded context each. *Overhead* compares the workers' wall time with plain loops over "
        "such cells in as many processes at once (they slow each other down, with or without a "
        "sweep), *handling* with the time that the workers spent inside cells; memory is that of "
        "all processes, in the second and in the last quarter of the run.\n\n"
        f"{bench.page(row)}"
    )


#: Name -> what writes the rows and returns the text of the page (None: it wrote the page itself).
BENCHES: dict[str, Callable[[Path, Options], str | None]] = {
    "full-vocabulary": _full_vocabulary,
    "solvers": _solvers,
    "verifiers": _verifiers,
    "global-resolution": _global_resolution,
    "open-laws": _open_laws,
    "sweep": _sweep,
}


def _machine(name: str, header: dict) -> str:
    versions = header["versions"]
    return (
        f"Written by `multidraft bench {name}` on a machine with {os.cpu_count()} cores, "
        f"numpy {versions['numpy']}, torch {versions['torch']}, {header['written']}."
    )
