"""Intervals of partially known laws hold over random completions, and are attained where exact."""

from __future__ import annotations

import numpy as np
import pytest

import multidraft as md
from multidraft import partial
from multidraft.partial import Listed, Pair
from multidraft.partial.arrivals import Arrivals, inclusion
from multidraft.partial.rules import BOUNDS

RULES = [(rule, law) for rule, law in BOUNDS if rule not in ("interval", "entropic")]
LAWS = ("iid", "without-replacement", "greedy", "top")
CASES = range(8)
COMPLETIONS = 1250  # of each case: 10,000 in all


def listed(law: np.ndarray, k: int) -> Listed:
    """The log of the k most probable tokens of one law."""
    ids = np.argsort(-law, kind="stable")[:k]
    return Listed(ids[None], law[None, ids], law[ids[-1:]])


def pair_of(generator: np.random.Generator) -> tuple[Listed, Listed, int]:
    """Logs of two laws on V tokens, alike or not, peaked or flat, of different lengths."""
    vocabulary = int(generator.integers(8, 40))
    q, p = (
        generator.dirichlet(np.full(vocabulary, generator.choice([0.1, 0.3, 1.0])))
        for _ in range(2)
    )
    p = p if generator.random() < 0.4 else 0.7 * q + 0.3 * p
    target, draft = (listed(law, int(generator.integers(2, 6))) for law in (q, p))
    return target, draft, vocabulary


def complete(
    log: Listed, count: int, other: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Random laws that a log can come from, (count, V): alike the law `other`, unlike it, lumpy."""
    free = np.setdiff1d(np.arange(other.shape[-1]), log.ids[0])
    rest, cap = float(log.rest[0]), min(float(log.cap[0]), float(log.rest[0])) * (1 - 1e-12)
    weights = generator.dirichlet(np.full(len(free), 0.3), count)
    kind = generator.integers(4, size=(count, 1))
    weights = np.where(kind == 0, other[..., free] + 1e-9 * weights, weights)
    weights = np.where(kind == 1, (other[..., free] == 0) + 1e-9, weights)
    weights = np.where(
        kind == 2,
        1000.0 ** generator.permuted(np.tile(np.arange(len(free)) % 30, (count, 1)), axis=1),
        weights,
    )  # one after another
    filled = np.zeros(weights.shape)
    for _ in range(100):
        room = cap - filled
        share = weights * (room > 0)
        left = rest - filled.sum(-1, keepdims=True)
        total = share.sum(-1, keepdims=True)
        filled = np.minimum(cap, filled + left * share / np.where(total > 0, total, 1))
    law = np.zeros((count, other.shape[-1]))
    law[:, log.ids[0]], law[:, free] = log.probs[0], filled
    return law


@pytest.fixture(scope="module", params=CASES)
def case(request) -> tuple[Pair, np.ndarray, np.ndarray]:
    """A pair of logs and completions of it."""
    generator = np.random.default_rng(request.param)
    while True:
        target, draft, vocabulary = pair_of(generator)
        flat = np.full((COMPLETIONS, vocabulary), 1 / vocabulary)
        q = complete(target, COMPLETIONS, flat, generator)
        p = complete(draft, COMPLETIONS, q, generator)
        whole = (np.abs(q.sum(-1) - 1) < 1e-12) & (np.abs(p.sum(-1) - 1) < 1e-12)
        if whole.all():
            return Pair.of(target, draft), q, p


def holds(interval: partial.Interval, values: np.ndarray) -> bool:
    return interval.lower[0] <= values.min() + 1e-9 and values.max() <= interval.upper[0] + 1e-9


def drafts(law: str, n: int, p: np.ndarray) -> md.laws.Law:
    spec = {"law": law, "short": "pad"} | ({} if law == "hub" else {"n": n})
    return md.laws.make(spec, p)


def counts(pair: Pair, law: str) -> list[int]:
    return [2] if law == "hub" else [n for n in (1, 2, 4) if n <= pair.draft_top[0]]


def test_the_overlap_holds_and_both_ends_are_attained(case):
    pair, q, p = case
    interval = partial.overlap(pair)
    assert holds(interval, np.minimum(q, p).sum(-1))
    ends = zip(interval, (partial.farthest(pair), partial.nearest(pair)), strict=True)
    for end, completion in ends:
        assert np.minimum(*completion).sum() == pytest.approx(end[0], abs=1e-14)


def test_the_nearest_completion_is_nearest_in_every_sense(case):
    pair, q, p = case
    near, far = partial.nearest(pair), partial.farthest(pair)
    for ratio in np.geomspace(1e-3, 1e3, 61):
        values = np.minimum(q, ratio * p).sum(-1)
        assert values.max() <= np.minimum(near.target, ratio * near.draft).sum() + 1e-12
        assert values.min() >= np.minimum(far.target, ratio * far.draft).sum() - 1e-12


def test_extreme_completions_keep_the_lists_and_the_caps(case):
    pair, _, _ = case
    near = partial.nearest(pair)
    width = pair.ids.shape[1]
    for side, known, cap in (
        (near.target[:, :width], pair.in_target, pair.target_cap),
        (near.draft[:, :width], pair.in_draft, pair.draft_cap),
    ):
        given = pair.target if known is pair.in_target else pair.draft
        np.testing.assert_array_equal(side[known], given[known])
        assert (side[~known] <= cap[0] * (1 + 1e-14)).all()
    np.testing.assert_allclose([near.target.sum(), near.draft.sum()], 1, atol=1e-14)


@pytest.mark.parametrize("law", [*LAWS, "hub"])
def test_the_optimum_holds_over_all_completions(case, law):
    pair, q, p = case
    for n in counts(pair, law):
        values = md.optimal_acceptance(md.Problem(q, drafts(law, n, p)))
        assert holds(partial.optimum(pair, law, n), values), n


@pytest.mark.parametrize(("rule", "law"), RULES)
def test_every_rule_holds_over_all_completions(case, rule, law):
    pair, q, p = case
    for n in counts(pair, law):
        some = slice(None) if n < 3 or rule != "rrsw" else slice(60)
        found = md.verifiers.get(rule).acceptance(md.Problem(q[some], drafts(law, n, p[some])))
        slack = 6 * found.stderr if found.kind == "estimate" else 0.0
        interval = partial.acceptance(pair, rule, law, n)
        assert holds(interval, found.value + slack), n
        assert holds(interval, found.value - slack), n
        assert interval.upper <= partial.optimum(pair, law, n).upper


@pytest.mark.parametrize("law", ["iid", "without-replacement", "greedy", "hub"])
@pytest.mark.parametrize("n", [2, 3])
def test_the_ends_of_the_optimum_are_attained_where_there_is_room(case, law, n):
    if law == "hub" and n == 3:
        n = 2
    pair, _, _ = case
    n = min(n, int(pair.draft_top[0]))
    interval = partial.optimum(pair, law, n)
    low, high = (split(pair, part) for part in (partial.farthest(pair), partial.nearest(pair)))
    assert md.optimal_acceptance(md.Problem(low[0], drafts(law, n, low[1]))) == pytest.approx(
        interval.lower[0], abs=2e-3
    )
    if law == "iid":  # for the others the nearest completion depends on the sure drafts
        value = md.optimal_acceptance(md.Problem(high[0], drafts(law, n, high[1])))
        assert value == pytest.approx(interval.upper[0], abs=1e-12)


@pytest.mark.parametrize(("pieces", "end"), [(2000, "lower"), (1, "upper")])
def test_without_replacement_many_tiny_tokens_and_few_large_ones_are_the_ends(pieces, end):
    """Three drafts from a draft law of two listed tokens: is the one that matters among them?"""
    target = Listed(np.array([[2]]), np.array([[0.93]]), np.array([0.93]))
    draft = Listed(np.array([[3, 2]]), np.array([[0.62, 0.19]]), np.array([0.19]))
    q = np.array([0.93, 0.0, 0.07, *np.zeros(pieces)])
    p = np.array([0.19, 0.62, 0.0, *np.full(pieces, 0.19 / pieces)])
    value = md.optimal_acceptance(md.Problem(md.normalise(q), drafts("without-replacement", 3, p)))
    interval = partial.optimum(Pair.of(target, draft), "without-replacement", 3)
    assert interval.width[0] > 0.1
    # What is unlisted on both sides can meet at the upper end: at most the target's rest.
    room = 0.07 + 1e-9 if end == "upper" else 2e-4
    assert float(value) == pytest.approx(getattr(interval, end)[0], abs=room)


def split(pair: Pair, completion: partial.Completion) -> tuple[np.ndarray, np.ndarray]:
    """A completion with its buckets split into 500 equal tokens each, which keeps the caps."""
    width = pair.ids.shape[1]
    sides = [np.hstack([s[0, :width], np.repeat(s[0, width:] / 500, 500)]) for s in completion]
    return md.normalise(sides[0]), md.normalise(sides[1])


@pytest.mark.parametrize(("rule", "law"), RULES)
def test_complete_logs_give_points(rule, law):
    generator = np.random.default_rng(5)
    q, p = generator.dirichlet(np.full(5, 0.5), 2)
    pair = Pair.of(listed(q, 5), listed(p, 5))
    for n in (2,) if law == "hub" else (1, 2, 3, 4):
        problem = md.Problem(q[None], drafts(law, n, p[None]))
        value = md.verifiers.get(rule).acceptance(problem).value[0]
        interval = partial.acceptance(pair, rule, law, n)
        assert interval.lower[0] == pytest.approx(float(value), abs=1e-9), n
        assert interval.upper[0] == pytest.approx(float(value), abs=1e-9), n


def test_longer_lists_give_narrower_intervals():
    generator = np.random.default_rng(3)
    q, p = generator.dirichlet(np.full(200, 0.2), 2)
    widths = [
        float(partial.optimum(Pair.of(listed(q, k), listed(p, k)), "iid", 2).width[0])
        for k in (5, 10, 20, 40, 80, 200)
    ]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 1e-12


def test_equal_laws_and_disjoint_lists():
    law = np.array([0.4, 0.3, 0.2, 0.1])
    same = Pair.of(listed(law, 2), listed(law, 2))
    np.testing.assert_allclose(partial.overlap(same), [[0.7], [1.0]], atol=1e-12)
    other = Listed(np.array([[7, 8]]), np.array([[0.5, 0.3]]), np.array([0.3]))
    apart = Pair.of(listed(law, 2), other)
    # 0.2 of the draft can fall on the target's tokens, 0.3 of the target on the draft's.
    np.testing.assert_allclose(partial.overlap(apart), [[0.0], [0.5]], atol=1e-12)


def rows_of(logs: list[Listed]) -> Listed:
    ids, probs, cap = (
        np.concatenate([getattr(log, name) for log in logs]) for name in ("ids", "probs", "cap")
    )
    return Listed(ids, probs, cap)


def test_top_k_within_the_log_is_exact():
    generator = np.random.default_rng(2)
    logits = generator.normal(size=(2, 3, 30)) * 2
    full = [md.transform.probabilities(part) for part in logits]
    logs = [rows_of([listed(row, 8) for row in law]) for law in full]
    q, p = partial.truncated(logs[0], logs[1], 5)
    expected = md.Problem.from_logits(logits[0], logits[1], md.IID, n=2, top_k=5)
    found = md.optimal_acceptance(md.Problem(q, md.IID(p, 2)))
    np.testing.assert_allclose(found, md.optimal_acceptance(expected), atol=1e-14)
    with pytest.raises(md.Refused, match="lists 8 top tokens"):
        partial.truncated(logs[0], logs[1], 9)


def test_unknown_sure_drafts_say_nothing_and_too_many_are_refused():
    # The second row's list lost a token: its cap is all of its unlisted probability.
    log = Listed(np.tile([0, 1], (2, 1)), np.tile([0.5, 0.2], (2, 1)), np.array([0.2, 0.3]))
    pair = Pair.of(log, log)
    interval = partial.optimum(pair, "top", 2)
    np.testing.assert_allclose([interval.lower, interval.upper], [[0.7, 0], [0.7, 1]])
    with pytest.raises(md.Refused, match="at most 2 top tokens"):
        partial.optimum(pair, "top", 3)


@pytest.mark.parametrize(
    ("rule", "law", "reason"),
    [("rrs", "without-replacement", "no interval is known"), ("gls", "iid", "at most the optimum")],
)
def test_rules_without_an_interval_say_so(rule, law, reason):
    pair = Pair.of(listed(np.array([0.6, 0.4]), 2), listed(np.array([0.5, 0.5]), 2))
    with pytest.raises(md.Refused, match=reason):
        partial.acceptance(pair, rule, law, 2)


def test_lists_are_checked():
    ids, probs, cap = np.array([[3, 1]]), np.array([[0.5, 0.4]]), np.array([0.1])
    for bad in (
        (ids, probs[:, ::-1], cap),
        (ids, probs * 2, cap),
        (ids, probs * np.nan, cap),
        (ids, -probs, cap),
        (np.array([[3, -1]]), probs, cap),
    ):
        with pytest.raises(md.InputError):
            Listed(*bad)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_arrivals_agree_with_the_law_without_replacement(n):
    p = np.array([0.4, 0.25, 0.1, 0.1, 0.1, 0.05])
    law = md.WithoutReplacement(p, n)
    arrivals = Arrivals(1, n)
    arrivals.add_each(p[None, :1])
    arrivals.add_pieces(np.array([0.35]), np.array([0.1]))
    outside = np.array([False, True, False, False, False, False])
    assert arrivals.hit(np.array([0.25]))[0] == pytest.approx(float(law.hit(outside)), abs=1e-13)
    rest = Arrivals(1, n)
    rest.add_pieces(np.array([0.35]), np.array([0.1]))
    tuples, mass = law.enumerate()
    expected = [mass[(tuples == token).any(-1)].sum() for token in (0, 1)]
    np.testing.assert_allclose(inclusion(p[None, :2], rest, n)[0], expected, atol=1e-13)


def test_more_equal_pieces_arrive_in_larger_numbers():
    hits = []
    for size in (0.5, 0.25, 0.1, 0.01):
        arrivals = Arrivals(1, 3)
        arrivals.add_pieces(np.array([0.5]), np.array([size]))
        hits.append(float(arrivals.hit(np.array([0.3]))[0]))
    stream = Arrivals(1, 3)
    stream.add_stream(np.array([0.5]))
    hits.append(float(stream.hit(np.array([0.3]))[0]))
    assert hits == sorted(hits, reverse=True)
    assert hits[-1] < hits[0] - 0.01
