r"""Proofs and tests of losslessness, for the rules of this package and for anyone's sampler.

`assert_lossless` enumerates: it sums the output law over all drafted tuples, so nothing is left
to chance; `assert_sound` adds the other checks of the project. `check_sampler` treats a sampler as
a black box. It draws two consecutive rounds and compares counts with their exact binomial laws, so
the false-alarm rate is at most `alpha`, not about `alpha`, and it says how large an error it would
have seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from multidraft import checks, laws
from multidraft.arrays import float64, largest
from multidraft.errors import InputError
from multidraft.problem import Problem

if TYPE_CHECKING:
    from multidraft.verifiers import Rule

# (target, law, seeds (B,)) -> (B,) output tokens, one decoding step for each seed
Sampler = Callable[[Any, laws.Law, np.ndarray], Any]

_CHUNK = 1 << 16  # draws per call of a sampler
_HEAVY = 256  # tokens that are tested one by one
_CUTS = 32  # sets of tokens that are tested in each order
_CLASSES = 16  # of tokens whose pairs over two rounds are tested
_SURE = 0.99  # probability with which the stated error is seen


def assert_lossless(
    rule: Rule | str, law: laws.Law, target: Any, *, tolerance: float = 1e-12
) -> None:
    """Assert that a rule's output law is the target, by enumeration of all drafted tuples.

    Parameters
    ----------
    rule : Rule or its name
    law : Law
        Draft law of one context, small enough to list.
    target : (V,)
    tolerance : float
        Largest error of a token's probability.

    Raises
    ------
    AssertionError
        The laws differ; the worst token is named.
    Refused
        The rule does not take the law.

    Examples
    --------
    >>> import multidraft as md
    >>> assert_lossless("rrs", md.IID([0.6, 0.3, 0.1], n=2), [0.2, 0.3, 0.5])
    """
    problem = Problem(target, law)
    found = as_rule(rule).output_law(problem)
    error = np.abs(found - problem.target)
    worst = int(error.argmax())
    if not error[worst] <= tolerance:  # a NaN is an error too
        raise AssertionError(
            f"{as_rule(rule).name} on {law.name} drafts outputs token {worst} with probability "
            f"{found[worst]:.15g}, the target has {problem.target[worst]:.15g}."
        )


def assert_sound(rule: Rule | str) -> None:
    """Assert every check of `multidraft.verifiers.matrix`, on every draft law that the rule takes.

    Output law of one round and at the edges (equal, one-hot and disjoint laws), two rounds of
    draws, rows of a batch that do not touch each other, acceptance against enumeration and optimum.

    Raises
    ------
    AssertionError
        A check fails, or the rule takes no draft law; the message names law and check.

    Examples
    --------
    >>> assert_sound("rrs")
    """
    from multidraft.verifiers import matrix

    if not (rows := matrix.rows([rule])):
        raise AssertionError(f"{as_rule(rule).name} takes no draft law: see its `laws`.")
    failed = [f"{row['law']}, {check}" for row in rows for check in row if row[check] == "FAIL"]
    if failed:
        raise AssertionError(f"{rows[0]['rule']} fails: {'; '.join(failed)}.")


def as_rule(rule: Rule | str) -> Rule:
    """Return the rule of this name, or the rule itself."""
    from multidraft import verifiers

    return verifiers.get(rule) if isinstance(rule, str) else rule


def sampler(rule: Rule | str) -> Sampler:
    """Return a rule as a black box: draw drafts, verify them, output a token for every seed.

    Drafts and verification take their uniforms from two streams.
    """

    def sample(target: Any, law: laws.Law, seeds: np.ndarray) -> np.ndarray:
        from multidraft.verifiers import uniforms

        one = as_rule(rule)
        drafts = one.sample_drafts(
            target, law, uniforms=uniforms(seeds, one.draft_draws(law), stream=1)
        )
        chosen = uniforms(seeds, one.draws(law.width), stream=2)
        return one.verify(target, law, drafts, uniforms=chosen, check=False).token.cpu().numpy()

    return sample


@dataclass(frozen=True)
class Verdict:
    """What `check_sampler` found.

    Attributes
    ----------
    findings : one sentence per set of tokens whose count is impossible; none for a good sampler
    draws : outputs of each round
    alpha : probability that a lossless sampler has a finding, at most
    detects : an error that moves this mass into or out of a tested set is found with
        probability 0.99 or more
    sets : number of sets that were tested
    """

    findings: tuple[str, ...]
    draws: int
    alpha: float
    detects: float
    sets: int

    @property
    def passed(self) -> bool:
        """Whether there is no finding."""
        return not self.findings

    def __str__(self) -> str:
        head = (
            f"{'passed' if self.passed else 'FAILED'}: {self.draws} draws, {self.sets} sets, false "
            f"alarms at most {self.alpha:.1g}; an error of {self.detects:.2g} is found with "
            f"probability {_SURE}"
        )
        return "\n  ".join([head, *self.findings[:5]])


def check_sampler(
    fn: Sampler,
    target: Any,
    law: laws.Law,
    draws: int = 1_000_000,
    alpha: float = 1e-6,
    *,
    seed: int = 0,
) -> Verdict:
    """Test any sampler against the target: one round, and the joint law of two rounds.

    Parameters
    ----------
    fn : callable
        ``fn(target, law, seeds)`` performs one decoding step for each of the seeds, ``(B,)``
        integers, and returns ``(B,)`` tokens. It is called in chunks, for one round and then for
        the next; the two tokens at one place of a chunk are consecutive outputs of one sequence and
        must be independent.
    target : (V,)
        The law that the output should have.
    law : Law
        Handed through to `fn`; its draft probabilities order the tokens into sets.
    draws : int
        Sequences, each of two rounds.
    alpha : float
        Bound on the probability that a lossless sampler fails.
    seed : int
        First seed.

    Returns
    -------
    Verdict

    Notes
    -----
    Tested in each round: tokens that the target excludes (any is a finding), the heaviest tokens,
    and sets that cut the orders of q and of q/p in many places; over both rounds: pairs of classes
    of tokens. Each count is compared with its exact binomial law at ``alpha`` divided by the number
    of tests, so all together fail a lossless sampler with probability at most ``alpha``.

    Examples
    --------
    >>> import multidraft as md
    >>> law = md.IID([0.6, 0.3, 0.1], n=2)
    >>> check_sampler(sampler("k-seq"), [0.2, 0.3, 0.5], law, draws=2000).passed
    True
    """
    q = np.array(checks.law(float64(checks.as_floats(target, "target")), "target"))
    checks.count(draws, "draws")
    first, second = _rounds(fn, target, law, draws, seed, len(q))
    sets = list(_sets(q, law))
    classes = _classes(q, law)
    share = alpha / 2 / (2 * len(sets) + len(np.unique(classes)) ** 2)
    findings = [*_impossible(q, first, "round 1"), *_impossible(q, second, "round 2")]
    if not np.array_equal(q, float64(checks.as_floats(target, "target"))):
        findings.append("the sampler changed its target")
    for name, tokens in (("round 1", first), ("round 2", second)):
        counts = np.bincount(tokens[tokens >= 0], minlength=len(q))
        for label, members in sets:
            mass = float(q[members].sum())
            findings += _compare(f"{name}, {label}", int(counts[members].sum()), draws, mass, share)
    findings += _compare_pairs(q, classes, first, second, share)
    middle = min((float(q[members].sum()) for _, members in sets), key=lambda m: abs(m - 0.5))
    tests = 2 * len(sets) + len(np.unique(classes)) ** 2
    return Verdict(tuple(findings), draws, alpha, _detectable(draws, middle, share), tests)


def _rounds(
    fn: Sampler, target: Any, law: laws.Law, draws: int, seed: int, vocabulary: int
) -> tuple[Int[np.ndarray, " draws"], Int[np.ndarray, " draws"]]:
    """Outputs of two consecutive rounds; chunk by chunk, each round with its own seeds."""
    rounds: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for start in range(0, draws, _CHUNK):
        size = min(_CHUNK, draws - start)
        for i, outputs in enumerate(rounds):
            seeds = np.arange(size) + (seed + start + i * draws)
            tokens = np.asarray(fn(target, law, seeds)).astype(np.int64)
            if tokens.shape != (size,):
                raise InputError(f"the sampler returned shape {tokens.shape} for {size} seeds.")
            if tokens.max() >= vocabulary:
                raise InputError(f"the sampler returned token {tokens.max()} of {vocabulary}.")
            outputs.append(tokens)
    return np.concatenate(rounds[0]), np.concatenate(rounds[1])


def _ratio(q: Float[np.ndarray, " V"], law: laws.Law) -> Float[np.ndarray, " V"]:
    """The target over the draft law, q itself where the law has no single one."""
    if isinstance(law, laws.Explicit):
        return q
    p = float64(law.probs).reshape(-1, len(q))[0]
    return np.divide(q, p, out=np.full(len(q), np.inf), where=p > 0)


def _sets(q: Float[np.ndarray, " V"], law: laws.Law) -> Iterator[tuple[str, np.ndarray]]:
    """Sets of tokens with a name: single tokens, and beginnings of two orders."""
    for token in largest(q, _HEAVY):
        if q[token] > 0:
            yield f"token {token}", np.array([token])
    for name, key in (("q", q), ("q/p", _ratio(q, law))):
        order = np.argsort(key, kind="stable")
        below = np.cumsum(q[order])
        places = np.searchsorted(below, np.linspace(0, 1, _CUTS + 1)[1:-1] * below[-1])
        for place in np.unique(np.minimum(places, len(q) - 1)):
            yield f"{place + 1} tokens of smallest {name}", order[: place + 1]


def _classes(q: Float[np.ndarray, " V"], law: laws.Law) -> Int[np.ndarray, " V"]:
    """A class for each token: the heaviest alone, the others by their q/p."""
    heavy = largest(q, _CLASSES - 4)
    ratio = _ratio(q, law)
    classes = len(heavy) + np.searchsorted(np.array([0.5, 1.0, 2.0]), ratio)
    classes[heavy] = np.arange(len(heavy))
    return classes


def _impossible(q: np.ndarray, tokens: np.ndarray, name: str) -> list[str]:
    bad = (tokens < 0) | (q[tokens] == 0)
    if not bad.any():
        return []
    return [f"{name}: {bad.sum()} outputs without target probability, such as {tokens[bad][0]}"]


def _compare(name: str, count: int, draws: int, mass: float, share: float) -> list[str]:
    """Two-sided exact binomial test at level `share`."""
    if min(_tails(np.array([count]), draws, np.array([mass]))[0]) * 2 > share:
        return []
    return [f"{name}: {count} of {draws}, expected {mass * draws:.1f}"]


def _tails(counts: np.ndarray, draws: int, mass: np.ndarray) -> np.ndarray:
    """Probability of at most, and of at least, so many draws in sets of the given mass."""
    from scipy.special import bdtr, bdtrc

    mass = np.clip(mass, 0.0, 1.0)
    return np.stack([bdtr(counts, draws, mass), bdtrc(counts - 1, draws, mass)], axis=-1)


def _compare_pairs(
    q: np.ndarray, classes: np.ndarray, first: np.ndarray, second: np.ndarray, share: float
) -> list[str]:
    size = int(classes.max()) + 1
    mass = np.bincount(classes, weights=q, minlength=size)
    drawn = (first >= 0) & (second >= 0)
    pairs = classes[first[drawn]] * size + classes[second[drawn]]
    counts = np.bincount(pairs, minlength=size * size)
    expected = np.outer(mass, mass).ravel()
    rare = _tails(counts, len(first), expected).min(-1) * 2 <= share
    return [
        f"both rounds, classes {divmod(i, size)}: {counts[i]} of {len(first)}, "
        f"expected {expected[i] * len(first):.1f}"
        for i in np.flatnonzero(rare)
    ]


def _detectable(draws: int, mass: float, share: float) -> float:
    """Smallest error of a set of this mass that its test sees with probability 0.99."""
    critical = _first(
        lambda k: _tails(np.array([k]), draws, np.array([mass]))[0, 1] * 2 <= share, draws
    )
    steps = np.linspace(0.0, 1 - mass, 20001)
    seen = _tails(np.full(len(steps), critical), draws, mass + steps)[:, 1] >= _SURE
    return float(steps[seen.argmax()]) if seen.any() else 1.0


def _first(holds: Callable[[int], bool], most: int) -> int:
    """Smallest number in 0..most for which a monotone condition holds, else most + 1."""
    low, high = 0, most + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
