# %% [markdown]
# # 3. Max-flow and the cut
#
# The problem of [notebook 1](01_three_tokens.ipynb) is a network of pipes. Water enters at a
# source, flows through the drafted sets to their tokens, and leaves through the tokens into a sink.
# As much water as gets through, that often a perfect rule wins. And the narrowest place of the
# network, the *minimum cut*, is the proof that no more gets through.
#
# Notation: q target, p draft.

# %%
# %matplotlib inline
from itertools import combinations
from math import comb

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import multidraft as md
from multidraft.plots.canvas import COLOURS

plt.style.use("multidraft.plots.paper")
BLUE, ORANGE, GREEN = COLOURS[:3]

names = "abcd"
q = np.array([0.15, 0.25, 0.25, 0.35])
p = np.array([0.45, 0.35, 0.15, 0.05])
n = 2

# %% [markdown]
# ## The network
#
# Four tokens and two drafts give ten possible sets. Three layers of pipes:
#
# * source → set, as wide as the probability P(S) that this set is drafted;
# * set → each of its tokens, as wide as one likes: a rule may keep any drafted token;
# * token → sink, as wide as q(y): a token may be output with probability q(y) in all.
#
# Widths are counted in steps of 0.0001, as integers: maximum-flow codes compare widths all the
# time, and rounding errors lead them astray.

# %%
UNIT = 1e-4
mass = {(y,): p[y] ** 2 for y in range(4)}
mass |= {pair: 2 * p[pair[0]] * p[pair[1]] for pair in combinations(range(4), 2)}


def network(mass, q):
    """Build the pipes as a networkx graph; a pipe without a capacity is infinitely wide."""
    pipes = nx.DiGraph()
    for members, probability in mass.items():
        pipes.add_edge("source", members, capacity=round(probability / UNIT))
        for y in members:
            pipes.add_edge(members, y)
    for y in range(len(q)):
        pipes.add_edge(y, "sink", capacity=round(q[y] / UNIT))
    return pipes


pipes = network(mass, q)
units, flow = nx.maximum_flow(pipes, "source", "sink")
print("water that gets through:", units, "steps, so the optimum is", round(units * UNIT, 6))
assert np.isclose(units * UNIT, 0.7475)
assert np.isclose(units * UNIT, md.optimal_acceptance(md.Problem(q, md.IID(p, n))))

# %% [markdown]
# ## The flow, drawn
#
# Pipes are as thick as the water in them; grey is what stays unused.


# %%
def draw(pipes, flow, source_side=()):
    """Draw the network from left to right; pipes across the cut are orange."""
    sets = [node for node in pipes if isinstance(node, tuple)]
    tokens = [node for node in pipes if isinstance(node, int)]
    place = {"source": (0, 0), "sink": (3, 0)}
    place |= {node: (1, y) for node, y in zip(sets, np.linspace(1, -1, len(sets)), strict=True)}
    place |= {node: (2, y) for node, y in zip(tokens, np.linspace(0.7, -0.7, 4), strict=True)}
    _, axes = plt.subplots(figsize=(6.9, 3.4))
    for (start, end), data in {(u, v): d for u, v, d in pipes.edges(data=True)}.items():
        wide, water = data.get("capacity", 0) * UNIT, flow[start][end] * UNIT
        cut = start in source_side and end not in source_side
        ends = np.transpose([place[start], place[end]])
        axes.plot(*ends, color="#D0D0D0", linewidth=0.5 + 30 * wide, solid_capstyle="butt")
        if water:
            colour = ORANGE if cut else BLUE
            axes.plot(*ends, color=colour, linewidth=30 * water, alpha=0.75, solid_capstyle="butt")
        if wide:
            share = 0.8 if start == "source" else 0.3
            text, box = f"{wide:.4f}".rstrip("0"), {"color": "white", "alpha": 0.8, "pad": 0.5}
            spot = (1 - share) * ends[:, 0] + share * ends[:, 1]
            axes.annotate(text, spot, fontsize=5.5, ha="center", va="center", bbox=box, zorder=3)
    label = {"source": "source", "sink": "sink"} | {y: names[y] for y in tokens}
    label |= {members: "".join(names[y] for y in members) for members in sets}
    colours = ["#FFD9C2" if node in source_side else "white" for node in place]
    nx.draw_networkx_nodes(
        pipes, place, list(place), ax=axes, node_size=450, node_color=colours, edgecolors="#333333"
    )
    nx.draw_networkx_labels(pipes, place, label, ax=axes, font_size=6)
    axes.axis("off")
    plt.show()


draw(pipes, flow)

# %% [markdown]
# Read it as a rule. When {a, b} was drafted, which has probability 0.315, keep a or b with
# probabilities in proportion to the water in its two pipes. What is grey in the first layer is the
# mass of sets whose tokens are used up: there the rule loses, and draws its output from what is
# grey in the last layer.
#
# ## The cut
#
# Cut pipes until no water can pass. The widths you cut are an upper bound on the flow, however you
# cut; the *minimum* cut equals the *maximum* flow (Ford and Fulkerson, 1956). Pipes of the middle
# layer are infinitely wide, so a sensible cut is described by one set of tokens H, those still
# reached from the source:
#
# * tokens of H are cut off from the sink: that costs q(H);
# * drafted sets inside H can stay connected; all others lead out of H and must be cut off from the
#   source: that costs 1 − p(H)².
#
# So every cut costs q(H) + 1 − p(H)², which is the bound that notebook 1 found by thinking about
# what a rule may output. networkx finds the cheapest:

# %%
units_cut, (source_side, sink_side) = nx.minimum_cut(pipes, "source", "sink")
H = [y for y in range(4) if y in source_side]
print("H =", [names[y] for y in H], " cost:", round(q[H].sum() + 1 - p[H].sum() ** 2, 6))
assert units_cut == units  # minimum cut = maximum flow
assert H == [0, 1, 2]
draw(pipes, flow, source_side)

# %% [markdown]
# All pipes across the cut (orange) are full, with no grey left, and no water runs back over it.
# That is what makes the flow a maximum, and it can be said in words: **an optimal rule uses up the
# target on H, and always keeps a token outside H when one was drafted.**

# %%
for start, end, data in pipes.edges(data=True):
    if start in source_side and end not in source_side:
        assert flow[start][end] == data["capacity"]
    if start not in source_side and end in source_side:
        assert flow[start][end] == 0

# %% [markdown]
# With four tokens there are sixteen cuts. Here they all are, each with the set H below it.

# %%
sets = [list(some) for size in range(5) for some in combinations(range(4), size)]
costs = [q[some].sum() + 1 - p[some].sum() ** n for some in sets]
order = np.argsort(costs, kind="stable")
figure, axes = plt.subplots(figsize=(6.9, 2))
bars = axes.bar(range(16), np.array(costs)[order], color=BLUE)
bars[0].set_color(ORANGE)
axes.bar_label(bars, fmt="%.2f", fontsize=6)
axes.set_xticks(range(16), ["".join(names[y] for y in sets[i]) or "∅" for i in order], fontsize=6)
axes.set(xlabel="set H", ylabel="cost of the cut")
plt.show()
assert sets[order[0]] == H
assert np.isclose(min(costs), 0.7475)

# %% [markdown]
# Notice the winners: H is {a, b, c}, then {a, b}. Sorted by q/p, the tokens are a, b, c, d, and the
# best cut always consists of the first few in that order. So for identical drafts V + 1 cuts are
# enough instead of 2^V (Hu et al., [2502.18779](https://arxiv.org/abs/2502.18779); Global
# Resolution, [2511.15898](https://arxiv.org/abs/2511.15898)). Try it on a thousand random problems:

# %%
generator = np.random.default_rng(0)
subsets = np.array([[y in some for y in range(4)] for some in sets], dtype=float)
for _ in range(1000):
    target, draft = generator.dirichlet(np.ones(4), size=2)
    every = (1 + subsets @ target - (subsets @ draft) ** n).min()
    prefixes = np.tri(5, 4, -1)[:, np.argsort(np.argsort(target / draft))]
    assert np.isclose(every, (1 + prefixes @ target - (prefixes @ draft) ** n).min())
print("the best of 16 cuts was always one of these 5")

# %% [markdown]
# ## How far it carries
#
# The library's `max-flow` solver runs a compiled integer code on the same network, repairs the last
# digits, and recomputes plan and cut without trusting it. The network itself is the limit: with n
# drafts from V tokens it has one node for each set of at most n tokens.

# %%
solution = md.solve(md.Problem(q, md.IID(p, n)), "max-flow")
assert abs(float(solution.certificate.gap)) < 1e-12
assert np.allclose(solution.plan.output_law(), q)

sizes = np.array([4, 10, 30, 100, 300, 1000, 49152])
figure, axes = plt.subplots(figsize=(3.3, 2.1))
for number, drafts in enumerate([2, 3, 4]):
    nodes = [sum(comb(int(size), k) for k in range(1, drafts + 1)) for size in sizes]
    axes.plot(sizes, nodes, "o-", color=COLOURS[number], label=f"n = {drafts}")
axes.set(xscale="log", yscale="log", xlabel="tokens V", ylabel="drafted sets")
axes.legend()
plt.show()
print(f"two drafts from 49,152 tokens: {comb(49152, 2) + 49152:.2e} sets")

# %% [markdown]
# A real vocabulary has a thousand million pairs. What still works there does not look at sets at
# all: the cut needs one sort by q/p, and [notebook 5](05_interval_partition.ipynb) builds the plan
# from one picture of the unit interval.
#
# ## Exercises
#
# **1.** What is the optimum for three drafts, and which set is the cut?
#
# <details><summary>Answer</summary>
#
# 0.792625, again with H = {a, b, c}: 1 + 0.65 − 0.95³.
#
# </details>
#
# **2.** The target changes: 0.01 moves from d to a. How does the optimum for two drafts change?
#
# <details><summary>Answer</summary>
#
# a lies in H and d does not, so the cut becomes 0.01 more expensive and so does the next-best: the
# optimum rises by 0.01 to 0.7575. Moving mass between b and c would change nothing.
#
# </details>
#
# **3.** Close the pipe from {a, d} to d: the rule must not keep d when a was drafted too. What is
# the largest flow now?
#
# <details><summary>Answer</summary>
#
# The pipe carried all of P({a, d}) = 0.045, and a is used up already. All of it is lost: 0.7025.
#
# </details>

# %%
mine = {}  # for example {1: 0.8, 2: 0.7, 3: 0.6}
closed = network(mass, q)
closed.remove_edge((0, 3), 3)
truth = {
    1: float(md.optimal_acceptance(md.Problem(q, md.IID(p, 3)))),
    2: float(md.optimal_acceptance(md.Problem([0.16, 0.25, 0.25, 0.34], md.IID(p, 2)))),
    3: nx.maximum_flow_value(closed, "source", "sink") * UNIT,
}
for number, answer in mine.items():
    print(number, "is right" if abs(answer - truth[number]) < 1e-3 else "is not right yet")
assert np.allclose(list(truth.values()), [0.792625, 0.7575, 0.7025])
assert np.isclose(md.optimal_acceptance(md.Problem([0.15, 0.24, 0.26, 0.35], md.IID(p, 2))), 0.7475)
