"""The last sections of the page of all results: the papers' claims, and links to other pages."""

from __future__ import annotations

from pathlib import Path

from multidraft.experiments.papers.common.page import HEADING, claims
from multidraft.files import write_text

LINKS = "## Further results"


def rest(root: Path) -> str:
    """Both sections, for the results in this folder."""
    return claims(root) + _links(root)


def renew(root: Path) -> None:
    """Write both sections anew at the end of ``root/README.md``, where there is such a page."""
    page = root / "README.md"
    if not page.is_file():
        return
    text = page.read_text(encoding="utf-8")
    for heading in (HEADING, LINKS):
        text = text.partition(f"\n{heading}\n")[0]
    write_text(page, text + rest(root))


def _links(root: Path) -> str:
    """Links to the pages that other commands wrote beside this one, under their own titles."""
    pages = sorted(root.glob("*/README.md"))
    if not pages:
        return ""
    titles = [page.read_text(encoding="utf-8").splitlines()[0].lstrip("# ") for page in pages]
    links = [
        f"- [{title}]({page.relative_to(root).as_posix()})"
        for title, page in zip(titles, pages, strict=True)
    ]
    return "\n".join(["", LINKS, "", *links, ""])
