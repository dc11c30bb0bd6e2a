r"""Certificates in rational numbers: bounds that no rounding can have touched.

The exact problem is the float one: its target masses and the masses of its merged token sets, read
as the dyadic rationals that they are, each of the two laws divided by its own exact sum. That
changes no mass by more than :attr:`Proof.change`, below 1e-15 for laws normalised in float64.

Over the common denominator of both laws every capacity is an integer. The plan is either the basis
of the linear program, solved again in integers (the basis of a transport program is a forest, so
every flow follows from its leaves; where the optimiser's tolerance hid a negative one, augmenting
paths mend it), or the float flow rounded down and trimmed until it fits. The cut costs one sum. All
of it is checked here, in integers, whatever an optimiser said.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

from multidraft.problem import Problem

if TYPE_CHECKING:
    from multidraft.solution import Plan
    from multidraft.solvers.token_sets import Forest, SetPlan, TokenSets

# Listing tuples and summing them in Python's integers takes seconds beyond this.
MOST_TUPLES = 200_000

# Bits of the denominator that flows are rounded to.
GRID = 128

# Augmenting mends what an optimiser's tolerance hides in a basis, up to 2^-HIDDEN = 1e-12, by a
# few paths; it is no solver.
HIDDEN = 40
MOST_ROUNDS = 20


@dataclass(frozen=True)
class Proof:
    """Bounds on the optimum of the exact problem, as fractions.

    Attributes
    ----------
    lower : value of a plan whose every constraint was checked in integers.
    upper : value of the cut.
    change : largest change of a mass from the float problem to the exact one.
    """

    lower: Fraction
    upper: Fraction
    change: float

    @property
    def gap(self) -> Fraction:
        """``upper - lower``, never negative."""
        return self.upper - self.lower

    @property
    def exact(self) -> bool:
        """Whether plan and cut have the same value, as rationals."""
        return self.lower == self.upper

    def __str__(self) -> str:
        bounds = f"{float(self.lower):.15g}"
        if self.exact:
            return f"exact: optimum {bounds}, plan and cut equal as rationals"
        return (
            f"proved: optimum between {bounds} and {float(self.upper):.15g}, "
            f"rational gap {float(self.gap):.2g}"
        )


def prove(plan: Plan, cut: Bool[np.ndarray, "*batch V"]) -> Proof | None:
    """Prove in rationals what a plan and a cut prove in floats.

    Returns
    -------
    Proof, or None for a batch or a law with more than `MOST_TUPLES` tuples.
    """
    from multidraft.solvers.token_sets import SetPlan

    problem = plan.problem
    if problem.batch or problem.law.tuple_count() > MOST_TUPLES:
        return None
    flow = SetPlan.of(plan)
    exact = _Exact(problem, flow.sets)
    upper = exact.bound(cut)
    sent, left = exact.fit(
        exact.rounded(flow) if flow.forest is None else exact.of_forest(flow.forest)
    )
    if flow.forest is not None and upper - sum(sent) <= exact.whole >> HIDDEN:
        sent, mended = exact.augmented(sent, left)
        upper = min(upper, exact.bound(mended))
    return Proof(Fraction(sum(sent), exact.whole), Fraction(upper, exact.whole), exact.change)


class _Exact:
    """The exact problem in integers, all over the denominator `whole`."""

    def __init__(self, problem: Problem, sets: TokenSets) -> None:
        mass, mass_unit = integers(sets.mass)
        target, target_unit = integers(problem.target)
        # m / sum(m) and k / sum(k) over a multiple of sum(m) sum(k), finer than float flows.
        total, wanted = sum(mass), sum(target)
        grid = max(0, GRID - (total * wanted).bit_length())
        self.whole = total * wanted << grid
        self.supply = [m * wanted << grid for m in mass]
        self.demand = [k * total << grid for k in target]
        self.rows, self.tokens = (part.tolist() for part in sets.arcs)
        self.change = max(
            _change(problem.target, Fraction(wanted) * target_unit),
            _change(sets.mass, Fraction(total) * mass_unit),
        )

    def bound(self, cut: Bool[np.ndarray, " V"]) -> int:
        """``q(H) + hit(outside)``: the tokens of H, and every set with a token outside."""
        leaving = {row for row, y in zip(self.rows, self.tokens, strict=True) if not cut[y]}
        inside = sum(self.demand[y] for y in np.flatnonzero(cut).tolist())
        return inside + sum(self.supply[row] for row in leaving)

    def of_forest(self, forest: Forest) -> list[int]:
        """Flow on the arcs of a basis, from the leaves inwards; its signs are not checked.

        Every node balances: what its arcs carry and its slack add up to its capacity. A node
        without slack and with one unknown left decides it.
        """
        count = len(self.supply)
        left, flow = self.supply + self.demand, [0] * len(self.rows)
        slack = forest.sets.tolist() + forest.tokens.tolist()
        edges: list[dict[int, int]] = [{} for _ in left]  # node -> {arc: other end}
        for arc in np.flatnonzero(forest.arcs).tolist():
            edges[self.rows[arc]][arc] = count + self.tokens[arc]
            edges[count + self.tokens[arc]][arc] = self.rows[arc]
        leaves = [node for node in range(len(left)) if len(edges[node]) == 1 and not slack[node]]
        while leaves:
            node = leaves.pop()
            if edges[node]:
                arc, other = edges[node].popitem()
                flow[arc] = left[node]
                left[other] -= flow[arc]
                del edges[other][arc]
                if len(edges[other]) == 1 and not slack[other]:
                    leaves.append(other)
        return flow

    def rounded(self, plan: SetPlan) -> list[int]:
        """Round a float flow down to the common denominator."""
        return [_floor(value, self.whole) for value in plan.flow[plan.sets.members >= 0].tolist()]

    def fit(self, flow: list[int]) -> tuple[list[int], list[int]]:
        """Trim a flow until every constraint holds; return it and what the nodes have left."""
        count, left, fitted = len(self.supply), self.supply + self.demand, []
        for wanted, row, y in zip(flow, self.rows, self.tokens, strict=True):
            sent = max(0, min(wanted, left[row], left[count + y]))
            left[row] -= sent
            left[count + y] -= sent
            fitted.append(sent)
        return fitted, left

    def augmented(
        self, flow: list[int], left: list[int]
    ) -> tuple[list[int], Bool[np.ndarray, " V"]]:
        """Augment a feasible flow for a few rounds; return it and the tokens reached at the end.

        After the last round, if it found no path, those tokens are a minimum cut.
        """
        graph = _Residual(self.rows, self.tokens, flow, left, len(self.supply))
        parents, ends = graph.search()
        for _ in range(MOST_ROUNDS):
            for end in ends:
                graph.augment(parents, end)
            if not ends:
                break
            parents, ends = graph.search()
        cut = np.zeros(len(self.demand), dtype=bool)
        cut[[node - len(self.supply) for node in parents if node >= len(self.supply)]] = True
        return flow, cut


class _Residual:
    """The residual network of a flow, which it changes: nodes are the sets, then the tokens."""

    def __init__(
        self, rows: list[int], tokens: list[int], flow: list[int], left: list[int], count: int
    ) -> None:
        self.flow, self.left, self.count = flow, left, count
        self.ends = [(row, count + y) for row, y in zip(rows, tokens, strict=True)]
        self.arcs: list[list[int]] = [[] for _ in left]
        for arc, pair in enumerate(self.ends):
            for node in pair:
                self.arcs[node].append(arc)

    def search(self) -> tuple[dict[int, int], list[int]]:
        """Breadth first from sets with mass left: the arc to each node, the tokens with room."""
        queue = [node for node in range(self.count) if self.left[node]]
        parents = dict.fromkeys(queue, -1)
        for node in queue:  # grows while it is read
            for arc in self.arcs[node]:
                other = self._across(arc, node)
                if other not in parents and (node < self.count or self.flow[arc]):
                    parents[other] = arc
                    queue.append(other)
        return parents, [node for node in queue if node >= self.count and self.left[node]]

    def augment(self, parents: dict[int, int], end: int) -> None:
        """Push what still fits along the path to `end`."""
        path, node = [], end
        while parents[node] >= 0:
            path.append((parents[node], node))
            node = self._across(parents[node], node)
        back = [self.flow[arc] for arc, head in path if head < self.count]
        pushed = min(self.left[node], self.left[end], *back)
        for arc, head in path:
            self.flow[arc] += pushed if head >= self.count else -pushed
        self.left[node] -= pushed
        self.left[end] -= pushed

    def _across(self, arc: int, node: int) -> int:
        tail, head = self.ends[arc]
        return head if node == tail else tail


def integers(values: Float[np.ndarray, " N"]) -> tuple[list[int], Fraction]:
    """Read floats as integers over one power of two.

    Returns
    -------
    The integers, and the unit: ``value = integer * unit``, exactly.

    Examples
    --------
    >>> integers(np.array([0.75, 0.125]))
    ([6, 1], Fraction(1, 8))
    """
    mantissas, exponents = np.frexp(values)
    whole = (mantissas * 2.0**53).astype(np.int64).tolist()
    powers = (exponents - 53).tolist()
    pairs = [(value, power) for value, power in zip(whole, powers, strict=True) if value]
    # Trailing zeros would only make every product longer.
    least = min((power + _zeros(value) for value, power in pairs), default=0)
    shifts = [power - least for power in powers]
    scaled = [
        value << shift if shift >= 0 else value >> -shift
        for value, shift in zip(whole, shifts, strict=True)
    ]
    return scaled, Fraction(2) ** least


def _zeros(value: int) -> int:
    return (value & -value).bit_length() - 1


def _change(values: Float[np.ndarray, " N"], total: Fraction) -> float:
    """Largest change of a mass when all are divided by their exact sum."""
    return float(Fraction(float(values.max())) * abs(1 - 1 / total))


def _floor(value: float, whole: int) -> int:
    """``floor(value * whole)``, exactly."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * whole // denominator
