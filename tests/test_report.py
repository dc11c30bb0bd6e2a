from __future__ import annotations

import json
import re

import numpy as np
import pytest
from log_files import POSITIONS, TEXTS, VOCABULARY, WORDS, laws
from report_pages import SETTINGS, TEXT, Reader, full, logged, report

import multidraft as md
from multidraft import cli, partial, trees
from multidraft.report import Sampling, Settings, measure, page, tokens
from multidraft.results import clustered_mean

HEAT = 0.8  # of SETTINGS
CLUSTERS = np.repeat(np.arange(TEXTS), POSITIONS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def exact(folder) -> tuple[dict, Reader]:
    """The report on full logits: its content and what a reader finds."""
    content, text = report(full(folder))
    return content, Reader(text)


@pytest.fixture(scope="module")
def vague(folder) -> tuple[dict, Reader]:
    """The report on logs."""
    settings = Settings(sampling=Sampling(temperature=1.0), explored=6)
    content, text = report(logged(folder), settings)
    return content, Reader(text)


def shown(values: np.ndarray, digits: int = 3) -> str:
    """How the page writes a mean over contexts, computed here."""
    mean = clustered_mean(values, CLUSTERS)
    error = f"{mean.stderr:.{digits}f}"
    return f"{mean.mean:.{digits}f} ± {error if float(error) else f'{mean.stderr:.0e}'}"


@pytest.fixture(scope="module")
def pair() -> tuple[np.ndarray, np.ndarray]:
    """The laws that the full trace is sampled from."""
    logits = [np.log(laws()[name]).reshape(-1, VOCABULARY) for name in ("target", "draft")]
    q, p = (
        md.normalise(md.transform.probabilities(part.astype(np.float32), HEAT)) for part in logits
    )
    return q, p


def problem(pair, law: str, n: int) -> md.Problem:
    spec = {"law": law, "short": "pad"} | ({} if law == "hub" else {"n": n})
    return md.Problem(pair[0], md.laws.make(spec, pair[1]))


# ---------------------------------------------------------------------------- numbers of the page


def test_every_number_has_a_key_of_its_own(exact, vague):
    for content, reader in (exact, vague):
        keys = [found["data-key"] for _, found in reader.elements if "data-key" in found]
        assert len(keys) == len(set(keys))
        wanted = {f"rules/{r['law']}/{r['n']}/{r['rule']}" for r in content["rules"]}
        wanted |= {f"optimum/{r['law']}/{r['n']}" for r in content["optimum"]}
        wanted |= {f"efficiency/{r['tree']}/{r['law']}/{r['rule']}" for r in content["trees"]}
        wanted |= {f"losses/{r['by']}/{r['group']}/one" for r in content["losses"]}
        wanted |= {f"summary/{name}" for name in content["summary"]}
        assert wanted <= set(keys)


def test_the_pair_is_described(exact, pair):
    numbers = exact[1].numbers
    q, p = pair
    assert numbers["summary/overlap"] == shown(np.minimum(q, p).sum(-1))
    assert numbers["summary/entropy target"] == shown(-(q * np.log2(q)).sum(-1), 2)
    assert numbers["summary/top draft"] == shown(p.max(-1))


@pytest.mark.parametrize("law", ["iid", "without-replacement", "greedy", "hub", "top"])
def test_the_optimum_is_the_interface_s(exact, pair, law):
    for n in (2,) if law == "hub" else (1, 2, 3, 4, 8):
        found = exact[1].numbers[f"optimum/{law}/{n}"]
        assert found == shown(md.optimal_acceptance(problem(pair, law, n)))


@pytest.mark.parametrize(
    ("law", "rule"),
    [
        ("iid", "naive"),
        ("iid", "rrs"),
        ("iid", "k-seq"),
        ("without-replacement", "naive"),
        ("without-replacement", "rrsw"),
        ("greedy", "greedy"),
        ("hub", "spechub"),
        ("top", "naive"),
    ],
)
def test_every_rule_is_the_interface_s_with_its_share_of_the_gain(exact, pair, law, rule):
    one = np.minimum(*pair).sum(-1).mean()
    for n in (2,) if law == "hub" else (2, 4):
        values = md.verifiers.get(rule).acceptance(problem(pair, law, n)).value
        assert exact[1].numbers[f"rules/{law}/{n}/{rule}"] == shown(values)
        best = md.optimal_acceptance(problem(pair, law, n)).mean()
        share = f"{100 * (values.mean() - one) / (best - one):.0f} %" if best > one else "–"
        assert exact[1].numbers[f"share/{law}/{n}/{rule}"] == share


def test_the_interval_partition_has_all_of_the_gain(exact, pair):
    values = md.verifiers.get("interval").acceptance(problem(pair, "iid", 4)).value
    assert exact[1].numbers["rules/iid/4/interval"] == shown(values)
    assert exact[1].numbers["share/iid/4/interval"] == "100 %"


@pytest.mark.parametrize(
    ("name", "tree"),
    [
        ("chain of 4", trees.chain(4)),
        ("4 children", trees.k_ary(4, 1)),
        ("2 children, depth 3", trees.k_ary(2, 3)),
        ("trunk of 4, then 4 paths of 3", trees.delayed(4, 4, 3)),
    ],
)
def test_block_efficiencies_are_the_estimate_from_one_step(exact, pair, name, tree):
    for law, rule in (("top", "naive"), ("iid", "rrs")):
        accepted = [
            md.verifiers.get(rule).acceptance(problem(pair, law, n)).value.mean()
            for n in range(1, 5)
        ]
        length = trees.estimate(tree, np.diff(accepted, prepend=0.0))
        text = exact[1].numbers[f"efficiency/{name}/{law}/{rule}"]
        assert text.startswith(f"{length:.2f} ± ")
        speedup = length / (1 + tree.depth * SETTINGS.draft_cost)
        assert exact[1].numbers[f"speedup/{name}/{law}/{rule}"] == f"{speedup:.2f}"


def test_the_error_of_a_block_efficiency_is_that_of_its_linearisation(exact, pair):
    # One level of four children: the length is 1 + acceptance, so the errors are the same.
    values = md.verifiers.get("rrs").acceptance(problem(pair, "iid", 4)).value
    assert exact[1].numbers["efficiency/4 children/iid/rrs"] == shown(1 + values, 2)


def test_positions_follow_both_definitions(exact, pair):
    overlap = np.minimum(*pair).sum(-1)
    start = "positions/sampled draft"
    for i in range(1, 6):
        conditional = exact[1].numbers[f"{start}/one step/{i}/conditional"]
        assert conditional == shown(overlap)
        mean = exact[1].numbers[f"{start}/one step/{i}/mean"]
        assert mean.startswith(f"{overlap.mean() ** i:.3f} ± ")
    runs = overlap.reshape(TEXTS, POSITIONS)
    windows = np.stack([runs[:, i : POSITIONS - 4 + i] for i in range(5)])
    products = np.cumprod(windows, axis=0).reshape(5, -1).mean(-1)
    for i in range(5):
        text = exact[1].numbers[f"{start}/along the text/{i + 1}/mean"]
        assert text.startswith(f"{products[i]:.3f} ± ")
    rate = exact[1].numbers[f"{start}/along the text/3/conditional"]
    assert rate == f"{products[2] / products[1]:.3f}"


def test_drafts_of_a_step_follow_both_definitions(exact, pair):
    accepted = [
        md.verifiers.get("rrs").acceptance(problem(pair, "iid", n)).value for n in (1, 2, 3)
    ]
    mean = exact[1].numbers["slots/iid/rrs/3/mean"]
    assert mean == shown(accepted[2] - accepted[1])
    rate = (accepted[2] - accepted[1]).mean() / (1 - accepted[1].mean())
    assert exact[1].numbers["slots/iid/rrs/3/conditional"] == f"{rate:.3f}"


def test_losses_are_grouped_and_add_up(exact, pair):
    content, reader = exact
    lost = 1 - np.minimum(*pair).sum(-1)
    kinds = np.array([tokens.kind(WORDS[t]) for t in laws()["tokens"].ravel()])
    inside = kinds == "start of a word"
    row = reader.numbers["losses/token that follows/start of a word/one"]
    assert row.startswith(f"{lost[inside].mean():.3f}")
    share = reader.numbers["losses/token that follows/start of a word/share"]
    assert share == f"{100 * lost[inside].sum() / lost.sum():.0f} %"
    for by in {row["by"] for row in content["losses"]}:
        rows = [row for row in content["losses"] if row["by"] == by]
        assert sum(row["contexts"] for row in rows) == len(lost)
        assert sum(row["share"] for row in rows) == pytest.approx(1)


def test_the_advice_names_the_best_system(exact):
    content, reader = exact
    best = max((r for r in content["rules"] if r["n"] == 4), key=lambda r: r["low"])
    words = {item["title"]: item["text"] for item in content["advice"]}
    assert f"{best['low']:.3f}" in words["Law and rule"]
    assert "if acceptance did not change with depth" in words["Tree"].lower()
    assert words["Against today's default"] in reader.text


# --------------------------------------------------------------------------------------- intervals


def test_intervals_are_the_interface_s(vague, folder):
    numbers = vague[1].numbers
    side = logged(folder).pair("draft")

    def ends(interval: partial.Interval) -> str:
        return f"{interval.lower.mean():.3f} to {interval.upper.mean():.3f} ± "

    assert numbers["summary/overlap"].startswith(ends(partial.overlap(side)))
    for law, n in (("iid", 2), ("without-replacement", 4), ("top", 3)):
        found = numbers[f"optimum/{law}/{n}"]
        assert found.startswith(ends(partial.optimum(side, law, n)))
    found = numbers["rules/without-replacement/2/rrsw"]
    assert found.startswith(ends(partial.acceptance(side, "rrsw", "without-replacement", 2)))


def test_intervals_hold_the_exact_report(folder):
    settings = Settings(explored=1)
    sure, vague = (
        measure(trace, settings, TEXT, progress=False) for trace in (full(folder), logged(folder))
    )
    keys = {
        "optimum": ("law", "n"),
        "rules": ("law", "n", "rule"),
        "trees": ("tree", "law", "rule"),
    }
    for name, key in keys.items():
        known = {tuple(row[k] for k in key): row.get("efficiency", row) for row in sure[name]}
        for row in vague[name]:
            if not str(row.get("tree")).startswith("Sequoia"):  # another tree for each pair
                found, value = row.get("efficiency", row), known[tuple(row[k] for k in key)]["low"]
                assert found["low"] - 1e-6 <= value <= found["high"] + 1e-6, row


def test_the_page_says_how_wide_and_what_would_narrow(vague):
    content, reader = vague
    assert not content["exact"]
    assert [row["k"] for row in content["width"]["rows"]] == [1, 3, 6]
    widths = [r["optimum"]["high"] - r["optimum"]["low"] for r in content["width"]["rows"]]
    assert widths == sorted(widths, reverse=True)
    assert "hold for every way to complete the laws" in reader.text
    assert not any(key.startswith("share/") for key in reader.numbers)
    assert "gls" in content["unbounded"]


def test_top_k_within_the_logs_is_exact(folder, pair):
    trace = logged(folder)
    settings = Settings(sampling=Sampling(top_k=3), explored=1)
    content = measure(trace, settings, TEXT, progress=False)
    assert content["exact"]
    q, p = (np.log(laws()[name]).reshape(-1, VOCABULARY) for name in ("target", "draft"))
    wanted = md.optimal_acceptance(md.Problem.from_logits(q, p, "iid", n=2, top_k=3)).mean()
    found = next(r for r in content["optimum"] if (r["law"], r["n"]) == ("iid", 2))
    assert found["low"] == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize(
    ("sampling", "reason"),
    [
        (Sampling(temperature=0.5), "another temperature than the recorded 1"),
        (Sampling(top_p=0.9), "about top-p"),
        (Sampling(top_k=50), "no context lists 50 top tokens"),
    ],
)
def test_what_logs_do_not_say_is_refused(folder, sampling, reason):
    with pytest.raises(md.InputError, match=reason):
        measure(logged(folder), Settings(sampling=sampling), TEXT, progress=False)


# ---------------------------------------------------------------------------------------- the page


def test_tokens_and_names_are_text_and_nothing_else(exact, vague):
    for content, reader in (exact, vague):
        assert [tag for tag, _ in reader.elements].count("script") == 2
        assert not {"b", "img", "iframe", "link"} & {tag for tag, _ in reader.elements}
        named = {token for context in reader.data["explorer"] for token in context["tokens"]}
        assert "␣<script>alert(1)</script>" in named
        assert content["pair"]["target"] == "<b>large</b>"
        assert "<b>large</b> with drafts" in reader.text


def test_the_page_needs_no_network(exact):
    text = page(exact[0])
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)""", text)
    assert not re.findall(r"@import|url\(|fetch\(|XMLHttpRequest|https?://(?!www\.w3\.org)", text)
    policy = next(found for _, found in Reader(text).elements if "http-equiv" in found)
    assert "default-src 'none'" in str(policy["content"])


def test_the_page_can_be_used_with_a_keyboard_and_read_aloud(exact):
    elements = exact[1].elements
    labels = {found.get("for") for tag, found in elements if tag == "label"}
    for tag, found in elements:
        if tag in ("select", "input") and found.get("type") != "radio":
            assert found["id"] in labels
        if tag == "svg":
            assert found["role"] == "img"
            assert found["aria-label"]
        if tag == "div" and found.get("class") == "scroll":
            assert found["tabindex"] == "0"
            assert found["aria-label"]
    assert [tag for tag, _ in elements].count("h1") == 1
    ids = [found["id"] for _, found in elements if "id" in found]
    assert len(ids) == len(set(ids))
    anchors = {found["href"] for tag, found in elements if tag == "a"}
    assert anchors <= {f"#{name}" for name in ids}


def test_the_explorer_shows_the_optimal_plan(exact, pair):
    q, p = pair
    for context in exact[1].data["explorer"]:
        i = context["context"]
        order = np.argsort(-np.maximum(q[i], p[i]), kind="stable")[: len(context["tokens"])]
        assert context["tokens"] == [tokens.shown(int(t), TEXT) for t in order]
        np.testing.assert_allclose(context["target"], q[i, order], rtol=1e-8)
        for plan in context["plans"]:
            solution = md.solve(md.Problem(q[i], md.IID(p[i], plan["n"])), "interval")
            assert plan["acceptance"] == pytest.approx(float(solution.acceptance), abs=1e-12)
            assert solution.plan is not None
            selection = solution.plan.selection[order]
            np.testing.assert_allclose(plan["selection"], selection, rtol=1e-8, atol=1e-15)
            np.testing.assert_array_equal(plan["cut"], solution.certificate.cut[order])
            bound = 1 + plan["cut_target"] - plan["cut_draft"] ** plan["n"]
            assert bound == pytest.approx(plan["acceptance"], abs=1e-9)
            _check_pieces(plan, selection, p[i, order])


def _check_pieces(plan: dict, selection: np.ndarray, draft: np.ndarray) -> None:
    """Lone owners' pieces have the lengths of their draft probabilities, and g-mass b."""
    ends = [piece["end"] for piece in plan["pieces"]]
    assert ends == sorted(ends)
    assert ends[-1] == pytest.approx(1, abs=1e-6)
    starts = [0.0, *ends[:-1]]
    for owner in range(len(selection)):
        if any(owner in p["owners"] and len(p["owners"]) > 1 for p in plan["pieces"]):
            continue  # shares its pieces
        mine = [
            (a, b)
            for p, a, b in zip(plan["pieces"], starts, ends, strict=True)
            if p["owners"] == [owner]
        ]
        length = sum(b - a for a, b in mine)
        if abs(length - draft[owner]) > 1e-4:
            continue  # partly in pieces too short to draw, or in a region of unlisted tokens
        mass = sum((1 - a) ** plan["n"] - (1 - b) ** plan["n"] for a, b in mine)
        assert mass == pytest.approx(selection[owner], abs=1e-2)


def test_text_before_a_context_is_shown_where_it_is_known(exact):
    context = next(c for c in exact[1].data["explorer"] if c["before"])
    words = [WORDS[t] for t in laws()["tokens"].ravel()]
    i = context["context"]
    start = i - i % POSITIONS
    assert context["before"] == "".join(words[start:i])
    assert context["next"] == tokens.visible(words[i])


def test_one_text_gives_no_errors(folder):
    trace = full(folder).select(slice(0, POSITIONS))
    content = measure(trace, Settings(explored=2), TEXT, progress=False)
    assert content["summary"]["overlap"]["error"] is None
    text = Reader(page(content)).text
    assert "All contexts are from one text" in text
    assert "±" not in text.split("How far the estimate was off")[0].split("What to do")[1]


# ------------------------------------------------------------------------------------ command line


def test_the_command_writes_a_page_or_prints_json(capsys, tmp_path, folder):
    trace = full(folder).write(tmp_path / "t.safetensors")
    words = tmp_path / "words.json"
    words.write_text(json.dumps(WORDS))
    out = tmp_path / "page.html"
    arguments = [
        "report",
        str(trace),
        "--tokens",
        str(words),
        "--explored",
        "2",
        "--contexts",
        "16",
    ]
    assert cli.main([*arguments, "--output", str(out), "--temperature", "0.5"]) == 0
    assert "Law and rule" in capsys.readouterr().out
    reader = Reader(out.read_text(encoding="utf-8"))
    assert "16 contexts of" in reader.text
    assert "temperature 0.5" in reader.text
    assert len(reader.data["explorer"]) == 2
    assert cli.main([*arguments, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["pair"]["contexts"] == 16
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["no.safetensors"], "cannot be read"),
        (["{trace}", "--draft", "other"], "no draft 'other'"),
        (["{trace}", "--contexts", "0"], "contexts is 0"),
        (["{trace}", "--draft-cost", "-1"], "draft-cost is -1"),
        (["{trace}", "--tokens", "no.json"], "no readable JSON"),
    ],
)
def test_the_command_refuses_in_one_sentence(capsys, tmp_path, folder, arguments, reason):
    trace = full(folder).write(tmp_path / "t.safetensors")
    given = [text.format(trace=trace) for text in arguments]
    assert cli.main(["report", *given, "--output", str(tmp_path / "page.html")]) == 2
    err = capsys.readouterr().err
    assert reason in err
    assert err.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


# ------------------------------------------------------------------------------------------ tokens


def test_token_texts_are_read_from_tokenizers(tmp_path):
    def read(content) -> dict[int, str]:
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        return tokens.read(path)

    added = [{"id": 4, "content": "<|end|>"}]
    bytes_ = {
        "model": {"vocab": {"Ġthe": 0, "Ċ": 1, "Ã©": 2, "Ã": 3}},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": added,
    }
    assert read(bytes_) == {0: " the", 1: "\n", 2: "é", 3: "\ufffd", 4: "<|end|>"}
    pieces = {"model": {"vocab": [["▁the", -1.0], ["s", -2.0]]}, "added_tokens": []}
    assert read(pieces) == {0: " the", 1: "s"}
    assert read(["a", "b"]) == {0: "a", 1: "b"}
    assert read({"a": 3}) == {3: "a"}
    with pytest.raises(md.InputError, match="no token texts"):
        read({"a": "b"})


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (" the", "start of a word"),
        ("ing", "inside a word"),
        (" 42", "number"),
        ("...", "punctuation"),
        ("\n\n", "space or line break"),
        (" <script>alert(1)</script>", "other"),
        (None, "not known"),
    ],
)
def test_kinds_of_tokens(text, kind):
    assert tokens.kind(text) == kind
