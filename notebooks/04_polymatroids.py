# %% [markdown]
# # 4. Polymatroids, vertices and Global Resolution
#
# An optimal rule can always be split into two steps: *select* one of the drafted tokens, then test
# it as if it were the only draft. The second step is known. So everything is about the first, and
# the question becomes: **which laws b can the selected token have?** The answer is a beautiful
# convex body, a *polymatroid*, whose corners are simple rules. At the end we look at how Global
# Resolution ([2511.15898](https://arxiv.org/abs/2511.15898)) uses it, and where its weights run off
# to infinity.
#
# Notation: q target, p draft, b law of the selected token.

# %%
# %matplotlib inline
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np

import multidraft as md
from multidraft.plots.canvas import COLOURS
from multidraft.solvers.priority import winner

plt.style.use("multidraft.plots.paper")
BLUE, ORANGE, GREEN, PINK = COLOURS[:4]

q = np.array([0.2, 0.3, 0.5])
p = np.array([0.6, 0.3, 0.1])
n = 2
problem = md.Problem(q, md.IID(p, n))

# %% [markdown]
# ## Two steps lose nothing
#
# Select a drafted token; its law is b. Keep it with probability min(1, q/b), else draw from the
# positive part of q − b. That is single-draft speculative sampling with b for the draft law, so the
# output has law q, and the drafts win with Σ min(q, b). Khisti et al.
# ([2410.18234](https://arxiv.org/abs/2410.18234), canonical decomposition) prove that the best b
# gives the optimum of the whole problem:
#
# $$ \alpha^* = \max_b \sum_y \min\big(q(y), b(y)\big). $$
#
# ## Which b are possible?
#
# A selected token in a set A was drafted, so b(A) ≤ hit(A), the probability that *some* draft lies
# in A. For identical drafts hit(A) = 1 − (1 − p(A))ⁿ.


# %%
def hit(members):
    """Probability that some draft is among the tokens."""
    mask = np.isin(np.arange(len(p)), members)
    return float(problem.law.hit(mask))


sets = [list(some) for size in range(1, 4) for some in combinations(range(3), size)]
for some in sets:
    print("hit {" + ",".join("abc"[y] for y in some) + f"}} = {hit(some):.2f}")
    assert np.isclose(hit(some), 1 - (1 - p[some].sum()) ** n)

# %% [markdown]
# hit has *diminishing returns*: adding a token to a small set gains more than adding it to a large
# one. Such functions are called submodular, and for them two facts hold (Edmonds, 1970):
#
# 1. The conditions b(A) ≤ hit(A) for all A, with b(all) = 1, are also **sufficient**. (For our hit
#    this is Hall's theorem again, see [notebook 3](03_max_flow.ipynb).)
# 2. The corners of that body are the laws of **priority rules**: fix an order of the tokens, select
#    the drafted token that comes first in it.

# %%
for small in sets:
    for large in sets:
        for y in set(range(3)) - set(large):
            if set(small) <= set(large):
                gains = [hit([*some, y]) - hit(some) for some in (small, large)]
                assert gains[0] >= gains[1] - 1e-12  # diminishing returns

vertex = winner(problem.law)  # the library's corners: order of all tokens -> law of the first
orders = [[0, 1, 2], [0, 2, 1], [2, 0, 1], [2, 1, 0], [1, 2, 0], [1, 0, 2]]  # each one swap on
corners = np.array([vertex(np.array(order)) for order in orders])
for order, corner in zip(orders, corners, strict=True):
    print("first", " > ".join("abc"[y] for y in order), "  b =", corner.round(4))
    for some in sets:
        assert corner[some].sum() <= hit(some) + 1e-12
assert np.allclose(corners[0], [0.84, 0.15, 0.01])

# %% [markdown]
# By hand, for the order a > b > c: a is selected whenever drafted, hit({a}) = 0.84; b whenever
# drafted without a, hit({a, b}) − hit({a}) = 0.15; c gets the rest, 0.01.
#
# ## The picture
#
# All laws on three tokens fill a triangle. The selectable ones are the hexagon. Colour every point
# b by its acceptance Σ min(q, b): the optimum is the best value *inside* the hexagon. The target
# itself (the star) has acceptance 1, and it lies outside, or else 1 would be possible.

# %%
TRIANGLE = np.array([[0, 0], [1, 0], [0.5, np.sqrt(3) / 2]])


def triangle(axes, value, steps=80):
    """Colour the laws on three tokens."""
    grid = np.array([(i, j, steps - i - j) for i in range(steps + 1) for j in range(steps + 1 - i)])
    laws = grid / steps
    image = axes.tripcolor(*(laws @ TRIANGLE).T, value(laws), shading="gouraud", vmin=0.2, vmax=1)
    for corner, name, shift in zip(TRIANGLE, "abc", [(-7, -4), (7, -4), (0, 6)], strict=True):
        axes.annotate(name, corner, shift, textcoords="offset points", ha="center", va="center")
    axes.set_aspect("equal")
    axes.axis("off")
    return laws, image


def dot(axes, law, look, **more):
    """Mark a law."""
    return axes.plot(*(law @ TRIANGLE), look, markeredgecolor="black", linestyle="", **more)


def acceptance(laws):
    """Acceptance when the selected token has law b."""
    return np.minimum(q, laws).sum(-1)


figure, axes = plt.subplots(figsize=(4.6, 2.9))
laws, image = triangle(axes, acceptance)
axes.plot(*(np.vstack([corners, corners[:1]]) @ TRIANGLE).T, color="white")
ends = np.array([[0.51, 0.3, 0.19], [0.36, 0.45, 0.19]])  # b(c) = hit({c}), b >= q on {a, b}
axes.plot(*(ends @ TRIANGLE).T, color=PINK, linewidth=3, label="optimal laws")
for corner in corners:
    dot(axes, corner, "o", color="white", markersize=3)
dot(axes, q, "*", color=ORANGE, markersize=8, label="target q")
dot(axes, p, "s", color=GREEN, markersize=4, label="draft p")
best = md.solve(problem, "interval").plan.selection
dot(axes, best, "D", color=PINK, markersize=4, label="clipped law")
axes.legend(loc="upper left", bbox_to_anchor=(-0.25, 1))
figure.colorbar(image, ax=axes, label="acceptance Σ min(q, b)")
plt.show()

possible = np.all([laws[:, some].sum(1) <= hit(some) + 1e-9 for some in sets], axis=0)
print("best on a grid inside:", acceptance(laws[possible]).max().round(3), " optimum: 0.69")
assert acceptance(laws[possible]).max() <= 0.69 + 1e-9
assert np.allclose(acceptance(np.vstack([best, ends])), 0.69)
assert not all(q[some].sum() <= hit(some) for some in sets)  # the star is outside

# %% [markdown]
# ## Many laws are optimal
#
# The optimal laws are a stretch of the edge that faces the target: there b(c) = hit({c}), and b ≥ q
# on H = {a, b}. One end is the corner c > b > a, the rule "select the drafted token with the
# largest q/p". Two choices matter in practice:
#
# * the **clipped law** (diamond): b/p = clip(q/p, lo, hi), the least spread of all optimal laws; it
#   has a closed form and is what [notebook 5](05_interval_partition.ipynb) realises;
# * a **corner** of the optimal face, found by one greedy pass: what Global Resolution prescribes
#   for the tokens outside H.
#
# With four tokens there is more to see. Here b is compared with q, token by token.

# %%
q4 = np.array([0.15, 0.25, 0.25, 0.35])
p4 = np.array([0.45, 0.35, 0.15, 0.05])
four = md.Problem(q4, md.IID(p4, 3))
clipped = md.solve(four, "interval")
cut = clipped.certificate.cut
value = float(clipped.acceptance)
print("H =", ["abcd"[y] for y in np.flatnonzero(cut)], f" optimum {value:.6f}")

figure, axes = plt.subplots(figsize=(4.4, 2.1))
bars = {"target q": q4, "draft p": p4, "clipped law b": clipped.plan.selection}
for number, (name, law) in enumerate(bars.items()):
    axes.bar(np.arange(4) + 0.26 * (number - 1), law, 0.25, color=COLOURS[number], label=name)
axes.set_xticks(range(4), "abcd")
axes.set_ylabel("probability")
axes.legend()
plt.show()
b = clipped.plan.selection
assert (b[cut] >= q4[cut] - 1e-12).all() and (b[~cut] <= q4[~cut] + 1e-12).all()
assert np.isclose(b[~cut].sum(), float(four.law.hit(~cut)))

# %% [markdown]
# The picture shows what *optimal* means: below q outside H (all of b is kept there), above q inside
# H (all of q is used up there), and b(outside) = hit(outside): whenever a token outside H was
# drafted, one of them is selected.
#
# ## Global Resolution
#
# Global Resolution finds H by the prefix rule, prescribes masses outside H by a corner, and then
# looks for *weights* e^{a(y)}: among the drafted tokens outside H, select y with probability
# proportional to its weight (function Φ of the paper); for tuples inside H the same with a reject
# option of weight 1 (function Θ). Both sets of weights minimise a convex function, over lists of
# drafted sets that leave out a mass of at most τ.
#
# The paper guarantees an acceptance within 10 τ of the optimum and an output within 15 τ of the
# target (in L1). The library reproduces it as published, as `global-resolution`.

# %%
for tau in [1e-2, 1e-3, 1e-4]:
    solution = md.solve(four, "global-resolution", tau=tau)
    lost = abs(float(clipped.acceptance) - float(solution.acceptance))
    error = np.abs(solution.plan.output_law() - q4).sum()
    assert lost <= 10 * tau and error <= 15 * tau
    print(f"tau = {tau:g}: acceptance and output law are within the guarantee")

# %% [markdown]
# ## Where the weights run off
#
# A corner is a priority rule: a drafted token that comes first is *always* selected. Weights can
# only imitate "always" by growing without bound relative to each other. So the smaller τ, the wider
# the logarithms of the weights spread. Here three tokens lie outside H and the corner makes two
# sets tight, {c} and {b, c}: they are selected whenever they are hit.

# %%
target, draft = np.array([0.2, 0.3, 0.3, 0.2]), np.array([0.7, 0.1, 0.1, 0.1])
hard = md.Problem(target, md.IID(draft, 3))
taus = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6]
plans = [md.solve(hard, "global-resolution", tau=tau).plan for tau in taus]
corner = plans[-1].goal
assert np.isclose(corner[2], hard.law.hit(np.array([False, False, True, False])))
assert np.isclose(corner[1:3].sum(), hard.law.hit(np.array([False, True, True, False])))

smooth = md.solve(hard, "entropic").plan
figure, axes = plt.subplots(figsize=(4.4, 2.1))
axes.plot(taus, [plan.spread for plan in plans], "o-", color=BLUE, label="Global Resolution")
axes.axhline(np.ptp(smooth.logs[1:]), color=ORANGE, linestyle="--", label="entropic weights")
axes.set(xscale="log", xlabel="tolerance τ", ylabel="spread of log-weights")
axes.invert_xaxis()
axes.legend()
plt.show()
assert (np.diff([plan.spread for plan in plans]) > 1).all()

# %% [markdown]
# Nothing forces one to prescribe a corner. The library's `entropic` solver leaves b free, within
# b ≤ q outside H: the dual of that inequality is "weight ≤ 1", so the weights stay bounded unless
# several cuts tie, and the optimum is reached to the last digits (page *Entropic weights* of the
# documentation).
#
# ## Exercises
#
# **1.** For n = 3 drafts and p = (.6, .3, .1): what is hit({b, c})?
#
# <details><summary>Answer</summary>
#
# 1 − 0.6³ = 0.784.
#
# </details>
#
# **2.** Which law b has the corner c > a > b with these three drafts? Give b(a).
#
# <details><summary>Answer</summary>
#
# b(c) = 1 − 0.9³ = 0.271, b(a) = hit({a, c}) − hit({c}) = (1 − 0.3³) − 0.271 = 0.702, b(b) = 0.027.
#
# </details>
#
# **3.** A rule selects "the first draft" always. Which law has its selected token, and where in the
# hexagon is that? What is its acceptance for q = (.2, .3, .5)?
#
# <details><summary>Answer</summary>
#
# b = p, the green square, well inside; more drafts gain it nothing: Σ min(q, p) = 0.6.
#
# </details>

# %%
mine = {}  # for example {1: 0.9, 2: 0.5, 3: 0.7}
three = md.Problem(q, md.IID(p, 3))
truth = {
    1: float(three.law.hit(np.array([False, True, True]))),
    2: winner(three.law)(np.array([2, 0, 1]))[0],
    3: acceptance(p),
}
for number, answer in mine.items():
    print(number, "is right" if abs(answer - truth[number]) < 1e-3 else "is not right yet")
assert np.allclose(list(truth.values()), [0.784, 0.702, 0.6])
assert np.allclose(winner(three.law)(np.array([2, 0, 1])), [0.702, 0.027, 0.271])
