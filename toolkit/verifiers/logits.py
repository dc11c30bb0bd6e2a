"""From the logits of two models to what a rule takes: the target and the draft law."""

from __future__ import annotations

from typing import Any

import numpy as np

from multidraft import laws
from multidraft.arrays import Array
from multidraft.transform import probabilities


def from_logits(
    target_logits: Any,
    draft_logits: Any,
    law: str = "iid",
    *,
    n: Any = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    draft_temperature: Any = None,
    short: laws.Short = "pad",
) -> tuple[Array, laws.Law]:
    """Shape both laws in one place: temperature, then top-k, then top-p.

    The drafts must be drawn from the law that is returned, since it is what they are verified
    against.

    Parameters
    ----------
    target_logits : (V,) or (B, V)
        Raw logits, numpy or torch; half precision is raised to float32.
    draft_logits : the same, or a list of n such arrays for independent drafts
    law : str
        Name of the draft law, see ``multidraft.laws.names()``.
    n : int or (B,) integers
        Number of drafts.
    temperature, top_k, top_p
        Of both laws, see :func:`multidraft.transform.probabilities`.
    draft_temperature : float, or one per independent draft, optional
        Replaces the temperature for the draft alone.
    short
        As for :class:`multidraft.laws.Law`.

    Returns
    -------
    target, law
        What ``rule.verify(target, law, drafts)`` takes.

    Raises
    ------
    InputError
        Bad logits, parameters or law.

    Examples
    --------
    >>> target, law = from_logits([0.0, 1.0, 2.0], [2.0, 1.0, 0.0], n=2, top_k=2)
    >>> target.round(3), law.probs.round(3)
    (array([0.   , 0.269, 0.731]), array([0.731, 0.269, 0.   ]))
    """
    several = law == laws.Independent.name
    heats = np.broadcast_to(
        np.array(draft_temperature, dtype=object), len(draft_logits) if several else ()
    )

    def draft(logits: Any, heat: Any) -> Array:
        return probabilities(logits, temperature if heat is None else heat, top_k, top_p)

    probs: Any = (
        [draft(*pair) for pair in zip(draft_logits, heats.tolist(), strict=True)]
        if several
        else draft(draft_logits, heats.item())
    )
    spec = {"law": law, "short": short} | ({} if n is None else {"n": n})
    return probabilities(target_logits, temperature, top_k, top_p), laws.make(spec, probs)
