"""The sections of the page, each from the numbers of `measure`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any

from multidraft import __version__
from multidraft.report import charts, depth
from multidraft.report.html import Cell, facts, paragraph, side_by_side, table
from multidraft.report.words import LAWS, percent, system, value

Content = Mapping[str, Any]
_N = 4  # the number of drafts of the comparison with the default


def sampling(content: Content) -> str:
    """How target and draft are sampled, in words."""
    given = content["settings"]["sampling"]
    names = {
        "temperature": "temperature",
        "draft_temperature": "draft temperature",
        "top_k": "top-k",
        "top_p": "top-p",
    }
    return ", ".join(
        f"{words} {given[name]:g}" for name, words in names.items() if given[name] is not None
    )


def _by(rows: Iterable[Mapping[str, Any]], *names: str) -> dict[Any, Mapping[str, Any]]:
    return {tuple(row[name] for name in names): row for row in rows}


def advice(content: Content) -> str:
    """What to do, in words."""
    parts = "".join(
        f"<p><strong>{escape(item['title'])}.</strong> {escape(item['text'])}</p>"
        for item in content["advice"]
    )
    return f'<div class="advice">{parts}</div>'


def pair(content: Content) -> str:
    """What the pair is and how alike its laws are."""
    known, summary = content["pair"], content["summary"]
    held = {"target": known["target"], "draft": known["draft"], "recorded": known["holds"]}
    if known["vocabulary"]:
        held["vocabulary"] = f"{known['vocabulary']:,} tokens"
    names = {
        "overlap of the laws": ("overlap", 3),
        "entropy of the target, bits": ("entropy target", 2),
        "entropy of the draft, bits": ("entropy draft", 2),
        "top probability, target": ("top target", 3),
        "top probability, draft": ("top draft", 3),
    }
    cells = {
        words: Cell.of(summary[name], f"summary/{name}", digits)
        for words, (name, digits) in names.items()
    }
    spread = content["quantiles"]
    middles = "" if content["exact"] else " (middles of intervals)"
    words = (
        "Overlap is the acceptance of one sampled draft token. It is below "
        f"{spread[5]:.2f} in a quarter of the contexts and above {spread[15]:.2f} in another "
        f"quarter{middles}."
    )
    return facts({**held, **cells}) + paragraph(words) + _log_notes(known)


def _log_notes(known: Mapping[str, Any]) -> str:
    """What an import dropped or could not tell apart."""
    notes = [f"{count} dropped: {reason}." for reason, count in known.get("dropped", {}).items()]
    if known.get("rounded"):
        notes.append(
            f"{known['rounded']} rows summed to slightly more than 1 and were divided by their sum."
        )
    if known.get("ambiguous"):
        notes.append(
            f"{known['ambiguous']} rows list tokens whose text many tokens share (parts of "
            "characters); they count as unlisted. Token ids in the logs would narrow the intervals."
        )
    if known["short"]:
        notes.append(f"{known['short']} contexts list too few tokens for this top-k: left out.")
    return paragraph(" ".join(notes), "note") if notes else ""


def optimum(content: Content) -> str:
    """The optimum by draft law and number of drafts."""
    rows = _by(content["optimum"], "law", "n")
    counts = sorted({n for _, n in rows})
    laws = list(dict.fromkeys(law for law, _ in rows))
    cells = [
        (LAWS[law], [Cell.of(rows.get((law, n)), f"optimum/{law}/{n}") for n in counts])
        for law in laws
    ]
    drawn = [law for law in laws if all((law, n) in rows for n in counts)]
    series = [(LAWS[law], [rows[law, n] for n in counts]) for law in drawn]
    title = "Optimum by number of drafts" + ("" if content["exact"] else ", both ends")
    return (
        table(
            "Largest possible acceptance: no rule for these drafts accepts more",
            ["draft law", *(f"n = {n}" for n in counts)],
            cells,
        )
        + charts.lines(series, [str(n) for n in counts], "number of drafts n", title)
        + paragraph(_LAWS_IN_WORDS, "soft")
    )


_LAWS_IN_WORDS = (
    "iid: n independent draws from the draft. Without replacement: n distinct tokens, each drawn "
    "from what is left. Greedy: the n − 1 most probable tokens and one draw from the rest. Hub: "
    "two drafts, one of them always the most probable token. Most probable: the n most probable "
    "tokens, no randomness."
)


def rules(content: Content) -> str:
    """Every rule's acceptance, and its share of the possible gain."""
    rows = _by(content["rules"], "law", "rule", "n")
    counts = sorted({n for _, _, n in rows})
    pairs = list(dict.fromkeys((law, rule) for law, rule, _ in rows))

    def cells(make: Callable[..., Cell], numbers: list[int]) -> list[tuple[str, list[Cell | str]]]:
        return [
            (
                f"{LAWS[law]}, {rule}",
                [make(rows.get((law, rule, n)), law, n, rule) for n in numbers],
            )
            for law, rule in pairs
        ]

    parts = [
        table(
            "Acceptance: probability that the output token is one of the drafts",
            ["draft law, rule", *(f"n = {n}" for n in counts)],
            cells(lambda row, *key: Cell.of(row, f"rules/{'/'.join(map(str, key))}"), counts),
        )
    ]
    if content["exact"]:
        more = [n for n in counts if n > 1]
        parts.append(
            table(
                "Share of the possible gain: (rule − one draft) / (optimum − one draft)",
                ["draft law, rule", *(f"n = {n}" for n in more)],
                cells(_share, more),
            )
        )
    return "".join(parts) + paragraph(_rule_notes(content), "soft")


def _share(row: Mapping[str, Any] | None, law: str, n: int, rule: str) -> Cell:
    if row is None:
        return Cell("–")
    return Cell(percent(row["share"]), key=f"share/{law}/{n}/{rule}")


def _rule_notes(content: Content) -> str:
    notes = ["The interval partition of this toolkit attains the optimum of iid drafts exactly."]
    if content["exact"]:
        notes.append("A share below zero: the rule accepts less than one sampled draft does.")
    kinds = {(row["kind"], row["rule"]) for row in content["rules"]}
    if estimated := sorted({rule for kind, rule in kinds if kind == "estimate"}):
        notes.append(f"{', '.join(estimated)}: averages over sampled paths for n of 3 and more.")
    if bounded := sorted({rule for kind, rule in kinds if kind == "bound"}):
        notes.append(f"{', '.join(bounded)}: bounds; no exact formula is known.")
    if content["unbounded"]:
        notes.append(
            f"{', '.join(content['unbounded'])}: partial logs say nothing better than zero to the "
            "optimum; not shown."
        )
    return " ".join(notes)


def default(content: Content) -> str:
    """Today's default of serving engines against sampled drafts with each rule."""
    best = _by(content["optimum"], "law", "n")
    shown = [row for row in content["rules"] if row["n"] == (2 if row["law"] == "hub" else _N)]
    shown.sort(key=lambda row: row["low"] + row["high"], reverse=True)
    rows = [
        (
            _brief(system(row["law"], row["rule"], row["n"])),
            row,
            best[row["law"], row["n"]],
            value(row),
        )
        for row in shown
    ]
    words = (
        "Serving engines draft the n most probable tokens and accept when the target's own draw is "
        "among them: “most probable, match”. Here it is next to sampled drafts with each rule."
    )
    title = f"{_N} drafts (hub: 2), by law and rule"
    return paragraph(words) + charts.bars(rows, title, "the mark is the optimum of the same drafts")


def _brief(name: str) -> str:
    return name.replace("drafts ", "").replace(" drafts", "").replace(" tokens", "")


def trees(content: Content) -> str:
    """Wider or deeper."""
    rows = _by(content["trees"], "tree", "law", "rule")
    if not rows:
        return paragraph("The logs list too few tokens for any of the standard trees.", "note")
    systems = list(dict.fromkeys((law, rule) for _, law, rule in rows))
    names = list(dict.fromkeys(tree for tree, _, _ in rows))
    headings = ["tree", "tokens", "depth", *(_brief(system(*pair)) for pair in systems)]

    def body(cell: Callable[[Mapping[str, Any], str], Cell]) -> list[tuple[str, list[Cell | str]]]:
        return [(name, _tree_cells(rows, name, systems, cell)) for name in names]

    return (
        paragraph(_TREES_IN_WORDS)
        + table(
            "Tokens per target call, if acceptance did not change with depth",
            headings,
            body(lambda row, key: Cell.of(row["efficiency"], f"efficiency/{key}", 2)),
        )
        + _COST.format(cost=f"{content['settings']['draft_cost']:g}")
        + table("Speed-up, if acceptance did not change with depth", headings, body(_speedup))
        + _bias()
    )


_TREES_IN_WORDS = (
    "Tokens per target call (block efficiency) counts the bonus token. It is estimated from single "
    "steps, so it holds if acceptance did not change with depth. Among trees of as many tokens, "
    "wider ones accept more per step and deeper ones go on longer: compare the rows of 4, of 8 and "
    "of 16 tokens. Speed-up is over decoding without drafts, if a target call takes as long for a "
    "tree as for one token and each level of the tree takes one call of the draft."
)
_COST = (
    '<div class="controls"><div><label for="cost">time of a draft call, in target calls</label>'
    '<input id="cost" type="number" min="0" max="10" step="0.05" value="{cost}"></div></div>'
)


def _tree_cells(
    rows: Mapping[Any, Mapping[str, Any]],
    name: str,
    systems: list[tuple[str, str]],
    cell: Callable[[Mapping[str, Any], str], Cell],
) -> list[Cell | str]:
    mine = {pair: rows[name, *pair] for pair in systems if (name, *pair) in rows}
    sizes = {(str(row["tokens"]), str(row["depth"])) for row in mine.values()}
    # A tree that is fitted to the pair has another depth for each system.
    tokens, depths = next(iter(sizes))[0], sorted(int(depth) for _, depth in sizes)
    span = str(depths[0]) if len(depths) == 1 else f"{depths[0]} to {depths[-1]}"
    cells = (
        cell(mine[pair], f"{name}/{pair[0]}/{pair[1]}") if pair in mine else Cell("–")
        for pair in systems
    )
    return [tokens, span, *cells]


def _speedup(row: Mapping[str, Any], key: str) -> Cell:
    ends = row["efficiency"]
    marks = ("depth", row["depth"]), ("low", ends["low"]), ("high", ends["high"])
    attributes = tuple((f"data-{name}", repr(value)) for name, value in marks)
    return Cell(value(row["speedup"], 2), key=f"speedup/{key}", marks=attributes)


def _bias() -> str:
    """How far the estimate was off where whole trees were drafted."""
    found = depth.measured()
    rows = [
        (
            f"{row['tree']}: {_brief(system(row['law'], row['rule']))}",
            [
                f"{row['estimated']:.2f}",
                Cell(f"{row['measured']:.2f}", f"{row['error']:.2f}"),
                f"{100 * (row['measured'] / row['estimated'] - 1):+.0f} %",
            ],
        )
        for row in found["rows"]
    ]
    title = f"How far the estimate was off for {found['pair']}, whose trees were drafted in full"
    return table(title, ["tree", "estimated", "real", "off"], rows) + paragraph(
        f"{found['contexts']} contexts, temperature 1; tokens per target call. Expect a bias of "
        "this kind on your pair too.",
        "soft",
    )


def positions(content: Content) -> str:
    """Acceptance by position of a chain and by draft of a step, by both definitions."""
    rows = content["positions"]
    groups = dict.fromkeys((row["draft"], row["basis"]) for row in rows)
    tables = [
        table(
            f"Chain, {draft}: {_BASES[basis]}",
            ["position", "conditional rate", "mean rate"],
            [
                (str(row["position"]), [_position_cell(row, kind) for kind in _KINDS])
                for row in rows
                if (row["draft"], row["basis"]) == (draft, basis)
            ],
        )
        for draft, basis in groups
    ]
    return paragraph(_POSITIONS_IN_WORDS) + side_by_side(tables) + _slots(content)


_KINDS = ("conditional", "mean")
_BASES = {
    "one step": "from one step, if acceptance did not change with depth",
    "along the text": "products along the logged text",
}
_POSITIONS_IN_WORDS = (
    "Two figures go by the name of acceptance at position i. The conditional rate is the share "
    "accepted of those drafts whose predecessors were all accepted. The mean rate is the share "
    "accepted of all drafts at that position: the product of the conditional rates up to it. A "
    "conditional rate of 0.8 at every position is a mean rate of 0.41 at the fourth. Tools and "
    "papers report either; compare like with like."
)


def _position_cell(row: Mapping[str, Any], kind: str) -> Cell:
    return Cell.of(row[kind], f"positions/{row['draft']}/{row['basis']}/{row['position']}/{kind}")


def _slots(content: Content) -> str:
    rows = _by(content["slots"], "law", "rule", "draft")
    pairs = list(dict.fromkeys((law, rule) for law, rule, _ in rows))
    if not pairs:
        return ""
    tables = [
        table(
            f"One step, b-th draft: {kind} rate",
            ["drafts, rule", *(f"b = {b}" for b in range(1, 5))],
            [
                (
                    _brief(system(law, rule)),
                    [
                        Cell.of(rows[law, rule, b][kind], f"slots/{law}/{rule}/{b}/{kind}")
                        for b in range(1, 5)
                    ],
                )
                for law, rule in pairs
            ],
        )
        for kind in _KINDS
    ]
    return side_by_side(tables)


def losses(content: Content) -> str:
    """Where tokens are lost."""
    tables = [
        table(
            f"By {by}",
            ["group", "contexts", "lost, one draft", "lost, four drafts", "of all losses"],
            [_loss_row(row) for row in content["losses"] if row["by"] == by],
        )
        for by in dict.fromkeys(row["by"] for row in content["losses"])
    ]
    words = (
        "A token is lost when none of the drafts is accepted: per context with one sampled draft, "
        "and with the optimum of four iid drafts. The last column is a group's share of all losses "
        "with one draft."
    )
    return paragraph(words) + side_by_side(tables)


def _loss_row(row: Mapping[str, Any]) -> tuple[str, list[Cell | str]]:
    key = f"losses/{row['by']}/{row['group']}"
    numbers = [Cell.of(row[name], f"{key}/{name}") for name in ("one", "four")]
    share = Cell(percent(row["share"]), key=f"{key}/share")
    return row["group"], [str(row["contexts"]), *numbers, share]


def width(content: Content) -> str:
    """How wide the intervals of partial logs are, and what would narrow them."""
    found = content["width"]
    last = found["rows"][-1]["optimum"]
    words = (
        "The logs list the most probable tokens only. What is unlisted can lie where the other "
        "model puts its probability, or anywhere else: hence intervals, which hold for every way "
        "to complete the laws. The optimum of four iid drafts is known to "
        f"{(last['high'] - last['low']) / 2:.3f} either way. {_what_would_narrow(found)}"
    )
    rows = [
        (
            str(row["k"]),
            [
                str(row["contexts"]),
                f"{row['target_rest']:.3f} / {row['draft_rest']:.3f}",
                *(
                    Cell.of(row[name], f"width/{row['k']}/{name}")
                    for name in ("overlap", "optimum", "truncated")
                ),
            ],
        )
        for row in found["rows"]
    ]
    headings = [
        "K",
        "contexts",
        "unlisted, target / draft",
        "overlap",
        "optimum, 4 iid",
        "the same with top-k = K",
    ]
    return (
        paragraph(words, "note")
        + table("The same logs with shorter lists", headings, rows)
        + (
            paragraph(
                "The last column is exact: of sampling with top-k at most K these logs say "
                "everything (multidraft report, option top-k)."
            )
        )
    )


def _what_would_narrow(found: Mapping[str, Any]) -> str:
    k, longest = found["k"], found["rows"][-1]["k"]
    if k is None:
        return "Longer lists would narrow that; these logs do not show how fast."
    if k <= longest:
        return f"That is within {found['goal']:g}, narrow enough for most decisions."
    much = (
        f"about {k:,} tokens"
        if k <= _MOST
        else "more tokens than vocabularies hold: record full logits, or sample with top-k"
    )
    return (
        f"If the width keeps falling with K as it does from {found['rows'][-2]['k']} to {longest}, "
        f"a width of {found['goal']:g} takes {much}."
    )


_MOST = 100_000


def explorer(content: Content) -> str:
    """The part of the page that the script fills."""
    counts = [plan["n"] for plan in content["explorer"][0]["plans"]]
    radios = "".join(
        f'<label><input type="radio" name="drafts" value="{n}"{mark}> {n}</label>'
        for n, mark in zip(counts, (" checked", *("" for _ in counts[1:])), strict=True)
    )
    words = (
        "For iid drafts: the most probable tokens with target q and draft p, the cut H that proves "
        "the optimum, and the optimal selection law b. A drafted token is selected with law b, "
        "then kept with probability min(1, q/b). Below, the partition of the unit interval that "
        "realises b: each draft gets a time, uniform on the pieces of its token, and the earliest "
        "is selected."
    )
    if not content["exact"]:
        words += " Shown is one completion of the logs, the one in which the laws are most alike."
    return paragraph(words) + _EXPLORER.format(radios=radios)


_EXPLORER = """<div class="controls">
<div><label for="context">context</label><select id="context"></select></div>
<button type="button" id="previous">previous</button>
<button type="button" id="next">next</button>
<fieldset><legend>drafts n</legend>{radios}</fieldset></div>
<div aria-live="polite"><p id="where"></p><p class="soft">text before it:</p>
<p class="quote" id="before"></p><p id="cut"></p></div>
<table id="tokens"><caption>Most probable tokens</caption><thead><tr><th scope="col">token</th>
<th scope="col">target q</th><th scope="col">draft p</th><th scope="col">selection b</th>
<th scope="col">cut</th></tr></thead><tbody id="rows"></tbody></table>
<h3>Partition of the unit interval</h3><div id="partition"></div>
<details><summary>The pieces, in order of time</summary><ol id="pieces"></ol></details>
<noscript><p class="note">This section needs JavaScript, all others do not.</p></noscript>"""


def method(content: Content) -> str:
    """How the numbers were made."""
    known = content["pair"]
    words = [
        f"multidraft {__version__}. {known['contexts']} of {known['recorded']} recorded contexts, "
        f"{known['holds']}; {sampling(content)}.",
        "Optima are minimum cuts, acceptances sums over the rules' conditional laws in float64; "
        "nothing was decoded.",
        "± is one standard error, clustered by text: how much another sample of contexts would "
        "move the number."
        if known["texts"] > 1
        else "All contexts are from one text, so there are no standard errors.",
    ]
    if not content["exact"]:
        words.append(
            "“a to b” is an interval over every completion of the logs, not a confidence interval."
        )
    return "".join(paragraph(text) for text in words)
