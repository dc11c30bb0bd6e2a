"""``multidraft decode``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from multidraft import decode
from multidraft.cli.output import Flag, Json, print_fields, print_json, print_table, terminal
from multidraft.decode.loop import DEFAULT_TREE
from multidraft.errors import InputError

if TYPE_CHECKING:
    from rich.text import Text


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Drafting:
    """What is drafted, and what verifies it."""

    tree: str = DEFAULT_TREE
    """chain:L, paths:n,L, k-ary:b,depth or delayed:n,trunk,branches, joined by +."""

    law: str | None = None
    """Draft law; without-replacement unless given, top at temperature 0."""

    rule: str | None = None
    """A tree rule, bottom-up:RULE, or a token rule; the best for the law unless given."""

    draft_temperature: float | None = None
    """Of the draft, where it differs."""


DEFAULTS = Drafting()


def command(
    *,
    prompt: Annotated[tuple[str, ...], Parameter(negative=())] = (),
    prompts: Path | None = None,
    target: str = "smollm2",
    draft: str = "skip-8",
    drafting: Drafting = DEFAULTS,
    temperature: float = 0.6,
    top_k: int | None = None,
    top_p: float | None = None,
    max_new_tokens: int = 64,
    seed: int = 0,
    stats: Flag = False,
    compare: Flag = False,
    json: Json = False,
) -> None:
    """Continue prompts by multi-draft sampling; on a terminal accepted drafts are coloured.

    Parameters
    ----------
    prompt
        A text to continue; give the option again for several.
    prompts
        A file with one prompt per line.
    target
        A name from `multidraft models`, or a folder.
    draft
        The same, or skip-4, skip-8, skip:LAYERS, ngram-N.
    temperature
        Of target and draft; 0 decodes greedily.
    top_k
        Keep the k most probable tokens.
    top_p
        Keep the most probable tokens that hold this mass.
    max_new_tokens
        Most tokens added to a prompt.
    seed
        Of the first prompt; the others count on from it.
    stats
        Say what was measured.
    compare
        Also decode plainly and by the assisted generation of transformers, and say how fast.
    """
    texts = [*prompt, *_lines(prompts)]
    if not texts:
        raise InputError('there is no prompt: give --prompt "The capital of France is".')
    options: dict[str, Any] = {
        "prompts": texts,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "max_new_tokens": max_new_tokens,
        "seeds": seed,
        **vars(drafting),
    }
    if compare:
        found = decode.compare(target, draft, **options)
    else:
        found = {"multidraft": decode.generate(target, draft, **options)}
    if json:
        print_json({name: out.as_data() for name, out in found.items()})
        return
    _print_texts(texts, found["multidraft"])
    if stats:
        print()
        _print_stats(found["multidraft"].measured)
    if compare:
        print()
        _print_comparison(found)


def _lines(path: Path | None) -> list[str]:
    if path is None:
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip()]


def _print_texts(prompts: list[str], out: decode.Decoded) -> None:
    """Print every prompt with its continuation, a blank line between two."""
    console = terminal()
    for row, (prompt, text) in enumerate(zip(prompts, out.texts, strict=True)):
        if row:
            print()
        if console is None:
            print(prompt + text)
        else:
            console.print(_coloured(prompt, out.pieces(row)), soft_wrap=True)


def _coloured(prompt: str, pieces: list[tuple[str, bool]]) -> Text:
    from rich.text import Text

    text = Text(prompt, style="bold")
    for piece, accepted in pieces:
        text.append(piece, style="not bold green" if accepted else "not bold")
    return text


def _print_stats(found: decode.Measured) -> None:
    seconds = dict(found.seconds)
    total = seconds.pop("total")
    fields = {
        "tokens": f"{found.tokens} in {found.target_calls} target calls",
        "block efficiency": f"{found.block_efficiency:.3f}{_error(found.error)} tokens per call",
        "tokens per second": f"{found.tokens_per_second:.2f}",
        "seconds": f"{total:.2f}: " + ", ".join(f"{k} {v:.2f}" for k, v in seconds.items()),
    }
    print_fields(fields)
    print()
    headings = ("position", "mean acceptance", "conditional acceptance", "of child 1, 2, ...")
    rows = zip(
        found.mean_acceptance, found.conditional_acceptance, found.slot_acceptance, strict=True
    )
    print_table(
        headings,
        [
            (place, _share(mean), _share(given), " ".join(map(_share, children)))
            for place, (mean, given, children) in enumerate(rows, start=1)
        ],
    )


def _error(error: float) -> str:
    return f" +- {error:.3f}" if error == error else ""


def _share(value: float) -> str:
    return f"{value:.3f}" if value == value else "-"


def _print_comparison(found: dict[str, decode.Decoded]) -> None:
    speed = {name: out.measured.tokens_per_second for name, out in found.items()}
    print_table(
        ("method", "tokens/s", "against plain", "tokens per call", "seconds"),
        [
            (
                name,
                f"{speed[name]:.2f}",
                f"{speed[name] / speed['plain']:.2f}",
                f"{out.measured.block_efficiency:.3f}",
                f"{out.measured.seconds['total']:.2f}",
            )
            for name, out in found.items()
        ],
    )
