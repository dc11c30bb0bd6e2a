# %% [markdown]
# # 5. The interval partition
#
# [Notebook 3](03_max_flow.ipynb) ended with a thousand million drafted pairs. Here is a way around
# them: an optimal rule for identical drafts that never looks at pairs, for any number of drafts and
# any vocabulary, exact to the last digits. It fits in one picture of the unit interval.
#
# The proofs are on the page *The interval partition* of the documentation. Notation: q target,
# p draft, b law of the selected token, hit(A) = 1 − (1 − p(A))ⁿ.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np

import multidraft as md
from multidraft.experiments.interval_figures import FIVE, partition_figure
from multidraft.plots.canvas import COLOURS
from multidraft.solvers.selection import clipped_selection

plt.style.use("multidraft.plots.paper")
BLUE, ORANGE, GREEN = COLOURS[:3]

# %% [markdown]
# ## A race
#
# Give every token y a piece of the interval [0, 1] of length p(y). Draw the drafts as usual, and
# give each of them a random *time* on the piece of its token. Select the earliest.
#
# A draft falls on y with probability p(y) and is then uniform on a piece of that length. So, not
# knowing the token, its time is uniform on [0, 1]. The earliest of n uniform times has density
#
# $$ g(t) = n\,(1-t)^{n-1} , $$
#
# and the selected token is the owner of the earliest time. **Token y is selected with probability
# b(y) = area under g above its pieces.** Early pieces are worth much, late ones little, and pieces
# may be cut.
#
# ## Two tokens, three partitions
#
# p = (½, ½) and two drafts. The same lengths, three different selection laws:


# %%
def area(edges, n):
    """Area under g over intervals [start, stop]."""
    return sum((1 - start) ** n - (1 - stop) ** n for start, stop in edges)


partitions = [
    {"a": [(0, 0.5)], "b": [(0.5, 1)]},
    {"a": [(0, 0.25), (0.75, 1)], "b": [(0.25, 0.75)]},
    {"a": [(0.5, 1)], "b": [(0, 0.5)]},
]
figure, panels = plt.subplots(1, 3, figsize=(6.9, 1.8), sharey=True)
for axes, pieces in zip(panels, partitions, strict=True):
    for colour, (name, edges) in zip(COLOURS, pieces.items(), strict=False):
        for start, stop in edges:
            t = np.linspace(start, stop, 50)
            axes.fill_between(t, 2 * (1 - t), color=colour, linewidth=0)
            axes.annotate(name, ((start + stop) / 2, 0.08), ha="center", color="white")
    axes.set(title=f"b(a) = {area(pieces['a'], 2)}", xlabel="time t", xlim=(0, 1), ylim=(0, 2))
panels[0].set_ylabel("density g")
plt.show()
assert [area(pieces["a"], 2) for pieces in partitions] == [0.75, 0.5, 0.25]

# %% [markdown]
# Left, a always beats b: it is selected whenever drafted, hit({a}) = ¾. Right, b always wins. In
# between, everything is possible, and that is a theorem: **a law b has a partition exactly when
# b(A) ≤ hit(A) for all A**, the condition of [notebook 4](04_polymatroids.ipynb) that every rule
# must satisfy. Nothing is lost by using partitions.
#
# Let us run the race in the middle, with 200,000 pairs of drafts.

# %%
generator = np.random.default_rng(0)
drafts = generator.integers(0, 2, (200_000, 2))  # 0 is a, 1 is b
u = generator.random(drafts.shape)
on_a = np.where(u < 0.5, 0.5 * u, 0.5 + 0.5 * u)  # uniform on [0, 1/4] and [3/4, 1]
times = np.where(drafts == 0, on_a, 0.25 + 0.5 * u)
first = times.argmin(1)
selected = np.take_along_axis(drafts, first[:, None], 1)[:, 0]
figure, axes = plt.subplots(figsize=(3.3, 1.9))
axes.hist(times.ravel(), 40, density=True, histtype="step", color=BLUE, label="all times")
axes.hist(times.min(1), 40, density=True, histtype="step", color=ORANGE, label="the earliest")
t = np.linspace(0, 1)
axes.plot(t, 2 * (1 - t), color="black", linestyle=":", label="g(t) = 2 (1 − t)")
axes.set(xlabel="time t", ylabel="density")
axes.legend()
plt.show()
print("a selected:", (selected == 0).mean().round(2), "of the time")
assert abs((selected == 0).mean() - 0.5) < 5 * 0.5 / np.sqrt(200_000)  # five standard errors

# %% [markdown]
# ## Which b is best?
#
# Among all optimal laws take the one closest to the draft: *clip the ratio q/p*,
#
# $$ \frac{b(y)}{p(y)} = \text{clip}\Big(\frac{q(y)}{p(y)},\ \mathrm{lo},\ \mathrm{hi}\Big) , $$
#
# where hi is the level at which the tokens outside H get hit(outside) together, and lo the one at
# which those inside H get p(H)ⁿ; H is the minimum cut, found by one sort. It is the least spread of
# all optimal laws, so if any of them has a partition, it has.

# %%
q, p, n = FIVE.target, FIVE.law.probs, FIVE.n
solution = md.solve(FIVE, "interval")
cut = solution.certificate.cut
law = clipped_selection(q, p, n, cut)
order = np.argsort(q / p)
figure, axes = plt.subplots(figsize=(4.4, 2.1))
axes.bar(np.arange(5) - 0.2, (q / p)[order], 0.38, color=BLUE, label="q/p")
axes.bar(np.arange(5) + 0.2, (law.law / p)[order], 0.38, color=GREEN, label="b/p, clipped")
axes.set_xticks(range(5), [f"token {y}" for y in order])
axes.axvline(cut.sum() - 0.5, color="black", linestyle=":")
axes.annotate("H", (cut.sum() - 0.6, 4.5), ha="right")
axes.set_ylabel("ratio")
axes.legend()
plt.show()
ratio = law.law / p
assert np.allclose(ratio[cut], np.maximum((q / p)[cut], ratio[cut].min()))
assert np.allclose(ratio[~cut], np.minimum((q / p)[~cut], ratio[~cut].max()))
assert np.isclose(law.law[~cut].sum(), FIVE.law.hit(~cut))
assert np.isclose(np.minimum(q, law.law).sum(), md.optimal_acceptance(FIVE))

# %% [markdown]
# ## How the pieces are placed
#
# Go through the tokens from the largest b/p to the smallest. Each wants a length p and an area b.
# Slide an interval of length p from left to right, over what is still free, until the area fits;
# cut it out and close the gap. So a token may end up in several pieces, around those placed before.
# Tokens with equal b/p share one region. Here is the result for these five tokens and three drafts.

# %%
partition_figure(FIVE)

# %% [markdown]
# That partition *is* the rule. Its lengths are p and its areas are b, to the last digits, and with
# the single-draft test the output has law q. Summed over all 125 drafted triples:

# %%
(pieces,) = solution.plan.partitions
print("regions:", len(pieces.length), " pieces:", len(pieces.rank))
assert np.allclose(pieces.realised(p), law.law, atol=1e-14)
assert np.allclose(solution.plan.output_law(), q, atol=1e-14)
assert abs(float(solution.certificate.gap)) < 1e-14

# %% [markdown]
# 200,000 simulated verifications agree: every token is output as often as the target says, and a
# draft is accepted as often as predicted.

# %%
drafts = FIVE.law.sample(200_000, generator)
output = solution.plan.sample(drafts, generator.random((200_000, 2)))
frequency = np.bincount(output, minlength=5) / 200_000
accepted = (drafts == output[:, None]).any(1).mean()
print("frequencies:", frequency.round(2), " accepted:", accepted.round(2))
assert np.abs(frequency - q).max() < 5 * 0.5 / np.sqrt(200_000)
assert abs(accepted - float(solution.acceptance)) < 5 * 0.5 / np.sqrt(200_000)

# %% [markdown]
# ## A real vocabulary
#
# One of the recorded contexts that ship with the package: 49,152 tokens, four drafts. The five
# numbers above become fifty thousand; the picture stays the same.

# %%
trace = md.traces.frozen()
real = md.Problem.from_logits(trace.target[4], trace.draft("skip-8")[4], "iid", n=4)
partition_figure(real)

# %%
solution = md.solve(real, "interval")
certificate = solution.certificate
print(f"acceptance {float(solution.acceptance):.4f}, {int(certificate.cut.sum())} tokens in H")
assert abs(float(certificate.gap)) < 1e-12
assert float(certificate.violation) < 1e-12

# %% [markdown]
# The linear program for this context has a variable for every quadruple and output, V⁵ in all:

# %%
print(f"{real.vocabulary**5:.0e} variables")

# %% [markdown]
# Over all 24 contexts, this is what the optimum buys beyond the rules in use.

# %%
counts = [1, 2, 4]
curves = {"optimum": [], "k-seq": [], "rrs": []}
every = md.Problem.from_logits(trace.target, trace.draft("skip-8"), "iid", n=1)
for n in counts:
    problem = md.Problem(every.target, md.IID(every.law.probs, n))
    curves["optimum"].append(md.optimal_acceptance(problem).mean())
    for name in ["k-seq", "rrs"]:
        curves[name].append(md.verifiers.get(name).acceptance(problem).value.mean())
figure, axes = plt.subplots(figsize=(3.3, 2.1))
for (name, values), colour, mark in zip(curves.items(), COLOURS, "os^", strict=False):
    axes.plot(counts, values, color=colour, marker=mark, label=name)
    print(f"{name:8}", np.round(values, 3))
axes.set_xscale("log", base=2)
axes.set_xticks(counts, counts)
axes.set(xlabel="number of drafts n", ylabel="mean acceptance")
axes.legend()
plt.show()
for name in ["k-seq", "rrs"]:
    assert np.isclose(curves[name][0], curves["optimum"][0])  # one draft: all agree
    assert (np.array(curves[name][1:]) < curves["optimum"][1:]).all()

# %% [markdown]
# ## Exercises
#
# **1.** p = (½, ½), three drafts, and a owns [0, ¼] and [¾, 1]. What is b(a)?
#
# <details><summary>Answer</summary>
#
# (1 − (3/4)³) + (1/4)³ = 0.578125 + 0.015625 = 0.59375.
#
# </details>
#
# **2.** p = (0.3, 0.7), two drafts, and the target wants b(a) = 0.3, exactly p(a). Token a owns one
# interval [s, s + 0.3]. Find s.
#
# <details><summary>Answer</summary>
#
# Its area is (1 − s)² − (0.7 − s)² = 0.3 (1.7 − 2 s), which is 0.3 for s = 0.35: an interval with
# the middle at ½. (For two drafts the area is the length times the height in the middle.)
#
# </details>
#
# **3.** In the picture of q/p and b/p above, which number is hi?
#
# <details><summary>Answer</summary>
#
# Only token 4 is outside H, and it is clipped to b = hit({4}) = 1 − 0.95³ = 0.142625. So
# hi = 0.142625/0.05 = 2.8525.
#
# </details>

# %%
mine = {}  # for example {1: 0.5, 2: 0.1, 3: 2.0}
truth = {
    1: area([(0, 0.25), (0.75, 1)], 3),
    2: 0.35,
    3: float(law.high),
}
for number, answer in mine.items():
    print(number, "is right" if abs(answer - truth[number]) < 1e-3 else "is not right yet")
assert np.allclose(list(truth.values()), [0.59375, 0.35, 2.8525])
assert np.isclose(area([(0.35, 0.65)], 2), 0.3)
