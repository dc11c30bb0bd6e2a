# %% [markdown]
# # 2. Two identical drafts: when is acceptance 1 possible?
#
# Two candidates are drawn from the same draft law p. When can a rule *always* output one of them
# and still follow the target q exactly? Khisti et al.
# ([2410.18234](https://arxiv.org/abs/2410.18234), the theorem on two identical drafts) answer with
# one line:
#
# $$ \text{acceptance } 1 \text{ is possible} \iff q(S) \ge p(S)^2 \text{ for every set } S
#    \text{ of tokens.} $$
#
# Here you will see that region for two and for three tokens, why the line is true, and how far
# rules that are in use stay from it. Notation: q target, p draft, as in the paper.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import numpy as np

import multidraft as md
from multidraft.plots.canvas import COLOURS

plt.style.use("multidraft.plots.paper")
BLUE, ORANGE, GREEN = COLOURS[:3]


def optimum(q, p, n):
    """Best acceptance of n identical drafts; laws in the last dimension, any batch before it."""
    q, p = (np.atleast_2d(law) for law in (q, p))
    return md.optimal_acceptance(md.Problem(q, md.IID(p, n)))


# %% [markdown]
# ## Why the line is true
#
# *Only if.* Both candidates lie in S with probability p(S)². A rule that always outputs a candidate
# then outputs a token of S, so q(S) is at least that.
#
# *If.* Think of each pair of candidates as a worker who can do two jobs, and of tokens as jobs, to
# be filled to the amounts q. Hall's marriage theorem, in its version with amounts, says that the
# workers can all be placed as soon as every *group of workers* finds enough jobs. The worst groups
# are "all pairs inside S", for some set S, and their jobs are S: that is the condition.
# [Notebook 3](03_max_flow.ipynb) draws this as a network.
#
# If some set violates the condition, the largest violation is exactly what is lost (the
# explicit optimum of that paper; the page *The mathematics, with proofs* of the documentation
# proves it for any number of drafts, with exponent n):
#
# $$ \alpha^* \;=\; 1 + \min_S \big( q(S) - p(S)^2 \big). $$
#
# ## Two tokens
#
# Let p(a) = x and q(a) = y. The sets {a} and {b} give y ≥ x² and 1 − y ≥ (1 − x)²: a lens between
# two parabolas. With n drafts the exponent is n, and the lens grows; with one draft only the
# diagonal, p = q, has acceptance 1.

# %%
x = np.linspace(0, 1, 101)
grid_x, grid_y = np.meshgrid(x, x)
figure, panels = plt.subplots(1, 3, figsize=(6.9, 2.5), sharey=True)
for axes, n in zip(panels, [1, 2, 4], strict=True):
    laws = [np.stack([grid, 1 - grid], -1).reshape(-1, 2) for grid in (grid_y, grid_x)]
    value = optimum(*laws, n).reshape(grid_x.shape)
    shades = axes.pcolormesh(x, x, value, vmin=0, vmax=1, shading="nearest", rasterized=True)
    axes.plot(x, x**n, color=ORANGE)
    axes.plot(x, 1 - (1 - x) ** n, color=ORANGE)
    axes.set(title=f"n = {n}", xlabel="draft p(a)", aspect="equal")
    inside = (grid_y >= grid_x**n - 1e-9) & (1 - grid_y >= (1 - grid_x) ** n - 1e-9)
    assert ((value > 1 - 1e-9) == inside).all()  # the lens is exactly where the optimum is 1
panels[0].set_ylabel("target q(a)")
figure.colorbar(shades, ax=panels, label="optimal acceptance")
plt.show()

# %% [markdown]
# How much of the square is the lens? For n drafts its area is 1 − 2/(n + 1): nothing, a third,
# three fifths, …

# %%
for n in [1, 2, 4, 8]:
    area = np.mean(1 - (1 - x) ** n - x**n)
    print(f"n = {n}: share of the square with acceptance 1: {1 - 2 / (n + 1):.3f}")
    assert abs(area - (1 - 2 / (n + 1))) < 0.01

# %% [markdown]
# ## Three tokens
#
# All laws on three tokens fill a triangle; each corner is a law that is sure of one token. Fix p
# (the cross) and colour every q by its optimal acceptance. The six conditions, p(S)² ≤ q(S) for
# sets of one and of two tokens, cut a hexagon out of the triangle: inside it acceptance 1 is
# possible.

# %%
CORNERS = np.array([[0, 0], [1, 0], [0.5, np.sqrt(3) / 2]])


def triangle(axes, p, n, shades=60):
    """Colour all targets q by the optimum for the draft p; return the hexagon's corners."""
    steps = [(i, j, shades - i - j) for i in range(shades + 1) for j in range(shades + 1 - i)]
    q = np.array(steps) / shades
    image = axes.tripcolor(*(q @ CORNERS).T, optimum(q, p, n), vmin=0.3, vmax=1, shading="gouraud")
    corners = []
    for first, second, last in [(0, 1, 2), (0, 2, 1), (2, 0, 1), (2, 1, 0), (1, 2, 0), (1, 0, 2)]:
        law = np.zeros(3)  # as much of `first` as allowed, then as much of `second`
        law[first] = 1 - (1 - p[first]) ** n
        law[last] = p[last] ** n
        law[second] = 1 - law[first] - law[last]
        corners.append(law)
    outline = np.array([*corners, corners[0]]) @ CORNERS
    axes.plot(*outline.T, color=ORANGE)
    axes.plot(*(np.array(p) @ CORNERS), "x", color="white", markersize=5)
    for corner, name, shift in zip(CORNERS, "abc", [(-7, -4), (7, -4), (0, 6)], strict=True):
        axes.annotate(name, corner, shift, textcoords="offset points", ha="center", va="center")
    axes.set_aspect("equal")
    axes.axis("off")
    return image, np.array(corners)


figure, panels = plt.subplots(1, 3, figsize=(6.9, 2.3))
for axes, (p, n) in zip(
    panels, [([1 / 3] * 3, 2), ([0.6, 0.3, 0.1], 2), ([0.6, 0.3, 0.1], 4)], strict=True
):
    image, corners = triangle(axes, p, n)
    axes.set_title("p = " + ", ".join(f"{mass:.2f}" for mass in p) + f"; n = {n}")
    assert np.allclose(optimum(corners, p, n), 1)  # the corners still have acceptance 1
    outwards = p + 1.0005 * (corners - p)
    assert (optimum(outwards, p, n) < 1 - 1e-6).all()  # just outside them it is lost
figure.colorbar(image, ax=panels, label="optimal acceptance")
plt.show()

# %% [markdown]
# Each corner of the hexagon is a simple rule: order the tokens, and output the candidate that comes
# first in that order. [Notebook 4](04_polymatroids.ipynb) makes a theory out of this.
#
# ## What rules make of it
#
# Khisti et al. show the gap on three tokens with a flat draft, p = (1/3, 1/3, 1/3), along two lines
# of targets. The optimum is 1 on a whole stretch. *K-SEQ* (SpecTr) and *RRS* (SpecInfer) touch 1
# only where q = p.

# %%
flat = np.full(3, 1 / 3)
figure, panels = plt.subplots(1, 2, figsize=(6.9, 2.3), sharey=True)
for axes, fixed in zip(panels, [1 / 3, 1 / 6], strict=True):
    first = np.linspace(0, 1 - fixed, 101)
    q = np.stack([np.full(101, fixed), first, 1 - fixed - first], axis=-1)
    problem = md.Problem(q, md.IID(np.tile(flat, (101, 1)), 2))
    curves = {"optimum": md.optimal_acceptance(problem)}
    for name in ["k-seq", "rrs"]:
        curves[name] = md.verifiers.get(name).acceptance(problem).value
    for number, (name, values) in enumerate(curves.items()):
        style = {"color": COLOURS[number], "linestyle": ["-", "--", ":"][number]}
        axes.plot(first, values, label=name, **style)
        assert (values <= curves["optimum"] + 1e-12).all()
    perfect = curves["optimum"] > 1 - 1e-9
    region = (q >= 1 / 9 - 1e-9) & (q <= 5 / 9 + 1e-9)  # sets of one token, and of two
    assert (perfect == region.all(-1)).all()
    for name in ["k-seq", "rrs"]:
        assert (curves[name] > 1 - 1e-9).sum() <= 1  # at q = p, if the line meets it
    axes.set(xlabel="q(b)", title=f"q = ({fixed:.2f}, q(b), rest)")
panels[0].set_ylabel("acceptance, n = 2")
panels[0].legend()
plt.show()

# %% [markdown]
# ## Real language models
#
# The package ships 24 recorded contexts of a small language model and a cheaper version of itself.
# For real vocabularies perfection is out of reach with two drafts: among 49,152 tokens some set has
# p(S)² > q(S). The optimum creeps up to 1 as drafts are added, at a very different pace from
# context to context (a thin line for each, the mean in bold).

# %%
trace = md.traces.frozen()
counts = [1, 2, 4, 8, 16, 32, 64]
pair = trace.target, trace.draft("skip-8")
values = np.array(
    [md.optimal_acceptance(md.Problem.from_logits(*pair, "iid", n=n)) for n in counts]
)
figure, axes = plt.subplots(figsize=(4.4, 2.2))
axes.plot(counts, values, color=BLUE, linewidth=0.5, alpha=0.6)
axes.plot(counts, values.mean(1), color=ORANGE, marker="o", linewidth=2)
axes.set_xscale("log", base=2)
axes.set_xticks(counts, counts)
axes.set(xlabel="number of drafts n", ylabel="optimal acceptance", ylim=(0, 1.02))
plt.show()
print("mean optimum:", dict(zip(counts, values.mean(1).round(3).tolist(), strict=True)))
assert (np.diff(values, axis=0) >= -1e-12).all()  # more drafts never hurt
assert values[counts.index(2)].max() < 1  # nowhere perfect with two
assert values[counts.index(64)].max() > 1 - 1e-9  # with 64, in some contexts

# %% [markdown]
# ## Exercises
#
# **1.** Two tokens, p(a) = 0.3. For which q(a) is acceptance 1 possible with two drafts? Give the
# smallest and the largest, as numbers 1.1 and 1.2 below.
#
# <details><summary>Answer</summary>
#
# From 0.3² = 0.09 to 1 − 0.7² = 0.51.
#
# </details>
#
# **2.** Four tokens, p = (.45, .35, .15, .05), q = (.15, .25, .25, .35). How many drafts does a
# perfect rule need to win always?
#
# <details><summary>Hint and answer</summary>
#
# The conditions are p(S)ⁿ ≤ q(S). The hardest set is {a, b, c}: 0.95ⁿ ≤ 0.65. n = 9.
#
# </details>
#
# **3.** Can acceptance be 1 for two drafts if some token has q(y) = 0?
#
# <details><summary>Answer</summary>
#
# Only if p(y) = 0 as well: the set {y} needs p(y)² ≤ 0. With p(y) = 0.1, at least 0.01 is lost: the
# pair (y, y). So with p = (.1, .9) and q = (0, 1) the optimum is 0.99.
#
# </details>
#
# Put your numbers into `mine` and run the cell (for exercise 3, the optimum of its last example).

# %%
mine = {}  # for example {1.1: 0.2, 1.2: 0.8, 2: 5, 3: 0.5}
target, draft = [0.15, 0.25, 0.25, 0.35], [0.45, 0.35, 0.15, 0.05]
perfect = optimum(np.stack([x, 1 - x], -1), np.tile([0.3, 0.7], (len(x), 1)), 2) > 1 - 1e-9
truth = {
    1.1: x[perfect].min(),
    1.2: x[perfect].max(),
    2: next(n for n in range(1, 99) if optimum(target, draft, n)[0] > 1 - 1e-9),
    3: optimum([0.0, 1.0], [0.1, 0.9], 2)[0],
}
for number, answer in mine.items():
    print(number, "is right" if abs(answer - truth[number]) < 1e-3 else "is not right yet")
assert np.allclose(list(truth.values()), [0.09, 0.51, 9, 0.99])
