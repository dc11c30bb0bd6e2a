"""Advice: costs of a step, the best tree under them, wider or deeper, the command."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tiny_model
from markov_trees import DRAFT, TARGET, record_markov

import multidraft as md
from multidraft import advise, traces, trees
from multidraft.advise import Calls, Candidate, Costs
from multidraft.advise import costs as costs_module
from multidraft.cli import main

SIZES = (1, 2, 4, 8, 16, 32, 64)
SHAPES = ("chain:1", "chain:2", "k-ary:2,1", "k-ary:2,2", "k-ary:3,1")


def calls(first: float, each: float) -> Calls:
    """A call that takes `first` seconds and `each` more for every further slot."""
    return Calls(SIZES, tuple(first + each * (size - 1) for size in SIZES))


# Slots of the target cost nothing and calls of the draft are dear, or the other way round.
WIDE = Costs(calls(1.0, 0.0), calls(0.8, 0.0))
DEEP = Costs(calls(1.0, 0.1), calls(0.001, 0.0))
HOPELESS = Costs(calls(1.0, 2.0), calls(5.0, 0.0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees")
    record_markov(trees.parse("k-ary:3,2"), 400, folder)
    record_markov(trees.parse("k-ary:3,2", "without-replacement"), 400, folder)
    return folder


@pytest.fixture(scope="module")
def evidence(folder, tmp_path_factory):
    files = trees.recorded.found(folder)
    return advise.FromRecordings(files, folder=tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="module")
def found(evidence):
    return {
        name: advise.advise(evidence, costs, shapes=SHAPES)
        for name, costs in (("wide", WIDE), ("deep", DEEP), ("hopeless", HOPELESS))
    }


# Costs


def test_a_step_is_its_calls_and_its_verification():
    costs = Costs(calls(1.0, 0.5), calls(0.1, 0.01), {"rrs": 0.25})
    tree = trees.parse("k-ary:2,2")
    assert costs.step(tree, "rrs") == pytest.approx((1 + 6 * 0.5) + (0.1 + 0.11) + 0.25)
    assert costs.step(tree, "traversal") == pytest.approx(costs.step(tree, "rrs") - 0.25)
    assert costs.plain == 1.0
    assert calls(1.0, 0.5).at(3) == pytest.approx(2.0)


def test_calls_beyond_those_that_were_timed_are_refused():
    with pytest.raises(md.InputError, match="up to 64 slots, not 65: lower the budget"):
        WIDE.target.at(65)


@pytest.mark.parametrize(
    ("slots", "seconds"), [((2, 4), (1, 1)), ((1, 1), (1, 1)), ((1, 2), (1,)), ((1,), (0.0,))]
)
def test_calls_that_are_none_are_refused(slots, seconds):
    with pytest.raises(md.InputError, match="grow and begin at 1|one positive number"):
        Calls(slots, seconds)


def test_a_file_of_costs_comes_back(tmp_path):
    costs = Costs(calls(1.0, 0.5), calls(0.1, 0.01), {"rrs": 0.25, "bottom-up:k-seq": 1.0})
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(costs.as_data()))
    assert advise.load(path).as_data() == costs.as_data()


GOOD = WIDE.as_data()
BAD = {
    "no JSON": ("{", "is no JSON"),
    "a list": ("[]", "holds no costs"),
    "no draft": ({**GOOD, "draft": {}}, "holds no costs"),
    "format": ({**GOOD, "format": 7}, "format is 7, this version reads 1"),
    "order": ({**GOOD, "target": {"slots": [1, 1], "seconds": [1, 1]}}, "grow and begin at 1"),
    "negative": ({**GOOD, "target": {"slots": [1], "seconds": [-1]}}, "one positive number"),
    "rule": ({**GOOD, "verification": {"magic": 1}}, "unknown rule 'magic'"),
    "time": ({**GOOD, "verification": {"rrs": -1}}, "verification of rrs takes -1"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_costs_file_is_one_sentence(tmp_path, folder, capsys, fault):
    content, sentence = BAD[fault]
    path = tmp_path / "costs.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    assert main(["advise", "--costs", str(path), "--folder", str(folder)]) == 2
    error = capsys.readouterr().err
    assert sentence in error and len(error.strip().splitlines()) == 1


def test_costs_are_timed_once(tmp_path, monkeypatch):
    monkeypatch.setenv("MULTIDRAFT_CACHE", str(tmp_path / "cache"))
    target = md.models.load(str(tiny_model.write(tmp_path / "tiny")))
    draft = md.models.load("skip:1", target)
    rules = {"block": trees.chain(2), "traversal": trees.parse("paths:2,2")}
    first = advise.measured(target, draft, rules)
    assert first.target.slots == SIZES and set(first.verification) == set(rules)
    monkeypatch.setattr(costs_module, "_timed_calls", lambda model: pytest.fail("timed again"))
    assert advise.measured(target, draft, rules).as_data() == first.as_data()


# The choice


def test_numbers_are_efficiency_over_seconds(found, evidence):
    for option in found["deep"].options:
        exact = trees.expected_length(
            trees.rules.parse(option.candidate.rule), option.candidate.tree, TARGET, DRAFT
        )
        assert abs(option.efficiency.mean - exact) < 5 * option.efficiency.stderr + 1e-9
        assert option.speed.mean == pytest.approx(option.efficiency.mean / option.seconds)
        assert option.speed.stderr == pytest.approx(option.efficiency.stderr / option.seconds)
    speeds = [option.speed.mean for option in found["deep"].options]
    assert speeds == sorted(speeds, reverse=True)


def test_advice_flips_with_the_costs(found):
    wide, deep = (found[name].options[0].candidate.tree for name in ("wide", "deep"))
    assert max(map(len, wide.children)) > 1 and wide.depth == 1
    assert max(map(len, deep.children)) == 1
    assert "k-ary" in found["wide"].sentences[0] and "chain" in found["deep"].sentences[0]


def test_no_tree_is_worth_it_when_calls_are_dear(found):
    assert found["hopeless"].sentences[0].startswith("Decode without drafts")
    assert found["hopeless"].options[0].speed.mean < found["hopeless"].plain == 1.0


def test_every_law_rule_and_tree_within_the_budget_is_weighed(evidence):
    options = advise.advise(evidence, WIDE, budget=3, shapes=SHAPES).options
    seen = {(option.name, option.candidate.law, option.candidate.rule) for option in options}
    assert ("k-ary:3,1", "without-replacement", "rrsw") in seen
    assert ("chain:2", "iid", "block") in seen
    assert ("k-ary:2,1", "iid", "block") not in seen  # the rule does not take it
    assert not any(name == "k-ary:2,2" for name, _, _ in seen)  # six drafts
    with pytest.raises(md.InputError, match="at most 3 drafted tokens: raise the budget"):
        advise.advise(evidence, WIDE, budget=3, shapes=["k-ary:2,2"])


def test_the_next_best_is_named_with_a_paired_error(found):
    advice = found["deep"]
    first, second = advice.options[0], advice.second
    assert second is not None and second.speed.mean < first.speed.mean
    apart = first.minus(second)
    assert apart.mean == pytest.approx(first.speed.mean - second.speed.mean)
    assert 0 < apart.stderr < first.speed.stderr + second.speed.stderr
    sentence = next(text for text in advice.sentences if text.startswith("Next is"))
    assert second.name in sentence and f"{apart.detectable:.2f}" in sentence


def test_ties_are_called_so(found):
    # On one path traversal is block verification.
    advice = found["deep"]
    assert {advice.options[0].candidate.rule, advice.ties[0].candidate.rule} == {
        "block",
        "traversal",
    }
    assert advice.sentences[1].startswith(f"As fast at every context: {advice.ties[0].name}")


# Wider or deeper


def test_one_more_draft_is_worth_what_the_larger_tree_adds(found, evidence):
    advice = found["deep"]
    best = advice.options[0].candidate
    assert best.parents in ((-1, 0), (-1, 0, 1))
    by_depth = {marginal.depth: marginal for marginal in advice.marginals}
    assert by_depth[1].deeper is False
    more = Candidate(best.law, (*best.parents, 0), "traversal")
    base = best._replace(rule="traversal")
    lengths = evidence.lengths([more, base])
    gain = lengths[more] - lengths[base]
    assert by_depth[1].tokens.mean == pytest.approx(gain.mean()) and gain.mean() > 0.01
    speed = lengths[more] / DEEP.step(more.tree, "traversal") - lengths[base] / DEEP.step(
        base.tree, "traversal"
    )
    assert by_depth[1].speed.mean == pytest.approx(speed.mean())


def test_what_was_not_recorded_is_left_out(found):
    depths = [marginal.depth for marginal in found["wide"].marginals]
    width = len(found["wide"].options[0].candidate.tree.children[0])
    assert (1 in depths) == (width < 3) and 2 in depths and 3 not in depths


# From a trace


def test_a_trace_gives_estimates_and_says_so(frozen):
    evidence = advise.FromTrace(frozen, "skip-8", contexts=12)
    advice = advise.advise(evidence, WIDE, shapes=["chain:1", "chain:2", "k-ary:2,1"])
    assert advice.kind == "estimate" and "record trees to know" in advice.sentences[-1]
    length = {(o.name, o.candidate.rule): o.efficiency.mean for o in advice.options}
    accepted = length["chain:1", "rrs"] - 1
    assert length["chain:2", "rrs"] == pytest.approx(1 + accepted + accepted**2)
    rows = np.linspace(0, len(frozen) - 1, 12).astype(int)
    laws = [md.transform.probabilities(part[rows]) for part in (frozen.target, frozen.drafts[0])]
    assert accepted == pytest.approx(np.minimum(*laws).sum(-1).mean())


@pytest.fixture(scope="module")
def frozen():
    return traces.frozen()


# The command


def test_the_command_prints_advice_and_json(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MULTIDRAFT_CACHE", str(tmp_path))
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(WIDE.as_data()))
    pair = ["--target", "markov", "--draft", "markov", "--folder", str(folder)]
    arguments = ["advise", *pair, "--costs", str(path), "--budget", "6"]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "Use k-ary:" in text and "one more draft at depth" in text and str(path) in text
    assert main([*arguments, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["kind"] == "exact" and content["advice"][0] in text
    assert content["options"][0]["tokens_per_second"] > content["plain_tokens_per_second"]


def test_the_command_falls_back_on_a_trace(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MULTIDRAFT_CACHE", str(tmp_path))
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(WIDE.as_data()))
    assert main(["advise", "--costs", str(path)]) == 2
    assert "there are no recorded trees and no trace" in capsys.readouterr().err
    options = ["--trace", str(traces.FROZEN), "--budget", "2"]
    assert main(["advise", "--costs", str(path), *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "estimate"
