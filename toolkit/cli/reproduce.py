"""``multidraft reproduce``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cyclopts import Parameter

from multidraft import traces
from multidraft.cli.output import Flag, Json, print_fields, print_json, print_table
from multidraft.cli.record import default_trace
from multidraft.errors import InputError
from multidraft.experiments import first_light
from multidraft.experiments.first_light_report import report
from multidraft.experiments.papers.common import item, page
from multidraft.experiments.papers.common.setting import Setting
from multidraft.experiments.results_page import renew


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """On what, and how much of it."""

    target: str = "smollm2"
    """Whose trace to take: what `multidraft record` wrote last for it."""

    trace: Path | None = None
    """The recorded trace, instead of the target's."""

    draft: str = "skip-8"
    """Name of a draft in the trace."""

    texts: str = ""
    """Only contexts of these texts, ids separated by commas (tables and figures only)."""

    contexts: int | None = None
    """Most contexts per table or figure; each states its own number unless given."""

    quick: Flag = False
    """Use the small trace that ships with the package, and the folder quick in `output`."""


DEFAULTS = Options()


def command(
    *names: str,
    options: Options = DEFAULTS,
    output: Path = Path("results"),
    jobs: int | None = None,
    fresh: Flag = False,
    json: Json = False,
) -> int:
    """Compute results on a recorded trace: the main job, or tables and figures of papers by name.

    Without a name: the optimum and every rule, README.md and first-light/. With names from
    `multidraft reproduce list`, or all: papers/NAME/ and the verdicts on the papers' claims.
    An interrupted run goes on where it was. The exit code of the main job is 1 when a rule's exact
    value exceeds the optimum of its law.

    Parameters
    ----------
    names
        Tables and figures; `list` shows them, `all` takes them all (with --quick, all but those on
        recorded trees).
    output
        Folder for the results.
    jobs
        Worker processes; all cores unless given.
    fresh
        Compute everything again.
    """
    if names == ("list",):
        return _list(json)
    root = output / "quick" if options.quick else output
    run: dict[str, Any] = {"jobs": jobs or os.cpu_count() or 1, "resume": not fresh}
    if names:
        return _papers(names, options, root, json, run)
    if options.texts or options.contexts:
        raise InputError("--texts and --contexts are for tables and figures: give a name, or all.")
    return _main_job(options, root, json, run)


def _main_job(options: Options, root: Path, json: bool, run: dict[str, Any]) -> int:
    readme = root / "README.md"
    found = first_light.run(_trace(options), options.draft, root / "first-light", **run)
    report(found, root / "first-light", readme)
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


def _list(json: bool) -> int:
    items = [item.get(name) for name in item.names()]
    if json:
        print_json([{"name": i.name, "title": i.title, "needs": i.needs} for i in items])
    else:
        print_table(("name", "needs", "what"), [(i.name, i.needs, i.title) for i in items])
    return 0


def _papers(
    names: tuple[str, ...], options: Options, root: Path, json: bool, run: dict[str, Any]
) -> int:
    chosen = [item.get(name) for name in (item.names() if names == ("all",) else names)]
    if names == ("all",) and options.quick:  # recording trees takes the model, and minutes
        chosen = [one for one in chosen if one.needs != "trees"]
    texts = tuple(text for text in options.texts.split(",") if text)
    needed = any(one.needs != "nothing" for one in chosen)
    setting = Setting(
        _trace(options, needed), options.draft, options.contexts, texts, options.quick
    )
    setting.count()  # refuses unknown texts, also where no item would look at them
    facts: dict[str, Any] = {}
    for one in chosen:
        made = item.run(one, setting, root, **run)
        page.overview(root / "papers")
        facts[one.name] = {verdict.claim: verdict.words for verdict in made.verdicts}
        if not json:
            print_fields({one.name: root / "papers" / one.name, **facts[one.name]})
    renew(root)
    if json:
        print_json(facts)
    return 0


def _trace(options: Options, needed: bool = True) -> Path:
    """The trace to read; the shipped one where none was recorded and none is needed."""
    if options.quick:
        if options.trace is not None:
            raise InputError("--quick has its own trace: leave out --trace, or --quick.")
        return traces.FROZEN
    place = default_trace(options.target) if options.trace is None else options.trace
    if not place.is_file() and options.trace is None and not needed:
        return traces.FROZEN
    if not place.is_file():
        raise InputError(
            f"there is no trace {place}: run `multidraft models fetch {options.target}` and "
            "`multidraft record`, or use --quick."
        )
    return place
