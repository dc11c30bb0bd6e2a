# %% [markdown]
# # 7. Theory against measurement
#
# The acceptance of a rule can be computed without running it. Does the rule that is actually run,
# with its random numbers, its cumulative sums and its float arithmetic, do what the formula says?
# This is the place where published numbers go wrong: some tables print measured rates above the
# provable optimum. Here you predict, measure, and decide whether the differences are chance.
#
# Notation: q target, p draft.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import torch

import multidraft as md
from multidraft.plots.canvas import COLOURS

plt.style.use("multidraft.plots.paper")
BLUE, ORANGE, GREEN = COLOURS[:3]

q = np.array([0.15, 0.25, 0.25, 0.35])
p = np.array([0.45, 0.35, 0.15, 0.05])
law = md.IID(p, 2)
problem = md.Problem(q, law)

# %% [markdown]
# ## One problem, one rule
#
# RRS, recursive rejection sampling (SpecInfer, [2305.09781](https://arxiv.org/abs/2305.09781)):
# test the first draft with min(1, q/p); if it fails, replace q by the normalised positive part of q
# − p and test the second. Its acceptance, by hand:

# %%
first = np.minimum(q, p).sum()
left = np.maximum(q - p, 0) / (1 - first)
second = np.minimum(left, p).sum()
by_hand = first + (1 - first) * second
rule = md.verifiers.get("rrs")
print(f"first draft {first:.2f}, both {by_hand:.2f}, optimum {md.optimal_acceptance(problem):.4f}")
assert np.isclose(by_hand, 0.68)
assert np.isclose(by_hand, float(rule.acceptance(problem)))

# %% [markdown]
# Now run it. In this library randomness is an argument: a rule is a pure function of its uniform
# random numbers, and drafting and verification take theirs from two streams.

# %%
draws = 20_000
seeds = torch.arange(draws)
drafts = rule.sample_drafts(q, law, uniforms=md.uniforms(seeds, rule.draft_draws(law), stream=1))
outcome = rule.verify(q, law, drafts, uniforms=md.uniforms(seeds, rule.draws(2), stream=2))
accepted = (outcome.draft >= 0).numpy()

runs = np.arange(1, draws + 1)
running = np.cumsum(accepted) / runs
width = 1.96 * np.sqrt(by_hand * (1 - by_hand) / runs)
figure, axes = plt.subplots(figsize=(4.4, 2.1))
axes.plot(runs, running, color=BLUE, label="measured")
axes.fill_between(runs, by_hand - width, by_hand + width, color="black", alpha=0.15, linewidth=0)
axes.axhline(by_hand, color="black", linewidth=0.8, label="predicted, and 95% of chance")
axes.set(
    xscale="log", xlabel="verifications", ylabel="acceptance", ylim=(0.5, 0.9), xlim=(10, draws)
)
axes.legend(loc="upper right")
plt.show()
error = np.sqrt(by_hand * (1 - by_hand) / draws)
print(f"measured {running[-1]:.3f}, predicted {by_hand:.3f}, standard error {error:.3f}")
assert abs(running[-1] - by_hand) < 4 * error

# %% [markdown]
# A rate from N runs has the standard error √(α(1 − α)/N). A difference of a few standard errors is
# a finding; less is weather.
#
# ## Two acceptances that must not be mixed
#
# *A test accepted a draft* and *the output is one of the drafts* are different events: a residual
# draw can hit a draft by luck. Most rules never do, but the greedy rule of Hu et al.
# ([2502.18779](https://arxiv.org/abs/2502.18779)) counts on it: its most probable token is not
# tested, and comes out of the residual. The optimum bounds the second figure, and papers report
# either.

# %%
for name, kind in [("rrs", law), ("greedy", md.Greedy(p, 2))]:
    figures = md.verifiers.get(name).acceptance(md.Problem(q, kind))
    tested, value = float(figures.tested), float(figures.value)
    print(f"{name:7} accepted by a test {tested:.4f}, output is a draft {value:.4f}")
    assert value <= float(md.optimal_acceptance(md.Problem(q, kind))) + 1e-12
assert value > tested + 0.1  # greedy

# %% [markdown]
# ## Calibration on real contexts
#
# One problem proves little. The package ships 24 recorded contexts with 49,152 tokens each; take
# three rules, three drafts, and 1,000 verifications in each context. 72 predictions meet 72
# measurements.

# %%
trace = md.traces.frozen()
contexts = md.Problem.from_logits(trace.target, trace.draft("skip-8"), "iid", n=3)
runs = 1000
rows = []
for name in ["rrs", "k-seq", "interval"]:
    rule = md.verifiers.get(name)
    predicted = rule.acceptance(contexts).value
    for i in range(len(contexts)):
        one = contexts[i]
        seeds = torch.arange(runs) + runs * len(rows)  # never the same twice
        chosen = md.uniforms(seeds, rule.draft_draws(one.law), stream=1)
        drafts = rule.sample_drafts(one.target, one.law, uniforms=chosen)
        prepared = rule.prepare(one.target, one.law)
        outcome = prepared.verify(drafts, uniforms=md.uniforms(seeds, prepared.draws, stream=2))
        rate = (outcome.draft >= 0).double().mean().item()
        rows.append({"rule": name, "predicted": predicted[i], "measured": rate, "runs": runs})
frame = pl.DataFrame(rows)
md.plots.calibration(
    frame,
    measured="measured",
    theory="predicted",
    count="runs",
    colour="rule",
    xlabel="predicted acceptance",
    ylabel="measured acceptance",
)

# %% [markdown]
# Left: all points near the diagonal. But *how* near should they be? Right: each difference in its
# own standard error, sorted, against what a normal law would give. If the theory is right, the
# points follow the line; grey holds 95% of each. A wrong formula bends the points away, a wrong
# random stream makes them steeper or flatter.

# %%
gap = frame["measured"] - frame["predicted"]
score = (gap / (frame["predicted"] * (1 - frame["predicted"]) / runs).sqrt()).to_numpy()
print(f"mean of the differences {score.mean():.2f}, their spread {score.std():.2f} standard errors")
assert abs(score.mean()) < 4 / np.sqrt(len(score))
assert abs(score.std() - 1) < 4 / np.sqrt(2 * len(score))
assert np.abs(score).max() < 5

# %% [markdown]
# ## Two kinds of error bar
#
# Simulating longer makes each *context's* number exact. It does not tell how the rule does on other
# texts: for that the contexts themselves are the sample, and those of one passage are alike. So the
# library computes acceptances exactly, and its error bars are over passages.

# %%
values = {"optimum": md.optimal_acceptance(contexts)}
for name in ["k-seq", "rrs"]:
    values[name] = md.verifiers.get(name).acceptance(contexts).value
for name, value in values.items():
    mean = md.results.clustered_mean(value, trace.passage)
    print(f"{name:8} {mean.mean:.3f} ± {mean.stderr:.3f}")
difference = md.results.paired_difference(values["optimum"], values["rrs"], trace.passage)
print(f"optimum − rrs: {difference.mean:.3f} ± {difference.stderr:.3f}")
assert difference.stderr < mean.stderr / 2

figure, axes = plt.subplots(figsize=(3.3, 2.1))
order = np.argsort(values["optimum"])
for (name, value), colour, mark in zip(values.items(), COLOURS, "os^", strict=False):
    axes.plot(value[order], color=colour, marker=mark, linestyle="", label=name)
axes.set(xlabel="context", ylabel="acceptance, n = 3", ylim=(0, 1.02))
axes.legend()
plt.show()

# %% [markdown]
# The means are uncertain by several points, and yet the order is certain: in *every* context the
# optimum is above. Differences are paired, context by context, and their error is much smaller.

# %%
assert (values["optimum"] >= values["k-seq"] - 1e-9).all()
assert (values["k-seq"] >= values["rrs"] - 1e-9).mean() > 0.5

# %% [markdown]
# ## Catching a wrong rule
#
# A rule that accepts more is worth nothing if its output is not the target's. Here is a tempting
# one: test *both* drafts with min(1, q/p), and draw from the positive part of q − p if both fail.


# %%
def tempting(target, law, seeds):
    """Forget to replace q after the first rejection."""
    target, draft = np.asarray(target), np.asarray(law.probs)
    u = md.uniforms(torch.as_tensor(seeds), 5, stream=3).numpy()
    drafts = np.searchsorted(draft.cumsum(), u[:, :2], side="right")
    tests = u[:, 2:4] < np.minimum(1, target / draft)[drafts]
    left = np.maximum(target - draft, 0)
    other = np.searchsorted((left / left.sum()).cumsum(), u[:, 4], side="right")
    return np.where(tests[:, 0], drafts[:, 0], np.where(tests[:, 1], drafts[:, 1], other))


verdicts = {
    "tempting": md.testing.check_sampler(tempting, q, law, draws=20_000),
    "rrs": md.testing.check_sampler(md.testing.sampler("rrs"), q, law, draws=20_000),
}
for name, verdict in verdicts.items():
    print(name, "passed" if verdict.passed else "FAILED: " + verdict.findings[0])
assert verdicts["rrs"].passed and not verdicts["tempting"].passed

# %% [markdown]
# `check_sampler` takes any function, of this library or not, and says how large an error it would
# have found. Its false alarms are bounded: at most one in a million runs. For rules of the library
# there is something better than statistics, the exact output law, summed over all drafted tuples:

# %%
for name in ["naive", "rrs", "k-seq", "importance", "interval"]:
    md.testing.assert_lossless(name, law, q)
print("all lossless, to 12 digits")

# %% [markdown]
# ## Exercises
#
# **1.** A rule accepts with probability 0.7. How many verifications until the standard error is
# 0.01?
#
# <details><summary>Answer</summary>
#
# 0.7 · 0.3/0.01² = 2,100.
#
# </details>
#
# **2.** Two rules accept with 0.70 and 0.71. They are measured in separate runs of N verifications
# each. How large must N be for the difference to be two standard errors?
#
# <details><summary>Answer</summary>
#
# The variance of the difference is (0.7 · 0.3 + 0.71 · 0.29)/N = 0.4159/N; N = 4 · 0.4159/0.01² =
# 16,636. Computing instead of simulating takes none.
#
# </details>
#
# **3.** With what probability does one of the tempting rule's two tests accept, for q and p of this
# page? Is it above the optimum?
#
# <details><summary>Answer</summary>
#
# Each accepts with Σ min(q, p) = 0.6, so 1 − 0.4² = 0.84. The optimum is 0.7475: no lossless rule
# can do that.
#
# </details>

# %%
mine = {}  # for example {1: 500, 2: 9000, 3: 0.9}
truth = {
    1: 0.7 * 0.3 / 0.01**2,
    2: 4 * (0.7 * 0.3 + 0.71 * 0.29) / 0.01**2,
    3: 1 - (1 - first) ** 2,
}
for number, answer in mine.items():
    close = abs(answer - truth[number]) < 1e-3 * truth[number]
    print(number, "is right" if close else "is not right yet")
assert np.allclose(list(truth.values()), [2100, 16636, 0.84])
assert truth[3] > md.optimal_acceptance(problem)
