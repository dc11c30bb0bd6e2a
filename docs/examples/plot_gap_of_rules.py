"""
How far is a rule from the optimum?
===================================

All rules below are lossless: the text has the target's law, whatever they do. They differ in how
often they keep a draft. The gap is the optimum minus the rule's acceptance, context by context.
"""

import polars as pl

import multidraft as md

trace = md.traces.frozen()
logits = trace.target, trace.draft("skip-8")

# %%
# The acceptance of a rule is computed from the two laws, for many contexts at once; nothing is
# simulated.


def gaps(rule: str, n: int) -> pl.DataFrame:
    """Gap of a rule in every context of the trace that ships with the package."""
    problem = md.Problem.from_logits(*logits, "iid", n=n)
    reached = md.verifiers.get(rule).acceptance(problem).value
    gap = md.optimal_acceptance(problem) - reached
    return pl.DataFrame({"rule": rule, "drafts": f"n = {n}", "gap": gap})


rules = ["k-seq", "rrs", "gls", "naive"]
table = pl.concat([gaps(rule, n) for n in (2, 4) for rule in rules])
groups = table.group_by("drafts", "rule", maintain_order=True)
print(groups.agg(pl.col("gap").mean()))

# %%
# A curve further left is better; the optimum would be a step at zero. With more drafts the rules
# fall further behind.

look = {"colour": "rule", "panel": "drafts", "across": 1}
md.plots.ecdf(table, value="gap", xlabel="optimum minus acceptance", **look)
