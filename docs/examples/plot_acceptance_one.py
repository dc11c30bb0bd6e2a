"""
When is every step accepted?
============================

With one draft only p = q gives acceptance 1. With several there is room: n independent drafts are
always accepted exactly when :math:`p(A)^n \\le q(A)` for every set A of tokens. Here are all drafts
p on three tokens for one target q.
"""

import matplotlib.pyplot as plt
import numpy as np

import multidraft as md

plt.style.use("multidraft.plots.paper")
target = np.array([0.2, 0.3, 0.5])

# %%
# A law on three tokens is a point of a triangle; each corner stands for a law that is sure of one
# token.

steps = 60
first, second = np.mgrid[: steps + 1, : steps + 1] / steps
drafts = np.stack([first, second, 1 - first - second], axis=-1)
drafts = drafts[drafts[..., 2] > -1e-9].clip(0)
corners = np.array([[0, 0], [1, 0], [0.5, np.sqrt(3) / 2]])
places = (drafts @ corners).T
targets = np.tile(target, (len(drafts), 1))

# %%
# The colour is the optimal acceptance; inside the black curve it is 1. The cross is p = q;
# the title says which share of all drafts is perfect.

figure, panels = plt.subplots(1, 3, figsize=(6.9, 2.4))
for axes, n in zip(panels, (1, 2, 4), strict=True):
    optimum = md.optimal_acceptance(md.Problem(targets, md.IID(drafts, n)))
    shades = axes.tripcolor(*places, optimum, vmin=0.2, vmax=1, shading="gouraud")
    axes.tricontour(*places, optimum, levels=[1 - 1e-3], colors="black")
    axes.plot(*(target @ corners), "x", color="black")
    for name, corner in zip("abc", corners, strict=True):
        place = corner + 0.12 * (corner - corners.mean(0))
        axes.text(*place, name, ha="center", va="center")
    share = np.mean(optimum > 1 - 1e-9)
    axes.set(title=f"n = {n}, all accepted: {share:.0%}\n", aspect="equal")
    axes.axis("off")
figure.colorbar(shades, ax=panels, label="optimal acceptance")
figure
