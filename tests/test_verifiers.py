"""Verification rules: lossless by enumeration, deterministic, at home with every ordinary input."""

from __future__ import annotations

from typing import Any

import distinct_drafts
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from matrices import cell
from strategies import Instance, instances

import multidraft as md
from multidraft import laws, testing, traces, verifiers
from multidraft.transform import probabilities
from multidraft.verifiers import matrix, passes
from multidraft.verifiers.context import Context
from multidraft.verifiers.rrs import RRS, PreparedRRS

TABLE = {
    "naive": set(laws.names()),
    "single": {"iid", "independent", "without-replacement", "greedy"},
    "rrs": {"iid", "independent"},
    "rrsw": {"without-replacement"},
    "k-seq": {"iid"},
    "spechub": {"hub"},
    "greedy": {"greedy", "hub"},
    "importance": {"iid", "independent"},
    "gls": {"iid"},
    "from-plan": set(laws.names()),
    "interval": {"iid"},
    "entropic": {"iid", "independent", "without-replacement"},
    "global-resolution": {"iid"},
}
# Rules of other authors are taken at their word; every test below holds them to it.
TABLE |= {
    name: {law for law, kind in laws.LAWS.items() if issubclass(kind, verifiers.get(name).laws)}
    for name in verifiers.names()
    if name not in TABLE
}
COMPILED = ("naive", "single", "rrs", "rrsw", "k-seq", "spechub", "greedy")
# An optimiser runs for every instance of these.
SLOW = {"from-plan": 4, "importance": 10, "entropic": 1, "global-resolution": 3}

P4, Q4 = np.array([0.45, 0.35, 0.15, 0.05]), np.array([0.15, 0.25, 0.25, 0.35])


def pairs(*without: str) -> list[Any]:
    """Every rule with every law it takes, but for some rules or laws."""
    return [
        pytest.param(name, law, id=f"{name}-{law}")
        for name, taken in TABLE.items()
        for law in laws.names()
        if law in taken and not {name, law} & {*without}
    ]


def random_laws(rows: int, vocabulary: int, seed: int = 0, spread: float = 3.0) -> torch.Tensor:
    """Target and draft laws, two tensors (rows, vocabulary) in float64."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(2, rows, vocabulary, generator=generator, dtype=torch.float64)
    return torch.softmax(spread * torch.stack([noise[0], noise[0] + noise[1]]), -1)


def make(law: str, probs: torch.Tensor, n: object = 2) -> laws.Law:
    """A law by name; independent drafts come from shifted laws."""
    if law == "independent":
        assert isinstance(n, int)
        return laws.Independent([probs.roll(k, -1) for k in range(n)])
    n = 2 if law == "hub" else n
    return laws.make({"law": law, "n": n, "short": "pad"}, probs)


def drawn(rule: verifiers.Rule, target: object, law: laws.Law, rows: int) -> verifiers.Drafts:
    chosen = md.uniforms(range(rows), rule.draft_draws(law), stream=1)
    return rule.sample_drafts(target, law, uniforms=chosen)


def outcomes(out: object) -> list[list[int]]:
    return [getattr(out, part).tolist() for part in ("token", "draft", "tested")]


# ------------------------------------------------------------------------------------- registry


def test_every_rule_of_the_table_is_registered():
    assert set(verifiers.names()) == set(TABLE)


@pytest.mark.parametrize("name", TABLE)
def test_a_rule_takes_the_laws_of_the_table_and_refuses_the_others(name: str):
    rule, n = verifiers.get(name), 1 if name == "single" else 2
    for law in laws.names():
        if law == "hub" and n == 1:
            continue
        drafted = matrix.law_of(law, P4, n)
        reason = rule.refuses(drafted)
        assert (reason is None) == (law in TABLE[name])
        if reason is not None:
            with pytest.raises(md.Refused, match="drafts only"):
                rule.prepare(Q4, drafted)
            with pytest.raises(md.Refused, match="drafts only"):
                rule.acceptance(md.Problem(Q4, drafted))


def test_a_plan_of_a_solver_that_does_not_exist_or_makes_none_is_refused():
    with pytest.raises(md.Refused, match="solver simplex is not installed"):
        verifiers.get("from-plan", solver="simplex").prepare(Q4, md.IID(P4, 2))
    with pytest.raises(md.Refused, match="no plan"):
        verifiers.get("from-plan", solver="subset").prepare(Q4, md.Greedy(P4, 2))


def test_single_refuses_two_drafts():
    assert "verifies one draft, not 2" in str(verifiers.get("single").refuses(md.IID(P4, 2)))


def test_unknown_names_and_options_say_what_there_is():
    with pytest.raises(md.InputError, match="unknown rule 'rss'.*rrs"):
        verifiers.get("rss")
    with pytest.raises(md.InputError, match="option of rrsw.*paths"):
        verifiers.get("rrsw", path=3)


@pytest.mark.parametrize("name", TABLE)
def test_matrix(name: str, record_property):
    rows = matrix.rows([name])
    for row in rows:
        for check in matrix.CHECKS:
            cell(record_property, "rule x law x check", f"{name:18}{row['law']}", check, row[check])
    assert {row["law"] for row in rows} == TABLE[name] - ({"hub"} if name == "single" else set())
    assert not [row for row in rows if "FAIL" in row.values()]


# ---------------------------------------------------------------------------------- losslessness


@pytest.mark.parametrize(("name", "law"), pairs("gls"))
def test_lossless_by_enumeration(name: str, law: str):
    rule, drafts = verifiers.get(name), 1 if name == "single" else 4

    @settings(max_examples=SLOW.get(name, 20))
    @given(instances(laws=[law], tokens=6, drafts=3 if name in SLOW else drafts))
    def holds(instance: Instance):
        problem = instance.problem
        if name in matrix.STATED:
            error = np.abs(rule.output_law(problem) - problem.target).sum()
            assert error <= matrix.STATED[name]
        else:
            testing.assert_lossless(rule, problem.law, problem.target)

    holds()


def test_global_resolution_with_the_realised_law_is_exact():
    rule = verifiers.get("from-plan", solver="global-resolution", options={"realised": True})
    for q, p in (matrix.PLAIN, *matrix.EDGES):
        testing.assert_lossless(rule, md.IID(p, 2), q, tolerance=1e-10)


@pytest.mark.parametrize("order", ["difference", "ratio"])
@pytest.mark.parametrize("alphabet", [None, 3])
@pytest.mark.parametrize("s", [0, 1, 3])
def test_importance_is_lossless_for_all_options(order: str, alphabet: int | None, s: int):
    rule = verifiers.get("importance", order=order, alphabet=alphabet, s=s)

    @settings(max_examples=5)
    @given(instances(laws=["iid", "independent"], tokens=6, drafts=3))
    def holds(instance: Instance):
        testing.assert_lossless(rule, instance.problem.law, instance.problem.target)

    holds()


def test_assert_lossless_names_the_worst_token():
    class Wrong(RRS):
        def on(self, context: Context) -> PreparedRRS:
            prepared = super().on(context)
            prepared.residual = passes.Weights(context.target)  # not of the residual
            return prepared

    with pytest.raises(AssertionError, match="rrs on iid drafts outputs token 3"):
        testing.assert_lossless(Wrong(), md.IID(P4, 2), Q4)


def test_assert_sound_names_law_and_check():
    class Wrong(RRS):
        laws = (*RRS.laws, laws.WithoutReplacement)

    class Nothing(RRS):
        laws = ()

    testing.assert_sound("spechub")
    with pytest.raises(AssertionError, match="rrs fails: without-replacement, one round"):
        testing.assert_sound(Wrong())
    with pytest.raises(AssertionError, match="rrs takes no draft law"):
        testing.assert_sound(Nothing())


# ------------------------------------------------------------------------ one form, another form


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_rules_give_the_tokens_of_their_definitions(name: str, dtype: torch.dtype):
    rule, rows = verifiers.get(name), 48
    for vocabulary, spread in ((6, 1.0), (1500, 0.3), (1500, 4.0)):
        q, p = random_laws(rows, vocabulary, spread=spread).to(dtype)
        for law in TABLE[name] - {"independent", "explicit", "top"}:
            for n in (1,) if name == "single" else (2, 4, 1 + np.arange(rows) % 3):
                drafted = make_unchecked(law, p, n)
                if rule.refuses(drafted):
                    continue
                drafts = drawn(rule, q, drafted, rows)
                chosen = md.uniforms(range(rows), rule.draws(drafted.width))
                fast = rule.verify(q, drafted, drafts, uniforms=chosen, check=False)
                slow = rule.prepare(q, drafted, check=False).verify(drafts, uniforms=chosen)
                assert outcomes(fast) == outcomes(slow)


def make_unchecked(law: str, probs: torch.Tensor, n: object) -> laws.Law:
    kind = laws.LAWS[law]
    return kind(probs, 2 if law == "hub" else n, short="pad", check=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "law"), pairs("gls", "from-plan", "entropic", "explicit"))
def test_plain_torch_gives_the_same_tokens(name: str, law: str, monkeypatch: pytest.MonkeyPatch):
    """What runs on devices without compiled passes, here on the CPU."""
    rule, rows, n = verifiers.get(name), 12, 1 if name == "single" else 2
    q, p = random_laws(rows, 700)
    drafted = make(law, p, n)
    drafts = drawn(rule, q, drafted, rows)
    chosen = md.uniforms(range(rows), 2)
    fused = rule.prepare(q, drafted).verify(drafts, uniforms=chosen)
    monkeypatch.setattr(passes, "_fused", lambda tensor: False)
    plain = rule.prepare(q, drafted).verify(drafts, uniforms=chosen)
    assert outcomes(fused) == outcomes(plain)


def test_one_context_serves_many_rows_of_drafts():
    q, p = random_laws(1, 50)[:, 0]
    for name in ("rrs", "k-seq", "importance", "interval", "naive"):
        rule, law = verifiers.get(name), md.IID(p, 3)
        drafts = drawn(rule, q, law, 200)
        chosen = md.uniforms(range(200), 2)
        many = rule.verify(q, law, drafts, uniforms=chosen)
        batch = md.IID(p.expand(200, -1), 3)
        each = rule.verify(q.expand(200, -1), batch, drafts, uniforms=chosen)
        assert outcomes(many) == outcomes(each)


# ----------------------------------------------------------------------------------- determinism


@pytest.mark.parametrize(("name", "law"), pairs("entropic", "explicit"))
def test_rows_can_be_permuted_dropped_and_added(name: str, law: str):
    rule, n = verifiers.get(name), 1 if name == "single" else 2
    rows, vocabulary = (6, 5) if name == "from-plan" else (24, 400)
    q, p = random_laws(rows, vocabulary)
    drafted = make(law, p, n)
    drafts = drawn(rule, q, drafted, rows)
    chosen = md.uniforms(range(rows), rule.draws(n))
    whole = rule.verify(q, drafted, drafts, uniforms=chosen)
    assert outcomes(whole) == outcomes(rule.verify(q, drafted, drafts, uniforms=chosen))
    for some in (torch.arange(rows).flip(0), torch.arange(0, rows, 3)):
        noise = None if drafts.noise is None else drafts.noise[some]
        part = verifiers.Drafts(drafts.tokens[some], noise)
        out = rule.verify(q[some], make(law, p[some], n), part, uniforms=chosen[some])
        assert outcomes(out) == [[column[i] for i in some] for column in outcomes(whole)]


@pytest.mark.parametrize(("name", "law"), pairs())
def test_inputs_stay_as_they_are(name: str, law: str):
    rule, n = verifiers.get(name), 1 if name == "single" else 2
    q = torch.tensor(np.stack([Q4, Q4[::-1]]))[: 1 if law == "explicit" else 2]
    drafted = matrix.law_of(law, P4, n) if law == "explicit" else make(law, torch.tensor(P4), n)
    parts = drafted.parts if isinstance(drafted, laws.Independent) else (drafted.probs,)
    drafts = drawn(rule, q, drafted, len(q))
    chosen = md.uniforms(range(len(q)), rule.draws(n))
    arrays = [q, *map(torch.as_tensor, parts), drafts.tokens, chosen]
    before = [array.clone() for array in arrays]
    rule.verify(q, drafted, drafts, uniforms=chosen)
    if name != "gls":
        rule.prepare(q, drafted).conditional(drafts.tokens)
    assert all(torch.equal(*pair) for pair in zip(before, arrays, strict=True))


def test_uniforms_depend_on_their_seed_alone():
    whole = md.uniforms([5, -9, 2**62, 0], 7)
    assert whole.dtype == torch.float64 and bool(((whole >= 0) & (whole < 1)).all())
    assert torch.equal(md.uniforms([2**62], 7)[0], whole[2])
    assert torch.equal(md.uniforms(np.array([5, 0]), 3), whole[[0, 3], :3])
    assert not torch.equal(md.uniforms([5], 7, stream=1), md.uniforms([5], 7))
    assert torch.equal(md.uniforms([5], 2, stream=2**70), md.uniforms([5], 2, stream=2**70))


def test_uniforms_of_neighbouring_seeds_and_streams_are_uncorrelated():
    sample = torch.cat([md.uniforms(range(20_000), 3, stream=k) for k in range(3)], -1)
    assert (sample.mean(0) - 0.5).abs().max() < 0.012
    off = torch.corrcoef(sample.T) - torch.eye(9)
    assert off.abs().max() < 0.04
    shifted = torch.corrcoef(torch.stack([sample[1:, 0], sample[:-1, 0]]))[0, 1]
    assert abs(float(shifted)) < 0.04


def test_uniforms_refuse_seeds_that_are_no_integers():
    with pytest.raises(md.InputError, match="row of integers"):
        md.uniforms(np.array([0.5]), 2)


# ------------------------------------------------------------------------------- ordinary inputs


@pytest.mark.parametrize("name", ["naive", "rrs", "rrsw", "k-seq", "greedy", "importance", "gls"])
def test_ragged_rows_are_verified_with_their_own_number_of_drafts(name: str):
    counts = np.array([1, 3, 2, 3, 1, 2])
    q, p = random_laws(6, 40, seed=3)
    law = next(law for law in laws.names() if law in TABLE[name])
    rule, ragged = verifiers.get(name), make(law, p, counts)
    drafts = drawn(rule, q, ragged, 6)
    chosen = md.uniforms(range(6), rule.draws(3))
    out = rule.verify(q, ragged, drafts, uniforms=chosen)
    for i, n in enumerate(counts.tolist()):
        tokens, noise = drafts.tokens[i : i + 1], drafts.noise
        short = (
            tokens[:, :n] if law != "greedy" else torch.cat([tokens[:, : n - 1], tokens[:, 2:]], -1)
        )
        row = verifiers.Drafts(short, None if noise is None else noise[i : i + 1, :n])
        alone = rule.verify(q[i], make(law, p[i], n), row, uniforms=chosen[i : i + 1])
        assert int(alone.token) == int(out.token[i])


def test_a_short_support_is_padded():
    q, p = torch.tensor([[0.2, 0.5, 0.3]]), torch.tensor([[0.0, 1.0, 0.0]])
    for name, law in (("rrsw", "without-replacement"), ("greedy", "greedy"), ("spechub", "hub")):
        rule, drafted = verifiers.get(name), make(law, p)
        drafts = drawn(rule, q, drafted, 1)
        assert sorted(drafts.tokens[0].tolist()) == [-1, 1]
        for u, token in ((0.0, 1), (0.49, 1), (0.51, 0), (0.99, 0)):
            out = rule.verify(q, drafted, drafts, uniforms=torch.tensor([[u, 0.1]]).double())
            # The sure draft of the greedy rule is no test: only the residual draws it.
            assert int(out.token) == (token if name != "greedy" else 0)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_raised(half: torch.dtype):
    q, p = random_laws(4, 30).to(half)
    rule, law = verifiers.get("rrs"), laws.IID(p, 2, check=False)
    drafts = drawn(rule, q, law, 4)
    chosen = md.uniforms(range(4), 2)
    raised = rule.verify(
        q.float(), laws.IID(p.float(), 2, check=False), drafts, uniforms=chosen, check=False
    )
    assert outcomes(rule.verify(q, law, drafts, uniforms=chosen, check=False)) == outcomes(raised)


def test_numpy_and_torch_give_the_same_tokens():
    q, p = random_laws(8, 30)
    rule = verifiers.get("rrs")
    drafts, chosen = drawn(rule, q, md.IID(p, 3), 8), md.uniforms(range(8), 2)
    torch_out = rule.verify(q, md.IID(p, 3), drafts, uniforms=chosen)
    numpy_out = rule.verify(q.numpy(), md.IID(p.numpy(), 3), drafts, uniforms=chosen)
    assert outcomes(torch_out) == outcomes(numpy_out)


@pytest.mark.parametrize("law", ["iid", "independent", "without-replacement"])
def test_logits_are_shaped_once_for_both_laws(law: str):
    logits = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    draft: Any = logits[1] if law != "independent" else [logits[1], logits[1].flip(-1)]
    heat: Any = 0.9 if law != "independent" else [0.9, 1.5]
    shape: Any = {"n": 2, "temperature": 0.7, "top_k": 4, "top_p": 0.95}
    q, made = verifiers.from_logits(logits[0], draft, law, draft_temperature=heat, **shape)
    problem = md.Problem.from_logits(logits[0], draft, law, draft_temperature=heat, **shape)
    assert np.abs(q.numpy() - problem.target).max() < 1e-15
    assert np.abs(np.asarray(made.probs) - problem.law.probs).max() < 1e-15
    for i in range(3):
        name = "rrsw" if law == "without-replacement" else "rrs"
        testing.assert_lossless(name, made[i].numpy(), q[i].numpy())


def test_gradients_are_no_obstacle():
    q, p = random_laws(2, 20).requires_grad_()
    rule, law = verifiers.get("rrs"), laws.IID(p.detach(), 2)
    drafts = drawn(rule, q, law, 2)
    tracked = laws.IID(p, 2, check=False)
    assert rule.verify(q, tracked, drafts, uniforms=md.uniforms(range(2), 2)).token.shape == (2,)


def test_generator_fills_the_uniforms():
    q, p = random_laws(5, 30)
    rule, law = verifiers.get("rrs"), md.IID(p, 2)
    drafts = drawn(rule, q, law, 5)
    filled = torch.rand(5, 2, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    out = rule.verify(q, law, drafts, generator=torch.Generator().manual_seed(4))
    assert outcomes(out) == outcomes(rule.verify(q, law, drafts, uniforms=filled))


# ----------------------------------------------------------------------------- impossible inputs

IMPOSSIBLE = [
    ("rrs", "iid", [0, 3]),  # token 3 has no draft mass
    ("rrs", "iid", [0, -1]),  # one draft is missing
    ("rrs", "iid", [0, 9]),  # no such token
    ("k-seq", "iid", [3, 0]),
    ("naive", "iid", [3, 0]),
    ("rrsw", "without-replacement", [1, 1]),  # repeated
    ("rrsw", "without-replacement", [-1, 1]),  # padding first
    ("greedy", "greedy", [1, 2]),  # token 0 is sure
    ("greedy", "greedy", [0, 3]),
    ("spechub", "hub", [1, 2]),  # without the hub
    ("naive", "top", [0, 2]),
]


@pytest.mark.parametrize(("name", "law", "tokens"), IMPOSSIBLE)
def test_impossible_drafts_raise_or_come_out_as_minus_one(name: str, law: str, tokens: list[int]):
    q = torch.tensor([[0.1, 0.2, 0.3, 0.4]] * 2, dtype=torch.float64)
    p = torch.tensor([[0.5, 0.3, 0.2, 0.0]] * 2, dtype=torch.float64)
    rule, drafted = verifiers.get(name), make(law, p)
    drafts = verifiers.Drafts(torch.tensor([[0, 1], tokens]))
    chosen = md.uniforms(range(2), 2)
    with pytest.raises(md.InputError, match="row 1 holds drafts that .* cannot have drawn"):
        rule.verify(q, drafted, drafts, uniforms=chosen)
    for out in (
        rule.verify(q, drafted, drafts, uniforms=chosen, check=False),
        rule.prepare(q, drafted).verify(drafts, uniforms=chosen, check=False),
    ):
        assert [column[1] for column in outcomes(out)] == [-1, -1, -1]
        assert int(out.token[0]) >= 0


def test_a_missing_draft_without_replacement_is_found():
    rule, law = verifiers.get("rrsw"), md.WithoutReplacement(P4, 3)
    with pytest.raises(md.InputError, match="cannot have drawn"):
        rule.prepare(Q4, law).conditional(torch.tensor([[0, 1, -1]]))


def test_shapes_that_do_not_fit_are_named():
    q, p = random_laws(3, 10)
    rule, law = verifiers.get("rrs"), md.IID(p, 2)
    drafts, chosen = drawn(rule, q, law, 3), md.uniforms(range(3), 2)
    with pytest.raises(md.InputError, match=r"uniforms have shape \(3, 1\): pass \(3, 2\)"):
        rule.verify(q, law, drafts, uniforms=chosen[:, :1])
    with pytest.raises(md.InputError, match="pass uniforms="):
        rule.verify(q, law, drafts)
    with pytest.raises(md.InputError, match="iid needs"):
        rule.verify(q, law, verifiers.Drafts(drafts.tokens[:, :1]), uniforms=chosen)
    with pytest.raises(md.InputError, match="2 rows of drafts do not fit 3 contexts"):
        rule.verify(q, law, verifiers.Drafts(drafts.tokens[:2]), uniforms=chosen[:2])
    with pytest.raises(md.InputError, match="contexts: pass one or as many each"):
        rule.verify(q[:2], law, drafts, uniforms=chosen)
    with pytest.raises(md.InputError, match=r"target has 9 tokens and draft 10"):
        rule.verify(q[:, :9] / q[:, :9].sum(-1, keepdim=True), law, drafts, uniforms=chosen)
    with pytest.raises(md.InputError, match="target sums to"):
        rule.verify(q * 0.9, law, drafts, uniforms=chosen)


# ---------------------------------------------------------------------------- coupled randomness


def test_gls_needs_the_noise_that_made_its_drafts():
    q, p = random_laws(3, 20)
    rule, law = verifiers.get("gls"), md.IID(p, 2)
    drafts = drawn(rule, q, law, 3)
    with pytest.raises(md.InputError, match="needs the noise"):
        rule.verify(q, law, verifiers.Drafts(drafts.tokens))
    assert drafts.noise is not None
    other = verifiers.Drafts(drafts.tokens, drafts.noise.flip(0))
    with pytest.raises(md.InputError, match="did not produce"):
        rule.verify(q, law, other)
    assert (rule.verify(q, law, other, check=False).token == -1).any()
    with pytest.raises(md.Refused, match="no conditional law"):
        rule.prepare(q, law).conditional(drafts.tokens)
    with pytest.raises(md.Refused, match="statistically"):
        rule.output_law(md.Problem(Q4, md.IID(P4, 2)))


def test_gls_output_does_not_depend_on_the_drafter():
    q, p = random_laws(50, 20)
    rule = verifiers.get("gls")
    first, second = (drawn(rule, q, md.IID(law, 3), 50) for law in (p, p.flip(-1)))
    assert not torch.equal(first.tokens, second.tokens)
    tokens = rule.verify(q, md.IID(p, 3), first).token
    assert torch.equal(tokens, rule.verify(q, md.IID(p.flip(-1), 3), second).token)


def test_strong_invariance_ignores_the_number_of_drafts():
    q, p = random_laws(50, 20)
    counts = 1 + np.arange(50) % 3
    whole = drawn(verifiers.get("gls"), q, md.IID(p, 3), 50)
    ragged = drawn(verifiers.get("gls"), q, md.IID(p, counts), 50)
    full = verifiers.get("gls").verify(q, md.IID(p, 3), whole).token
    strong = verifiers.get("gls", strong=True).verify(q, md.IID(p, counts), ragged).token
    weak = verifiers.get("gls").verify(q, md.IID(p, counts), ragged).token
    assert torch.equal(strong, full) and not torch.equal(weak, full)


@pytest.mark.parametrize("strong", [False, True])
def test_gls_is_lossless(strong: bool):
    rule = verifiers.get("gls", strong=strong)
    assert testing.check_sampler(testing.sampler(rule), Q4, md.IID(P4, 3), 60_000).passed


def test_gls_drafts_follow_the_draft_law():
    drafts = drawn(verifiers.get("gls"), Q4, md.IID(P4, 2), 60_000).tokens
    found = np.bincount(drafts[:, 0] * 4 + drafts[:, 1], minlength=16) / 60_000
    assert np.abs(found - np.outer(P4, P4).ravel()).max() < 5 * 0.5 / np.sqrt(60_000)


# --------------------------------------------------------------------------- real laws, V = 49,152

MILLION, FEW = 1_000_000, 20_000
SLOW_REAL = {("naive", "top"), ("rrsw", "without-replacement")}  # a pass for every single draw
REAL = [
    pytest.param(*pair, draws, id=f"{'-'.join(pair)}-{draws}", marks=marks)
    for pair in [
        ("naive", "top"),
        ("rrs", "iid"),
        ("rrs", "independent"),
        ("rrsw", "without-replacement"),
        ("k-seq", "iid"),
        ("spechub", "hub"),
        ("greedy", "greedy"),
        ("importance", "iid"),
        ("interval", "iid"),
    ]
    for draws, marks in ((FEW, ()), (MILLION, pytest.mark.long if pair in SLOW_REAL else ()))
    if draws == MILLION or pair in SLOW_REAL
]


@pytest.mark.parametrize(("name", "law", "draws"), REAL)
def test_lossless_on_real_laws(name: str, law: str, draws: int):
    trace = traces.frozen()
    logits = np.stack([trace.target[3], trace.drafts[0, 3]])
    q, p = md.normalise(probabilities(logits.astype(np.float64)))
    made = make(law, torch.from_numpy(p), 3)
    fn = (distinct_drafts if name == "rrsw" else testing).sampler(name)
    verdict = testing.check_sampler(fn, q, made, draws)
    assert verdict.passed, str(verdict)
    assert verdict.detects < (0.05 if draws == FEW else 0.006)
