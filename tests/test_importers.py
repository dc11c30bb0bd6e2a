from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from log_files import POSITIONS, TEXTS, VOCABULARY, WORDS, laws, openai, vllm, write

import multidraft as md
from multidraft import cli, importers, partial

K = 5


@pytest.fixture(scope="module")
def given() -> dict[str, np.ndarray]:
    return laws()


@pytest.fixture
def logs(tmp_path, given) -> tuple[Path, Path]:
    """A vLLM log of the target and of the draft."""
    target, draft = (
        vllm(tmp_path / f"{name}.jsonl", given[name], given["tokens"], K)
        for name in ("target", "draft")
    )
    return target, draft


def flat(law: np.ndarray) -> np.ndarray:
    return law.reshape(-1, VOCABULARY)


def lines_of(path: Path) -> list:
    return [json.loads(line) for line in path.read_text().splitlines()]


def refused(*arguments, **options) -> str:
    with pytest.raises(md.InputError) as caught:
        importers.top_k(*arguments, **options)
    return str(caught.value)


def spoilt(path: Path, change, line: int = 1) -> Path:
    """The log with one line changed (counted from 0)."""
    content = lines_of(path)
    change(content[line])
    return write(path, content)


# ---------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize("shape", ["vllm", "openai"])
def test_both_shapes_give_the_listed_laws(tmp_path, given, shape):
    make = {"vllm": vllm, "openai": openai}[shape]
    files = [
        make(tmp_path / f"{name}.jsonl", given[name], given["tokens"], K)
        for name in ("target", "draft")
    ]
    trace = importers.top_k(files[0], {"small": files[1]})
    assert len(trace) == TEXTS * POSITIONS
    assert trace.names == ("small",)
    ids = {text: token for token, text in trace.tokens.items()}
    for listed, name in ((trace.target, "target"), (trace.draft("small"), "draft")):
        law = flat(given[name])
        for row in range(len(trace)):
            best = np.argsort(-law[row], kind="stable")[:K]
            wanted = {ids[WORDS[i]]: law[row, i] for i in best}
            top = listed.ids[row, : listed.top[row]]
            # The token that stands there may be listed behind the top.
            assert set(wanted) >= set(top.tolist()[:K])
            assert listed.top[row] >= (K if shape == "vllm" else K - 1)
            assert listed.cap[row] >= np.delete(law[row], best).max() - 1e-15
            known = {
                int(t): float(p) for t, p in zip(listed.ids[row], listed.probs[row], strict=True)
            }
            for token, value in wanted.items():
                assert known[token] == pytest.approx(value, rel=1e-12)
    following = [trace.tokens[token] for token in trace.next_token.tolist()]
    assert following == [WORDS[token] for token in given["tokens"].ravel()]
    np.testing.assert_array_equal(trace.position, np.tile(np.arange(1, POSITIONS + 1), TEXTS))


def test_intervals_from_logs_hold_the_real_values(logs, given):
    trace = importers.top_k(logs[0], {"small": logs[1]})
    problem = md.Problem(flat(given["target"]), md.IID(flat(given["draft"]), 2))
    value = md.optimal_acceptance(problem)
    interval = partial.optimum(trace.pair("small"), "iid", 2)
    assert (interval.lower <= value + 1e-12).all()
    assert (value <= interval.upper + 1e-12).all()
    assert interval.width.max() < 1


def test_a_trace_is_written_and_read(tmp_path, logs):
    trace = importers.top_k(logs[0], {"small": logs[1]}, name="large", vocabulary=VOCABULARY)
    again = importers.open(trace.write(tmp_path / "trace.safetensors"))
    assert isinstance(again, partial.PartialTrace)
    assert again.header == trace.header
    assert again.tokens == trace.tokens
    (tmp_path / "plain").touch()  # others may read the trace where they may read any new file
    assert (tmp_path / "trace.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode
    for mine, other in zip(
        (trace.target, trace.draft("small")), (again.target, again.draft("small")), strict=True
    ):
        np.testing.assert_array_equal(mine.ids, other.ids)
        np.testing.assert_array_equal(mine.probs, other.probs)
        np.testing.assert_array_equal(mine.cap, other.cap)
    np.testing.assert_array_equal(trace.next_token, again.next_token)


def test_lines_are_matched_by_name_where_they_have_one(tmp_path, logs):
    def named(path: Path, order: list[int]) -> Path:
        content = lines_of(path)
        wrapped = [{"custom_id": f"text-{i}", "response": {"body": content[i]}} for i in order]
        return write(path, wrapped)

    plain = importers.top_k(logs[0], {"small": logs[1]})
    files = named(logs[0], [0, 1, 2, 3]), named(logs[1], [2, 0, 3, 1])
    shuffled = importers.top_k(files[0], {"small": files[1]})
    np.testing.assert_array_equal(shuffled.draft("small").probs, plain.draft("small").probs)


def test_bare_lists_and_plain_numbers_are_read(tmp_path):
    log = write(tmp_path / "a.jsonl", [[None, {"7": -0.5, "3": -1.2}], [{"1": -0.1, "2": -3.0}]])
    trace = importers.top_k(log, {"same": log}, k=2)
    np.testing.assert_array_equal(trace.next_token, [7, 1])
    np.testing.assert_allclose(trace.target.probs, np.exp([[-0.5, -1.2], [-0.1, -3.0]]))


def test_token_ids_in_the_place_of_texts_are_ids(tmp_path):
    logprobs = {
        "tokens": ["token_id:9"],
        "token_logprobs": [-0.7],
        "top_logprobs": [{"token_id:9": -0.7, "token_id:4": -0.9}],
    }
    log = write(tmp_path / "a.jsonl", [{"choices": [{"logprobs": logprobs}]}])
    trace = importers.top_k(log, {"same": log})
    assert trace.header["named_by"] == "id"
    np.testing.assert_array_equal(trace.target.ids, [[9, 4]])


# ------------------------------------------------------------------- what is known about the rest


def entry(listed: dict, token: str, value: float) -> dict:
    logprobs = {"tokens": [token], "token_logprobs": [value], "top_logprobs": [listed]}
    return {"choices": [{"logprobs": logprobs}]}


def test_the_token_that_stands_there_is_no_bound_for_the_others(tmp_path):
    listed = {" a": np.log(0.5), " b": np.log(0.2), " rare": np.log(1e-6)}
    whole = {" a": np.log(0.5), " b": np.log(0.2)}
    log = write(
        tmp_path / "a.jsonl",
        [entry(listed, " rare", np.log(1e-6)), entry(whole, " a", np.log(0.5))],
    )
    trace = importers.top_k(log, {"same": log})
    np.testing.assert_allclose(trace.target.cap, [0.2, 0.2])
    np.testing.assert_array_equal(trace.target.top, [2, 2])


def test_texts_that_many_tokens_share_count_as_unlisted(tmp_path):
    listed = {" a": np.log(0.5), "\ufffd": np.log(0.3), " b": np.log(0.1)}
    log = write(tmp_path / "a.jsonl", [entry(listed, " a", np.log(0.5))])
    trace = importers.top_k(log, {"same": log})
    assert trace.header["ambiguous"] == 1
    np.testing.assert_allclose(trace.target.probs, [[0.5, 0.1]])
    np.testing.assert_allclose(trace.target.cap, [0.3])  # an unlisted token can be that probable
    np.testing.assert_array_equal(trace.target.top, [1])


def test_a_lost_entry_lifts_the_bound(tmp_path):
    # Two tokens of one text leave one entry: the lost one can have all that is not listed.
    full = {" a": np.log(0.5), " b": np.log(0.2), " c": np.log(0.1)}
    short = {" a": np.log(0.5), " b": np.log(0.2)}
    log = write(
        tmp_path / "a.jsonl", [entry(full, " a", np.log(0.5)), entry(short, " a", np.log(0.5))]
    )
    trace = importers.top_k(log, {"same": log})
    np.testing.assert_allclose(trace.target.cap, [0.1, 0.3])


def test_rows_that_round_above_one_are_divided_and_counted(tmp_path):
    log = write(tmp_path / "a.jsonl", [[{"1": np.log(0.7), "2": np.log(0.30001)}]])
    trace = importers.top_k(log, {"same": log})
    assert trace.header["rounded"] == 2
    assert trace.target.probs.sum() == pytest.approx(1, abs=1e-15)


# ------------------------------------------------------------------------------ what is refused


def listed_at(line: dict, place: int = 3) -> dict:
    return line["choices"][0]["prompt_logprobs"][place]


FAULTS = {
    "above 1": lambda line: listed_at(line).update({"58": {"logprob": -0.001}}),
    "twice": None,  # written by hand, since a dictionary cannot hold it
    "log-probability 'x'": lambda line: listed_at(line).update({"58": {"logprob": "x"}}),
    "log-probability 0.5": lambda line: listed_at(line).update({"58": {"logprob": 0.5}}),
    "log-probability nan": lambda line: listed_at(line).update({"58": {"logprob": float("nan")}}),
    "shape of the API": lambda line: listed_at(line).update({"58": {}}),
}


@pytest.mark.parametrize("reason", FAULTS)
def test_a_bad_row_is_refused_with_its_line_or_counted(logs, reason):
    target, draft = logs
    if FAULTS[reason] is None:
        text = target.read_text().splitlines()
        row = lines_of(target)[1]["choices"][0]["prompt_logprobs"][3]
        first = next(iter(row))
        one = json.dumps({first: row[first]})[1:-1]
        text[1] = text[1].replace(one, f"{one}, {one}", 1)
        target.write_text("\n".join(text) + "\n")
    else:
        spoilt(target, FAULTS[reason])
    sentence = refused(target, {"small": draft})
    assert reason in sentence
    assert f"{target}, line 2: position 3" in sentence
    assert "--skip-bad-rows" in sentence
    trace = importers.top_k(target, {"small": draft}, skip_bad_rows=True)
    assert trace.header["dropped"] == {"bad rows": 1}
    assert len(trace) == TEXTS * POSITIONS - 1


def test_texts_that_differ_are_refused_and_dropped_from_there_on(logs):
    target, draft = logs

    def other_token(line: dict) -> None:
        positions = line["choices"][0]["prompt_logprobs"]
        positions[5] = dict(reversed(positions[5].items()))  # another token stands first

    spoilt(draft, other_token, line=2)
    sentence = refused(target, {"small": draft})
    assert f"{target}, line 3 and {draft}, line 3: position 5 differs" in sentence
    trace = importers.top_k(target, {"small": draft}, skip_bad_rows=True)
    assert trace.header["dropped"] == {"texts that differ": 1}
    np.testing.assert_array_equal(trace.position[trace.passage == 2], [1, 2, 3, 4])


def test_a_log_that_ends_early_is_refused(logs):
    target, draft = logs
    spoilt(draft, lambda line: line["choices"][0]["prompt_logprobs"].pop())
    assert "against no position" in refused(target, {"small": draft})
    write(draft, lines_of(draft)[:3])
    spoilt(draft, lambda line: line["choices"][0]["prompt_logprobs"].append(None))
    trace = importers.top_k(target, {"small": draft}, skip_bad_rows=True)
    assert trace.header["dropped"]["texts not in every log"] == 1


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{broken", "line 2 is no JSON"),
        ("3", "line 2 is neither a response nor a list"),
        ('{"choices": [{"logprobs": {"content": []}}]}', "line 2 is of the chat API"),
        ('{"choices": [{"text": "a"}]}', "line 2 holds neither prompt_logprobs nor logprobs"),
    ],
)
def test_a_line_without_a_log_is_refused_and_keeps_its_place(logs, line, reason):
    target, draft = logs
    text = target.read_text().splitlines()
    text[1] = line
    target.write_text("\n".join(text) + "\n")
    assert reason in refused(target, {"small": draft})
    trace = importers.top_k(target, {"small": draft}, skip_bad_rows=True)
    assert trace.header["dropped"]["lines without a log"] == 1
    assert set(trace.passage.tolist()) == {0, 2, 3}
    plain = importers.top_k(draft, {"same": draft})
    kept = plain.target.probs[plain.passage != 1]
    np.testing.assert_array_equal(trace.draft("small").probs, kept)


def test_logs_with_nothing_to_read(tmp_path, logs, given):
    assert "cannot be read" in refused(tmp_path / "no.jsonl", {"small": logs[1]})
    empty = write(tmp_path / "empty.jsonl", [])
    assert "holds no log-probabilities" in refused(empty, {"small": logs[1]})
    by_text = openai(tmp_path / "text.jsonl", given["draft"], given["tokens"], K)
    assert "names tokens by text" in refused(logs[0], {"small": by_text})
    assert "the vocabulary is not 10" in refused(logs[0], {"small": logs[1]}, vocabulary=10)
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "no UTF-8 text" in refused(binary, {"small": logs[1]})


def test_damaged_traces_are_refused(tmp_path, logs):
    path = importers.top_k(logs[0], {"small": logs[1]}).write(tmp_path / "a.safetensors")
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(md.InputError, match="damaged"):
        importers.open(path)
    path.write_bytes(whole.replace(b'\\"format\\": 1', b'\\"format\\": 9'))
    with pytest.raises(md.InputError, match="format 9"):
        importers.open(path)
    with pytest.raises(md.InputError, match="cannot be read"):
        partial.open(tmp_path / "no.safetensors")
    with pytest.raises(md.InputError, match="multidraft import"):
        importers.open(logs[0])


# ------------------------------------------------------------------------------------ full logits


@pytest.fixture
def arrays(tmp_path, given) -> dict[str, np.ndarray]:
    return {
        "target": np.log(flat(given["target"])).astype(np.float32),
        "draft": np.log(flat(given["draft"])).astype(np.float32),
        "ids": given["tokens"].ravel(),
        "passage": np.repeat(np.arange(TEXTS), POSITIONS),
        "position": np.tile(np.arange(POSITIONS), TEXTS),
    }


def test_an_archive_becomes_a_trace(tmp_path, arrays):
    path = tmp_path / "both.npz"
    np.savez(path, **arrays)
    trace = importers.logits(path, {"draft": path}, name="large")
    assert isinstance(importers.open(trace.write(tmp_path / "t.safetensors")), md.traces.Trace)
    assert trace.names == ("draft",)
    np.testing.assert_array_equal(trace.target, arrays["target"])
    np.testing.assert_array_equal(trace.draft("draft"), arrays["draft"])
    np.testing.assert_array_equal(trace.next_token, arrays["ids"])
    np.testing.assert_array_equal(trace.passage, arrays["passage"])
    assert [passage.tokens for passage in trace.passages] == [POSITIONS] * TEXTS


def test_separate_arrays_and_types(tmp_path, arrays):
    np.save(tmp_path / "q.npy", arrays["target"].astype(np.float16))
    np.save(tmp_path / "p.npy", arrays["draft"].astype(np.float64))
    np.save(tmp_path / "ids.npy", arrays["ids"])
    files = tmp_path / "q.npy", {"small": tmp_path / "p.npy"}
    trace = importers.logits(*files, ids=tmp_path / "ids.npy")
    assert trace.target.dtype == np.float32  # the wider of the two
    np.testing.assert_array_equal(trace.target, arrays["target"].astype(np.float16))
    with pytest.raises(md.InputError, match="ids of the tokens that follow"):
        importers.logits(*files)


def test_safetensors_in_half_precision(tmp_path, arrays):
    import torch
    from safetensors.torch import save_file

    tensors = {name: torch.from_numpy(arrays[name]) for name in ("target", "draft")}
    halves = {name: tensor.bfloat16() for name, tensor in tensors.items()}
    save_file(halves | {"ids": torch.from_numpy(arrays["ids"])}, tmp_path / "a.safetensors")
    path = tmp_path / "a.safetensors"
    trace = importers.logits(path, {"draft": path})
    np.testing.assert_array_equal(trace.target, halves["target"].float().numpy())


def test_padded_and_reduced_vocabularies_are_aligned(tmp_path, arrays):
    wide = np.pad(arrays["target"], ((0, 0), (0, 4)), constant_values=3.0)
    np.savez(tmp_path / "q.npz", logits=wide, ids=arrays["ids"])
    np.save(tmp_path / "p.npy", arrays["draft"])
    files = tmp_path / "q.npz", {"small": tmp_path / "p.npy"}
    with pytest.raises(md.InputError, match="pad=True"):
        importers.logits(*files)
    trace = importers.logits(*files, pad=True)
    assert np.isneginf(trace.target[:, VOCABULARY:]).all()
    kept = np.arange(VOCABULARY)[::2]
    np.save(tmp_path / "p.npy", arrays["draft"][:, ::2])
    np.save(tmp_path / "map.npy", kept)
    trace = importers.logits(*files, draft_to_target=tmp_path / "map.npy")
    np.testing.assert_array_equal(trace.draft("small")[:, kept], arrays["draft"][:, ::2])
    assert np.isneginf(trace.draft("small")[:, 1::2]).all()


def test_contexts_that_differ_are_refused(tmp_path, arrays):
    np.savez(tmp_path / "q.npz", target=arrays["target"], ids=arrays["ids"])
    other = arrays["ids"].copy()
    other[7] += 1
    np.savez(tmp_path / "p.npz", draft=arrays["draft"], ids=other)
    with pytest.raises(md.InputError, match="ids differs at row 7"):
        importers.logits(tmp_path / "q.npz", {"small": tmp_path / "p.npz"})


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.txt", b"1", "neither .npy, .npz nor .safetensors"),
        ("a.npy", b"nonsense", "cannot be read"),
        ("a.npz", b"nonsense", "cannot be read"),
        ("a.safetensors", b"nonsense", "cannot be read"),
    ],
)
def test_files_that_are_no_arrays(tmp_path, name, content, reason):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(md.InputError, match=reason):
        importers.logits(path, {"small": path})


def test_nothing_is_unpickled(tmp_path):
    path = tmp_path / "evil.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(md.InputError, match="cannot be read"):
        importers.logits(path, {"small": path})


# ------------------------------------------------------------------------------------ command line


def test_the_command_imports_logs_and_names_the_next_step(capsys, tmp_path, logs):
    out = tmp_path / "mine.safetensors"
    arguments = ["import", "--target", str(logs[0]), "--draft", f"small={logs[1]}"]
    assert cli.main([*arguments, "--output", str(out)]) == 0
    text = capsys.readouterr().out
    assert f"multidraft report {out}" in text
    assert re.search(r"^dropped because +-$", text, re.MULTILINE)
    assert importers.open(out).names == ("small",)
    assert cli.main([*arguments, "--output", str(out), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["contexts"] == TEXTS * POSITIONS
    assert facts["holds"].endswith("most probable tokens")


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (["--ids", "a.npy"], "--ids is for full logits"),
        (["--draft", "a.npy"], "not both"),
        (["--draft", "{draft}"], "two drafts have one name"),
        (["--k", "0"], "k is 0"),
    ],
)
def test_the_command_refuses_what_does_not_fit(capsys, logs, extra, reason):
    arguments = ["import", "--target", str(logs[0]), "--draft", str(logs[1])]
    given = [text.format(draft=logs[1]) for text in extra]
    assert cli.main([*arguments, *given]) == 2
    assert reason in capsys.readouterr().err
