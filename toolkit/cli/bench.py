"""``multidraft bench``."""

from __future__ import annotations

from pathlib import Path

from multidraft.cli.output import Flag, Json, print_fields, print_json
from multidraft.experiments import benchmarks


def command(
    name: str,
    *,
    output: Path = Path("results"),
    trace: Path | None = None,
    device: str = "cpu",
    quick: Flag = False,
    json: Json = False,
) -> None:
    """Measure speed against what a user would pick instead; rows, figures and a page.

    Names: full-vocabulary (the exact optimum in units of a sort), solvers (every formulation on
    small vocabularies), verifiers (every rule in passes over the laws), global-resolution (the
    published solver beside the exact ones, on recorded laws), open-laws (the exact optimum for
    different drafters and without replacement), sweep (10,000 short cells against a plain loop over
    them).

    Parameters
    ----------
    name
        Which benchmark.
    output
        Folder that gets a folder of this name.
    trace
        Recorded laws for global-resolution and open-laws (default: the trace that ships with the
        package) and for sweep (default: the trace in the cache).
    device
        Where verifiers run: cpu, or a CUDA device such as cuda.
    quick
        Fewer sizes and repeats.
    """
    options = benchmarks.Options(quick, trace, device)
    page = benchmarks.run(name, output, options)
    (print_json if json else print_fields)({"page": str(page)})
