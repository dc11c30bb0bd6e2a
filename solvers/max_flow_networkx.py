r"""The network of max-flow in networkx: a reference to read, and to check the fast one against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from multidraft.problem import Problem
from multidraft.solvers import memory, token_sets
from multidraft.solvers.base import Answer, Solver
from multidraft.solvers.max_flow import UNIT, units
from multidraft.solvers.token_sets import SetPlan, TokenSets


@dataclass(frozen=True)
class MaxFlowNetworkX(Solver):
    """networkx's preflow-push on integer capacities (floats give it wrong cut sets).

    Parameters
    ----------
    arcs : int
        Largest network taken; 10,000 arcs take some seconds.
    """

    name: ClassVar[str] = "max-flow-networkx"
    arcs: int = 10_000

    def reason(self, problem: Problem) -> str | None:
        arcs = token_sets.count(problem.law) * problem.law.width
        if arcs <= self.arcs:
            return None
        return (
            f"{self.name} is readable, not fast: {arcs:.2g} arcs are more than its limit of "
            f"{self.arcs}: use {memory.alternative(problem.law)}."
        )

    def answer(self, problem: Problem) -> Answer:
        import networkx as nx

        sets = TokenSets.of(problem.law)
        network = nx.DiGraph()
        network.add_nodes_from(["source", "sink"])
        for i, capacity in enumerate(units(sets.mass, np.floor).tolist()):
            network.add_edge("source", ("set", i), capacity=capacity)
        for i, y in np.stack(sets.arcs, axis=-1).tolist():
            network.add_edge(("set", i), ("token", y))  # no capacity: infinite
        for y, capacity in enumerate(units(problem.target, np.floor).tolist()):
            network.add_edge(("token", y), "sink", capacity=capacity)

        _, flows = nx.maximum_flow(network, "source", "sink")
        _, (side, _) = nx.minimum_cut(network, "source", "sink")
        sent = [flows["set", i]["token", y] for i, y in np.stack(sets.arcs, axis=-1).tolist()]
        cut = np.array([("token", y) in side for y in range(problem.vocabulary)])
        return Answer(SetPlan.repaired(problem, sets, sets.flow(np.array(sent) * UNIT)), cut)
