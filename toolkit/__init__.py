"""Multi-draft speculative sampling: the optimum, exact verifiers, and proofs of losslessness.

>>> import multidraft as md
>>> problem = md.Problem([0.2, 0.3, 0.5], md.IID([0.6, 0.3, 0.1], n=2))
>>> float(md.optimal_acceptance(problem))
0.69
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from multidraft import (
        bounds,
        importers,
        laws,
        models,
        partial,
        plots,
        results,
        solvers,
        testing,
        traces,
        trees,
        verifiers,
    )
    from multidraft.alignment import align
    from multidraft.api import compare, optimal_acceptance, solve, solve_each
    from multidraft.errors import InputError, Refused
    from multidraft.laws import IID, Explicit, Greedy, Hub, Independent, Top, WithoutReplacement
    from multidraft.problem import Problem, load, normalise
    from multidraft.solution import Certificate, Solution, Status, certify, load_plan
    from multidraft.verifiers import uniforms

# Public name -> module. Nothing is imported before it is asked for, so that the command line and
# a script that only needs the optimum start at once.
_HOME = {
    "align": "alignment",
    "compare": "api",
    "optimal_acceptance": "api",
    "solve": "api",
    "solve_each": "api",
    "InputError": "errors",
    "Refused": "errors",
    "IID": "laws",
    "Explicit": "laws",
    "Greedy": "laws",
    "Hub": "laws",
    "Independent": "laws",
    "Top": "laws",
    "WithoutReplacement": "laws",
    "Problem": "problem",
    "load": "problem",
    "load_plan": "solution",
    "normalise": "problem",
    "Certificate": "solution",
    "Solution": "solution",
    "Status": "solution",
    "certify": "solution",
    "uniforms": "verifiers",
}
_MODULES = (
    "bounds",
    "decode",
    "importers",
    "laws",
    "models",
    "partial",
    "plots",
    "results",
    "solvers",
    "testing",
    "torch",
    "traces",
    "trees",
    "verifiers",
)

__all__ = [
    "IID",
    "Certificate",
    "Explicit",
    "Greedy",
    "Hub",
    "Independent",
    "InputError",
    "Problem",
    "Refused",
    "Solution",
    "Status",
    "Top",
    "WithoutReplacement",
    "align",
    "bounds",
    "certify",
    "compare",
    "decode",
    "importers",
    "laws",
    "load",
    "models",
    "normalise",
    "optimal_acceptance",
    "partial",
    "plots",
    "results",
    "solve",
    "solve_each",
    "solvers",
    "testing",
    "torch",
    "traces",
    "trees",
    "uniforms",
    "verifiers",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"multidraft.{_HOME[name]}"), name)
    if name in _MODULES:
        return import_module(f"multidraft.{name}")
    raise AttributeError(f"module 'multidraft' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
