"""The contract of a solver: a configured object that refuses with a reason or proves its answer."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool

from multidraft.errors import Refused
from multidraft.problem import Problem
from multidraft.solution import Plan, Solution


@dataclass(frozen=True)
class Answer:
    """What a solver hands back: a plan (or none), a cut, and whether a limit ended it early."""

    plan: Plan | None
    cut: Bool[np.ndarray, "*batch V"]
    limited: bool = False


class Solver(ABC):
    """One optimiser for the OTLP. Subclasses are frozen dataclasses: options are their fields.

    Attributes
    ----------
    name : name in the registry.
    batched : whether one call takes a batch of contexts.
    """

    name: ClassVar[str]
    batched: ClassVar[bool] = False

    def refuses(self, problem: Problem) -> str | None:
        """Why this solver does not take the problem, in one sentence; None when it does."""
        if problem.batch and not self.batched:
            return f"{self.name} solves one context at a time: use multidraft.solve_each."
        return self.reason(problem)

    @abstractmethod
    def reason(self, problem: Problem) -> str | None:
        """Why the law or the size does not fit this solver; None when it does."""

    @abstractmethod
    def answer(self, problem: Problem) -> Answer:
        """Solve a problem that is not refused."""

    def solve(self, problem: Problem) -> Solution:
        """Solve and time.

        Raises
        ------
        Refused
            With the sentence of :meth:`refuses`.
        """
        if reason := self.refuses(problem):
            raise Refused(reason)
        start = time.perf_counter()
        answer = self.answer(problem)
        seconds = time.perf_counter() - start
        return Solution(
            problem,
            self.name,
            plan=answer.plan,
            cut=answer.cut,
            seconds=seconds,
            limited=answer.limited,
        )
