"""Partially known laws: what logs with the K most probable tokens say, and what they do not.

Every number is an interval that holds for every way to give the unlisted tokens probabilities; the
arguments are in the modules' docstrings and in docs/partial-logs.
"""

from multidraft.partial.completion import Completion, farthest, nearest, truncated
from multidraft.partial.entropy import entropy
from multidraft.partial.optimum import optimum, overlap
from multidraft.partial.pair import Interval, Listed, Pair
from multidraft.partial.rules import acceptance, refuses
from multidraft.partial.trace import KEY, PartialTrace, open

__all__ = [
    "KEY",
    "Completion",
    "Interval",
    "Listed",
    "Pair",
    "PartialTrace",
    "acceptance",
    "entropy",
    "farthest",
    "nearest",
    "open",
    "optimum",
    "overlap",
    "refuses",
    "truncated",
]
