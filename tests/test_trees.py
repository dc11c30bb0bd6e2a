"""Tree shapes, drafting, drafted trees, files, pictures."""

from __future__ import annotations

import itertools
import json
import re
import runpy
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import multidraft as md
from multidraft import trees
from multidraft.errors import InputError
from multidraft.trees import DraftedTree, Markov, Tree

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "plot_one_tree.py"
TARGET = Markov([0.2, 0.3, 0.5], [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]])
DRAFT = Markov([0.6, 0.3, 0.1], [[0.2, 0.3, 0.5], [0.4, 0.4, 0.2], [0.1, 0.8, 0.1]])


def drafted(tree: Tree, batch: int = 4, seed: int = 0) -> DraftedTree:
    uniforms = np.random.default_rng(seed).random((batch, tree.nodes))
    return trees.draw(tree, TARGET, DRAFT, uniforms)


# ---------------------------------------------------------------------------------------- shapes


@pytest.mark.parametrize(
    ("tree", "parents"),
    [
        (trees.chain(3), (-1, 0, 1, 2)),
        (trees.paths(3, 2), (-1, 0, 0, 0, 1, 2, 3)),
        (trees.k_ary(2, 2), (-1, 0, 0, 1, 1, 2, 2)),
        (trees.delayed(2, 1, 2), (-1, 0, 1, 1, 2, 3)),
        (trees.delayed(2, 2, 0), (-1, 0, 1)),
        (trees.delayed(3, 0, 1), (-1, 0, 0, 0)),
    ],
)
def test_shapes_by_name(tree, parents):
    assert tree.parents == parents


@pytest.mark.parametrize(
    ("branching", "depth", "slots"), [(2, 1, 3), (2, 2, 7), (2, 4, 31), (3, 1, 4), (3, 3, 40)]
)
def test_k_ary_trees_have_the_sizes_of_spechubs_logs(branching, depth, slots):
    assert trees.k_ary(branching, depth).slots == slots


def test_only_the_forking_node_has_the_law_of_several_drafts():
    tree = trees.delayed(2, 1, 2, "without-replacement")
    assert [spec and (spec["law"], spec["n"]) for spec in tree.specs] == [
        ("iid", 1),
        ("without-replacement", 2),
        ("iid", 1),
        ("iid", 1),
        None,
        None,
    ]


def test_positions_in_a_tree():
    tree = Tree([-1, 0, 0, 1, 1, 2, 5], "iid")
    assert tree.children == ((1, 2), (3, 4), (5,), (), (), (6,), ())
    assert tree.depths.tolist() == [0, 1, 1, 2, 2, 2, 3]
    assert tree.ranks.tolist() == [0, 0, 1, 0, 1, 0, 0]
    assert tree.post_order == (3, 4, 1, 6, 5, 2, 0)
    assert tree.path(6) == (2, 5, 6)
    assert (tree.depth, tree.nodes) == (3, 6)


@pytest.mark.parametrize(
    ("parents", "sentence"),
    [
        ([-1, 0, 3, 2], "cyclic: the parents of slot 2 never reach the root"),
        ([-1, 1], "cyclic: the parents of slot 1"),
        ([-1, 0, -1], "disconnected: slot 2 has parent -1"),
        ([-1, 0, 9], "disconnected: slot 2 has parent 9"),
        ([-1, 2, 0], "slot 1 comes before its parent 2"),
        ([0, 0], "slot 0 is the root"),
        ([], "one whole number per slot"),
        ([-1, 0.5], "one whole number per slot"),
        ([[-1], [0, 0]], "one whole number per slot"),
        (np.zeros(200_000, dtype=int) - 1, "too large"),
    ],
)
def test_malformed_parents(parents, sentence):
    with pytest.raises(InputError, match=sentence):
        Tree(parents, "iid")


@pytest.mark.parametrize(
    ("law", "sentence"),
    [
        ("hub", "slot 0 has 3 children, but its law hub drafts 2"),
        ({"law": "iid", "n": 2}, "slot 0 has 3 children, but its law iid drafts 2"),
        ("nucleus", "unknown draft law of a tree 'nucleus': choose one of"),
        ("independent", "unknown draft law of a tree"),
        ({"law": "iid", "colour": 1}, "unknown option 'colour'"),
        (["iid"], "4 slots have 1 laws"),
        ([None] * 4, "slot 0 has 3 children but no draft law"),
    ],
)
def test_laws_that_do_not_fit_the_children(law, sentence):
    with pytest.raises(InputError, match=sentence):
        Tree([-1, 0, 0, 0], law)


@pytest.mark.parametrize(
    "build",
    [lambda: trees.k_ary(10, 9), lambda: trees.paths(10**6, 10**6), lambda: trees.k_ary(2, 10**9)],
)
def test_trees_that_no_call_can_hold(build):
    with pytest.raises(InputError, match="lower its width or depth"):
        build()


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: trees.chain(0), "length is 0"),
        (lambda: trees.paths(0, 2), "n is 0"),
        (lambda: trees.delayed(2, -1, 2), "trunk is -1"),
        (lambda: trees.delayed(2, 0, 0), "length of a path is 0"),
        (lambda: trees.k_ary(2, True), "depth is True"),
    ],
)
def test_bad_sizes(build, sentence):
    with pytest.raises(InputError, match=sentence):
        build()


# --------------------------------------------------------------------------------------- sequoia


def _all_trees(nodes: int, width: int) -> list[Tree]:
    ways = itertools.product(*[range(i + 1) for i in range(nodes)])
    return [Tree([-1, *way], "iid") for way in ways if np.bincount(way).max() <= width]


@pytest.mark.parametrize("acceptance", [(0.5, 0.3, 0.1), (0.7, 0.2), (0.4, 0.35, 0.2), (0.9, 0.0)])
@pytest.mark.parametrize("nodes", [1, 3, 5])
def test_sequoia_finds_the_best_tree_of_all(acceptance, nodes):
    best = max(trees.estimate(tree, acceptance) for tree in _all_trees(nodes, len(acceptance)))
    found = trees.sequoia(acceptance, nodes)
    assert found.nodes == nodes
    assert trees.estimate(found, acceptance) == pytest.approx(best, abs=1e-12)


def test_sequoia_keeps_to_the_depth():
    tree = trees.sequoia([0.6, 0.2, 0.1], 7, depth=2)
    best = max(trees.estimate(t, [0.6, 0.2, 0.1]) for t in _all_trees(7, 3) if t.depth <= 2)
    assert tree.depth == 2
    assert trees.estimate(tree, [0.6, 0.2, 0.1]) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (([], 3), "one probability per child"),
        (([-0.1], 3), "one probability per child"),
        (([np.nan], 3), "one probability per child"),
        (([0.9, 0.2], 3), "acceptance sums to 1.1"),
        (([0.5, 0.2], 9, 2), "no tree of depth 2 with 2 children per node holds 9 nodes"),
    ],
)
def test_sequoia_refuses_bad_input(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        trees.sequoia(*arguments)


# ---------------------------------------------------------------------------------------- drafts


@pytest.mark.parametrize("law", ["iid", "without-replacement", "greedy", "hub", "top"])
def test_children_are_drawn_by_the_law_of_their_node(law):
    """The frequencies of drafted trees are the masses that the enumeration gives."""
    tree = Tree([-1, 0, 0, 1, 1], law)
    listed, mass = trees.enumerate_drafts(tree, TARGET, DRAFT)
    draws = drafted(tree, 4000, seed=3)
    places = {row.tobytes(): i for i, row in enumerate(listed.tokens)}
    counts = np.bincount([places[row.tobytes()] for row in draws.tokens], minlength=len(mass))
    assert mass.sum() == pytest.approx(1, abs=1e-12)
    # Every count is within 6 standard deviations.
    assert (np.abs(counts / 4000 - mass) <= 6 * np.sqrt(mass / 4000) + 1e-12).all()


def test_laws_belong_to_the_drafted_context():
    batch = drafted(trees.k_ary(2, 2))
    for slot in range(1, 7):
        np.testing.assert_array_equal(batch.target[:, slot], TARGET.rows[batch.tokens[:, slot]])
    for slot in (1, 2):
        np.testing.assert_array_equal(batch.draft[:, slot], DRAFT.rows[batch.tokens[:, slot]])
    assert not batch.draft[:, 3:].any()


def test_a_row_of_uniforms_decides_its_tree_alone():
    uniforms = np.random.default_rng(5).random((6, 6))
    whole = trees.draw(trees.k_ary(2, 2), TARGET, DRAFT, uniforms)
    part = trees.draw(trees.k_ary(2, 2), TARGET, DRAFT, uniforms[4:5])
    np.testing.assert_array_equal(whole.tokens[4:5], part.tokens)


def test_a_draft_law_that_runs_out_leaves_its_subtrees_empty():
    rows = [[1.0, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5]]
    draft = Markov([1.0, 0, 0], rows)
    tree = Tree([-1, 0, 0, 2, 1], "without-replacement")
    batch = trees.draw(tree, TARGET, draft, np.full((1, 4), 0.5))
    assert batch.tokens.tolist() == [[-1, 0, -1, -1, 0]]
    assert batch.depth == 2


def test_the_most_probable_paths_of_eagle():
    """Against a list of all paths: the nodes kept are the most probable ones, parents included."""
    batch = trees.top_probability(TARGET, DRAFT, width=3, depth=3, nodes=8)
    chance: dict[tuple[int, ...], float] = {(): 1.0}
    for way in itertools.chain(*[itertools.product(range(3), repeat=d) for d in (1, 2, 3)]):
        chance[way] = chance[way[:-1]] * DRAFT(np.array([way[:-1]], dtype=int))[0][way[-1]]
    best = sorted(chance, key=lambda way: -chance[way])[:9]
    tree = batch.tree
    kept = {tuple(int(batch.tokens[0, s]) for s in tree.path(slot)) for slot in range(9)}
    assert kept == set(best)
    assert tree.law_names() == {"top"}


def test_eagle_trees_differ_with_their_context():
    def draft(paths):
        start = np.array([[0.9, 0.05, 0.05], [0.34, 0.33, 0.33]])[:, None]
        return start if paths.shape[-1] == 0 else DRAFT(paths)

    batch = trees.top_probability(
        lambda paths: np.broadcast_to(TARGET(paths), (2, paths.shape[1], 3)),
        lambda paths: np.broadcast_to(draft(paths), (2, paths.shape[1], 3)),
        width=3,
        depth=2,
        nodes=3,
        batch=2,
    )
    assert batch[0].tree.depth == 2
    assert batch[1].tree.depth == 1
    with pytest.raises(InputError, match="differ in shape"):
        _ = batch.tree


def test_paths_of_probability_zero_are_left_out():
    draft = Markov([1.0, 0, 0], [[0, 1.0, 0], [0.5, 0.5, 0], [0, 0, 1.0]])
    (group,) = trees.top_probability(TARGET, draft, width=2, depth=3, nodes=9).groups
    assert group.tree.parents == (-1, 0, 1, 2, 2)
    assert group.tokens.tolist() == [[-1, 0, 1, 0, 1]]
    np.testing.assert_array_equal(group.draft(2), draft.rows[[1]])


@pytest.mark.parametrize(
    ("uniforms", "sentence"),
    [
        (np.zeros((2, 3)), r"pass \(B, 2\)"),
        (np.zeros(2), r"pass \(B, 2\)"),
        (np.ones((1, 2)), r"lie in \[0, 1\)"),
        (np.full((1, 2), np.nan), r"lie in \[0, 1\)"),
    ],
)
def test_uniforms_of_the_drafts(uniforms, sentence):
    with pytest.raises(InputError, match=sentence):
        trees.draw_tokens(trees.chain(2), DRAFT, uniforms)


def test_a_model_must_answer_every_path():
    with pytest.raises(InputError, match=r"should be \(1, 1, 'V'\)"):
        trees.draw_tokens(trees.chain(2), lambda paths: DRAFT.start, np.zeros((1, 2)))


def test_laws_larger_than_the_memory_are_refused_before_they_are_made(monkeypatch):
    class Small:
        available = 1000

    monkeypatch.setattr("psutil.virtual_memory", lambda: Small)
    with pytest.raises(InputError, match="GiB are free: use a smaller tree"):
        drafted(trees.k_ary(2, 3), 64)


def test_markov_models_are_checked():
    with pytest.raises(InputError, match="rows have shape"):
        Markov([0.5, 0.5], [[1.0, 0.0]])
    with pytest.raises(InputError, match="sums to"):
        Markov([0.5, 0.4], [[1.0, 0.0], [0.0, 1.0]])


# --------------------------------------------------------------------------------- drafted trees


def _arguments(**changes: Callable[[Any], Any]) -> dict[str, Any]:
    batch = drafted(Tree([-1, 0, 0, 1], "without-replacement"), 2)
    arguments = {
        "parents": batch.parents,
        "laws": batch.laws,
        "tokens": batch.tokens,
        "target": batch.target,
        "draft": batch.draft,
    }
    return arguments | {name: change(copy(arguments[name])) for name, change in changes.items()}


def _set(place, value):
    def change(array):
        array[place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tokens": _set((0, 1), 7)}, r"id outside -1\.\.2"),
        ({"tokens": _set((0, 0), 1)}, "slot 0 is the root"),
        ({"tokens": _set((0, 1), -1)}, "slot 1 has no token, but a slot below it does"),
        ({"tokens": lambda t: t.astype(float)}, "tokens are whole numbers"),
        ({"tokens": lambda t: t[0]}, r"pass \(B, S\)"),
        ({"parents": _set((0, 3), -1)}, "slot 3 has a token but no parent"),
        ({"parents": _set((0, 1), 3)}, "cyclic"),
        ({"parents": lambda p: p[:, :2]}, "parents have shape"),
        ({"target": lambda q: q * 0.5}, "target sums to 0.5"),
        ({"target": _set((0, 0, 0), np.nan)}, "NaN"),
        ({"target": lambda q: q[..., :2]}, "draft has shape"),
        ({"target": lambda q: q[:, :2]}, "target has shape"),
        ({"target": lambda q: q.astype(int)}, "dtype int"),
        ({"draft": _set((0, 0, 0), 0.9)}, "draft law of slot 0 sums to"),
        ({"draft": _set((slice(None), 0), [1.0, 0, 0])}, "draft probability zero"),
        ({"tokens": _set((0, slice(1, 3)), 1)}, "two children of slot 0 hold one token"),
    ],
)
def test_drafted_trees_are_checked(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        DraftedTree(**_arguments(**changes))


def test_laws_must_fit_the_slots_of_a_batch():
    with pytest.raises(InputError, match="4 slots have 1 laws"):
        DraftedTree(**_arguments(laws=lambda names: names[:1]))


def test_rows_of_different_shapes_share_a_batch():
    chain, fork = drafted(trees.chain(2), 1), drafted(Tree([-1, 0, 0], "iid"), 1)
    fields = [[getattr(one, name) for one in (chain, fork)] for name in ("target", "draft")]
    laws = [np.concatenate([np.pad(a, ((0, 0), (0, 1), (0, 0))) for a in pair]) for pair in fields]
    tokens = np.concatenate([np.append(one.tokens, [[-1]], axis=1) for one in (chain, fork)])
    both = DraftedTree(np.array([[-1, 0, 1, -1], [-1, 0, 0, -1]]), "iid", tokens, *laws)
    rule = trees.get("traversal")
    expected = [rule.expected_length(chain)[0], rule.expected_length(fork)[0]]
    np.testing.assert_allclose(rule.expected_length(both), expected, atol=1e-15)
    uniforms = np.array([[0.3, 0.6], [0.8, 0.1]])
    together = rule.verify(both, uniforms)
    for i, one in enumerate((chain, fork)):
        alone = rule.verify(one, uniforms[i : i + 1])
        assert together.length[i] == alone.length[0]
        assert (
            together.tokens[i, : alone.length[0]].tolist()
            == alone.tokens[0, : alone.length[0]].tolist()
        )


def test_torch_laws_are_taken_and_half_precision_raised():
    import torch

    batch = drafted(trees.chain(2))
    half = DraftedTree.of(
        trees.chain(2),
        torch.from_numpy(batch.tokens),
        torch.from_numpy(batch.target),
        torch.from_numpy(batch.draft).bfloat16(),
        check=False,
    )
    assert (half.target.dtype, half.draft.dtype) == (np.float64, np.float32)


def test_equal_siblings_share_their_children():
    tree = trees.paths(3, 2)
    tokens = np.array([[-1, 1, 1, 2, 0, 0, 1]])
    batch = DraftedTree.of(tree, tokens, np.full((1, 7, 3), 1 / 3), np.full((1, 7, 3), 1 / 3))
    merged = batch.merged()
    assert merged.parents.tolist() == [[-1, 0, 0, 0, 1, 1, 3]]
    assert merged.tree.spec(1) == {"law": "iid", "n": 2, "short": "pad"}
    assert batch.parents.tolist() == [list(tree.parents)]  # the original is untouched


def test_merging_goes_on_below_merged_siblings():
    tokens = np.array([[-1, 1, 1, 0, 0, 2, 0]])
    batch = DraftedTree.of(
        trees.paths(2, 3), tokens, np.full((1, 7, 3), 1 / 3), np.full((1, 7, 3), 1 / 3)
    )
    assert batch.merged().parents.tolist() == [[-1, 0, 0, 1, 1, 3, 3]]


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (trees.paths(2, 2), trees.paths(3, 3)),
        (trees.chain(2, "iid"), trees.k_ary(2, 2, "without-replacement")),
        (Tree([-1, 0, 0, 1], "without-replacement"), trees.k_ary(2, 2, "without-replacement")),
        (trees.k_ary(2, 1, "greedy"), trees.k_ary(2, 2, "greedy")),
        (trees.k_ary(2, 1, "top"), trees.k_ary(3, 1, "top")),
    ],
)
def test_a_smaller_tree_read_off_a_larger_one_has_its_own_law(small, large):
    listed, mass = trees.enumerate_drafts(large, TARGET, DRAFT)
    read = listed.restrict(small)
    wanted, wanted_mass = trees.enumerate_drafts(small, TARGET, DRAFT)
    found: dict[bytes, float] = {}
    for row, share in zip(read.tokens, mass, strict=True):
        found[row.tobytes()] = found.get(row.tobytes(), 0.0) + share
    for row, share in zip(wanted.tokens, wanted_mass, strict=True):
        assert found[row.tobytes()] == pytest.approx(share, abs=1e-12)
    assert read.tree == small
    where = [read.tokens[:, s] for s in range(1, small.slots)]
    np.testing.assert_array_equal(read.target[:, 1:], np.stack([TARGET.rows[t] for t in where], 1))


@pytest.mark.parametrize(
    ("small", "large", "sentence"),
    [
        (trees.chain(4), trees.chain(3), "does not fit: slot 3 has no child 0"),
        (trees.paths(3, 1), trees.paths(2, 1), "does not fit: slot 0 has no child 2"),
        (trees.chain(1), trees.k_ary(2, 1, "greedy"), "cannot be read off"),
        (trees.k_ary(2, 1, "hub"), trees.k_ary(2, 1, "greedy"), "cannot be read off"),
        (trees.k_ary(2, 1), trees.k_ary(2, 1, "without-replacement"), "cannot be read off"),
    ],
)
def test_what_cannot_be_read_off(small, large, sentence):
    with pytest.raises(InputError, match=sentence):
        drafted(large).restrict(small)


# ----------------------------------------------------------------------------------------- files


def test_a_tree_survives_its_file(tmp_path):
    tree = trees.delayed(2, 1, 2, "without-replacement")
    tree.save(tmp_path / "tree.json")
    assert Tree.load(tmp_path / "tree.json") == tree
    assert json.loads((tmp_path / "tree.json").read_text())["parents"] == list(tree.parents)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"format": 1}', "is damaged"),
        ('{"format": 1, "parents": [-1, 0], "laws": 3}', "is damaged"),
        ('{"format": 1, "parents": [-1, 0, 2], "laws": [null, null, null]}', "cyclic"),
        ('{"format": 9, "parents": [-1], "laws": [null]}', "format 9; this version reads 1"),
    ],
)
def test_damaged_tree_files(tmp_path, text, sentence):
    (tmp_path / "tree.json").write_text(text)
    with pytest.raises(InputError, match=sentence):
        Tree.load(tmp_path / "tree.json")
    with pytest.raises(InputError, match="there is no file"):
        Tree.load(tmp_path / "other.json")


def test_drafted_trees_survive_their_file(tmp_path):
    batch = trees.top_probability(TARGET, DRAFT, width=2, depth=3, nodes=5)
    batch.save(tmp_path / "batch.npz")
    loaded = DraftedTree.load(tmp_path / "batch.npz")
    for name in ("parents", "tokens", "target", "draft"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(batch, name))
    assert loaded.laws == batch.laws


@pytest.mark.parametrize("keep", [0, 100, 600])
def test_damaged_drafted_trees(tmp_path, keep):
    drafted(trees.chain(2)).save(tmp_path / "batch.npz")
    whole = (tmp_path / "batch.npz").read_bytes()
    (tmp_path / "batch.npz").write_bytes(whole[:keep])
    with pytest.raises(InputError, match="is damaged"):
        DraftedTree.load(tmp_path / "batch.npz")
    with pytest.raises(InputError, match="there is no file"):
        DraftedTree.load(tmp_path / "none.npz")


def test_pickles_and_newer_formats_are_not_read(tmp_path):
    np.savez(tmp_path / "pickle.npz", parents=np.array([{}], dtype=object))
    with pytest.raises(InputError, match="is damaged"):
        DraftedTree.load(tmp_path / "pickle.npz")
    batch = drafted(trees.chain(1))
    np.savez(
        tmp_path / "new.npz",
        header=np.array(json.dumps({"format": 9, "laws": batch.laws})),
        **{name: getattr(batch, name) for name in ("parents", "tokens", "target", "draft")},
    )
    with pytest.raises(InputError, match="format 9"):
        DraftedTree.load(tmp_path / "new.npz")


# -------------------------------------------------------------------------------------- pictures


def test_pictures_show_tokens_probabilities_and_the_accepted_path():
    batch = drafted(trees.k_ary(2, 2), 2)
    judged = trees.get("traversal").judge(batch)
    block = judged.draw(np.array([[0.2, 0.5], [0.2, 0.5]]))
    figure = trees.picture(judged, 1, block=block, name="abc".__getitem__, title="one")
    texts = [text.get_text() for text in figure.axes[0].texts]
    token = int(batch.tokens[1, 1])
    assert "abc"[token] in texts
    assert any(
        text.startswith(f"p {DRAFT.start[token]:.2f}  q {TARGET.start[token]:.2f}")
        for text in texts
    )
    assert f"+ {'abc'[block.tokens[1, block.length[1] - 1]]}" in texts
    thick = [line for line in figure.axes[0].lines if line.get_linewidth() > 2]
    assert len(thick) == block.length[1] - 1
    with pytest.raises(InputError, match="row 2 of a batch of 2"):
        trees.picture(judged, 2)


def test_outlines_have_one_edge_per_drafted_token():
    figure = trees.outline(trees.sequoia([0.6, 0.2], 50), "a tree")
    assert len(figure.axes[0].lines) == 50


def test_the_example_of_the_docs_runs(capsys, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    with np.printoptions():  # what the example sets ends here
        runpy.run_path(str(EXAMPLE))
    lines = capsys.readouterr().out.splitlines()
    by_hand, library = (
        [float(number) for number in re.findall(r"[\d.]+", line.split(":", 1)[1])]
        for line in lines
        if line.startswith(("by hand: ac", "library:"))
    )
    assert [library[3], library[1], library[0]] == pytest.approx(by_hand, abs=1e-4)


def test_the_public_names():
    assert set(trees.names()) == {
        "top-down",
        "block",
        "greedy-multipath",
        "traversal",
        "univer",
        "bottom-up",
    }
    assert all(hasattr(trees, name) for name in trees.__all__)
    with pytest.raises(AttributeError, match="no attribute 'leaf'"):
        _ = trees.leaf
    assert md.trees is trees
