r"""The contract of a verification rule, and what all rules share.

Every rule here has one form. Given the drafted tokens x it keeps draft k with probability
``keep[k]`` (the outcome of its tests), else it draws from a residual law:

.. math:: \pi(y \mid x) = \sum_{k : x_k = y} \mathrm{keep}_k(x)
          + \big(1 - \sum_k \mathrm{keep}_k(x)\big)\,\mathrm{residual}(y \mid x)

A rule computes those two; drawing, conditional laws and output laws follow from them in one place.
Two figures must be kept apart: *accepted by a test*, and *output is one of the drafts*, which a
residual draw may be too. The second is the acceptance that the optimum bounds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from multidraft import laws
from multidraft.errors import Refused
from multidraft.problem import Problem


@dataclass(frozen=True)
class Drafts:
    """Drafted tokens, and the shared noise of a coupled rule.

    Attributes
    ----------
    tokens : (B, n) ids, -1 for padding
    noise : (B, n, V), or None for every rule but gls
    """

    tokens: Int[Tensor, "B n"]
    noise: Float[Tensor, "B n V"] | None = None


@dataclass(frozen=True)
class Outcome:
    """Result of one verification step, each ``(B,)``.

    Attributes
    ----------
    token : the output
    draft : first position at which the output was drafted, else -1
    tested : position that a test accepted, else -1
    """

    token: Int[Tensor, " B"]
    draft: Int[Tensor, " B"]
    tested: Int[Tensor, " B"]


Kind = Literal["exact", "bound", "estimate"]


@dataclass(frozen=True)
class Acceptance:
    """Acceptance of a rule, arrays of the problem's batch shape.

    Attributes
    ----------
    value : Pr[output is one of the drafts]
    tested : Pr[a test accepts]
    kind : "exact"; "bound" (value is the lower end); "estimate" (a mean with standard error)
    lower, upper : what is certain about `value`; equal to it when exact
    stderr : standard error of `value`, zero unless an estimate
    """

    value: Float[np.ndarray, "*batch"]
    tested: Float[np.ndarray, "*batch"]
    kind: Kind
    lower: Float[np.ndarray, "*batch"]
    upper: Float[np.ndarray, "*batch"]
    stderr: Float[np.ndarray, "*batch"]

    @classmethod
    def exact(cls, value: Any, tested: Any, batch: tuple[int, ...]) -> Self:
        """Return an exact acceptance from two arrays or tensors of one number per row."""
        value, tested = (
            np.asarray(part, dtype=np.float64).reshape(batch) for part in (value, tested)
        )
        return cls(value, tested, "exact", value, value, np.zeros(batch))

    def __float__(self) -> float:
        return float(self.value)


class Rule(ABC):
    """A configured verification rule. Subclasses are frozen dataclasses: options are their fields.

    Attributes
    ----------
    name : name in the registry.
    laws : draft laws for which the rule is lossless.
    """

    name: ClassVar[str]
    laws: ClassVar[tuple[type[laws.Law], ...]]

    def refuses(self, law: laws.Law) -> str | None:
        """Why this rule is not lossless for a draft law, in one sentence; None when it is."""
        if isinstance(law, self.laws):
            return None
        wanted = ", ".join(kind.name for kind in self.laws)
        return f"{self.name} is lossless for {wanted} drafts only, not for {law.name}."

    def acceptance(self, problem: Problem) -> Acceptance:
        """Both acceptance figures for every context of a problem.

        Raises
        ------
        Refused
            With the sentence of :meth:`refuses`.
        """
        self.require(problem.law)
        return self._acceptance(problem)

    def require(self, law: laws.Law) -> None:
        """Raise `Refused` when the rule does not take the law."""
        if reason := self.refuses(law):
            raise Refused(reason)

    @abstractmethod
    def _acceptance(self, problem: Problem) -> Acceptance: ...


@dataclass(frozen=True)
class Context:
    """Target and draft law of a batch of contexts as two-dimensional tensors.

    Attributes
    ----------
    target : (R, V), R = 1 when one context serves all rows of drafts
    law : the draft law on tensors of the target's dtype and device
    """

    target: Float[Tensor, "R V"]
    law: laws.Law

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Return the contexts of a problem, without copying its arrays where that is possible."""
        law = problem.law
        probs: Any = (
            [_tensor(part) for part in law.parts]
            if isinstance(law, laws.Independent)
            else _tensor(law.probs)
        )
        return cls(_rows(_tensor(problem.target)), on_tensors(law, probs))

    @property
    def draft(self) -> Float[Tensor, "R2 V"]:
        """Draft probabilities of a law that has one, (1, V) or (R, V)."""
        return _rows(self.law.probs)

    @property
    def drafts(self) -> list[Float[Tensor, "R2 V"]]:
        """Draft probabilities of each of n independent drafts."""
        if isinstance(self.law, laws.Independent):
            return [_rows(part) for part in self.law.parts]
        return [self.draft] * self.law.width

    @property
    def rows(self) -> int:
        """Number of contexts."""
        return int(np.prod(np.broadcast_shapes((len(self.target),), self.law.batch)))

    @property
    def counts(self) -> Int[Tensor, " R"]:
        """Number of drafts of each context."""
        counts = np.broadcast_to(self.law.counts, (self.rows,)).copy()
        return torch.from_numpy(counts).to(self.target.device)


def on_tensors(law: laws.Law, probs: Any) -> laws.Law:
    """Return the same law on other arrays, unchecked."""
    spec = law.spec if isinstance(law, laws.Explicit) else {**law.spec, "n": law.n}
    return laws.make(spec, probs, check=False)


def _tensor(array: np.ndarray) -> Tensor:
    """Share the memory of a float64 array; torch wants it writable, numpy's views may not be."""
    base = array
    while not base.flags.writeable and isinstance(base.base, np.ndarray):
        base = base.base
    same = base.shape == array.shape and base.strides == array.strides
    return torch.from_numpy(
        np.ascontiguousarray(base if same and base.flags.writeable else array.copy())
    )


def _rows(array: Tensor) -> Tensor:
    return array.reshape(-1, array.shape[-1])
