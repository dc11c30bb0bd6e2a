"""Language models as sources of laws: named targets and drafts, raw logits at full vocabulary.

>>> import multidraft as md
>>> [entry.name for entry in md.models.entries()][:3]
['smollm2', 'skip-4', 'skip-8']
"""

from multidraft.models.base import Model, Tokenizer, check_pair, tokenizer_hash

# Before the function `ngram`: a module that is imported later would take its name.
from multidraft.models.ngram import NGram
from multidraft.models.registry import Entry, entries, fetch, load, load_drafts, ngram

__all__ = [
    "Entry",
    "Model",
    "NGram",
    "Tokenizer",
    "check_pair",
    "entries",
    "fetch",
    "load",
    "load_drafts",
    "ngram",
    "tokenizer_hash",
]
