"""The decoding loop: draft a tree per row, look at all trees in one target call, verify, go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from multidraft import trees, verifiers
from multidraft.decode.measured import Clock, Log
from multidraft.decode.pair import pair
from multidraft.decode.result import Decoded
from multidraft.decode.rows import Prompt, Rows, encode, end_tokens, seed_rows
from multidraft.errors import InputError, Refused
from multidraft.models import Model, Tokenizer
from multidraft.models.transformer import Transformer
from multidraft.models.tree_cache import check_prompt, positions
from multidraft.models.tree_laws import TreeLaws
from multidraft.transform import probabilities
from multidraft.trees import DraftedTree, Tree, TreeRule
from multidraft.trees.named import parse as parse_tree
from multidraft.trees.rules import parse as parse_rule

DEFAULT_TREE = "delayed:3,1,2"
# Where a draft law leaves the choice: results/trees compares the rules.
DEFAULT_RULES = {
    "iid": "interval",
    "without-replacement": "traversal",
    "greedy": "univer",
    "hub": "univer",
    "top": "naive",
}


def generate(
    target: Any,
    draft: Any,
    tokenizer: Tokenizer | None = None,
    prompts: Prompt | Sequence[Prompt] = (),
    *,
    tree: Tree | str = DEFAULT_TREE,
    law: str | None = None,
    rule: TreeRule | str | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    draft_temperature: float | None = None,
    max_new_tokens: int = 64,
    eos: int | Sequence[int] | None = None,
    seeds: int | Sequence[int] | np.ndarray = 0,
) -> Decoded:
    """Continue prompts by multi-draft speculative sampling; the texts have the target's law.

    Every step drafts one tree per row, level by level, looks at all of them in one target call, and
    lets the rule accept a path and add a token. Rows keep their own lengths; a row that is over
    drops out. A row's text depends on its prompt and its seed alone (up to the rounding of the
    network's sums, which may differ with the size of the batch).

    Parameters
    ----------
    target, draft : name, folder, network of transformers, or model of `multidraft.models`
        The target is a transformer with full attention; the draft has its tokenizer.
    tokenizer : Tokenizer, optional
        Only needed for networks, which come without one.
    prompts : str, token ids, or a sequence of these
    tree : Tree or str
        What to draft; a text as of `multidraft.trees.named.parse`, such as ``delayed:3,1,2``.
    law : str, optional
        Draft law of a tree that is given as text: ``without-replacement`` unless given, ``top`` at
        temperature 0, where sampling laws have one token to draft.
    rule : TreeRule or str, optional
        What verifies: a tree rule, or a token rule that is then used at every node, see
        `multidraft.trees.rules.parse`. The best that takes the tree's law unless given.
    temperature, top_k, top_p :
        Of target and draft alike, see `multidraft.transform.probabilities`.
    draft_temperature : float, optional
        Of the draft, where it differs.
    max_new_tokens : int
        Most tokens added to a prompt.
    eos : int or sequence of int, optional
        Tokens that end a text, kept as its last one; the tokenizer's unless given, () for none.
    seeds : int or (B,) integers
        One per row; a single number counts on from row to row.

    Returns
    -------
    Decoded

    Raises
    ------
    InputError
        No prompt, a prompt or tree that is too long for a model, models that do not belong
        together, no memory for the laws of the trees, or a parameter out of range.
    Refused
        A rule that does not take the tree, or a model whose cache cannot be cut back.
    """
    shape = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    models = pair(target, draft, tokenizer)
    chosen = choose_tree(tree, law, temperature)
    heat = draft_heat(temperature, chosen) if draft_temperature is None else draft_temperature
    decoder = Decoder(
        *models, chosen, choose_rule(rule, chosen), shape, {**shape, "temperature": heat}
    )
    texts = encode(prompts, decoder.target)
    rows = Rows(texts, end_tokens(eos, decoder.target.tokenizer), max_new_tokens)
    return decoder.run(rows, seed_rows(seeds, len(texts)))


def draft_heat(temperature: float, tree: Tree) -> float:
    """Temperature of the draft unless it is given: the target's.

    Trees of the most probable tokens are the same at any temperature but 0, where a law has one
    token and there is nothing to rank: they are drafted at 1 then.
    """
    ranked = tree.law_names() == {"top"}
    return 1.0 if ranked and temperature == 0 else temperature


def choose_tree(tree: Tree | str, law: str | None, temperature: float) -> Tree:
    """Build a tree that is given as text.

    Raises
    ------
    InputError
        A text that names no tree, or a law beside a tree that has its own.
    """
    if isinstance(tree, str):
        if law is None and temperature == 0:
            return Tree(parse_tree(tree).parents, "top")  # single drafts too
        return parse_tree(tree, law or "without-replacement")
    if law is not None:
        raise InputError(f"{tree} has its draft laws: leave out law={law!r}.")
    return tree


def choose_rule(rule: TreeRule | str | None, tree: Tree) -> TreeRule:
    """Build a rule that is given as text, or the best that takes the tree's laws for None.

    Raises
    ------
    InputError
        No rule has this name.
    Refused
        The rule does not take the tree.
    """
    if rule is None:
        several = {spec["law"] for spec in tree.specs if spec is not None and spec["n"] > 1}
        if not several:
            rule = "block"
        else:
            rule = DEFAULT_RULES[several.pop()] if len(several) == 1 else "naive"
    found = parse_rule(rule) if isinstance(rule, str) else rule
    if reason := found.refuses(tree):
        raise Refused(reason)
    return found


@dataclass(frozen=True)
class Decoder:
    """Two models, what is drafted, and what verifies it.

    Attributes
    ----------
    shape, draft_shape : temperature, top_k and top_p of target and draft
    """

    target: Transformer
    draft: Model
    tree: Tree
    rule: TreeRule
    shape: dict[str, Any]
    draft_shape: dict[str, Any]

    def run(self, rows: Rows, seeds: Int[np.ndarray, " B"]) -> Decoded:
        """Decode until every row is over."""
        self._check(rows)
        clock, log = Clock(), Log(self.tree)
        with clock.timing("prefill"):
            target = TreeLaws.of(self.target, rows.prompts, **self.shape)
            draft = TreeLaws.of(self.draft, rows.prompts, **self.draft_shape)
        while rows.active.size:
            block = self.step(target, draft, seeds[rows.active], log.calls, clock)
            log.add(rows.active, block)
            going = rows.append(block.tokens, block.length - 1)
            for laws, name in ((target, "target"), (draft, "draft")):
                with clock.timing(name):
                    advance(laws, block.tokens, going)
        emitted = sum(map(len, rows.tokens))
        measured = log.measured(emitted, clock.seconds())
        lengths = log.lengths(len(rows.prompts))
        return Decoded.of(rows, lengths, measured, self._settings(seeds), self.target.tokenizer)

    def step(
        self,
        target: TreeLaws,
        draft: TreeLaws,
        seeds: Int[np.ndarray, " b"],
        step: int,
        clock: Clock,
    ) -> trees.Block:
        """Draft, one target call, verify; the contexts stay as they are.

        Drafts and verification of step i take the streams 2i and 2i + 1 of each row's seed.
        """
        with clock.timing("draft"):
            chosen = uniforms(seeds, self.tree.nodes, 2 * step)
            tokens, draft_laws = trees.draw_tokens(self.tree, draft, chosen)
        with clock.timing("target"):
            logits = target.logits_at(np.tile(self.tree.parents, (len(tokens), 1)), tokens)
        with clock.timing("verification"):
            target_laws = target.shaped(tokens, logits)
            drafted = DraftedTree.of(self.tree, tokens, target_laws, draft_laws, check=False)
            draws = self.rule.draws(self.tree.depth)
            return self.rule.verify(drafted, uniforms(seeds, draws, 2 * step + 1))

    def _check(self, rows: Rows) -> None:
        """Refuse what would not fit into the models' positions, before anything is computed."""
        for shape in (self.shape, self.draft_shape):
            probabilities(np.zeros(1), **shape)
        longest = max(map(len, rows.prompts))
        for model in (self.target, self.draft):
            if isinstance(model, Transformer):
                check_positions(model, longest, rows.limit, self.tree.depth)

    def _settings(self, seeds: Int[np.ndarray, " B"]) -> dict[str, Any]:
        return {
            "method": "multidraft",
            "target": self.target.identity(),
            "draft": self.draft.identity(),
            "tree": {"parents": list(self.tree.parents), "laws": list(self.tree.specs)},
            "rule": rule_name(self.rule),
            "sampling": self.shape,
            "draft_sampling": self.draft_shape,
            "seeds": seeds.tolist(),
        }


def advance(laws: TreeLaws, tokens: Int[np.ndarray, "b D1"], going: Bool[np.ndarray, " b"]) -> None:
    """Append the emitted tokens to the contexts, and go on with the rows that are not over."""
    if going.any():
        laws.commit(tokens)
        if not going.all():
            laws.select(np.flatnonzero(going))


def check_positions(model: Transformer, prompt: int, limit: int, depth: int) -> None:
    """Raise InputError when a prompt, its continuation, and a tree at its end do not fit.

    The last tree hangs below the last token but one.
    """
    check_prompt(model, prompt)
    most = positions(model)
    if most is not None and prompt + limit - 1 + depth > most:
        raise InputError(
            f"{prompt} tokens of prompt, {limit} new ones and a tree of depth {depth} are more "
            f"than the {most} positions of {model.name}: lower max_new_tokens or the depth."
        )


def rule_name(rule: TreeRule) -> str:
    """A rule as text, as `multidraft.trees.rules.parse` reads it."""
    token_rule = getattr(rule, "rule", None)
    return f"{rule.name}:{token_rule}" if token_rule else rule.name


def uniforms(seeds: Int[np.ndarray, " b"], draws: int, stream: int) -> Float[np.ndarray, "b draws"]:
    """The numbers of `multidraft.uniforms`, as numpy."""
    return verifiers.uniforms(seeds, draws, stream=stream).numpy()
