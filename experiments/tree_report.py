"""Tables, figures and text on tree rules and their optimum, as functions of the rows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multidraft import plots, results, trees
from multidraft.experiments import tree_estimate, tree_optimum
from multidraft.experiments.tree_optimum import LAWS, OPTIMUM, PAIRS, RULES
from multidraft.files import write_text

if TYPE_CHECKING:
    import polars

ATTAINED = 1e-9


def report(folder: Path, *, jobs: int = 1) -> None:
    """Compute what is missing in `folder`, then write every table, figure and the text there."""
    found, estimate = tree_optimum.run(folder, jobs=jobs), tree_estimate.run(folder, jobs=jobs)
    frame = ordered(found.frame)
    for law in LAWS:
        for value in ("length", "share"):
            table = by_pair(frame, law, value)
            write_text(folder / f"{value}-{law}.md", table.markdown())
            write_text(folder / f"{value}-{law}.tex", table.latex())
        for n in (2, 3):
            plots.save(shares(frame, law, n), folder / f"share-{law}-{n}.png")
    plots.save(tree_estimate.figure(estimate.frame), folder / "estimate.png")
    plots.save(shapes(), folder / "shapes.png")
    for name, figure in judged().items():
        plots.save(figure, folder / f"judged-{name}.png")
    write_text(folder / "README.md", text(frame, estimate.frame))


def ordered(frame: polars.DataFrame) -> polars.DataFrame:
    """Rows in the order of the pairs, laws, sizes and rules."""
    import polars

    def place(column: str, names: tuple[str, ...]) -> polars.Expr:
        return polars.col(column).replace_strict({name: i for i, name in enumerate(names)})

    return frame.sort(
        "V",
        place("pair", PAIRS),
        place("law", tuple(LAWS)),
        "n",
        "L",
        place("method", (OPTIMUM, *RULES)),
    )


def by_pair(frame: polars.DataFrame, law: str, value: str) -> results.Table:
    """Lengths, or shares of the possible gain: a row per pair, n and L, a column per rule."""
    rows = frame.filter(frame["law"] == law)
    if value == "share":
        rows = rows.filter(rows["method"] != OPTIMUM)
    table = results.pivot(rows, rows=["V", "pair", "n", "L"], columns="method", value=value)
    # Columns come as they are met first, at one path; the rules' own order reads better.
    wanted = [f"method={name}" for name in (OPTIMUM, *RULES) if f"method={name}" in table.columns]
    places = [table.columns.index(name) for name in wanted]
    lines = tuple((labels, tuple(row[i] for i in places)) for labels, row in table.rows)
    names = tuple(name.removeprefix("method=") for name in wanted)
    return results.Table(table.labels, names, lines, table.digits)


def averages(frame: polars.DataFrame, law: str) -> polars.DataFrame:
    """Mean and smallest share of every rule over the pairs, for each n and L."""
    import polars

    rules = frame.filter((polars.col("law") == law) & (polars.col("method") != OPTIMUM))
    return rules.group_by("n", "L", "method", maintain_order=True).agg(
        mean=polars.col("share").mean(),
        least=polars.col("share").min(),
        pairs=polars.len(),
        attained=(polars.col("share") > 1 - ATTAINED).sum(),
    )


def shares(frame: polars.DataFrame, law: str, n: int) -> Any:
    """Share of the possible gain against the length of the paths, one panel per pair.

    Naive matching is left out: it is so far below that nothing else could be told apart.
    """
    import polars

    rows = frame.filter((polars.col("law") == law) & (polars.col("n") == n))
    rows = rows.filter(~polars.col("method").is_in([OPTIMUM, "top-down naive"]))
    return plots.lines(
        rows.with_columns(panel=polars.format("{}, V = {}", "pair", "V")),
        x="L",
        colour="method",
        panel="panel",
        y="share",
        xlabel="length of the paths L",
        ylabel="share of the gain",
        log_x=True,
    )


def shapes() -> Any:
    """The shapes of the literature side by side."""
    from multidraft.plots import canvas
    from multidraft.trees.pictures import outline_on

    drawn = {
        "chain of 4": trees.chain(4),
        "3 paths of 3": trees.paths(3, 3),
        "delayed (3, 1, 2)": trees.delayed(3, 1, 2),
        "binary, 2^4": trees.k_ary(2, 3),
        "ternary, 3^3": trees.k_ary(3, 2),
        "Sequoia, 15 nodes": trees.sequoia([0.6, 0.2, 0.08, 0.04], 15),
        "most probable, 15 nodes": _most_probable(15),
    }
    with canvas.style():
        figure, axes = canvas.panels(len(drawn), 4, 1.3, share=False)
        for area, (title, tree) in zip(axes, drawn.items(), strict=True):
            outline_on(area, tree, title)
    return figure


def _most_probable(nodes: int) -> trees.Tree:
    target, _ = tree_optimum.models("text", 4)
    return trees.top_probability(target, target, width=4, depth=5, nodes=nodes).tree


def judged() -> dict[str, Any]:
    """One drafted tree as three rules judge it, with what each emits from the same uniforms."""
    (target, draft), tree = tree_optimum.models("text", 4), trees.paths(3, 3)
    drafted = trees.draw(tree, target, draft, np.random.default_rng(14).random((1, tree.nodes)))
    figures = {}
    for name in ("top-down rrs", "traversal", "greedy-multipath"):
        kind, options = RULES[name]
        judgement = trees.get(kind, **options).judge(drafted)
        title = f"{name}: {judgement.expected_length[0]:.3f} tokens expected"
        block = judgement.draw(np.array([[0.5, 0.5]]))
        figures[name.replace(" ", "-")] = trees.picture(
            judgement, block=block, name="VCos".__getitem__, title=title
        )
    return figures


# -------------------------------------------------------------------------------------------- text


def text(frame: polars.DataFrame, estimate: polars.DataFrame) -> str:
    """The page that shows the results; every number in it comes from the rows."""
    optima = frame.filter(frame["method"] == OPTIMUM)
    return _PAGE.format(
        cells=len(optima),
        pairs=frame.select("V", "pair").n_unique(),
        gap=f"{optima['gap'].abs().max():.0e}",
        violation=f"{optima['violation'].max():.0e}",
        above=f"{_above(frame):.0e}",
        tables="\n".join(f"### {law}\n\n{_average_table(frame, law)}" for law in LAWS),
        findings=_findings(frame),
        estimate=_estimate_sentence(estimate),
        lists="\n".join(_links(law) for law in LAWS),
    )


def _above(frame: polars.DataFrame) -> float:
    """Largest excess of a rule over the dual bound."""
    rules = frame.filter(frame["method"] != OPTIMUM)
    return float(rules["share"].to_numpy().max()) - 1.0


def _average_table(frame: polars.DataFrame, law: str) -> str:
    """Mean (smallest) share of each rule over the pairs."""
    import polars

    rows = averages(frame, law)
    texts = [f"{mean:.3f} ({least:.3f})" for mean, least in rows[["mean", "least"]].iter_rows()]
    cells = rows.with_columns(text=polars.Series(texts))
    wide = cells.pivot("method", index=["n", "L", "pairs"], values="text")
    names = [name for name in RULES if name in wide.columns]
    head = ["n", "L", "pairs", *names]
    lines = [head, ["---:"] * len(head)]
    lines += [[str(row[name] or "–") for name in head] for row in wide.iter_rows(named=True)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _findings(frame: polars.DataFrame) -> str:
    """What the shares say, one item per draft law."""
    items = [_single(frame)]
    for law in LAWS:
        several = frame.filter((frame["law"] == law) & (frame["n"] > 1))
        rules = [name for name in LAWS[law] if name != "top-down naive"]
        parts = several.partition_by("method", as_dict=True)
        share = {name: parts[name,]["share"].to_numpy() for name in rules}
        rules.sort(key=lambda name: -share[name].mean())
        listed = ", ".join(
            f"{name} {share[name].mean():.3f} (least {share[name].min():.3f})" for name in rules
        )
        items.append(f"- **{law}**, two and three paths, mean share over all cells: {listed}.")
    return "\n".join(items)


def _single(frame: polars.DataFrame) -> str:
    single = frame.filter(frame["n"] == 1)
    block = single.filter(single["method"] == "block")["share"].to_numpy()
    wise = single.filter(single["method"] == "top-down rrs")["share"].to_numpy()
    return (
        f"- **One path**: block verification attains the optimum in {(block > 1 - ATTAINED).sum()} "
        f"of {len(block)} cells (largest distance {1 - block.min():.0e}); token by token, "
        f"the share is {wise.mean():.3f} on average and {wise.min():.3f} at worst."
    )


def _estimate_sentence(frame: polars.DataFrame) -> str:
    """How far the estimate is off at the deepest chain, for every drift."""
    chain = frame.filter((frame["shape"] == "chain") & (frame["depth"] == frame["depth"].max()))
    wide = chain.pivot("kind", index="drift", values="length").sort("drift")
    return "; ".join(
        f"drift {row['drift']:g}: {row['exact']:.2f} tokens, estimated {row['estimate']:.2f}"
        for row in wide.iter_rows(named=True)
    )


def _links(law: str) -> str:
    return (
        f"- {law}: lengths [table](length-{law}.md), shares [table](share-{law}.md), figures "
        f"[two paths](share-{law}-2.png), [three paths](share-{law}-3.png)"
    )


_PAGE = """# Tree rules against the optimum

Every number here is exact. A cell is a pair of small models, a draft law, a number of paths n and
their length L; the paths part at the root by the draft law and go on as single draws. The optimum
is the block program of docs/mathematics, solved by HiGHS and certified by its dual: over
{cells} cells on {pairs} pairs the two bounds differ by at most {gap}, and no plan violates a
constraint by more than {violation}. No rule exceeds its dual bound by more than {above} of the
gain.

Of the possible gain over plain decoding (one token per target call) a rule gets the share
`(length - 1) / (optimum - 1)`. "top-down X" is the token rule X at every node from the root on,
"bottom-up X" the same rule from the leaves to the root, on the target scaled by the node's weight:
traversal is bottom-up recursive rejection, UniVer is bottom-up greedy.

{findings}

## Mean share over the pairs (smallest in brackets)

{tables}
## Per pair

{lists}

Data: [rules.parquet](rules.parquet).

## The quick estimate

One acceptance vector, measured at the root and used at every node, against the exact length of a
chain of six whose draft drifts towards the uniform law: {estimate}.

![Exact and estimated length](estimate.png)

## The trees

![Shapes of trees](shapes.png)

One drafted tree, three iid paths of kinds of letters (V vowel, C consonant, s space, o other), as
three rules judge it. On the edges: draft and target probability of the token, and the probability a
that the path to it is accepted; thick: the path accepted for one choice of uniforms. Top-down and
traversal let equal siblings share their children; the best path of the third rule does not need it.

![Top-down](judged-top-down-rrs.png)
![Traversal](judged-traversal.png)
![Greedy multi-path](judged-greedy-multipath.png)
"""


if __name__ == "__main__":
    report(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("results/trees"))
