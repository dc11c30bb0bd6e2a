"""``multidraft bench``: every benchmark by name, its rows, and the page that shows them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from multidraft import results
from multidraft.errors import InputError
from multidraft.files import write_text


def run(name: str, output: Path, *, quick: bool = False, trace: Path | None = None) -> Path:
    """Run one benchmark and write its page, rows and figures to the folder `name` in `output`.

    Parameters
    ----------
    name : str
        One of :data:`BENCHES`.
    output : path
    quick : bool
        Fewer sizes and repeats.
    trace : path, optional
        Recorded laws for the benchmarks that use them; the frozen trace unless given.

    Returns
    -------
    The page, a Markdown file.

    Raises
    ------
    InputError
        For an unknown name.
    """
    if name not in BENCHES:
        raise InputError(f"unknown benchmark {name!r}: choose one of {', '.join(BENCHES)}.")
    folder = output / name
    page = BENCHES[name](folder, quick, trace)
    if page is not None:
        write_text(folder / "README.md", page)
    return folder / "README.md"


def _full_vocabulary(folder: Path, quick: bool, trace: Path | None) -> str:
    import polars

    from multidraft.experiments import bench_full_vocabulary as bench

    sizes = bench.VOCABULARIES[:2] if quick else bench.VOCABULARIES
    rows = bench.measure(sizes, repeats=5 if quick else 15)
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


def _solvers(folder: Path, quick: bool, trace: Path | None) -> str:
    from multidraft.experiments import bench_solvers as bench

    rows = bench.measure(bench.QUICK if quick else bench.SIZES)
    bench.report(rows, folder)
    header = results.read(folder / "solvers.parquet").header
    text = (folder / "solvers.md").read_text(encoding="utf-8")
    (folder / "solvers.md").unlink()
    return (
        "# Every exact formulation: time, memory, gap\n\n"
        f"{_machine('solvers', header)} One process and one thread for each solve; a line without "
        "numbers says why.\n\n![Time against the number of token sets](solvers.png)\n\n" + text
    )


def _verifiers(folder: Path, quick: bool, trace: Path | None) -> str:
    from multidraft.experiments import bench_verifiers as bench

    vocabularies = bench.VOCABULARIES[:1] if quick else bench.VOCABULARIES
    rows = bench.measure(vocabularies=vocabularies, repeats=3 if quick else 7)
    bench.report(rows, folder, preparation=bench.measure_preparation(vocabularies))
    header = results.read(folder / "verifiers.parquet").header
    text = (folder / "verifiers.md").read_text(encoding="utf-8")
    (folder / "verifiers.md").unlink()
    return (
        "# Verification rules, in passes over the laws\n\n"
        f"{_machine('verifiers', header)} The unit is one pass `torch.relu(q - c * p).sum(-1)` "
        "over the same arrays.\n\n![Passes measured per pass needed](verifiers.png)\n\n" + text
    )


def _global_resolution(folder: Path, quick: bool, trace: Path | None) -> None:
    from multidraft import traces
    from multidraft.experiments import global_resolution_table as bench

    found = bench.run(trace or traces.FROZEN, "skip-8", folder, contexts=8 if quick else 32)
    bench.report(found, folder)


def _open_laws(folder: Path, quick: bool, trace: Path | None) -> str:
    from multidraft import traces
    from multidraft.experiments import open_laws as bench

    cases = bench.CASES[:6] if quick else bench.CASES
    found = bench.run(trace or traces.FROZEN, folder, contexts=2 if quick else 8, cases=cases)
    machine = _machine("open-laws", found.header)
    return bench.PAGE.format(machine=machine, table=bench.table(found.frame))


def _sweep(folder: Path, quick: bool, trace: Path | None) -> str:
    import polars

    from multidraft.experiments import bench_sweep as bench

    source = "frozen" if quick else "default"
    row = bench.measure(960 if quick else bench.CELLS, trace=str(trace or source))
    header = results.header({"bench": "sweep", "trace": str(trace or source)}, seeds=[])
    results.write(folder / "sweep.parquet", polars.DataFrame([row]), header)
    return (
        "# What a sweep costs beside its cells\n\n"
        f"{_machine('sweep', header)} Cells: the optimum of iid drafts at full vocabulary, one "
        "recorded context each. *Overhead* compares the workers' wall time with a plain loop over "
        "the same cells, *handling* with the time that the workers spent inside cells; memory is "
        "that of all processes, in the second and in the last quarter of the run.\n\n"
        f"{bench.page(row)}"
    )


#: Name -> what writes the rows and returns the text of the page (None: it wrote the page itself).
BENCHES: dict[str, Callable[[Path, bool, Path | None], str | None]] = {
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
