"""
One tree, verified step by step
===============================

A draft model proposes a tree of tokens, the target model scores all of them in one call, and a
*tree rule* decides which path is accepted and which token is added after it. Whatever the rule,
the text must come out as if the target had written it alone. This page follows one tree through
three rules, by hand and with the library, and ends at the longest blocks that any rule can emit.
"""

import numpy as np

from multidraft import trees

np.set_printoptions(precision=4, suppress=True)

# %%
# Two models
# ----------
#
# Three tokens keep everything visible: ``a``, ``b``, ``c``. In both models the next token depends
# on the last one; ``start`` is the law after the context. The target is q, the draft p.

target = trees.Markov([0.2, 0.3, 0.5], [[0.7, 0.2, 0.1], [0.1, 0.15, 0.75], [0.3, 0.4, 0.3]])
draft = trees.Markov([0.6, 0.3, 0.1], [[0.2, 0.3, 0.5], [0.45, 0.35, 0.2], [0.1, 0.8, 0.1]])
names = "abc".__getitem__

# %%
# A drafted tree
# --------------
#
# Two iid paths of two tokens. Slot 0 is the root, slots 1 and 2 its children, 3 and 4 theirs. All
# randomness is an argument: one uniform number for each drafted token.

tree = trees.paths(2, 2)
drafted = trees.draw(tree, target, draft, np.array([[0.3, 0.8, 0.6, 0.9]]))
for slot in range(1, tree.slots):
    print(f"slot {slot}, below {tree.parents[slot]}: {names(drafted.tokens[0, slot])}")

# %%
# The paths are ``ac`` and ``bc``. The target's laws after every slot are part of the drafted tree:
# that is what its one call returns.

print(drafted.target[0])

# %%
# Top-down: a token rule at every node
# ------------------------------------
#
# Recursive rejection tests the root's children one after another against what is left of q. The
# first child, ``a``, is accepted with probability min(1, q/p) = .2/.6. If it fails, q becomes the
# normalised positive part of q - p, and ``b`` is tested against that.

q, p = target.start, draft.start
first = min(1, q[0] / p[0])
left = np.maximum(q - p, 0)
left /= left.sum()
second = (1 - first) * min(1, left[1] / p[1])
print("a:", first, "  b:", second, "  none of them:", 1 - first - second)

# %%
# All that is missing of q sits on ``c``, so ``b`` is never accepted. Below ``a`` the same test
# decides on its child ``c``: q(c|a) / p(c|a) = .1/.5. The library says the same. ``reach`` is the
# probability that a slot lies on the accepted path, ``stop`` that the path ends there.

top_down = trees.get("top-down", rule="rrs").judge(drafted)
print("reach", top_down.reach[0])
print("stop ", top_down.stop[0])
print("expected length", top_down.expected_length[0])

# %%
# The expected length is a finite sum over the slots, so no simulation is needed to know how good a
# rule is on a tree: one token for the block's end, and one for each slot weighted by its reach.

print(1 + top_down.reach[0, 1:].sum())

# %%
# Traversal: from the leaves to the root
# --------------------------------------
#
# Traversal verification gives every node a weight and tries the deepest paths first. The weight of
# ``a`` is w = min(1, q/p) = 1/3 as before, that of its child ``c`` is min(1, w q(c|a)/p(c|a)).

w_a = first
w_ac = min(1, w_a * target.rows[0, 2] / draft.rows[0, 2])
print("weight of a:", w_a, "  of ac:", w_ac)

# %%
# ``ac`` is accepted as a whole with its weight. If it is rejected, the leaf goes, and ``a`` keeps
# what the draft leaves of its scaled target: S is the sum of (w q - p)+ there, and ``a`` itself is
# accepted with probability S / (S + 1 - w).

s = np.maximum(w_a * target.rows[0] - draft.rows[0], 0).sum()
own = s / (s + 1 - w_a)
reject_ac, reject_a = 1 - w_ac, 1 - own
print("S:", s, "  a accepted on its own:", own)

# %%
# Only when ``a`` is rejected too is it ``b``'s turn, with the root's target reduced as in recursive
# rejection; then the root, which is never rejected, adds a token from what is left.

traversal = trees.get("traversal").judge(drafted)
print("by hand: ac", w_ac, " a", reject_ac * own, " rest", reject_ac * reject_a)
print("library:", traversal.stop[0])
print("expected length", traversal.expected_length[0])

# %%
# On *this* tree the two rules reach different slots with different probabilities; on average over
# drafted trees traversal emits longer blocks. Which token follows depends on where the path ends:

for slot in (0, 1, 3):
    law = traversal.bonus(np.array([slot]))[0]
    print(f"added after slot {slot}:", law)

# %%
# Emitting a block
# ----------------
#
# Given uniforms, the rule is a pure function: the first finds the end of the path, the second the
# added token. The picture shows the tree as the rule sees it.

block = traversal.draw(np.array([[0.95, 0.5]]))
print("path", block.path[0], " tokens", [names(t) for t in block.tokens[0] if t >= 0])
trees.picture(traversal, block=block, name=names, title="traversal")

# %%
# Greedy multi-path block verification
# ------------------------------------
#
# This rule looks at one path only, the best by the ratio q/p, and accounts for having chosen it:
# the best of two paths is a draw from a *skewed* draft law, against which the path is verified as a
# block. At the root ``c`` has the best ratio, then ``b``, then ``a``; so here ``bc`` is verified.
# Its first token has the skewed probability (p(a) + p(b))^2 - p(a)^2 instead of p(b).

print("b as the better of two:", (p[0] + p[1]) ** 2 - p[0] ** 2)
multipath = trees.get("greedy-multipath").judge(drafted)
print("stop ", multipath.stop[0])
print("expected length", multipath.expected_length[0])

# %%
# Every rule is lossless, and this can be computed
# ------------------------------------------------
#
# With three tokens all 81 drafted trees can be listed. For each the rule's block law is known, so
# the exact law of the emitted text is too: it differs from the target's by round-off alone.

rules = {
    "top-down, recursive rejection": trees.get("top-down", rule="rrs"),
    "top-down, interval": trees.get("top-down", rule="interval"),
    "greedy multi-path": trees.get("greedy-multipath"),
    "traversal": trees.get("traversal"),
    "bottom-up, interval": trees.get("bottom-up", rule="interval"),
}
for name, rule in rules.items():
    error = trees.deviation(rule, tree, target, draft)
    assert error < 1e-12
    print(f"{name}: off by {error:.0e}")

# %%
# How long could blocks be?
# -------------------------
#
# The optimum of the tree is a linear program over all lossless rules, with a certificate: a plan
# below, and prices that bound every rule from above.

best = trees.optimum(target, draft, paths=2, length=2)
print(f"optimum {best.lower:.6f}, bounds {best.gap:.0e} apart, {best.columns} columns")
for name, rule in rules.items():
    length = trees.expected_length(rule, tree, target, draft)
    share = (length - 1) / (float(best) - 1)
    print(f"{name}: {length:.4f} tokens, {share:.1%} of the possible gain")

# %%
# The last rule is the idea of traversal with an optimal token rule in place of recursive rejection:
# at a node of weight w any token rule can be applied to the target (w q, 1 - w), where the last
# entry stands for "reject". Traversal and UniVer are two cases of it.
#
# From a batch to a measurement
# -----------------------------
#
# Everything above works on batches. Drafting many trees and averaging the expected length of each
# measures block efficiency without ever simulating the verifier.

many = trees.draw(tree, target, draft, np.random.default_rng(0).random((2000, tree.nodes)))
lengths = trees.get("traversal").expected_length(many)
error = lengths.std() / np.sqrt(len(lengths))
exact = trees.expected_length(trees.get("traversal"), tree, target, draft)
print(f"{lengths.mean():.3f} ± {error:.3f} from 2,000 trees, exactly {exact:.3f}")
assert abs(lengths.mean() - exact) < 4 * error
