"""
Is the assisted sampler of transformers lossless?
=================================================

``transformers`` verifies the tokens of an assistant model with its own implementation of
speculative sampling. ``check_sampler`` treats it as a black box: it counts the tokens of many
calls, round by round and over two consecutive rounds, and compares every count with its exact
binomial law. Run the script where transformers is installed; it takes a few seconds.
"""

import numpy as np
import torch
from transformers.generation.utils import _speculative_sampling

import multidraft as md

target = np.array([0.15, 0.25, 0.25, 0.35])
draft = np.array([0.45, 0.35, 0.15, 0.05])

# %%
# One decoding step: draw a draft, call the sampler with the logits of both models, take the first
# of the tokens that it returns. The second position is the bonus token's.


def assisted(weight: float | None = None) -> md.testing.Sampler:
    """Wrap the sampler; `weight` is its option that trades exactness for speed."""

    def sample(target: np.ndarray, law: md.laws.Law, seeds: np.ndarray) -> np.ndarray:
        q, p = torch.tensor(target).log(), torch.tensor(law.probs).log()
        drafts = law.draw(md.uniforms(seeds, 1).numpy())[:, 0]
        tokens = []
        for seed, drafted in zip(seeds.tolist(), drafts.tolist(), strict=True):
            torch.manual_seed(seed)
            ids = torch.tensor([[drafted]])
            found, _ = _speculative_sampling(ids, p[None, None], 1, q.expand(1, 2, -1), weight)
            tokens.append(int(found[0, 0]))
        return np.array(tokens)

    return sample


# %%
law = md.IID(draft, n=1)
print("as shipped:    ", md.testing.check_sampler(assisted(), target, law, draws=1500))

# %%
# The verdict says which error would have been found. The option ``assistant_ensemble_weight``
# accepts more drafts at the price of another output law, as its documentation says; the test sees
# it.

print("ensemble of .7:", md.testing.check_sampler(assisted(0.7), target, law, draws=1500))
