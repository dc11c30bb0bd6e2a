"""The pages of sweeps: one for each sweep, and one that lists them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from multidraft import plots, results
from multidraft.experiments import sweep_report
from multidraft.files import write_text

if TYPE_CHECKING:
    from multidraft.experiments.sweep_file import SweepFile

#: Format of a table -> suffix of its file.
FORMATS = {"markdown": "md", "latex": "tex", "csv": "csv"}
LONG = 60  # rows of a table that a page still shows; a longer one is linked


def write_table(file: SweepFile, found: results.Results, folder: Path) -> list[Path]:
    """Write the table of a sweep's means in all formats."""
    made = sweep_report.table(found.frame, file.table)
    paths = [folder / f"{file.name}.{suffix}" for suffix in FORMATS.values()]
    for name, path in zip(FORMATS, paths, strict=True):
        write_text(path, getattr(made, name)())
    return paths


def write_figures(
    file: SweepFile, found: results.Results, folder: Path, suffix: str = "png"
) -> list[Path]:
    """Draw the figures that the file describes, or sensible ones."""
    specs = file.plot or sweep_report.defaults(found.frame)
    paths = [folder / f"{spec.name}.{suffix}" for spec in specs]
    for spec, path in zip(specs, paths, strict=True):
        plots.save(sweep_report.figure(found.frame, spec), path)
    return paths


def write(file: SweepFile, found: results.Results, folder: Path) -> Path:
    """Write table, figures and the page that shows them to `folder`; list it in the folder above.

    Returns
    -------
    The page, ``folder/README.md``.
    """
    table, *_ = write_table(file, found, folder)
    figures = write_figures(file, found, folder)
    text = _PAGE.format(
        title=_title(file),
        name=file.name,
        machine=_machine(found),
        rows=f"{len(found.frame):,}",
        contexts=found.frame["context"].n_unique(),
        figures="\n\n".join(f"![{path.stem}]({path.name})" for path in figures),
        table=_shown(table),
    )
    write_text(folder / "README.md", text)
    write_text(folder.parent / "README.md", _list(folder.parent))
    return folder / "README.md"


def _title(file: SweepFile) -> str:
    return (file.description or file.name).rstrip(".")


def _shown(table: Path) -> str:
    """The table, when it is short enough to be read on the page."""
    text = table.read_text(encoding="utf-8")
    if text.count("\n") > LONG:
        return f"The table has {text.count(chr(10)) - 2} lines: [{table.name}]({table.name})."
    return text


def _machine(found: results.Results) -> str:
    header = found.header
    dirty = ", changed" if header["git"]["dirty"] else ""
    revision = (header["git"]["revision"] or "unknown")[:12]
    return f"{header['machine']['cores']} cores, revision {revision}{dirty}, {header['written']}"


def _list(folder: Path) -> str:
    pages = sorted(folder.glob("*/README.md"))
    links = [
        f"- [{page.parent.name}]({page.parent.name}/README.md): "
        f"{page.read_text(encoding='utf-8').splitlines()[0].lstrip('# ')}"
        for page in pages
    ]
    return _LIST + "\n".join(links) + "\n"


_PAGE = """\
# {title}

Made by `multidraft sweep {name}`, then `multidraft sweep page {name}`; {machine}. {rows} rows over
{contexts} contexts. Means over contexts; ± is their standard error, clustered by passage.

{figures}

{table}
"""
_LIST = """\
# Sweeps

Ready-made sweeps; `multidraft sweep NAME` computes one and `multidraft sweep page NAME` writes its
page. How to write another: [docs/sweeps.md](../../docs/sweeps.md).

"""
