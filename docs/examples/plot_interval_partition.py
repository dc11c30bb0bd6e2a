"""
An optimal rule in one picture
==============================

For independent drafts the optimum is reached by dividing the interval [0, 1] among the tokens.
Every draft gets a random time on the pieces of its token, and the earliest is selected. Here are
five tokens and three drafts.
"""

import numpy as np

import multidraft as md
from multidraft.experiments.interval_figures import partition_figure

target, draft = [0.12, 0.18, 0.18, 0.22, 0.3], [0.35, 0.25, 0.2, 0.15, 0.05]
problem = md.Problem(target, md.IID(draft, n=3))
partition_figure(problem)

# %%
# The pieces of a token have its draft probability p as their length, and as the area above them the
# probability b that it is selected. Early pieces are worth more. What b should be is known: as
# close to the target q as the draft law allows.

solution = md.solve(problem, "interval")
print("acceptance", round(float(solution.acceptance), 6))
print("bound - value", float(solution.certificate.gap))

# %%
# The partition is a rule: for any three drafted tokens it gives the law of the output, in which
# tokens that were not drafted make up for what is missing. Summed over all 125 triples, the output
# has the target's law.

print("tokens 0, 1, 1 drafted:", solution.plan.conditional([0, 1, 1]).round(3))
error = np.abs(solution.plan.output_law() - target).max()
print("largest error of the output law:", error)
