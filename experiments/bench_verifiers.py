"""How long verification takes, in units of one pass over target and draft.

The unit is ``torch.relu(q - c * p).sum(-1)`` on the same arrays ``(B, V)`` in float32, measured in
the same run. Beside it stand the passes that a rule needs: the number of times that its definition
looks at the whole vocabulary. A fused pass is faster than the unit, which makes three temporary
arrays, and a row ends with its first accepted draft; so the measured number is mostly below the
needed one, except for small arrays, where the fixed cost of a call is all there is.

Selecting the most probable tokens, which the greedy and the hub law need, is timed by itself.
On a CPU everything runs on one thread and processor time counts; on a GPU device events do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import multidraft as md
from multidraft import laws, results, verifiers
from multidraft.errors import Refused
from multidraft.experiments.one_thread import one_thread
from multidraft.verifiers.base import Rule
from multidraft.verifiers.context import Context

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

Row = dict[str, Any]

BATCHES = (1, 64)
VOCABULARIES = (32_000, 49_152, 128_256)
COUNTS = (2, 4, 8)
TOP_K = 1000  # of the interval partition's preparation
AIM = 1.5  # times the passes that a rule needs
_SPAN = 0.01  # seconds that are timed together, since one call is too short for the clock
_TINY = 64  # tokens at which a call costs its overhead and nothing else


def rules() -> dict[str, tuple[str, Callable[[int], int | None]]]:
    """Every rule that states the passes it needs: its first draft law, and passes for n drafts."""
    named = {name: verifiers.get(name) for name in verifiers.names()}
    return {
        name: (next(law for law, kind in laws.LAWS.items() if issubclass(kind, rule.laws)), passes)
        for name, rule in named.items()
        if (passes := rule.passes)(1) is not None
    }


def measure(
    batches: Sequence[int] = BATCHES,
    vocabularies: Sequence[int] = VOCABULARIES,
    counts: Sequence[int] = COUNTS,
    *,
    device: str = "cpu",
    repeats: int = 7,
    seed: int = 0,
) -> list[Row]:
    """Time every rule on laws like a model's, beside the unit.

    Parameters
    ----------
    batches, vocabularies, counts
        Rows B, tokens V and drafts n; SpecHub appears at n = 2 only.
    device
        ``"cpu"``, or a CUDA device.
    repeats
        How often each call is timed; the fastest counts.
    seed
        Of the laws, drafts and uniforms.

    Returns
    -------
    One row per rule and size: ``rule, law, batch, vocabulary, n, device``; microseconds of one call
    with drafts from the law (``microseconds``), with the drafts that are rejected most
    (``rejected``), at 64 tokens (``overhead``), of the unit (``unit``), of the top-k selection
    (``selection``, null if none), and of a Python loop over rows that gives the same tokens
    (``loop``); ``passes`` (microseconds in units) and ``needed``.

    Raises
    ------
    Refused
        There is no such device.
    """
    if device != "cpu" and not torch.cuda.is_available():
        raise Refused(f"there is no device {device} here: use cpu.")
    with one_thread():
        return [
            row
            for batch in batches
            for vocabulary in vocabularies
            for row in _measure(batch, vocabulary, counts, device, repeats, seed)
        ]


def measure_preparation(
    vocabularies: Sequence[int] = VOCABULARIES, counts: Sequence[int] = COUNTS, *, seed: int = 0
) -> list[Row]:
    """Microseconds per row to prepare the interval partition of drafts from the top 1000."""
    rule, rows = verifiers.get("interval"), []
    with one_thread():
        for vocabulary in vocabularies:
            target, draft = _laws(8, vocabulary, "cpu", seed)
            kept = draft.topk(TOP_K)
            draft = torch.zeros_like(draft).scatter(-1, kept.indices, kept.values)
            draft /= draft.sum(-1, keepdim=True)
            for n in counts:
                law = laws.IID(draft, n, check=False)
                seconds = _fastest(partial(rule.prepare, target, law, check=False), "cpu", 3)
                size = {"vocabulary": vocabulary, "n": n}
                rows.append({**size, "microseconds": 1e6 * seconds / len(target)})
    return rows


def _laws(batch: int, vocabulary: int, device: str, seed: int) -> tuple[Tensor, Tensor]:
    """Normal logits and a noisy copy, in float32."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(batch, vocabulary, generator=generator, dtype=torch.float64)
    noise = torch.randn(batch, vocabulary, generator=generator, dtype=torch.float64)
    pair = torch.softmax(torch.stack([logits, logits + noise]), -1).float().to(device)
    return pair[0], pair[1]


def _measure(
    batch: int, vocabulary: int, counts: Sequence[int], device: str, repeats: int, seed: int
) -> Iterator[Row]:
    target, draft = _laws(batch, vocabulary, device, seed)
    factor = torch.full((batch, 1), 1.3, device=device)
    unit = _fastest(lambda: torch.relu(target - factor * draft).sum(-1), device, repeats)
    small, timed = _laws(batch, _TINY, device, seed), rules()
    for n in counts:
        for name, (law, needed) in timed.items():
            if law == "hub" and n != 2:
                continue
            rule = verifiers.get(name)
            times = _times(rule, target, _law(law, draft, n), device, repeats, seed)
            tiny = _times(rule, small[0], _law(law, small[1], n), device, repeats, seed)
            yield {
                "rule": name,
                "law": law,
                "batch": batch,
                "vocabulary": vocabulary,
                "n": n,
                "device": _name(device),
                **times,
                "overhead": tiny["microseconds"],
                "unit": 1e6 * unit,
                "passes": times["microseconds"] / (1e6 * unit),
                "needed": needed(n),
            }


def _name(device: str) -> str:
    return "cpu" if device == "cpu" else torch.cuda.get_device_name(device)


def _law(name: str, draft: Tensor, n: int) -> laws.Law:
    kind = laws.LAWS[name]
    return kind(draft, 2 if name == "hub" else n, short="pad", check=False)


def _times(
    rule: Rule, target: Tensor, law: laws.Law, device: str, repeats: int, seed: int
) -> dict[str, Any]:
    """Microseconds of the calls of one rule; the loop over rows is checked to agree."""
    rows = torch.arange(len(target), device=device) + seed
    drafts = rule.sample_drafts(
        target, law, uniforms=md.uniforms(rows, rule.draft_draws(law), stream=1)
    )
    uniforms = md.uniforms(rows, rule.draws(law.width), stream=2)
    late = uniforms.clone()
    late[:, 0] = 1 - 2.0**-30  # past every test that can fail
    worst = _unlikely(drafts, target, law)
    selected = Context.of(target, law, check=False)
    if isinstance(law, laws.SureAndLast):
        _ = selected.sure

    def call(drafted: verifiers.Drafts, chosen: Tensor) -> Any:
        return rule.verify_on(selected, drafted, uniforms=chosen, check=False)

    def loop() -> list[int]:
        found = []
        for i in range(len(target)):
            row = verifiers.Drafts(drafts.tokens[i : i + 1])
            prepared = rule.prepare(target[i], law[i], check=False)
            out = prepared.verify(row, uniforms=uniforms[i : i + 1], check=False)
            found.append(int(out.token[0]))
        return found

    assert loop() == call(drafts, uniforms).token.tolist()
    selection = None
    if isinstance(law, laws.SureAndLast):
        selection = _fastest(lambda: Context.of(target, law, check=False).sure, device, repeats)
    timed = {
        "microseconds": _fastest(lambda: call(drafts, uniforms), device, repeats),
        "rejected": _fastest(lambda: call(worst, late), device, repeats),
        "loop": _fastest(loop, device, 2),
        "selection": selection,
    }
    return {name: value and 1e6 * value for name, value in timed.items()}


def _unlikely(drafts: verifiers.Drafts, target: Tensor, law: laws.Law) -> verifiers.Drafts:
    """Possible drafts whose target probability is smallest beside that of the draft law."""
    ids = (target / law.probs).topk(drafts.tokens.shape[-1] + 1, largest=False).indices
    if not isinstance(law, laws.SureAndLast):
        return verifiers.Drafts(ids[:, :-1].contiguous())
    sure = law.sure()
    free = (ids[:, :, None] != sure[:, None, :]).all(-1).byte().argmax(-1, keepdim=True)
    return verifiers.Drafts(torch.cat([sure, ids.gather(-1, free)], -1))


def _fastest(call: Callable[[], object], device: str, repeats: int) -> float:
    """Seconds of one call: the fastest of some spans of calls."""
    call()  # compiles, and fills caches
    start = time.perf_counter()
    call()
    number = max(1, int(_SPAN / max(time.perf_counter() - start, 1e-7)))
    span = _on_cpu if device == "cpu" else _on_gpu
    return min(span(call, number) for _ in range(repeats)) / number


def _on_cpu(call: Callable[[], object], number: int) -> float:
    start = time.thread_time()
    for _ in range(number):
        call()
    return time.thread_time() - start


def _on_gpu(call: Callable[[], object], number: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(number):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3


# ------------------------------------------------------------------------------- what is written


def report(rows: Sequence[Row], folder: Path, *, seed: int = 0) -> dict[str, Any]:
    """Write ``verifiers.parquet`` and ``verifiers.png`` to `folder`; return the file's header."""
    import polars

    from multidraft import plots

    frame = polars.DataFrame(list(rows), infer_schema_length=None)
    header = results.header({"bench": "verifiers", "rules": list(rules())}, seeds=[seed])
    results.write(folder / "verifiers.parquet", frame, header)
    plots.save(figure(frame), folder / "verifiers.png")
    return header


def table(rows: Sequence[Row]) -> str:
    """Lay the rows out in Markdown, one table per batch size and vocabulary.

    An exclamation mark stands where the aim of 1.5 times the needed passes is missed.
    """
    parts: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        parts.setdefault((row["batch"], row["vocabulary"]), []).append(row)
    return "\n".join(_section(*size, part) for size, part in parts.items())


_HEADING = (
    "rule", "n", "passes needed", "passes measured", "rejected", "microseconds", "overhead",
    "top-k", "loop over rows",
)  # fmt: skip


def _section(batch: int, vocabulary: int, rows: Sequence[Row]) -> str:
    unit = rows[0]["unit"]
    title = f"### B = {batch}, V = {vocabulary} (one pass: {unit:.0f} us, {rows[0]['device']})\n\n"
    lines = [list(_HEADING), ["---", *["---:"] * (len(_HEADING) - 1)]]
    for row in rows:
        selection = "" if row["selection"] is None else f"{row['selection'] / unit:.1f}"
        mark = "" if row["passes"] <= AIM * row["needed"] else " !"
        lines.append(
            [
                row["rule"],
                str(row["n"]),
                str(row["needed"]),
                f"{row['passes']:.2f}{mark}",
                f"{row['rejected'] / unit:.2f}",
                f"{row['microseconds']:.0f}",
                f"{row['overhead']:.0f}",
                selection,
                f"{row['loop']:.0f}",
            ]
        )
    return title + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def preparation_table(rows: Sequence[Row]) -> str:
    """Lay out the preparation times of the interval partition."""
    if not rows:
        return ""
    lines = [["V", "n", "microseconds per row"], ["---:"] * 3]
    lines += [[str(row["vocabulary"]), str(row["n"]), f"{row['microseconds']:.0f}"] for row in rows]
    title = f"\n### Preparation of the interval partition, drafts from the top {TOP_K}\n\n"
    return title + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def figure(frame: polars.DataFrame) -> Figure:
    """Passes measured per pass needed against V, a panel for each batch size and count."""
    import polars

    from multidraft import plots

    shown = frame.with_columns(
        value=polars.col("passes") / polars.col("needed"),
        stderr=polars.lit(None, dtype=polars.Float64),
        panel=polars.format("B = {}, n = {}", "batch", "n"),
    )
    drawn = plots.lines(
        shown,
        x="vocabulary",
        colour="rule",
        panel="panel",
        xlabel="vocabulary V",
        ylabel="passes / needed",
        across=3,
        log_x=True,
    )
    for area in drawn.axes:
        area.axhline(AIM, color="0.6", linewidth=0.6, linestyle=":")
    return drawn
