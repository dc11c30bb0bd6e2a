"""Recorded trees: what is recorded, the file, reading smaller trees, block efficiency."""

from __future__ import annotations

import gc
import json
import os
import shutil
import weakref

import numpy as np
import pytest
import tiny_model
from markov_trees import DRAFT, TARGET, record_markov

import multidraft as md
from multidraft import traces, trees
from multidraft.cli import main
from multidraft.record import passages
from multidraft.transform import probabilities
from multidraft.trees import efficiency, recorded
from multidraft.trees.recording import Recorder

SHAPES = "paths:3,3+k-ary:2,2+delayed:2,2,1"
LAWS = ("iid", "without-replacement", "top", "hub", "greedy")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model.write(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def target(folder):
    return md.models.load(str(folder))


@pytest.fixture(scope="module")
def trace(target, tmp_path_factory):
    settings = {"contexts": 22, "passages": 8, "tokens": 48, "progress": False}
    found = traces.record(target=target, drafts=["skip:1", "ngram-2"], **settings)
    return found.write(tmp_path_factory.mktemp("traces") / "tiny.safetensors")


@pytest.fixture(scope="module")
def recorder(target, trace, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trees")
    return Recorder(trace, target, contexts=10, folder=folder, progress=False)


def shape_of(law: str) -> trees.Tree:
    return trees.parse("k-ary:2,2" if law in ("hub", "greedy") else SHAPES, law)


@pytest.fixture(scope="module")
def recording(recorder):
    return recorder.record("skip:1", shape_of("iid"))


# What is recorded


@pytest.mark.parametrize("draft", ["skip:1", "ngram-2"])
@pytest.mark.parametrize("law", LAWS)
def test_logits_are_those_of_plain_runs_along_every_path(recorder, target, draft, law):
    tree = shape_of(law)
    found = recorder.record(draft, tree, temperature=1.4)
    model = recorder.draft(draft)
    inner = [slot for slot, below in enumerate(tree.children) if below]
    for row in (0, 6):
        for slot in range(tree.slots):
            drafted = found.tokens[row, list(tree.path(slot))]
            run = np.append(found.contexts[row], drafted)
            last = np.array([len(run) - 1])
            assert np.allclose(found.target[row, slot], target.logits(run, last)[0], atol=4e-3)
            if slot in inner:
                stored = found.draft[row, inner.index(slot)]
                assert np.allclose(stored, model.logits(run, last)[0], atol=8e-3)


@pytest.mark.parametrize("law", LAWS)
def test_tokens_are_drawn_from_the_law_that_is_stored(recorder, law):
    drafting = {"temperature": 0.7, "top_k": 5}
    found = recorder.record("skip:1", shape_of(law), **drafting)
    drafted = found.drafted()
    assert found.drafting == {**drafting, "top_p": None}
    again = trees.DraftedTree.of(drafted.tree, drafted.tokens, drafted.target, drafted.draft)
    assert again.batch == 10  # a token of draft probability zero is refused by its check
    stored = probabilities(found.draft[3, 0], **drafting)
    assert np.array_equal(drafted.draft[3, 0], stored) and (stored > 0).sum() == 5


def test_first_drafts_follow_the_uniforms_of_their_context(recorder, recording):
    for row, context in enumerate(recording.context.tolist()):
        uniform = np.random.default_rng([0, context]).random(recording.tree.nodes)[0]
        law = recording.drafted([row]).draft[0, 0]
        assert recording.tokens[row, 1] == np.searchsorted(np.cumsum(law), uniform, side="right")


def test_contexts_are_the_trace_s_own(recorder, recording, target, trace):
    opened = traces.open(trace)
    whole = passages(opened, target, progress=False)
    for row, index in enumerate(recording.context):
        assert np.array_equal(
            recording.contexts[row], whole[opened.passage[index]][: opened.position[index]]
        )
        assert np.allclose(recording.target[row, 0], opened.target[index], atol=8e-3)
    assert np.array_equal(recording.passage, opened.passage[recording.context])
    assert np.array_equal(recording.text, opened.text[recording.context])
    assert len(set(recording.passage.tolist())) == 8  # every passage before any a second time


def test_the_same_seed_makes_the_same_file_and_another_other_drafts(trace, target, tmp_path):
    tree = trees.parse("paths:2,2")
    made = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        recorder = Recorder(trace, target, contexts=8, seed=seed, folder=tmp_path / name)
        recorder.progress = False
        recorder.record("ngram-2", tree)
        made[name] = recorder.path("ngram-2", tree)
    assert made["a"].name == made["b"].name != made["c"].name
    assert made["a"].read_bytes() == made["b"].read_bytes()
    first, other = recorded.open(made["a"]), recorded.open(made["c"])
    assert not np.array_equal(first.tokens, other.tokens)


def test_what_is_recorded_is_not_made_again(recorder, recording, monkeypatch):
    monkeypatch.setattr(Recorder, "_write", lambda *arguments: pytest.fail("recorded again"))
    again = recorder.record("skip:1", shape_of("iid"), temperature=1)
    assert np.array_equal(again.tokens, recording.tokens)
    assert recorder.path("skip:1", shape_of("iid")) in recorded.found(recorder.folder)


def test_an_interrupted_recording_leaves_nothing(recorder, tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(recorder, "folder", tmp_path)
    monkeypatch.setattr(Recorder, "_batch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        recorder.record("ngram-2", trees.chain(2))
    assert list(tmp_path.iterdir()) == []


def test_no_room_on_the_disk_is_said_before_anything_is_written(recorder, tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "folder", tmp_path / "new")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage._replace(free=1000))
    with pytest.raises(md.InputError, match="has 1e-06 GB free: record a smaller tree"):
        recorder.record("ngram-2", trees.chain(2))
    assert not (tmp_path / "new").exists()


def test_passages_that_come_out_differently_are_refused(trace, target):
    opened = traces.open(trace)
    opened.header["passages"][5]["sha256"] = "0" * 64
    with pytest.raises(md.InputError, match="passage 5 .* comes out differently here"):
        passages(opened, target, progress=False)
    opened.header["target"]["sha256"] = "0" * 64
    with pytest.raises(md.InputError, match="with other weights than tiny"):
        passages(opened, target)
    del opened.header["settings"]
    with pytest.raises(md.InputError, match="was not recorded here"):
        passages(opened, target)


def test_more_contexts_than_the_trace_has_are_refused(trace, target):
    with pytest.raises(md.InputError, match="22 contexts, not 23"):
        Recorder(trace, target, contexts=23)


# The file


def test_the_header_states_everything(recording, trace):
    header = recording.header
    assert header["request"]["trace"] == traces.fingerprint(trace)
    assert header["request"]["drafting"] == {"temperature": 1.0, "top_k": None, "top_p": None}
    assert header["draft"]["name"] == "skip:1" and header["draft"]["skipped"] == [1]
    assert header["request"]["seed"] == 0 and header["request"]["dtype"] == "float16"
    assert header["target"]["sha256"] and header["versions"]["torch"]
    assert recording.tree == shape_of("iid") and recording.law == "iid"


def test_logits_stay_in_the_file(recording):
    assert isinstance(recording.target, np.memmap) and isinstance(recording.draft, np.memmap)


@pytest.fixture
def copied(recorder, recording, tmp_path):
    return shutil.copy(recorder.path("skip:1", recording.tree), tmp_path / "copy.safetensors")


@pytest.mark.parametrize("length", [0, 7, 300, -1])
def test_a_truncated_file_is_one_sentence(copied, length):
    os.truncate(copied, length if length >= 0 else copied.stat().st_size - 1)
    with pytest.raises(md.InputError, match="is no recording of trees or is damaged"):
        recorded.open(copied)


def edited(path, change):
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    entries = json.loads(raw[8 : 8 + length])
    header = json.loads(entries["__metadata__"]["multidraft"])
    change(entries, header)
    entries["__metadata__"]["multidraft"] = json.dumps(header)
    text = json.dumps(entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    return path


FAULTS = {
    "format": (lambda e, h: h.update(format=9), "format 9, this version reads format 1"),
    "missing": (lambda e, h: e.pop("prefix"), "lacks tensor prefix"),
    "no tree": (lambda e, h: h["request"].pop("tree"), "names no tree"),
    "other tree": (
        lambda e, h: h["request"].update(tree={"parents": [-1, 0], "laws": ["iid", None]}),
        "and the header's tree 2 and 1",
    ),
    "key": (lambda e, h: h.pop("versions"), "lacks versions"),
    "passages": (lambda e, h: h["passages"].clear(), "passage must hold"),
    "huge": (lambda e, h: e["target"].update(shape=[10**9] * 3), "target does not fit"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_header_is_one_sentence(copied, fault):
    change, sentence = FAULTS[fault]
    with pytest.raises(md.InputError, match=sentence):
        recorded.open(edited(copied, change))


def test_a_trace_is_no_recording(trace):
    with pytest.raises(md.InputError, match="is no recording of trees"):
        recorded.open(trace)


# Smaller trees


def test_smaller_trees_are_what_restrict_reads_off(recording):
    rows = [1, 4, 8]
    for text in ("chain:2", "paths:2,3", "k-ary:2,1", "delayed:2,2,1"):
        tree = trees.parse(text)
        found = recording.drafted(rows, tree, temperature=0.5, top_k=9)
        whole = recording.drafted(rows, temperature=0.5, top_k=9).restrict(tree)
        assert found.tree == tree
        for name in ("tokens", "target", "draft"):
            inner = [bool(below) for below in tree.children] if name == "draft" else slice(None)
            assert np.array_equal(getattr(found, name)[:, inner], getattr(whole, name)[:, inner])


def test_the_target_s_settings_are_free(recording):
    warm, cold = recording.drafted([0], temperature=1.0), recording.drafted([0], temperature=0)
    assert np.array_equal(warm.draft, cold.draft)
    assert cold.target[0, 0].max() == 1.0 > warm.target[0, 0].max()


@pytest.mark.parametrize(
    ("text", "law", "sentence"),
    [
        ("paths:4,1", "iid", "has no child 3"),
        ("chain:5", "iid", "has no child 0"),
        ("k-ary:2,1", "without-replacement", "cannot be read off it"),
    ],
)
def test_trees_that_were_not_recorded_are_refused(recording, text, law, sentence):
    with pytest.raises(md.InputError, match=sentence):
        recording.drafted([0], trees.parse(text, law))


def test_a_union_holds_its_parts_and_nothing_else():
    parts = [trees.parse(text) for text in ("chain:4", "k-ary:3,2", "delayed:2,3,2")]
    whole = trees.union(parts)
    ways = {_ranks(tree, slot) for tree in parts for slot in range(tree.slots)}
    assert {_ranks(whole, slot) for slot in range(whole.slots)} == ways
    assert whole.slots == len(ways)
    with pytest.raises(md.InputError, match="cannot be read off"):
        trees.union([trees.parse("k-ary:2,1", "greedy"), trees.parse("k-ary:3,1", "greedy")])
    with pytest.raises(md.InputError, match="at least one tree"):
        trees.union([])


def _ranks(tree: trees.Tree, slot: int) -> tuple[int, ...]:
    return tuple(tree.ranks[list(tree.path(slot))].tolist())


@pytest.mark.parametrize("text", ["", "path:2,2", "chain", "chain:2,3", "k-ary:2,x", "chain:2+"])
def test_texts_that_name_no_tree_are_one_sentence(text):
    with pytest.raises(md.InputError, match="names no tree: write chain:8"):
        trees.parse(text)


# Block efficiency


CASES = [
    ("iid", "paths:2,2", "traversal"),
    ("iid", "paths:2,2", "greedy-multipath"),
    ("iid", "chain:2", "block"),
    ("iid", "k-ary:2,1", "interval"),
    ("without-replacement", "k-ary:2,2", "rrsw"),
    ("without-replacement", "chain:2", "rrs"),
]


@pytest.fixture(scope="module")
def markov(tmp_path_factory):
    folder = tmp_path_factory.mktemp("markov")
    wholes = {"iid": "paths:2,2+k-ary:2,2", "without-replacement": "k-ary:2,2"}
    return {
        law: recorded.open(record_markov(trees.parse(text, law), 1500, folder))
        for law, text in wholes.items()
    }


@pytest.mark.parametrize(("law", "text", "rule"), CASES)
def test_block_efficiency_is_the_enumerated_one(markov, law, text, rule):
    tree, chosen = trees.parse(text, law), trees.rules.parse(rule)
    found = efficiency.block_efficiency(markov[law], chosen, tree)
    exact = trees.expected_length(chosen, tree, TARGET, DRAFT)
    assert abs(found.mean - exact) < 4 * found.stderr < 0.1
    assert found.clusters == 1500


def test_lengths_do_not_depend_on_what_else_is_asked_or_on_batches(markov, monkeypatch):
    rule = trees.get("traversal")
    trees_ = {text: trees.parse(text) for text in ("chain:2", "paths:2,2", "k-ary:2,1")}
    cases = {text: efficiency.Case(tree, rule) for text, tree in trees_.items()}
    together = efficiency.lengths(markov["iid"], cases)
    monkeypatch.setattr(efficiency, "_MEMORY", 100_000)
    for text, case in cases.items():
        alone = efficiency.lengths(markov["iid"], {"": case})[""]
        assert np.allclose(alone, together[text], atol=1e-12, rtol=0)


@pytest.mark.parametrize("rule", ["rrs", "traversal", "greedy-multipath", "bottom-up:k-seq"])
def test_a_batch_is_freed_without_a_garbage_collection(markov, rule):
    # At full vocabulary a batch is hundreds of megabytes, and a collection may be long in coming.
    trees.rules.parse(rule).expected_length(markov["iid"].drafted([0], trees.parse("paths:2,2")))
    gc.disable()
    try:
        drafted = markov["iid"].drafted(slice(0, 9), trees.parse("paths:2,2"))
        alive = weakref.ref(drafted)
        trees.rules.parse(rule).expected_length(drafted)
        del drafted
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("rule", ["rrs", "interval", "traversal", "greedy-multipath"])
def test_all_depths_are_those_of_the_cut_trees(markov, rule):
    case = efficiency.Case(trees.parse("paths:2,2"), trees.rules.parse(rule))
    found = efficiency.by_depth(markov["iid"], case)
    for depth in (1, 2):
        cut = efficiency.Case(efficiency.cut(case.tree, depth), case.rule)
        assert cut.tree == trees.parse(f"paths:2,{depth}")
        alone = efficiency.lengths(markov["iid"], {"": cut})[""]
        assert np.allclose(found[:, depth - 1], alone, atol=1e-12, rtol=0)


def test_differences_are_paired_and_say_what_they_could_have_shown(markov):
    tree = trees.parse("paths:2,2")
    best, plain = (efficiency.Case(tree, trees.rules.parse(rule)) for rule in ("interval", "naive"))
    found = efficiency.compare(markov["iid"], best, plain)
    alone = efficiency.block_efficiency(markov["iid"], best.rule, tree)
    exact = [trees.expected_length(case.rule, tree, TARGET, DRAFT) for case in (best, plain)]
    assert abs(found.mean - (exact[0] - exact[1])) < 4 * found.stderr
    assert found.detectable == pytest.approx(2.802 * found.stderr) and found.stderr > 0
    assert alone.detectable > 0


def test_a_colder_target_is_another_efficiency(markov):
    rule = trees.get("block")
    warm, cold = (
        efficiency.block_efficiency(markov["iid"], rule, trees.chain(2), temperature=temperature)
        for temperature in (1.0, 0.5)
    )
    sharp = [TARGET.start**2 / (TARGET.start**2).sum()]
    sharp += [row**2 / (row**2).sum() for row in TARGET.rows]
    exact = trees.expected_length(
        rule, trees.chain(2), trees.Markov(sharp[0], np.array(sharp[1:])), DRAFT
    )
    assert abs(cold.mean - exact) < 4 * cold.stderr and abs(warm.mean - cold.mean) > 0.05


# The command


def test_the_command_records_and_goes_on(trace, folder, tmp_path, capsys):
    where = ["--trace", str(trace), "--target", str(folder), "--folder", str(tmp_path)]
    what = ["--draft", "ngram-2", "--law", "iid,top", "--contexts", "8", "--json"]
    arguments = ["trees", "record", *where, *what, "--tree", "paths:2,2"]
    assert main(arguments) == 0
    done = capsys.readouterr()
    rows = json.loads(done.out)
    assert "2 of 2 files to record, 0 MB" in done.err and len(rows) == 2
    assert recorded.open(rows[1]["file"]).tree == trees.parse("paths:2,2", "top")
    assert main(arguments) == 0
    done = capsys.readouterr()
    assert "0 of 2 files to record" in done.err and json.loads(done.out) == rows


def test_the_command_says_in_one_sentence_what_is_wrong(trace, folder, tmp_path, capsys):
    where = ["--trace", str(trace), "--folder", str(tmp_path), "--contexts", "8"]
    for options, sentence in (
        (["--target", str(folder), "--tree", "zigzag:2"], "names no tree"),
        (["--target", "nowhere"], "unknown model 'nowhere'"),
        (["--target", str(folder), "--draft", "skip:9"], "has layers 0..5"),
    ):
        assert main(["trees", "record", *where, *options]) == 2
        error = capsys.readouterr().err
        assert sentence in error.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


def test_the_command_lists_what_is_there(recorder, recording, capsys):
    assert main(["trees", "--folder", str(recorder.folder), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    place = str(recorder.path("skip:1", recording.tree))
    row = next(row for row in rows if row["file"] == place)
    assert (row["law"], row["nodes"], row["contexts"]) == ("iid", recording.tree.nodes, 10)


# The table of a real pair


def test_every_shape_of_the_table_is_read_off_one_tree():
    from multidraft.experiments import tree_table

    cells = tree_table.cells("trace", 64)
    assert len({json.dumps(cell) for cell in cells}) == len(cells)
    for cell in cells:
        tree = trees.parse(cell["tree"], cell["law"])
        deepest = tree_table.deepest(cell["law"])
        assert trees.union([deepest, tree]) == deepest
        assert trees.rules.parse(cell["rule"]).refuses(tree) is None


def test_cells_of_the_table_are_block_efficiencies(recorder, recording):
    from multidraft.experiments import tree_table

    files = {"skip:1/iid": str(recorder.path("skip:1", recording.tree))}
    common = {"draft": "skip:1", "law": "iid", "rule": "traversal"}
    rows = tree_table.compute({**common, "family": "4 paths", "tree": "paths:2,2"}, 0, files=files)
    rows += tree_table.compute(
        {**common, "family": "delayed", "tree": "delayed:2,2,1"}, 0, files=files
    )
    for depth, text in ((1, "paths:2,1"), (2, "paths:2,2"), (3, "delayed:2,2,1")):
        case = efficiency.Case(trees.parse(text), trees.get("traversal"))
        part = [row for row in rows if row["depth"] == depth]
        assert [row["context"] for row in part] == recording.context.tolist()
        assert {row["nodes"] for row in part} == {case.tree.nodes}
        lengths = [row["length"] for row in part]
        assert np.allclose(lengths, efficiency.lengths(recording, {"": case})[""], atol=1e-12)


def test_the_table_pairs_differences_with_the_single_path_as_deep():
    import polars

    from multidraft.experiments import tree_table_report

    single = {"draft": "d", "family": "one path", "law": "iid", "rule": "block", "tree": "chain:6"}
    other = single | {"family": "4 paths", "tree": "paths:4,4"}
    generator, rows = np.random.default_rng(0), []
    lengths = {key: generator.random(6) for key in ("single", "other", "deeper")}
    for key, names, depth in (("single", single, 2), ("other", other, 2), ("deeper", other, 3)):
        for context in reversed(range(6)):
            number = {"context": context, "passage": context // 2, "length": lengths[key][context]}
            rows.append(names | {"depth": depth, "nodes": 1} | number)
    found = tree_table_report.summary(polars.DataFrame(rows))
    row = found.row(by_predicate=(polars.col("family") == "4 paths") & (polars.col("depth") == 2))
    pair = dict(zip(found.columns, row, strict=True))
    assert pair["difference"] == pytest.approx((lengths["other"] - lengths["single"]).mean())
    assert pair["detectable"] == pytest.approx(2.802 * pair["error"]) and pair["error"] > 0
    rest = found.filter(~((polars.col("family") == "4 paths") & (polars.col("depth") == 2)))
    assert rest["difference"].is_null().all() and len(rest) == 2
