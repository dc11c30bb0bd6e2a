# %% [markdown]
# # 9. Your own traces
#
# Everything in these notebooks can be computed for *your* pair of models. What is needed is a
# trace: the target's and the draft's laws at many contexts. Three ways to get one, all of them done
# here from nothing but what ships with the package:
#
# 1. **record** models that you can call;
# 2. import **full logits** from arrays;
# 3. import **logs of a serving engine**, which list the most probable tokens only, in the shape of
#    vLLM or of the OpenAI completions API. Then every number becomes an interval.
#
# At the end a report says in plain sentences what the pair can gain. Notation: q target, p draft.

# %%
# %matplotlib inline
import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import multidraft as md
from multidraft import partial, texts
from multidraft.models.ngram import NGram
from multidraft.plots.canvas import COLOURS
from multidraft.report import Settings, measure, page

plt.style.use("multidraft.plots.paper")
BLUE, ORANGE, GREEN = COLOURS[:3]
folder = Path(tempfile.mkdtemp())

# %% [markdown]
# ## Record a pair of models
#
# A model is any object with logits and a tokenizer (`multidraft.models.Model`). Here are two tiny
# ones: character models that count which letter follows the last four (the target) or the last one
# (the draft), trained on half of the shipped texts and recorded on the other half. For a Hugging
# Face pair it is one command, `multidraft record --target FOLDER --draft FOLDER`.


# %%
class Characters:
    """Every ASCII character is a token."""

    def encode(self, text, *, add_special_tokens=False):
        return [min(ord(letter), 127) for letter in text]

    def decode(self, token_ids):
        return "".join(map(chr, token_ids))

    def get_vocab(self):
        return {chr(i): i for i in range(128)}


letters = Characters()
corpus = [np.array(letters.encode(work.held_out)) for work in texts.works()]
target = NGram(5, corpus, 128, letters, "five-gram")
draft = NGram(2, corpus, 128, letters, "two-gram")
trace = md.traces.record(
    target=target, drafts={"two-gram": draft}, contexts=96, passages=24, tokens=128, progress=False
)
trace.write(folder / "characters.safetensors")
print(md.traces.open(folder / "characters.safetensors"))

# %% [markdown]
# One context, seen by both. Then the optimum for each draft law, averaged over all contexts; the
# error bars are clustered by passage, since contexts of one passage are alike.

# %%
pair = md.Problem.from_logits(trace.target, trace.draft("two-gram"), "iid", n=1)
q, p = pair.target, pair.law.probs
row = int(np.minimum(q, p).sum(1).argsort()[len(q) // 2])  # a context in the middle
show = np.argsort(-(q + p)[row])[:14]
figure, panels = plt.subplots(1, 2, figsize=(6.9, 2.2))
panels[0].bar(np.arange(14) - 0.2, q[row, show], 0.4, color=BLUE, label="target q")
panels[0].bar(np.arange(14) + 0.2, p[row, show], 0.4, color=ORANGE, label="draft p")
panels[0].set_xticks(range(14), [repr(chr(i)).strip("'") for i in show])
panels[0].set(title=f"context {row}", xlabel="next letter", ylabel="probability")
panels[0].legend()
counts = [1, 2, 3, 4, 6, 8]
kinds = {"without replacement": md.WithoutReplacement, "iid": md.IID, "top": md.Top}
means = {}
for number, (name, law) in enumerate(kinds.items()):
    found = [
        md.results.clustered_mean(md.optimal_acceptance(md.Problem(q, law(p, n))), trace.passage)
        for n in counts
    ]
    means[name] = np.array([mean.mean for mean in found])
    bars = [mean.stderr for mean in found]
    panels[1].errorbar(
        counts, means[name], bars, color=COLOURS[number], marker="osD"[number], label=name
    )
panels[1].set(xticks=counts, xlabel="number of drafts n", ylabel="optimal acceptance")
panels[1].legend()
plt.show()
assert (means["without replacement"] >= means["iid"] - 1e-12).all()

# %% [markdown]
# ## Import full logits
#
# If you have logits as arrays, (contexts, vocabulary), write them to `.npz` with the ids of the
# tokens that follow; `passage` says which contexts belong together. On the command line:
# `multidraft import --target target.npz --draft draft.npz`.

# %%
facts = {"ids": trace.next_token, "passage": trace.passage, "position": trace.position}
np.savez(folder / "target.npz", logits=trace.target, **facts)
np.savez(folder / "draft.npz", logits=trace.draft("two-gram"), **facts)
imported = md.importers.logits(folder / "target.npz", {"two-gram": folder / "draft.npz"})
print(imported)
assert np.array_equal(imported.target, trace.target)

# %% [markdown]
# ## Import logs: vLLM
#
# A server does not hand out 50,000 logits. Asked with `prompt_logprobs` it lists, at each position,
# the K most probable tokens and the one that stands there. Let both models score the same texts,
# and keep each response as one line of JSON. Here the 24 real contexts of the package play the
# server, with K = 20.


# %%
def log_softmax(logits):
    """Log-probabilities in float64."""
    logits = np.asarray(logits, dtype=np.float64)
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def vllm(path, logprobs, next_token, k):
    """Write one response per context, as vLLM answers."""
    with path.open("w") as out:
        for row, token in zip(logprobs, next_token.tolist(), strict=True):
            order = np.argsort(-row, kind="stable")
            rank = np.empty(len(row), dtype=int)
            rank[order] = np.arange(1, len(row) + 1)
            listed = [token, *(int(i) for i in order[:k] if i != token)]
            entry = {
                str(i): {"logprob": row[i], "rank": int(rank[i]), "decoded_token": f"<{i}>"}
                for i in listed
            }
            line = {"object": "text_completion", "choices": [{"prompt_logprobs": [None, entry]}]}
            out.write(json.dumps(line) + "\n")
    return path


real = md.traces.frozen()
logprobs = {"target": log_softmax(real.target), "skip-8": log_softmax(real.draft("skip-8"))}


def logged(k):
    """What the two logs say when K tokens are listed."""
    files = [
        vllm(folder / f"{name}.jsonl", rows, real.next_token, k) for name, rows in logprobs.items()
    ]
    return md.importers.top_k(files[0], {"skip-8": files[1]}, k=k)


log = logged(20)
print(log, " unlisted probability of the target:", log.target.rest.mean().round(3))

# %% [markdown]
# What the unlisted tokens do is not known, so acceptance is an **interval** over all ways to
# complete the laws (page *From your own logs to a decision* of the documentation has the proofs).
# Here we can look at the truth too: dots are the exact optimum from the full logits.

# %%
exact = md.optimal_acceptance(md.Problem.from_logits(real.target, real.draft("skip-8"), "iid", n=2))
interval = partial.optimum(log.pair("skip-8"), "iid", 2)
order = np.argsort(exact)
figure, axes = plt.subplots(figsize=(4.4, 2.2))
look = {"color": BLUE, "linewidth": 3, "alpha": 0.5, "label": "from the 20 most probable tokens"}
axes.vlines(range(24), interval.lower[order], interval.upper[order], **look)
axes.plot(exact[order], ".", color=ORANGE, label="exact")
axes.set(xlabel="context", ylabel="optimum, two iid drafts", ylim=(0, 1.03))
axes.legend(loc="lower right")
plt.show()
assert (interval.lower <= exact + 1e-9).all() and (exact <= interval.upper + 1e-9).all()

# %% [markdown]
# How many tokens should one ask for? The mean interval shrinks slowly, since at temperature 1 the
# tail is long. But if you *sample* with top-k 20, lists of 20 say everything.

# %%
sizes = [5, 20, 80, 320]
widths = [partial.optimum(logged(k).pair("skip-8"), "iid", 2).width.mean() for k in sizes]
figure, axes = plt.subplots(figsize=(3.3, 1.9))
axes.plot(sizes, widths, "o-", color=BLUE)
axes.set_xscale("log")
axes.set_xticks(sizes, sizes)
axes.minorticks_off()
axes.set(xlabel="listed tokens K", ylabel="mean width", ylim=(0, None))
plt.show()
print("mean width of the interval:", dict(zip(sizes, np.round(widths, 3).tolist(), strict=True)))
assert (np.diff(widths) < 0).all()

cut = partial.truncated(log.target, log.draft("skip-8"), 20)
from_lists = md.optimal_acceptance(md.Problem(cut.target, md.IID(cut.draft, 2)))
from_logits = md.optimal_acceptance(
    md.Problem.from_logits(real.target, real.draft("skip-8"), "iid", n=2, top_k=20)
)
assert np.allclose(from_lists, from_logits)  # sampling with top-k 20: exact

# %% [markdown]
# ## Import logs: OpenAI completions
#
# The other common shape names tokens by their text: `logprobs.tokens` and `logprobs.top_logprobs`.
# Here the two character models play the server, on the first lines of three texts, with K = 5.


# %%
def openai(path, model, passages, k):
    """Write one response per text in the shape of the completions API with `echo`."""
    with path.open("w") as out:
        for passage in passages:
            ids = np.array(letters.encode(passage))
            rows = log_softmax(model.logits(ids[:-1]))
            lists = [{chr(i): row[i] for i in np.argsort(-row)[:k]} for row in rows]
            for listed, row, token in zip(lists, rows, ids[1:], strict=True):
                listed[chr(token)] = row[token]
            own = [listed[letter] for listed, letter in zip(lists, passage[1:], strict=True)]
            shape = {
                "tokens": list(passage),
                "token_logprobs": [None, *own],
                "top_logprobs": [None, *lists],
            }
            out.write(json.dumps({"choices": [{"text": passage, "logprobs": shape}]}) + "\n")
    return path


passages = [letters.decode(letters.encode(work.contexts[:60])) for work in texts.works()[:3]]
files = [openai(folder / f"{model.name}.jsonl", model, passages, 5) for model in (target, draft)]
spoken = md.importers.top_k(files[0], {"two-gram": files[1]}, k=5)
print(spoken, " texts:", len(set(spoken.passage.tolist())))
one = partial.overlap(spoken.pair("two-gram"))
print(f"one draft is accepted with probability {one.lower.mean():.3f} to {one.upper.mean():.3f}")
assert len(spoken) == 3 * 59

# %% [markdown]
# ## Report
#
# `multidraft report TRACE` turns any of these traces into one HTML page with all numbers, pictures
# and a look into single contexts. What it advises for the character models:

# %%
content = measure(
    trace, Settings(contexts=48, explored=8), {i: chr(i) for i in range(128)}, progress=False
)
(folder / "report.html").write_text(page(content), encoding="utf-8")
for advice in content["advice"][:3]:
    print(f"{advice['title']}: {advice['text']}\n")
assert (folder / "report.html").stat().st_size > 10_000

# %% [markdown]
# ## Exercises
#
# **1.** A shortcut puts all unlisted tokens into one bucket and treats it as a token. What does it
# claim for the mean acceptance of *one* draft at K = 20, on the 24 contexts? Compare with the exact
# mean.
#
# <details><summary>Hint and answer</summary>
#
# It is the upper end of the interval or more: a bucket meets a bucket although its tokens need not.
# The cell below computes it: 0.50 against 0.43.
#
# </details>
#
# **2.** Which letter does the five-gram model expect after "the quick brown fo"? Give its
# probability, in per cent, rounded.
#
# <details><summary>Hint</summary>
#
# `target.probabilities(letters.encode("the quick brown fo"))`, and look for the largest entry.
#
# </details>

# %%
mine = {}  # for example {1: 0.3, 2: 50}
pair = log.pair("skip-8")
bucket = np.minimum(pair.target, pair.draft).sum(-1) + np.minimum(pair.target_rest, pair.draft_rest)
single = md.optimal_acceptance(
    md.Problem.from_logits(real.target, real.draft("skip-8"), "iid", n=1)
)
likely = target.probabilities(letters.encode("the quick brown fo"))
truth = {1: bucket.mean(), 2: 100 * likely.max()}
for number, answer in mine.items():
    print(
        number,
        "is right" if abs(answer - truth[number]) < 0.02 * truth[number] else "is not right yet",
    )
print(f"expected: {chr(likely.argmax())!r} with {likely.max():.0%}")
print(f"bucket {bucket.mean():.3f}, exact {single.mean():.3f}")
assert np.allclose([bucket.mean(), single.mean()], [0.504, 0.428], atol=1e-3)
