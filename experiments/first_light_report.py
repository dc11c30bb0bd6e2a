"""Tables, figures and text of the main job, as functions of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from multidraft import plots, results
from multidraft.experiments import first_light as job
from multidraft.experiments.results_page import rest
from multidraft.files import write_text

if TYPE_CHECKING:
    import polars


def report(found: results.Results, folder: Path, readme: Path) -> None:
    """Write tables and figures to `folder`, and the text that shows them to `readme`."""
    means = _labelled(job.means(found.frame))
    gaps = _labelled(_without_round_off(job.means(job.with_optimum(found.frame), "gap")))
    tested = _labelled(job.means(found.frame, "tested"))
    for name, frame in (("acceptance", means), ("gap", gaps), ("tested", tested)):
        table = _table(frame)
        write_text(folder / f"{name}.md", table.markdown())
        write_text(folder / f"{name}.tex", table.latex())
    for name, figure in _figures(means, _labelled(job.with_optimum(found.frame))):
        plots.save(figure, folder / f"{name}.png")
    write_text(readme, _text(found, means, gaps, folder.name) + rest(readme.parent))


def _labelled(frame: polars.DataFrame) -> polars.DataFrame:
    """Add the words of figures: the truncation with "all" for none, and the setting."""
    import polars

    top_k = polars.col("top_k").cast(polars.String).fill_null("all")
    setting = polars.format("T = {}, top-k {}", polars.col("temperature"), "top-k")
    return frame.with_columns(top_k.alias("top-k")).with_columns(setting=setting)


def _without_round_off(gaps: polars.DataFrame) -> polars.DataFrame:
    """Say "exact" where the gap is zero, up to round-off, in every context."""
    import polars

    closed = (polars.col("value").abs() < job.TOLERANCE) & (polars.col("stderr") < job.TOLERANCE)
    nothing = polars.when(closed).then(None)
    return gaps.with_columns(
        value=polars.when(closed).then(0.0).otherwise("value"),
        stderr=nothing.otherwise("stderr"),
    )


def _table(frame: polars.DataFrame) -> results.Table:
    return results.pivot(frame, rows=["temperature", "top-k", "law", "method"], columns="n")


def _figures(means: polars.DataFrame, gaps: polars.DataFrame) -> list[tuple[str, Any]]:
    """Every figure with its name: optima by law, rules of each law, gaps at two drafts."""
    import polars

    is_optimum = polars.col("method") == job.OPTIMUM
    settings: dict[str, Any] = {"x": "n", "panel": "setting", "log_x": True}
    settings |= {"xlabel": "number of drafts n", "ylabel": "acceptance"}
    optima = means.filter(is_optimum & (polars.col("law") != "hub"))
    figures = [("optimum", plots.lines(optima, colour="law", **settings))]
    for law in ("iid", "without-replacement", "greedy"):
        rules = means.filter(law=law)
        figures.append((law, plots.lines(rules, colour="method", **settings)))
    order = ("temperature", "top_k", "law", "method")
    pairs = gaps.filter(n=2).sort(*order, nulls_last=True, maintain_order=True)
    named = pairs.with_columns(curve=polars.format("{}, {}", "law", "method"))
    open_gaps = polars.col("gap").max().over("curve") > job.TOLERANCE
    tests = named.filter(open_gaps & (polars.col("method") != "naive"))
    gap = plots.ecdf(tests, value="gap", colour="curve", panel="setting", xlabel="optimum - rule")
    return [*figures, ("gap", gap)]


def _text(
    found: results.Results, means: polars.DataFrame, gaps: polars.DataFrame, folder: str
) -> str:
    """The page that shows the results; every number in it comes from the rows."""
    configuration = found.header["configuration"]
    frame = found.frame
    over = job.excess(frame)
    full = means.filter(means["top_k"].is_null())
    return _PAGE.format(
        folder=folder,
        contexts=configuration["contexts"],
        passages=frame["passage"].n_unique(),
        target=configuration["trace"]["target"]["name"],
        draft=configuration["draft"],
        table=_table(full).markdown(),
        gap_table=_table(gaps.filter(gaps["top_k"].is_null())).markdown(),
        sentences=_sentences(full, gaps),
        comparisons=f"{over.comparisons:,}",
        largest=f"{over.largest:.1e}",
        verdict=_verdict(over),
        short=_short(frame),
        provenance=results.made_by(found.header),
    )


def _verdict(over: job.Excess) -> str:
    if over.violations:
        return f"**{over.violations} exceed it by more than {job.TOLERANCE:g}: this is a fault.**"
    return "None exceeds it beyond round-off."


def _short(frame: polars.DataFrame) -> str:
    rows = frame.filter(frame["short"])
    if rows.is_empty():
        return "No context had fewer draft tokens than drafts."
    count = rows.select("temperature", "top_k", "law", "n", "context").n_unique()
    return (
        f"In {count} cases a context had fewer draft tokens than drafts; "
        "then all of them are drafted and the tuple is padded."
    )


def _sentences(full: polars.DataFrame, gaps: polars.DataFrame) -> str:
    """What the numbers say, at full vocabulary, one item per temperature."""
    return "\n".join(_sentence(full, gaps, temperature) for temperature in job.TEMPERATURES)


def _sentence(full: polars.DataFrame, gaps: polars.DataFrame, temperature: float) -> str:
    def mean(law: str, method: str, n: int) -> str:
        row = full.filter(temperature=temperature, law=law, method=method, n=n).row(0, named=True)
        return f"{row['value']:.3f} ± {row['stderr']:.3f}"

    def gap(law: str, method: str, n: int) -> str:
        rows = gaps.filter(gaps["top_k"].is_null())
        row = rows.filter(temperature=temperature, law=law, method=method, n=n).row(0, named=True)
        return f"{row['value']:.3f} ± {row['stderr']:.3f}"

    return (
        f"- **Temperature {temperature}.** One draft is accepted with probability "
        f"{mean('iid', job.OPTIMUM, 1)}. With two, four and eight independent drafts the optimum "
        f"is {mean('iid', job.OPTIMUM, 2)}, {mean('iid', job.OPTIMUM, 4)} and "
        f"{mean('iid', job.OPTIMUM, 8)}. At four drafts recursive rejection (RRS) stays "
        f"{gap('iid', 'rrs', 4)} below it and K-SEQ {gap('iid', 'k-seq', 4)}. Drawing the same "
        f"number of drafts without replacement moves the optimum to "
        f"{mean('without-replacement', job.OPTIMUM, 4)} at four drafts; the greedy law, whose rule "
        f"attains its optimum, reaches {mean('greedy', job.OPTIMUM, 4)}, and the deterministic "
        f"top four tokens {mean('top', job.OPTIMUM, 4)}."
    )


_PAGE = """\
# Results

This page is written by `multidraft reproduce`; do not edit it.

## The optimum and the known rules on a real language model

**Setting.** The target is {target}, the draft is {draft}: the same model with layers skipped, on
the same vocabulary. Their next-token laws were recorded at {contexts} contexts from {passages}
passages, at full vocabulary. Both laws are shaped by the same temperature T and the same top-k.
From the draft law, n tokens are drafted in one of five ways: independently (*iid*), *without
replacement*, the n-1 most probable and one random draw (*greedy*), SpecHub's pairs (*hub*, n = 2),
or the n most probable (*top*, no randomness). A verification rule turns the drafted tokens into one
output token that follows the target law exactly. Its *acceptance* is the probability that the
output is one of the drafts.

**What is compared.** *optimum* is the largest acceptance that any lossless rule can have for the
draft law, from its closed form; the other lines are known rules, each on a draft law for which it
is lossless: matching a draw from the target (*naive*), recursive rejection with and without
replacement (*rrs*, *rrsw*), *k-seq* (SpecTr), *spechub*, and *greedy* verification. Each number of
a context is exact; the tables give means over contexts, ± one standard error clustered by passage.
The acceptance of *rrsw* beyond two drafts is an average of exact conditional laws over sampled
drafts; its own error (column `stderr` of the Parquet file) is part of the ± of the mean.

{table}
Full vocabulary. All temperatures and truncations: [acceptance]({folder}/acceptance.md)
([LaTeX]({folder}/acceptance.tex)); the share that a test accepted, without lucky draws from the
residual: [tested]({folder}/tested.md) ([LaTeX]({folder}/tested.tex)); all rows:
[Parquet]({folder}/first-light.parquet).

### What the numbers say

{sentences}

### How much more could be accepted

![Optimal acceptance against the number of drafts]({folder}/optimum.png)

**Figure 1.** Optimal acceptance against the number of drafts, by draft law; one panel per setting,
bands of 95%.

![Rules for independent drafts]({folder}/iid.png)

**Figure 2.** Independent drafts: the optimum and three rules.

![Rules for drafts without replacement]({folder}/without-replacement.png)

**Figure 3.** Drafts without replacement: the optimum and two rules.

![Rules for greedy drafts]({folder}/greedy.png)

**Figure 4.** Greedy drafts: greedy verification attains the optimum of its law.

![Distribution of the gap]({folder}/gap.png)

**Figure 5.** The gap between the optimum and a rule at two drafts: the share of contexts in which
it is at most this. Shown are the rules that test drafts; greedy verification and SpecHub have no
gap, and that of *naive* is several times larger.

Mean gap between the optimum and each rule at full vocabulary, paired by context; "exact" marks a
gap of zero in every context
([all settings]({folder}/gap.md), [LaTeX]({folder}/gap.tex)):

{gap_table}
### Checks

Every exact value of a rule was compared with the optimum of its law, context by context:
{comparisons} comparisons, largest excess {largest}. {verdict} {short}

### Provenance

{provenance}. The header of the Parquet file holds the rest.
"""
