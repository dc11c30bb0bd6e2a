"""
How much do more drafts help?
=============================

The optimal acceptance, the most that any verification rule can reach, against the number of drafts
n. It depends on how the drafts are drawn: with replacement (iid) or without, with the most probable
token always among them (greedy), or simply the n most probable ones (top).
"""

import polars as pl

import multidraft as md

# %%
# The package ships 24 contexts of a small language model, as raw logits of the target and of a
# draft (the same model with eight layers skipped). Each context is from another passage of text.

trace = md.traces.frozen()
logits = trace.target, trace.draft("skip-8")


def row(law: str, n: int) -> dict[str, object]:
    """Mean optimum over the contexts, with its standard error."""
    optimum = md.optimal_acceptance(md.Problem.from_logits(*logits, law, n=n))
    mean = md.results.clustered_mean(optimum, trace.passage)
    return {"law": law, "n": n, "value": mean.mean, "stderr": mean.stderr}


laws = ["without-replacement", "iid", "greedy", "top"]
table = pl.DataFrame([row(law, n) for law in laws for n in (1, 2, 4, 8)])
print(table.pivot("n", index="law", values="value"))

# %%
# Bands are 95% intervals. All laws see the same contexts, so the curves differ by less chance than
# the bands suggest.

labels = {"xlabel": "drafts n", "ylabel": "optimal acceptance"}
md.plots.lines(table, x="n", colour="law", log_x=True, height=2, **labels)
