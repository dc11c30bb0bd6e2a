"""The page: plain HTML with inline style and script, no network, all text escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from importlib import resources
from typing import Any

from multidraft.report import sections
from multidraft.report.html import paragraph

# Nothing may be fetched, whatever a token says.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
# Name of a section -> its heading, and its function in `sections`.
_SECTIONS = {
    "advice": "What to do",
    "pair": "The pair",
    "optimum": "The optimum, by draft law and number of drafts",
    "rules": "Every rule, and the share of the possible gain it gets",
    "default": "Today's default against sampled drafts",
    "trees": "Wider or deeper",
    "positions": "Acceptance by position, by both definitions",
    "losses": "Where tokens are lost",
    "width": "How wide the intervals are",
    "explorer": "Look into contexts",
    "method": "How this was computed",
}


def page(content: Mapping[str, Any]) -> str:
    """Write the whole page as one HTML text.

    Numbers stand in elements with a ``data-key`` that says which number of the content they are.
    """
    shown = {
        name: words for name, words in _SECTIONS.items() if content.get(name, True) is not None
    }
    title = f"{content['pair']['target']} with drafts from {content['pair']['draft']}"
    links = "".join(f'<li><a href="#{name}">{name}</a></li>' for name in shown)
    bodies = "".join(
        f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(words)}</h2>'
        f"{getattr(sections, name)(content)}</section>"
        for name, words in shown.items()
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}: multi-draft report</title><style>{_asset('page.css')}</style>"
        f"</head><body{'' if content['exact'] else ' class=intervals'}>"
        '<a class="skip" href="#advice">Skip to the advice</a>'
        f"<header><h1>{escape(title)}</h1>{_subtitle(content)}"
        f'<nav aria-label="Sections"><ul>{links}</ul></nav></header><main>{bodies}</main>'
        f'<script type="application/json" id="data">{_embedded(content)}</script>'
        f"<script>{_asset('page.js')}</script></body></html>\n"
    )


def _asset(name: str) -> str:
    return (resources.files("multidraft.report") / name).read_text(encoding="utf-8")


def _embedded(content: Mapping[str, Any]) -> str:
    """What the script reads, as JSON that cannot end the script element."""
    text = json.dumps({"explorer": content["explorer"]}, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _subtitle(content: Mapping[str, Any]) -> str:
    pair = content["pair"]
    kind = "exact laws" if content["exact"] else "intervals over all that the logs leave out"
    size = f"{pair['contexts']} contexts of {pair['texts']} texts"
    return paragraph(f"{size}, {sections.sampling(content)}; {kind}.", "soft")
