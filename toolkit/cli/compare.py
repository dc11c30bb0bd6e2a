"""``multidraft compare``."""

from __future__ import annotations

import multidraft as md
from multidraft.cli.output import Json, print_json, print_table
from multidraft.cli.problem import NOTHING, ProblemOptions
from multidraft.cli.solve import as_data


def command(given: ProblemOptions = NOTHING, *, json: Json = False) -> None:
    """Solve one problem with every method that takes it, and say why the others do not."""
    problem = given.problem()
    answers = [as_data(solution) for solution in md.compare(problem)]
    refused = {
        name: sentence
        for name, sentence in md.solvers.explain(problem).items()
        if sentence is not None
    }
    if json:
        print_json({"answers": answers, "refused": refused})
        return
    columns = ("method", "acceptance", "gap", "violation", "seconds", "status")
    print_table(columns, ([_worst(answer, name) for name in columns] for answer in answers))
    for name, sentence in refused.items():
        print(f"{name} refuses: {sentence}")


def _worst(answer: dict, name: str) -> object:
    """A column of an answer; for a batch the mean acceptance and the largest of the others."""
    value = answer[name]
    if name == "acceptance":
        return float(value.mean())
    return float(value.max()) if hasattr(value, "max") else value
