"""Which tree, draft law and rule to use: expected tokens per second, and the next best draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from multidraft.advise.costs import Costs
from multidraft.advise.evidence import Candidate, Evidence
from multidraft.errors import InputError
from multidraft.report.words import system
from multidraft.results import Mean, clustered_mean, paired_difference
from multidraft.trees import named
from multidraft.trees.tree import Tree

#: Trees that are weighed up, those that fit into the budget.
TREES = (
    "chain:1",
    "chain:2",
    "chain:3",
    "chain:4",
    "chain:6",
    "k-ary:2,1",
    "k-ary:4,1",
    "k-ary:2,2",
    "k-ary:2,3",
    "paths:2,4",
    "paths:4,2",
    "paths:4,4",
    "delayed:4,1,3",
    "delayed:4,2,2",
)
BUDGET = 32
_CLEAR = 2.0  # standard errors that make a difference clear


@dataclass(frozen=True)
class Option:
    """A tree with its law and rule, and what it is worth.

    Attributes
    ----------
    name : the tree as text
    seconds : of one step
    lengths : (N,) expected block lengths at the contexts
    clusters : (N,) passage of every context
    """

    name: str
    candidate: Candidate
    seconds: float
    lengths: Float[np.ndarray, " N"]
    clusters: Int[np.ndarray, " N"]

    @property
    def efficiency(self) -> Mean:
        """Tokens per target call."""
        return clustered_mean(self.lengths, self.clusters)

    @property
    def speeds(self) -> Float[np.ndarray, " N"]:
        """Tokens per second at every context."""
        return self.lengths / self.seconds

    @property
    def speed(self) -> Mean:
        """Tokens per second."""
        return clustered_mean(self.speeds, self.clusters)

    def minus(self, other: Option) -> Mean:
        """Paired difference in speed."""
        return paired_difference(self.speeds, other.speeds, self.clusters)

    def equals(self, other: Option) -> bool:
        """Whether both are as fast at every context, but for round-off."""
        return bool(np.allclose(self.speeds, other.speeds, rtol=1e-9, atol=0))

    def as_data(self) -> dict[str, Any]:
        """The numbers as JSON."""
        return {
            "tree": self.name,
            "nodes": self.candidate.tree.nodes,
            "depth": self.candidate.tree.depth,
            "law": self.candidate.law,
            "rule": self.candidate.rule,
            "tokens_per_call": self.efficiency.mean,
            "tokens_per_call_stderr": self.efficiency.stderr,
            "seconds_per_step": self.seconds,
            "tokens_per_second": self.speed.mean,
            "tokens_per_second_stderr": self.speed.stderr,
        }


@dataclass(frozen=True)
class Marginal:
    """One more draft on the first path of the best tree.

    Attributes
    ----------
    depth : of the draft; below the deepest it makes the tree deeper, else wider
    tokens : gain in tokens per target call
    speed : gain in tokens per second
    """

    depth: int
    deeper: bool
    tokens: Mean
    speed: Mean

    def as_data(self) -> dict[str, Any]:
        """The numbers as JSON."""
        return {
            "depth": self.depth,
            "deeper": self.deeper,
            "tokens_per_call": self.tokens.mean,
            "tokens_per_call_stderr": self.tokens.stderr,
            "tokens_per_second": self.speed.mean,
            "tokens_per_second_stderr": self.speed.stderr,
        }


@dataclass(frozen=True)
class Advice:
    """Every option, the fastest first, and what one more draft would add to the fastest."""

    options: list[Option]
    marginals: list[Marginal]
    plain: float
    kind: str
    source: str

    @property
    def ties(self) -> list[Option]:
        """Options that are as fast as the fastest at every context."""
        return [option for option in self.options[1:] if self.options[0].equals(option)]

    @property
    def second(self) -> Option | None:
        """The fastest option that is another than the fastest somewhere."""
        others = (option for option in self.options if not self.options[0].equals(option))
        return next(others, None)

    @property
    def sentences(self) -> list[str]:
        """The advice in words."""
        return [_choice(self), *_tied(self), *_doubt(self), *_next_draft(self), _basis(self)]

    def as_data(self) -> dict[str, Any]:
        """Everything as JSON."""
        return {
            "advice": self.sentences,
            "kind": self.kind,
            "costs": self.source,
            "plain_tokens_per_second": self.plain,
            "options": [option.as_data() for option in self.options],
            "one_more_draft": [marginal.as_data() for marginal in self.marginals],
        }


def advise(
    evidence: Evidence, costs: Costs, *, budget: int = BUDGET, shapes: Sequence[str] = TREES
) -> Advice:
    """Weigh up every tree, law and rule that the evidence can judge.

    Expected tokens per second are the block efficiency over the seconds of a step. Costs are taken
    as known: the errors are those of the contexts, clustered by passage.

    Parameters
    ----------
    evidence : Evidence
    costs : Costs
    budget : int
        Most drafted tokens per step.
    shapes : sequence of str
        Trees, see `multidraft.trees.named.parse`.

    Raises
    ------
    InputError
        No tree fits into the budget, or costs that do not reach so far.
    """
    wanted = _wanted(evidence, budget, shapes)
    if not wanted:
        raise InputError(f"no recorded tree has at most {budget} drafted tokens: raise the budget.")
    found = evidence.lengths(list(wanted))
    options = [
        Option(wanted[c], c, costs.step(c.tree, c.rule), length, evidence.clusters)
        for c, length in found.items()
    ]
    options.sort(key=lambda option: -option.speed.mean)
    return Advice(
        options,
        _marginals(options[0].candidate, evidence, costs),
        1 / costs.plain,
        evidence.kind,
        costs.source,
    )


def _wanted(evidence: Evidence, budget: int, shapes: Sequence[str]) -> dict[Candidate, str]:
    """What the evidence can judge within the budget; where laws draft alike, the first of them."""
    seen: set[tuple[Tree, str]] = set()
    wanted: dict[Candidate, str] = {}
    for name in shapes:
        parents = named.parse(name).parents
        for law, rule in evidence.systems:
            candidate = Candidate(law, parents, rule)
            if len(parents) - 1 > budget or not evidence.takes(candidate):
                continue
            if (candidate.tree, rule) not in seen:
                seen.add((candidate.tree, rule))
                wanted[candidate] = name
    return wanted


# ------------------------------------------------------------------------------- wider or deeper


def _marginals(best: Candidate, evidence: Evidence, costs: Costs) -> list[Marginal]:
    """What one more draft adds at every depth, where the evidence can say."""
    wider = {depth: _with_one_more(best.tree, depth) for depth in range(1, best.tree.depth + 2)}
    rule = _common_rule(best, list(wider.values()), evidence)
    base = best._replace(rule=rule)
    more = {
        depth: candidate
        for depth, parents in wider.items()
        if evidence.takes(candidate := Candidate(best.law, parents, rule))
        and len(parents) <= costs.target.slots[-1]
    }
    if not more or not evidence.takes(base):
        return []
    found = evidence.lengths([base, *more.values()])
    return [
        Marginal(
            depth,
            depth > best.tree.depth,
            paired_difference(found[candidate], found[base], evidence.clusters),
            paired_difference(
                found[candidate] / costs.step(candidate.tree, rule),
                found[base] / costs.step(base.tree, rule),
                evidence.clusters,
            ),
        )
        for depth, candidate in more.items()
    ]


def _with_one_more(tree: Tree, depth: int) -> tuple[int, ...]:
    """Parents of the tree with one more draft, a child of the first path's slot above `depth`."""
    slot = 0
    for _ in range(depth - 1):
        slot = tree.children[slot][0]
    return (*tree.parents, slot)


def _common_rule(best: Candidate, wider: Sequence[tuple[int, ...]], evidence: Evidence) -> str:
    """The candidate's rule; traversal where that verifies one path only, of which it is the best.

    On one path traversal is block verification.
    """
    if best.rule == "block" and any(
        evidence.takes(Candidate(best.law, parents, "traversal")) for parents in wider
    ):
        return "traversal"
    return best.rule


# ------------------------------------------------------------------------------------------- words


def _named(option: Option) -> str:
    candidate = option.candidate
    return f"{option.name} ({system(candidate.law, candidate.rule)})"


def _number(found: Mean, digits: int) -> str:
    return f"{found.mean:.{digits}f} ± {found.stderr:.{digits}f}"


def _choice(advice: Advice) -> str:
    best = advice.options[0]
    speeds = f"{_number(best.speed, 1)} tokens per second against {advice.plain:.1f} without drafts"
    if best.speed.mean <= advice.plain:
        return f"Decode without drafts: the fastest tree, {_named(best)}, gives {speeds}."
    return (
        f"Use {_named(best)}: {_number(best.efficiency, 2)} tokens per target call, {speeds}, "
        f"{best.speed.mean / advice.plain:.2f} times as fast."
    )


def _tied(advice: Advice) -> list[str]:
    if not advice.ties:
        return []
    return [f"As fast at every context: {'; '.join(map(_named, advice.ties))}."]


def _doubt(advice: Advice) -> list[str]:
    if advice.second is None:
        return []
    apart = advice.options[0].minus(advice.second)
    clear = apart.mean > _CLEAR * apart.stderr
    verdict = "a clear difference" if clear else "no clear difference: take the simpler of the two"
    return [
        f"Next is {_named(advice.second)}, slower by {_number(apart, 2)} tokens per second, "
        f"context by context: {verdict} (these contexts show differences from "
        f"{apart.detectable:.2f} on)."
    ]


def _next_draft(advice: Advice) -> list[str]:
    if not advice.marginals:
        return []
    most = max(advice.marginals, key=lambda marginal: marginal.tokens.mean)
    where = "deeper" if most.deeper else "wider"
    gain = "faster" if most.speed.mean > 0 else "slower"
    return [
        f"One more draft adds most at depth {most.depth} ({where}): {_number(most.tokens, 3)} "
        f"tokens per target call, which makes decoding {gain} by "
        f"{abs(most.speed.mean):.2f} ± {most.speed.stderr:.2f} tokens per second."
    ]


def _basis(advice: Advice) -> str:
    contexts = len(advice.options[0].lengths)
    clusters = advice.options[0].speed.clusters
    lengths = (
        "Block lengths are exact given recorded trees"
        if advice.kind == "exact"
        else "Block lengths are estimates from single steps, as if acceptance did not fall with "
        "depth: record trees to know"
    )
    return (
        f"{lengths}, at {contexts} contexts of {clusters} passages; costs: {advice.source}, taken "
        "as known."
    )
