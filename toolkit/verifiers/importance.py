r"""Truncated importance sampling (Khisti et al., 2410.18234): select one draft, then test it.

Two drafts from p1 and p2. Tokens are ordered by :math:`q - p_1 p_2`, largest first. Of a pair
(i, j) with i earlier, i is selected with probability :math:`w_{ij}`, which is 1 unless both are
among the first s tokens. There the weights solve the linear program

.. math:: \max \sum_i \min(q(i), b(i)), \qquad
          b(i) = p_1(i)\,p_2(i) + \sum_{j \ne i} \big(p_1(i) p_2(j) + p_1(j) p_2(i)\big) w_{ij},

where :math:`w_{ij} + w_{ji} = 1`.

The selected token is kept with probability :math:`\min(1, q/b)`, else the output is drawn from
:math:`(q - b)_+`, over the whole vocabulary. More drafts play a tournament: the winner, of law b,
meets the next draft. Two drafts lose at most :math:`\sum (q - p_1 p_2)_+` over the tokens outside
the first s against the optimum, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import csc_array
from torch import Tensor

from multidraft import checks, laws
from multidraft.problem import Problem
from multidraft.verifiers import residual_hits
from multidraft.verifiers.base import Acceptance, Prepared, Rule, ratio
from multidraft.verifiers.context import Context
from multidraft.verifiers.passes import Weights, at


@dataclass(frozen=True)
class Importance(Rule):
    """Truncated importance sampling for independent drafts, from one law or from several.

    Parameters
    ----------
    s : int
        Tokens whose pair weights are variables of the linear program.
    alphabet : int, optional
        Order only this many tokens, those of largest target probability; of two others the earlier
        draft wins. None orders the whole vocabulary.
    order : {"difference", "ratio"}
        By ``q - p1 p2`` as published, or by ``q / (p1 + p2)``.
    samples, seed : int
        Of the estimate of how often the residual hits a draft, where tuples are too many to list.
    """

    name: ClassVar[str] = "importance"
    laws: ClassVar = (laws.IID, laws.Independent)
    s: int = 5
    alphabet: int | None = None
    order: Literal["difference", "ratio"] = "difference"
    samples: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        checks.count(self.s, "s", least=0)
        checks.choice(self.order, ("difference", "ratio"), "order")
        if self.alphabet is not None:
            checks.count(self.alphabet, "alphabet", least=max(self.s, 1))

    def on(self, context: Context) -> PreparedImportance:
        return PreparedImportance.of(context, self)

    def _acceptance(self, problem: Problem) -> Acceptance:
        prepared = self.on(Context.of(problem.target, problem.law, check=False))
        overlap = torch.minimum(prepared.context.target, prepared.selection).sum(-1)
        tested = overlap.numpy().reshape(problem.batch)
        rows = [prepared.row(i) for i in range(prepared.context.size)]
        return residual_hits.acceptance(rows, problem, tested, self.samples, self.seed)

    def truncation(self, problem: Problem) -> Float[np.ndarray, "*batch"]:
        """How much two drafts can lose against the optimum: ``sum (q - p1 p2)+`` outside s."""
        context = Context.of(problem.target, problem.law, check=False)
        first, second = context.drafts[:2]
        rank = _Stage.of(context, first, second, self).rank
        left = (context.target - first * second).relu_().masked_fill(rank < self.s, 0.0)
        return left.sum(-1).numpy().reshape(problem.batch)


class PreparedImportance(Prepared):
    """The stages of the tournament and the winner's law b, (C, V)."""

    def __init__(self, context: Context, stages: list[_Stage], selection: Tensor) -> None:
        super().__init__(context)
        self.stages, self.selection = stages, selection
        self.residual = Weights(context.target, selection, context.ones())

    @classmethod
    def of(cls, context: Context, rule: Importance) -> PreparedImportance:
        """Play the tournament."""
        first, *others = context.drafts
        stages, selection = [], first.expand(context.size, -1)
        for k, draft in enumerate(others, start=1):
            stages.append(stage := _Stage.of(context, selection, draft, rule))
            present = (k < context.counts)[:, None]
            selection = torch.where(present, stage.winners, selection)
        return cls(context, stages, selection)

    def row(self, i: int) -> PreparedImportance:
        """Return the same for one context, which may have fewer drafts."""
        context = self.context.row(i)
        stages = [stage.row(i) for stage in self.stages[: context.law.width - 1]]
        return PreparedImportance(context, stages, self.selection[i : i + 1])

    def terms(self, tokens: Int[Tensor, "M n"]) -> tuple[Float[Tensor, "M n"], Weights]:
        test = ratio(at(self.context.target, tokens), at(self.selection, tokens))
        return self.weights(tokens) * test, self.residual

    def weights(self, tokens: Int[Tensor, "M n"]) -> Float[Tensor, "M n"]:
        """Probability that each draft wins the tournament."""
        weights = torch.ones(len(tokens), 1, dtype=torch.float64, device=tokens.device)
        for k, stage in enumerate(self.stages, start=1):
            kept = weights * stage.beats(tokens[:, :k], tokens[:, k : k + 1])
            weights = torch.cat([kept, (weights - kept).sum(-1, keepdim=True)], -1)
        return weights


@dataclass(frozen=True)
class _Stage:
    """One match of the tournament.

    Attributes
    ----------
    rank : (C, V) place of each token in the order; tokens that are not ordered share the last
    inner : (C, s, s) probability that the token of the first rank wins against that of the second
    winners : (C, V) law of the winner
    """

    rank: Int[Tensor, "C V"]
    inner: Float[Tensor, "C s s"]
    winners: Float[Tensor, "C V"]

    @classmethod
    def of(cls, context: Context, first: Tensor, second: Tensor, rule: Importance) -> _Stage:
        target, first, second = (
            part.expand(context.size, -1) for part in (context.target, first, second)
        )
        size = min(context.vocabulary, rule.alphabet or context.vocabulary)
        s = min(rule.s, size)
        ids = _ordered(target, first, second, size, rule.order)
        rank = torch.full_like(target, size, dtype=torch.int64)
        rank.scatter_(-1, ids, torch.arange(size, device=ids.device).expand_as(ids))
        q, p1, p2 = (part.gather(-1, ids).double() for part in (target, first, second))
        unordered = [part.masked_fill(rank < size, 0.0).double() for part in (first, second)]
        out1, out2 = (part.sum(-1, keepdim=True) for part in unordered)
        # A token beats all later ones, which for the first s starts after rank s.
        won = p1 * p2 + p1 * _later(p2, out2, s) + p2 * _later(p1, out1, s)
        pairs = p1[:, :s, None] * p2[:, None, :s] + p2[:, :s, None] * p1[:, None, :s]
        inner = _inner(pairs, (q - won)[:, :s].clamp(min=0.0))
        diagonal = torch.eye(s, dtype=torch.bool, device=ids.device)
        won[:, :s] += (pairs * inner).masked_fill(diagonal, 0.0).sum(-1)
        winners = (unordered[0] * out2).scatter(-1, ids, won)
        return cls(rank, inner, winners.to(target.dtype))

    def row(self, i: int) -> _Stage:
        """Return the match of one context."""
        return _Stage(*(part[i : i + 1] for part in (self.rank, self.inner, self.winners)))

    def beats(self, old: Int[Tensor, "M k"], new: Int[Tensor, "M 1"]) -> Float[Tensor, "M k"]:
        """Probability that each earlier draft wins against the new one (-1 never wins)."""
        rows, s = self.rank.expand(len(old), -1), self.inner.shape[-1]
        mine, other = (rows.gather(-1, ids.clamp(min=0)) for ids in (old, new))
        wins = ((mine <= other) | (new < 0)).double()
        if s == 0:
            return wins
        inside = (mine < s) & (other < s) & (new >= 0)
        place = (mine * s + other).masked_fill(~inside, 0)
        table = self.inner.reshape(len(self.inner), -1).expand(len(old), -1)
        return torch.where(inside, table.gather(-1, place), wins)


def _ordered(target: Tensor, first: Tensor, second: Tensor, size: int, order: str) -> Tensor:
    """Ids of the ordered tokens, (C, size)."""
    ids = target.topk(size, dim=-1).indices if size < target.shape[-1] else None
    q, p1, p2 = (part if ids is None else part.gather(-1, ids) for part in (target, first, second))
    score = q - p1 * p2 if order == "difference" else q / (p1 + p2)
    places = score.nan_to_num(nan=-1.0).argsort(dim=-1, descending=True, stable=True)
    return places if ids is None else ids.gather(-1, places)


def _later(probs: Tensor, outside: Tensor, s: int) -> Tensor:
    """Mass of the tokens after each place; for the first s places of those from place s on."""
    after = probs.flip(-1).cumsum(-1).flip(-1) - probs + outside
    after[:, :s] = after[:, s - 1 : s]
    return after


def _inner(pairs: Float[Tensor, "C s s"], room: Float[Tensor, "C s"]) -> Float[Tensor, "C s s"]:
    """Weights w_ij among the first s tokens, one linear program per context; w_ii = 1."""
    solved = [
        _pair_weights(mass, most)
        for mass, most in zip(pairs.cpu().numpy(), room.cpu().numpy(), strict=True)
    ]
    return torch.from_numpy(np.stack(solved)).to(pairs.device)


def _pair_weights(
    pairs: Float[np.ndarray, "s s"], room: Float[np.ndarray, " s"]
) -> Float[np.ndarray, "s s"]:
    r"""Send each pair's mass to its two tokens so that as much as possible finds room.

    max sum f   s.t.   f_ij + f_ji <= pairs_ij,   sum_j f_ij <= room_i,   f >= 0

    Mass that finds no room goes to the earlier token.
    """
    from multidraft.solvers import highs

    s = len(room)
    weights = np.triu(np.ones((s, s)))
    i, j = np.triu_indices(s, 1)
    mass = pairs[i, j]
    if not (mass > 0).any() or not (room > 0).any():
        return weights
    count = len(mass)
    entries = np.concatenate([np.stack([np.arange(count), count + k], -1) for k in (i, j)]).ravel()
    matrix = csc_array(
        (np.ones(entries.size), entries, 2 * np.arange(2 * count + 1)), shape=(count + s, 2 * count)
    )
    most = np.concatenate([mass, room])
    flow = highs.maximise(np.ones(2 * count), matrix, np.zeros_like(most), most).primal[count:]
    share = np.clip(flow / np.where(mass > 0, mass, 1.0), 0.0, 1.0)
    weights[i, j], weights[j, i] = 1 - share, share
    return weights
