# %% [markdown]
# # The best draft temperature for n drafts
#
# With one draft, the best draft law is the one that overlaps the target most. With several, the
# drafts should also differ from each other, so a warmer draft may accept more. The optimal
# acceptance is differentiable, so the best temperature is the root of a derivative.

# %%
import torch

import multidraft as md
from multidraft import traces

trace = traces.frozen()
target = torch.from_numpy(trace.target.astype("float64")).softmax(-1)
logits = torch.from_numpy(trace.draft("skip-8").astype("float64"))

# %% [markdown]
# Mean optimal acceptance over the recorded contexts, and its derivative in the logarithm of the
# draft temperature, by back-propagation through the softmax and the optimum.


# %%
def acceptance(log_temperature: float, n: int) -> tuple[float, float]:
    """Mean optimal acceptance and its slope."""
    heat = torch.tensor(log_temperature, dtype=torch.float64, requires_grad=True)
    draft = (logits / heat.exp()).softmax(-1)
    mean = md.torch.optimal_acceptance(target, draft, n).mean()
    (slope,) = torch.autograd.grad(mean, heat)
    return float(mean.detach()), float(slope)


# %% [markdown]
# Bisection on the sign of the slope, between temperatures 0.25 and 4.


# %%
def best_log_temperature(n: int, steps: int = 7) -> float:
    """Where the slope changes its sign."""
    low, high = -1.4, 1.4
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if acceptance(middle, n)[1] > 0 else (low, middle)
    return (low + high) / 2


# %%
for n in (1, 2, 4, 8):
    best = best_log_temperature(n)
    print(
        f"n = {n}: acceptance {acceptance(0.0, n)[0]:.3f} at temperature 1, "
        f"{acceptance(best, n)[0]:.3f} at {torch.tensor(best).exp():.2f}"
    )
