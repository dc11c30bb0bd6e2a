"""Many drafts without replacement from one law over many tokens, fast enough for a million.

The law of the package renormalises the whole vocabulary for every draft. Drawing from p again and
again until the token is new gives the same law, from one cumulative sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import multidraft as md
from multidraft import laws, testing, verifiers


def sampler(rule: verifiers.Rule | str) -> testing.Sampler:
    """As ``testing.sampler``, for one context and drafts without replacement."""
    one = verifiers.get(rule) if isinstance(rule, str) else rule

    def sample(target: Any, law: laws.Law, seeds: np.ndarray) -> np.ndarray:
        drafts = verifiers.Drafts(_drawn(torch.as_tensor(law.probs), law.width, seeds))
        chosen = md.uniforms(seeds, one.draws(law.width), stream=2)
        return one.verify(target, law, drafts, uniforms=chosen, check=False).token.numpy()

    return sample


def _drawn(probs: torch.Tensor, n: int, seeds: np.ndarray) -> torch.Tensor:
    cumulative = probs.cumsum(-1)
    tokens = torch.full((len(seeds), n), -1)
    for attempt in range(10_000):
        missing = (tokens < 0).any(-1)
        if not bool(missing.any()):
            return tokens
        u = md.uniforms(seeds[missing.numpy()], 1, stream=10 + attempt)
        drawn = torch.searchsorted(cumulative, u * cumulative[-1], right=True)
        rows = tokens[missing]
        place = (rows < 0).byte().argmax(-1, keepdim=True)
        known = (rows == drawn).any(-1, keepdim=True)
        tokens[missing] = rows.scatter(-1, place, torch.where(known, -1, drawn))
    raise AssertionError("the law has too few tokens")
