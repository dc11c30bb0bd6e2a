"""What an item hands back, its page, and the overview of all verdicts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from multidraft import plots, results
from multidraft.experiments.papers.common.verdict import Outcome, Verdict
from multidraft.files import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADING = "## The papers' claims"
VERDICTS = "verdicts.json"


@dataclass(frozen=True)
class Page:
    """Tables, figures and verdicts of an item, made from its rows alone.

    Attributes
    ----------
    tables : dict
        File name without suffix -> table and its caption.
    figures : dict
        File name without suffix -> figure and its caption.
    verdicts : sequence of Verdict
        The most important claim first.
    published : str
        Published numbers beside ours, in Markdown.
    notes : str
        What a reader must know besides, in Markdown.
    """

    tables: dict[str, tuple[results.Table, str]]
    figures: dict[str, tuple[Figure, str]]
    verdicts: Sequence[Verdict]
    published: str = ""
    notes: str = ""


def write(page: Page, folder: Path, title: str, text: str, provenance: str) -> None:
    """Write everything that an item shows into its folder."""
    for name, (table, _) in page.tables.items():
        write_text(folder / f"{name}.md", table.markdown())
        write_text(folder / f"{name}.tex", table.latex())
    for name, (figure, _) in page.figures.items():
        plots.save(figure, folder / f"{name}.png")
    kept = {"title": title, "verdicts": [asdict(verdict) for verdict in page.verdicts]}
    write_text(folder / VERDICTS, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    write_text(folder / "README.md", _text(page, title, text, provenance))


def _text(page: Page, title: str, text: str, provenance: str) -> str:
    parts = [f"# {title}", text, "## Verdicts", _verdict_table(page.verdicts)]
    for name, (_, caption) in page.figures.items():
        parts.append(f"![{caption}]({name}.png)\n\n*{caption}*")
    for name, (table, caption) in page.tables.items():
        parts.append(f"## {caption}\n\n{table.markdown()}\n[LaTeX]({name}.tex)")
    if page.notes:
        parts.append(page.notes)
    if page.published:
        parts.append(f"## Published, beside ours\n\n{page.published}")
    return "\n\n".join([*parts, f"## Provenance\n\n{provenance}", ""])


def _verdict_table(verdicts: Sequence[Verdict]) -> str:
    lines = [["claim", "verdict", "measured", "detectable"], ["---"] * 4]
    lines += [[v.claim, f"**{v.words}**", v.size, v.detectable or "–"] for v in verdicts]
    return _markdown(lines)


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _found(root: Path) -> list[tuple[Path, str, list[Verdict]]]:
    """Folder, title and verdicts of every item that has results."""
    found = []
    for path in sorted(root.glob(f"*/{VERDICTS}")):
        kept = json.loads(path.read_text(encoding="utf-8"))
        verdicts = [Verdict(**{**v, "outcome": Outcome(v["outcome"])}) for v in kept["verdicts"]]
        found.append((path.parent, kept["title"], verdicts))
    return found


def overview(root: Path) -> None:
    """Write ``root/README.md``: every verdict of every item."""
    parts = [
        "# The papers' tables and figures, rerun: every verdict",
        "Written by `multidraft reproduce`; one folder per item. " + _RULE,
    ]
    for folder, title, verdicts in _found(root):
        parts.append(f"## [{title}]({folder.name}/README.md)\n\n{_verdict_table(verdicts)}")
    write_text(root / "README.md", "\n\n".join([*parts, ""]))


_RULE = (
    "A claim gives a range for a number, and the number has a 95% interval from differences that "
    "are paired by context and clustered by passage: *confirmed* inside the range, *contradicted* "
    "outside, else *not resolved*. *Detectable* is the smallest difference that the run could have "
    "seen, 2.8 standard errors. A number that a paper measured on its own models is at most of the "
    "*same direction* on ours."
)


def claims(results_folder: Path) -> str:
    """Section for the page of all results: one line per item, its first claim in words."""
    found = _found(results_folder / "papers")
    if not found:
        return ""
    lines = [["item", "first claim", "verdict", "measured", "all claims"], ["---"] * 5]
    for folder, title, verdicts in found:
        first = verdicts[0]
        link = f"[{title}](papers/{folder.name}/README.md)"
        lines.append(
            [link, first.claim, f"**{first.words}**", first.brief or first.size, _tally(verdicts)]
        )
    intro = f"Written by `multidraft reproduce all`; [every claim](papers/README.md). {_RULE}"
    return "\n".join(["", HEADING, "", intro, "", _markdown(lines), ""])


def _tally(verdicts: Sequence[Verdict]) -> str:
    counts = {outcome: sum(v.outcome is outcome for v in verdicts) for outcome in Outcome}
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
