"""``multidraft report``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from multidraft import importers
from multidraft.cli.output import Json, print_fields, print_json
from multidraft.files import write_text
from multidraft.partial import PartialTrace
from multidraft.report import Sampling, Settings, measure, page
from multidraft.report.tokens import of, read


def command(
    trace: Path,
    /,
    *,
    draft: str | None = None,
    output: Path = Path("report.html"),
    temperature: float | None = None,
    draft_temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    contexts: int = Settings.contexts,
    explored: int = Settings.explored,
    draft_cost: float = Settings.draft_cost,
    tokens: Path | None = None,
    json: Json = False,
) -> None:
    """Write one HTML page about a target and its drafts; it needs no network.

    Parameters
    ----------
    trace
        What `multidraft record` or `multidraft import` wrote.
    draft
        Name of a draft in the trace, the first unless given.
    output
        The page to write.
    temperature
        At which target and draft are sampled; 1, or the recorded one, unless given.
    draft_temperature
        The same for the draft, where it differs.
    top_k
        Keep the k most probable tokens.
    top_p
        Keep the most probable tokens that hold this mass.
    contexts
        Most contexts that are evaluated, spread evenly over the trace.
    explored
        Most contexts that the page lets its reader look into.
    draft_cost
        Time of one call of the draft, in calls of the target.
    tokens
        Texts of tokens: a tokenizer.json, a JSON list, or text: id.
    json
        Print all numbers as JSON and write no page.
    """
    opened = importers.open(trace)
    texts = of(opened) if tokens is None else read(tokens)
    recorded = opened.header["temperature"] if isinstance(opened, PartialTrace) else 1.0
    heat = recorded if temperature is None else temperature
    sampling = Sampling(heat, draft_temperature, top_k, top_p)
    content = measure(opened, Settings(draft, sampling, contexts, explored, draft_cost), texts)
    if json:
        print_json(content)
        return
    write_text(output, page(content))
    facts: dict[str, Any] = {item["title"]: item["text"] for item in content["advice"]}
    print_fields({**facts, "page": str(output)})
