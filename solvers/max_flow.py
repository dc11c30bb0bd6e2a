r"""The OTLP as a maximum flow: source, token sets, tokens, sink (integer flow at scale).

    source --P(S)--> set S --> every token in S --q(y)--> sink

Value of the flow = optimum, and the tokens on the source's side of a minimum cut are the set H.
Capacities are masses in units of 2^-61, so that the flow of the whole network fits into 63 bits.
Rounded down they give a feasible plan and a lower bound, rounded up an upper bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from multidraft.errors import Refused
from multidraft.problem import Problem
from multidraft.solution import upper_bound
from multidraft.solvers import memory
from multidraft.solvers.base import Answer, Solver
from multidraft.solvers.token_sets import SetPlan, TokenSets

UNIT = 2.0**-61

Rounding = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class MaxFlow(Solver):
    """ortools' integer maximum flow on the merged token sets.

    Parameters
    ----------
    memory : float
        Bytes that the solve may take.
    """

    name: ClassVar[str] = "max-flow"
    memory: float = memory.MOST

    def reason(self, problem: Problem) -> str | None:
        return memory.refusal(self.name, problem.law, memory.flow(problem.law), self.memory)

    def answer(self, problem: Problem) -> Answer:
        sets = TokenSets.of(problem.law)
        down = maximum_flow(sets, problem.target, np.floor)
        up = maximum_flow(sets, problem.target, np.ceil)
        cut = min(down.cut, up.cut, key=lambda cut: float(upper_bound(problem, cut)))
        return Answer(SetPlan.repaired(problem, sets, down.flow), cut)

    def bracket(self, problem: Problem) -> tuple[float, float]:
        """Values of the two flows, with capacities rounded down and up: the optimum lies between.

        Raises
        ------
        Refused
            As :meth:`solve`.
        """
        if reason := self.refuses(problem):
            raise Refused(reason)
        sets = TokenSets.of(problem.law)
        low, high = (
            maximum_flow(sets, problem.target, rounding).value for rounding in (np.floor, np.ceil)
        )
        return low, high


class Flow(NamedTuple):
    """A maximum flow: mass on the arcs of each set (M, n), its value, and the cut's tokens (V,)."""

    flow: Float[np.ndarray, "M n"]
    value: float
    cut: Bool[np.ndarray, " V"]


def maximum_flow(
    sets: TokenSets, demand: Float[np.ndarray, " V"], rounding: Rounding = np.floor
) -> Flow:
    """Send as much mass as possible from token sets to tokens.

    Parameters
    ----------
    sets : TokenSets
    demand : (V,)
        What each token can take.
    rounding : numpy.floor or numpy.ceil
        How capacities become integers.

    Raises
    ------
    Refused
        ortools does not end with a maximum flow.
    """
    from ortools.graph.python.max_flow import SimpleMaxFlow

    rows, tokens = sets.arcs
    count, source, sink = len(sets.mass), 0, 1
    supply, take = units(sets.mass, rounding), units(demand, rounding)
    set_nodes, token_nodes = 2 + np.arange(count), 2 + count + np.arange(sets.vocabulary)
    graph: Any = SimpleMaxFlow()  # its stubs mistake element types for shapes
    graph.add_arcs_with_capacity(np.full(count, source), set_nodes, supply)
    # An arc needs no more room than its set has mass.
    arcs = graph.add_arcs_with_capacity(set_nodes[rows], token_nodes[tokens], supply[rows])
    graph.add_arcs_with_capacity(token_nodes, np.full(sets.vocabulary, sink), take)
    status = graph.solve(source, sink)
    if status != graph.OPTIMAL:
        raise Refused(f"ortools ends with {status.name}.")
    side = np.isin(token_nodes, graph.get_source_side_min_cut())
    return Flow(sets.flow(graph.flows(arcs) * UNIT), graph.optimal_flow() * UNIT, side)


def units(masses: Float[np.ndarray, " N"], rounding: Rounding) -> Int[np.ndarray, " N"]:
    """Masses as integers; 64 bits, since 32 lose 8e-5 of acceptance at 512 tokens."""
    return rounding(masses / UNIT).astype(np.int64)
