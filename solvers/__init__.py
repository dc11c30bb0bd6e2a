"""One optimiser per file, one contract, one registry.

Modules are imported when their solver is asked for, so that a missing optional package or a slow
import is only felt by its user.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from multidraft.checks import choice

if TYPE_CHECKING:
    from multidraft.problem import Problem
    from multidraft.solvers.base import Solver

# name -> module and class, in the order in which "auto" tries them: a plan at full vocabulary, a
# plan for the sets that can be listed, a value at full vocabulary, the reference formulations, and
# last what is inexact by design.
SOLVERS: dict[str, tuple[str, str]] = {
    "interval": ("interval", "Interval"),
    "max-flow": ("max_flow", "MaxFlow"),
    "entropic": ("entropic", "Entropic"),
    "submodular": ("submodular", "Submodular"),
    "subset": ("subset", "Subset"),
    "branch-and-bound": ("branch_and_bound", "BranchAndBound"),
    "relaxed-lp": ("relaxed_lp", "RelaxedLP"),
    "canonical-lp": ("canonical_lp", "CanonicalLP"),
    "full-lp": ("full_lp", "FullLP"),
    "convex-lp": ("convex_lp", "ConvexLP"),
    "max-flow-networkx": ("max_flow_networkx", "MaxFlowNetworkX"),
    "optimised-max-flow": ("optimised_max_flow", "OptimisedMaxFlow"),
    "polymatroid": ("polymatroid", "Polymatroid"),
    "pair": ("pair", "Pair"),
    "global-resolution": ("global_resolution", "GlobalResolution"),
}


def names() -> tuple[str, ...]:
    """Names of all solvers."""
    return tuple(SOLVERS)


def get(name: str, **options: Any) -> Solver:
    """Return the solver `name`, configured with its options.

    Raises
    ------
    InputError
        For an unknown name or option.
    """
    module, kind = SOLVERS[choice(name, SOLVERS, "method")]
    solver = getattr(import_module(f"multidraft.solvers.{module}"), kind)
    if unknown := options.keys() - solver.__dataclass_fields__.keys():
        choice(min(unknown), tuple(solver.__dataclass_fields__) or ("(none)",), f"option of {name}")
    return solver(**options)


def explain(problem: Problem) -> dict[str, str | None]:
    """Say for every solver why it refuses the problem, or None."""
    return {name: get(name).refuses(problem) for name in SOLVERS}


def available(problem: Problem) -> tuple[str, ...]:
    """Names of the solvers that take the problem."""
    return tuple(name for name, reason in explain(problem).items() if reason is None)
