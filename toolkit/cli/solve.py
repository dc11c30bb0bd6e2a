"""``multidraft solve``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import multidraft as md
from multidraft.cli.output import Json, print_fields, print_json, print_table
from multidraft.cli.problem import NOTHING, ProblemOptions
from multidraft.errors import InputError

if TYPE_CHECKING:
    from multidraft.solution import Solution

SHOWN = 10  # tokens of a cut that are listed


def command(
    given: ProblemOptions = NOTHING,
    *,
    method: str = "auto",
    plan: Path | None = None,
    tokens: Path | None = None,
    json: Json = False,
) -> None:
    """Solve one problem and certify the answer.

    Parameters
    ----------
    method
        A solver from `multidraft methods`; auto takes the first that accepts the problem.
    plan
        Write the plan with its problem to this .npz file: selection law, residual law and, for
        small vocabularies, the mass that each token set keeps of each of its tokens
        (multidraft.load_plan reads it).
    tokens
        Texts of tokens, for the cut: a tokenizer.json, a JSON list, or text: id.
    """
    texts = _texts(tokens)
    solution = md.solve(given.problem(), method)
    if plan is not None:
        save_plan(solution, plan)
    if json:
        print_json(as_data(solution) | _named(solution, texts))
    elif solution.problem.batch:
        _print_batch(solution)
    else:
        print_fields(_fields(solution, texts))


def as_data(solution: Solution) -> dict[str, Any]:
    """Everything about an answer, as JSON; the cut is a list of token ids (per row of a batch)."""
    certificate = solution.certificate
    rows = np.atleast_2d(certificate.cut)
    cuts = [np.flatnonzero(row).tolist() for row in rows]
    return {
        "acceptance": solution.acceptance,
        "lower": certificate.lower,
        "upper": certificate.upper,
        "gap": certificate.gap,
        "violation": certificate.violation,
        "exact": certificate.exact,
        "proof": str(certificate.proof) if certificate.proved else None,
        "cut": cuts if solution.problem.batch else cuts[0],
        "method": solution.method,
        "status": solution.status.value,
        "seconds": solution.seconds,
        "law": solution.problem.law.spec,
        "vocabulary": solution.problem.vocabulary,
    }


def save_plan(solution: Solution, path: Path) -> None:
    """Write the plan of a solution to an .npz file.

    Raises
    ------
    InputError
        A method without a plan, or another suffix.
    """
    plan = solution.plan
    if plan is None:
        raise InputError(f"{solution.method} finds the value only: choose another --method.")
    if path.suffix != ".npz":
        raise InputError(f"--plan {path}: the plan is written as .npz.")
    plan.save(path)


def _texts(chosen: Path | None) -> dict[int, str]:
    from multidraft.report.tokens import read

    return {} if chosen is None else read(chosen)


def _words(ids: list[int], texts: Mapping[int, str]) -> list[str]:
    """Token ids, each with its text where that is known."""
    from multidraft.report.tokens import shown

    return [f"{token} {shown(token, texts)}" if token in texts else str(token) for token in ids]


def _named(solution: Solution, texts: Mapping[int, str]) -> dict[str, Any]:
    """Texts of the tokens in the cut (per row of a batch), where texts were given."""
    if not texts:
        return {}
    cuts = [np.flatnonzero(row) for row in np.atleast_2d(solution.certificate.cut)]
    named = [[texts.get(token) for token in cut.tolist()] for cut in cuts]
    return {"cut_texts": named if solution.problem.batch else named[0]}


def _fields(solution: Solution, texts: Mapping[int, str]) -> dict[str, Any]:
    data = as_data(solution)
    ids = data.pop("cut")
    listed = ", ".join(_words(ids[:SHOWN], texts)) + (", ..." if len(ids) > SHOWN else "")
    return {
        "acceptance": float(data["acceptance"]),
        "status": data["status"],
        "method": data["method"],
        "lower bound": float(data["lower"]),
        "upper bound": float(data["upper"]),
        "gap": float(data["gap"]),
        "violation": float(data["violation"]),
        "in rationals": data["proof"] or "not proved: no plan, or too many tuples",
        "cut": f"{len(ids)} of {data['vocabulary']} tokens" + (f": {listed}" if ids else ""),
        "seconds": f"{data['seconds']:.6f}, loading and compiling included",
    }


def _print_batch(solution: Solution) -> None:
    certificate = solution.certificate
    headings = ("row", "acceptance", "lower bound", "upper bound", "gap", "violation", "cut size")
    columns = (
        solution.acceptance,
        certificate.lower,
        certificate.upper,
        certificate.gap,
        certificate.violation,
        certificate.cut.sum(-1),
    )
    lists = (column.tolist() for column in columns)
    print_table(headings, zip(range(len(solution)), *lists, strict=True))
    seconds = round(solution.seconds, 6)
    print_fields({"status": solution.status.value, "method": solution.method, "seconds": seconds})
