"""
The best draft temperature for n drafts
=======================================

With one draft, the best draft law is the one that overlaps the target most. With several, the
drafts should also differ from each other, so a warmer draft may accept more. The optimal acceptance
is differentiable, so a few values and slopes give the whole curve and its maximum.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.interpolate import CubicHermiteSpline

import multidraft as md
from multidraft.plots.canvas import COLOURS

plt.style.use("multidraft.plots.paper")
trace = md.traces.frozen()
target = torch.from_numpy(trace.target.astype("float64")).softmax(-1)
logits = torch.from_numpy(trace.draft("skip-8").astype("float64"))

# %%
# Mean optimal acceptance over the recorded contexts, and its derivative in the logarithm of the
# draft temperature, by back-propagation through the softmax and the optimum.


def acceptance(log_temperature: float, n: int) -> tuple[float, float]:
    """Mean optimal acceptance and its slope."""
    heat = torch.tensor(log_temperature, dtype=torch.float64, requires_grad=True)
    draft = (logits / heat.exp()).softmax(-1)
    mean = md.torch.optimal_acceptance(target, draft, n).mean()
    (slope,) = torch.autograd.grad(mean, heat)
    return float(mean.detach()), float(slope)


# %%
# Six temperatures for each n. A cubic through values and slopes joins them, and its maximum, the
# dot, is where the slope is zero. The more drafts, the warmer, and the less it matters.

heats = np.linspace(np.log(0.65), np.log(1.3), 6)
fine = np.linspace(heats[0], heats[-1], 60)
figure, axes = plt.subplots(figsize=(4.4, 2.4))
for colour, n in zip(COLOURS, (1, 2, 4, 8), strict=False):
    values, slopes = zip(*(acceptance(heat, n) for heat in heats), strict=True)
    curve = CubicHermiteSpline(heats, values, slopes)
    best = max(curve.derivative().roots(extrapolate=False), key=curve)
    axes.plot(np.exp(fine), curve(fine), color=colour, label=f"n = {n}")
    axes.plot(np.exp(best), curve(best), "o", color=colour)
    print(f"n = {n}: acceptance {curve(0):.3f} at temperature 1,", end=" ")
    print(f"{curve(best):.3f} at {np.exp(best):.2f}")
axes.set(xlabel="draft temperature", ylabel="optimal acceptance")
figure.legend(loc="outside right")
figure
