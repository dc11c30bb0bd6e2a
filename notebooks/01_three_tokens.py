# %% [markdown]
# # 1. Three tokens: the best rule by hand, and by five solvers
#
# A cheap *draft* model proposes a few candidates for the next token. The large *target* model looks
# at all of them in one call. A *verification rule* then outputs one token, and must do so with
# exactly the target's probabilities, as if the draft had never existed. The rule wins when its
# output is one of the candidates: nothing had to be drawn afresh.
#
# How often can it win? With three tokens the answer fits on a page. You will find it by hand, prove
# that it cannot be beaten, and see five different optimisers agree.
#
# Notation, here and in the documentation: **q** is the target law, **p** the draft law. (Papers
# disagree: Khisti et al. and SpecTr write it like this, SpecHub, Hu et al. and Global Resolution
# the other way round.)

# %%
# %matplotlib inline
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np

import multidraft as md
from multidraft.plots.canvas import COLOURS

plt.style.use("multidraft.plots.paper")
BLUE, ORANGE, GREEN = COLOURS[:3]

tokens = ["a", "b", "c"]
q = np.array([0.2, 0.3, 0.5])  # target
p = np.array([0.6, 0.3, 0.1])  # draft

figure, axes = plt.subplots(figsize=(3.3, 1.8))
axes.bar(np.arange(3) - 0.2, q, 0.38, color=BLUE, label="target q")
axes.bar(np.arange(3) + 0.2, p, 0.38, color=ORANGE, label="draft p")
axes.set_xticks(range(3), tokens)
axes.set_ylabel("probability")
axes.legend()
plt.show()

# %% [markdown]
# ## One draft
#
# With a single candidate x drawn from p the best rule is known since the first papers on
# speculative sampling ([2211.17192](https://arxiv.org/abs/2211.17192),
# [2302.01318](https://arxiv.org/abs/2302.01318)): keep x with probability min(1, q(x)/p(x)), else
# draw from the positive part of q − p, normalised. It keeps each token y with probability
# min(q(y), p(y)) in all, and no rule can keep more.

# %%
one = np.minimum(q, p)
print("kept mass of a, b, c:", one, "  acceptance:", one.sum().round(6))
assert np.isclose(one.sum(), 0.6)
assert np.isclose(md.optimal_acceptance(md.Problem(q, md.IID(p, n=1))), 0.6)

# %% [markdown]
# ## Two drafts
#
# Now two candidates are drawn from p, independently. There are nine pairs, but the rule only cares
# which *set* of tokens is on the table, so six sets are left.

# %%
mass = {(y,): p[y] ** 2 for y in range(3)}
mass |= {pair: 2 * p[pair[0]] * p[pair[1]] for pair in combinations(range(3), 2)}
for members, probability in mass.items():
    print("{" + ", ".join(tokens[y] for y in members) + "}", f"{probability:.2f}")
assert np.isclose(sum(mass.values()), 1)

# %% [markdown]
# A rule is a table: for each set S, how much of its mass ends as output y. Write C(S, y). The table
# must use up exactly the mass of every set, and produce exactly q. It wins where y ∈ S:
#
# $$ \max \sum_{S} \sum_{y \in S} C(S, y) \quad\text{subject to}\quad
#    \sum_y C(S, y) = P(S), \qquad \sum_S C(S, y) = q(y), \qquad C \ge 0. $$
#
# This is a transport problem whose cost is 0 or 1: the *optimal-transport linear program with
# membership cost* of SpecTr ([2310.15141](https://arxiv.org/abs/2310.15141)), the OTLP for short.
#
# ## A bound by hand
#
# Take any set H of tokens and ask what happens when **both** candidates fall into H. That has
# probability p(H)², and then a win must output a token of H. But tokens of H may be output with
# probability q(H) in all. If p(H)² is larger than q(H), the difference is lost, whatever the rule:
#
# $$ \text{acceptance} \;\le\; 1 - \big(p(H)^2 - q(H)\big) \;=\; 1 + q(H) - p(H)^2 . $$

# %%
sets = [list(some) for size in range(4) for some in combinations(range(3), size)]
bounds = [1 + q[some].sum() - p[some].sum() ** 2 for some in sets]
names = ["{" + ",".join(tokens[y] for y in some) + "}" if some else "∅" for some in sets]
best = int(np.argmin(bounds))

figure, axes = plt.subplots(figsize=(4.4, 1.9))
axes.bar(names, bounds, color=[ORANGE if i == best else BLUE for i in range(len(sets))])
for i, bound in enumerate(bounds):
    axes.annotate(f"{bound:.2f}", (i, bound), ha="center", va="bottom", fontsize=6.5)
axes.axhline(1, color="black", linewidth=0.6)
axes.set(xlabel="set H", ylabel="bound 1 + q(H) − p(H)²")
assert names[best] == "{a,b}"
assert np.isclose(bounds[best], 0.69)

# %% [markdown]
# The tightest bound comes from H = {a, b}: both candidates fall there with probability 0.81, yet a
# and b may be output with probability 0.5 only. So at least 0.31 is lost, and **no rule accepts
# more than 0.69**.
#
# ## A rule by hand that reaches the bound
#
# The bound tells what a perfect rule must do. A set that leaves H holds a c: always keep it.
# Inside H, use up all of q(a) = 0.2 and q(b) = 0.3. One way: b is kept from {b} (mass 0.09) and
# with 0.21 from {a, b}; a is kept with 0.2 from {a}. Everything else is lost and drawn from what q
# still needs, which is 0.31 of c.

# %%
keep = {(2,): {2: 0.01}, (0, 2): {2: 0.12}, (1, 2): {2: 0.06}}  # sets with a c
keep |= {(0,): {0: 0.20}, (1,): {1: 0.09}, (0, 1): {1: 0.21}}  # sets inside H
kept = np.zeros(3)
for members, table in keep.items():
    assert sum(table.values()) <= mass[members] + 1e-12  # no set gives more than it has
    for y, amount in table.items():
        assert y in members
        kept[y] += amount
lost = 1 - kept.sum()
residual = (q - kept) / lost
print("kept:", kept.round(2), " acceptance:", kept.sum().round(6))
print("the rest is drawn from:", residual.round(6) + 0.0)
assert np.isclose(kept.sum(), 0.69)
assert np.allclose(kept + lost * residual, q)  # the output has law q: the rule is lossless
assert residual.min() > -1e-12

# %% [markdown]
# A bound of 0.69 and a rule with 0.69: the problem is solved, and the pair is a *certificate* that
# anyone can check without trusting an optimiser. (That the two always meet is proved on the page
# *The mathematics, with proofs* of the documentation.) Every solver of the library hands out such a
# pair.
#
# ## Five solvers
#
# They think about the problem in five ways:
#
# * `full-lp`: the program above over all tuples and tokens, given to a linear-programming code.
# * `relaxed-lp`: only the winning entries, equalities turned into ≤
#   (Global Resolution, [2511.15898](https://arxiv.org/abs/2511.15898)).
# * `canonical-lp`: first *select* one candidate, then test it as a single draft. That this loses
#   nothing is the canonical decomposition of Khisti et al.
#   ([2410.18234](https://arxiv.org/abs/2410.18234)).
# * `max-flow`: water through pipes, from sets to their tokens ([notebook 3](03_max_flow.ipynb)).
# * `interval`: no optimiser at all, a construction ([notebook 5](05_interval_partition.ipynb)).

# %%
problem = md.Problem(q, md.IID(p, n=2))
solutions = {}
for method in ["full-lp", "relaxed-lp", "canonical-lp", "max-flow", "interval"]:
    solutions[method] = solution = md.solve(problem, method)
    certificate = solution.certificate
    cut = "{" + ",".join(tokens[y] for y in np.flatnonzero(certificate.cut)) + "}"
    print(
        f"{method:13} plan {certificate.lower:.6f}  bound {certificate.upper:.6f}  from H = {cut}"
    )
    assert abs(float(certificate.gap)) < 1e-9
    assert float(certificate.violation) < 1e-9
    assert np.allclose(solution.plan.output_law(), q)

# %% [markdown]
# The acceptance is the same, but the rules need not be. For each drafted set, here is what each of
# two optimal rules outputs.

# %%
figure, panels = plt.subplots(1, 2, figsize=(6.9, 2.1), sharey=True)
for axes, method in zip(panels, ["relaxed-lp", "interval"], strict=True):
    base = np.zeros(len(mass))
    drafts = [(*members, members[-1])[:2] for members in mass]
    output = solutions[method].plan.conditional(np.array(drafts))
    for y in range(3):
        axes.bar(range(len(mass)), output[:, y], bottom=base, color=COLOURS[y], label=tokens[y])
        base += output[:, y]
    axes.set_xticks(range(len(mass)), ["{" + ",".join(tokens[y] for y in s) + "}" for s in mass])
    axes.set(title=method, xlabel="drafted set")
panels[0].set_ylabel("law of the output")
panels[1].legend(title="output", loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# For a small problem the two bounds can even be proved in exact fractions. What remains between
# them is that 0.1 is no binary fraction.

# %%
proof = solutions["interval"].certificate.proof
print("lower bound", float(proof.lower), " upper bound", float(proof.upper))
assert proof.upper - proof.lower < 1e-15

# %% [markdown]
# ## What practice does
#
# The rules in use are simple and lossless, and accept less. *Naive* draws from q and hopes that the
# token was drafted. *RRS* tests the candidates one after another. *K-SEQ* (SpecTr) tests with a
# tuned threshold. The distance to the optimum is what this project is about.

# %%
counts = np.arange(1, 9)
curves = {
    "optimum": [float(md.optimal_acceptance(md.Problem(q, md.IID(p, n=n)))) for n in range(1, 9)]
}
for name in ["k-seq", "rrs", "naive"]:
    rule = md.verifiers.get(name)
    curves[name] = [float(rule.acceptance(md.Problem(q, md.IID(p, n=n)))) for n in range(1, 9)]

figure, axes = plt.subplots(figsize=(4.4, 2.1))
for name, values, colour, mark in zip(curves, curves.values(), COLOURS, "os^D", strict=False):
    axes.plot(counts, values, color=colour, marker=mark, label=name)
axes.set(xlabel="number of drafts n", ylabel="acceptance", ylim=(0, 1.02))
axes.legend(loc="lower right")
for name in ["k-seq", "rrs", "naive"]:
    assert (np.array(curves[name]) <= np.array(curves["optimum"]) + 1e-12).all()

# %% [markdown]
# ## Exercises
#
# **1.** Find the optimum for three drafts, by hand: the bound becomes 1 + q(H) − p(H)³.
#
# <details><summary>Answer</summary>
#
# H = {a, b} gives 1 + 0.5 − 0.9³ = 0.771. All other sets give more ({a}: 0.984). So 0.771.
#
# </details>
#
# **2.** What is the smallest number of drafts with which a perfect rule never loses?
#
# <details><summary>Hint and answer</summary>
#
# No set H may have p(H)ⁿ > q(H). {a, b} needs 0.9ⁿ ≤ 0.5, so n ≥ 7; {a} needs 0.6ⁿ ≤ 0.2, so
# n ≥ 4. The answer is 7.
#
# </details>
#
# **3.** The draft is changed to p = (0.2, 0.2, 0.6). How much does a rule accept with one draft,
# and how much with two?
#
# <details><summary>Answer</summary>
#
# One: 0.2 + 0.2 + 0.5 = 0.9. Two: no set has p(H)² > q(H) (the closest is {a, c}, 0.64 against
# 0.7), so 1.
#
# </details>
#
# Put your numbers into `mine` and run the cell.

# %%
mine = {}  # for example {1: 0.8, 2: 3, 3: 0.5} (for exercise 3 the value with two drafts)
better = [0.2, 0.2, 0.6]
truth = {
    1: float(md.optimal_acceptance(md.Problem(q, md.IID(p, n=3)))),
    2: next(
        n for n in range(1, 99) if md.optimal_acceptance(md.Problem(q, md.IID(p, n))) > 1 - 1e-9
    ),
    3: float(md.optimal_acceptance(md.Problem(q, md.IID(better, n=2)))),
}
for number, answer in mine.items():
    print(number, "is right" if abs(answer - truth[number]) < 1e-3 else "is not right yet")
assert np.allclose(list(truth.values()), [0.771, 7, 1])
assert np.isclose(1 + q[0] - p[0] ** 3, 0.984)
assert np.isclose(np.minimum(q, better).sum(), 0.9)
