"""Advice on trees: expected tokens per second of tree, draft law and rule under a budget."""

from multidraft.advise.advice import BUDGET, Advice, Marginal, Option, advise
from multidraft.advise.costs import Calls, Costs, load, measured
from multidraft.advise.evidence import Candidate, Evidence, FromRecordings, FromTrace

__all__ = [
    "BUDGET",
    "Advice",
    "Calls",
    "Candidate",
    "Costs",
    "Evidence",
    "FromRecordings",
    "FromTrace",
    "Marginal",
    "Option",
    "advise",
    "load",
    "measured",
]
