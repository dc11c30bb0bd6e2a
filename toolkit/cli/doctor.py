"""``multidraft doctor``."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import multidraft as md
from multidraft.cli.output import Json, print_fields, print_json, print_table
from multidraft.models import cache, entries
from multidraft.results import header

_VOCABULARY = 32_000
_DRAFTS = 4
_TOLERANCE = 1e-9
_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def command(*, json: Json = False) -> int:
    """Check this installation: versions, threads, device, cache, and a self test.

    The self test solves and certifies a problem over 32,000 tokens, and verifies a small one by
    enumeration; five seconds, more the first time, while functions are compiled. The exit code is 1
    when it fails.
    """
    facts = {**_installation(), **_machine(), **_cache()}
    tests = _self_test()
    passed = all(test["passed"] for test in tests)
    if json:
        print_json({**facts, "self test": tests, "passed": passed})
        return 0 if passed else 1
    print_fields(facts)
    print()
    print_table(
        ("test", "found", "at most", "passed"),
        (
            (test["test"], f"{test['found']:.1e}", f"{_TOLERANCE:.0e}", _verdict(test["passed"]))
            for test in tests
        ),
    )
    print()
    print("All is well." if passed else "Something is wrong: please report the lines above.")
    return 0 if passed else 1


def _verdict(passed: bool) -> str:
    return "yes" if passed else "NO"


def _installation() -> dict[str, Any]:
    versions = header({}, [])["versions"]
    optional = [name for name in ("tokenizers", "transformers", "gguf") if not _installed(name)]
    return {
        "multidraft": versions.pop("multidraft", "not installed as a package"),
        "from": str(Path(md.__file__).parent),
        **versions,
        "missing for models": ", ".join(optional) or "nothing",
    }


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _machine() -> dict[str, Any]:
    import numba
    import torch

    machine = header({}, [])["machine"]
    limits = {name: os.environ[name] for name in _POOLS if name in os.environ}
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {
        "system": machine["system"],
        "cores": machine["cores"],
        "memory, GiB": machine["memory_gib"],
        "threads": f"numba {numba.get_num_threads()}, torch {torch.get_num_threads()}",
        "limits on threads": ", ".join(f"{k}={v}" for k, v in limits.items()) or "none set",
        "device": device,
    }


def _cache() -> dict[str, Any]:
    folder = cache.folder()
    traces = sorted(cache.traces().glob("*.safetensors")) if cache.traces().is_dir() else []
    fixed = [entry for entry in entries() if entry.status in ("in the cache", "not fetched")]
    return {
        "cache": f"{folder}{'' if folder.is_dir() else ' (not there yet)'}",
        "cache writable": _verdict(_writable(folder)),
        "models": ", ".join(f"{entry.name} {entry.status}" for entry in fixed),
        "traces": ", ".join(path.name for path in traces) or "none",
    }


def _writable(folder: Path) -> bool:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return os.access(folder, os.W_OK)


def _self_test() -> list[dict[str, Any]]:
    """A certificate at real size, a lossless rule by enumeration, a known value."""
    logits = np.random.default_rng(0).normal(size=(2, _VOCABULARY)) * 3
    problem = md.Problem.from_logits(logits[0], logits[0] * 0.7 + logits[1] * 0.5, "iid", n=_DRAFTS)
    solution = md.solve(problem, "interval")
    certificate = solution.certificate
    small = md.Problem([0.2, 0.3, 0.5], md.IID([0.6, 0.3, 0.1], n=2))
    off = np.abs(md.verifiers.get("k-seq").output_law(small) - small.target).max()
    return [
        _within(f"gap of the optimum, {_VOCABULARY} tokens", abs(float(certificate.gap))),
        _within("violation of its plan", float(certificate.violation)),
        _within("distance of k-seq's output law from the target", float(off)),
        _within("distance of a known optimum", abs(float(md.optimal_acceptance(small)) - 0.69)),
    ]


def _within(name: str, found: float) -> dict[str, Any]:
    # A comparison with NaN is false.
    return {"test": name, "found": found, "passed": bool(found <= _TOLERANCE)}
