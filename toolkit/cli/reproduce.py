"""``multidraft reproduce``."""

from __future__ import annotations

import os
from pathlib import Path

from multidraft import traces
from multidraft.cli.output import Flag, Json, print_fields, print_json
from multidraft.cli.record import default_trace
from multidraft.errors import InputError
from multidraft.experiments import first_light
from multidraft.experiments.first_light_report import report


def command(
    *,
    trace: Path | None = None,
    draft: str = "skip-8",
    output: Path = Path("results"),
    jobs: int | None = None,
    quick: Flag = False,
    fresh: Flag = False,
    json: Json = False,
) -> int:
    """Compute the optimum and every rule on a recorded trace: tables and figures.

    An interrupted run goes on where it was. The exit code is 1 when a rule's exact value exceeds
    the optimum of its law.

    Parameters
    ----------
    trace
        The recorded trace; what `multidraft record` wrote last for smollm2, unless given.
    draft
        Name of a draft in the trace.
    output
        Folder for README.md and first-light/.
    jobs
        Worker processes; all cores unless given.
    quick
        Use the small trace that ships with the package, and the folder quick in `output`.
    fresh
        Compute everything again.
    """
    root = output / "quick" if quick else output
    folder, readme = root / "first-light", root / "README.md"
    found = first_light.run(
        _trace(trace, quick), draft, folder, jobs=jobs or os.cpu_count() or 1, resume=not fresh
    )
    report(found, folder, readme)
    over = first_light.excess(found.frame)
    facts = {
        "report": str(readme),
        "values": len(found.frame),
        "comparisons": over.comparisons,
        "largest excess": over.largest,
        "violations": over.violations,
    }
    (print_json if json else print_fields)(facts)
    return 1 if over.violations else 0


def _trace(chosen: Path | None, quick: bool) -> Path:
    if quick:
        if chosen is not None:
            raise InputError("--quick has its own trace: leave out --trace, or --quick.")
        return traces.FROZEN
    place = default_trace("smollm2") if chosen is None else chosen
    if not place.is_file():
        raise InputError(
            f"there is no trace {place}: run `multidraft models fetch smollm2` and "
            "`multidraft record`, or use --quick."
        )
    return place
