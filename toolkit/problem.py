r"""The problem: a target law and a draft law, and no algorithm.

    max  sum_x sum_{y in S(x)} C[x, y]
    s.t. sum_y C[x, y] = P(x),   sum_x C[x, y] = q(y),   C >= 0

is the optimal-transport linear program with membership cost (OTLP): `P` is the law of the drafted
tuple x, `S(x)` the set of its tokens, `q` the target.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from multidraft import checks, laws
from multidraft.arrays import Array, float64
from multidraft.errors import InputError
from multidraft.files import atomic
from multidraft.transform import probabilities

FORMAT = 1


class Problem:
    """A target law, (V,) or (B, V), and the draft law that proposes tokens for it.

    Everything is converted to float64 numpy here, and only here; nothing is renormalised.

    Parameters
    ----------
    target : (V,) or (B, V)
        Target probabilities q.
    law : Law
        Draft law on the same vocabulary; target and draft broadcast over the batch.

    Raises
    ------
    InputError
        A target or draft that is no law in float64 (rounded float32 softmax included: see
        :func:`normalise`), or vocabularies and batches that do not match.

    Examples
    --------
    >>> problem = Problem([0.2, 0.3, 0.5], laws.IID([0.6, 0.3, 0.1], n=2))
    >>> problem.vocabulary, problem.n, problem.batch
    (3, 2, ())
    """

    target: Float[np.ndarray, "*batch V"]
    law: laws.Law
    batch: tuple[int, ...]

    def __init__(self, target: Any, law: laws.Law) -> None:
        if not isinstance(law, laws.Law):
            raise InputError("pass a draft law, for example multidraft.IID(draft, n=2).")
        target = checks.law(float64(checks.as_floats(target, "target")), "target")
        self.law = _checked(law)
        if target.shape[-1] != law.vocabulary:
            raise InputError(
                f"target has {target.shape[-1]} tokens and draft {law.vocabulary}: "
                "see multidraft.align."
            )
        self.batch = checks.broadcast(target.shape[:-1], law.batch)
        self.target = np.broadcast_to(target, (*self.batch, target.shape[-1]))

    @classmethod
    def from_logits(
        cls,
        target_logits: Any,
        draft_logits: Any,
        law: type[laws.Law] | str,
        *,
        n: Any = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        draft_temperature: float | Sequence[float] | None = None,
        draft_top_k: int | None = None,
        draft_top_p: float | None = None,
        short: laws.Short = "pad",
    ) -> Problem:
        """Build the problem from raw logits.

        Temperature, top-k and top-p shape both laws; a ``draft_*`` value replaces the target's for
        the draft alone (``draft_top_k=V`` and ``draft_top_p=1`` lift a truncation). Rows with fewer
        supported tokens than the law needs are padded unless ``short="refuse"``. For independent
        drafts pass a list of logits and, if wanted, a list of draft temperatures.

        Raises
        ------
        InputError
            Bad logits or parameters, see :func:`multidraft.transform.probabilities`.
        """
        draft_top_k = top_k if draft_top_k is None else draft_top_k
        draft_top_p = top_p if draft_top_p is None else draft_top_p
        name = checks.choice(law if isinstance(law, str) else law.name, laws.LAWS, "draft law")

        def draft(logits: Any, heat: Any) -> Array:
            heat = temperature if heat is None else heat
            return probabilities(logits, heat, draft_top_k, draft_top_p)

        probs: Any
        if name == laws.Independent.name:
            heats = np.broadcast_to(np.array(draft_temperature, dtype=object), (len(draft_logits),))
            probs = [
                normalise(draft(logits, heat))
                for logits, heat in zip(draft_logits, heats, strict=True)
            ]
        else:
            probs = normalise(draft(draft_logits, draft_temperature))
        spec = {"law": name, "short": short} | ({} if n is None else {"n": n})
        target = normalise(probabilities(target_logits, temperature, top_k, top_p))
        return cls(target, laws.make(spec, probs))

    @property
    def vocabulary(self) -> int:
        """Number of tokens V."""
        return self.target.shape[-1]

    @property
    def n(self) -> Any:
        """Number of drafts, an integer or one per row."""
        return self.law.n

    def __len__(self) -> int:
        if not self.batch:
            raise TypeError("this problem is one context, not a batch.")
        return self.batch[0]

    def __getitem__(self, i: int) -> Problem:
        if not self.batch:
            raise InputError("this problem is one context, not a batch.")
        if not -len(self) <= i < len(self):
            raise IndexError(f"row {i} of a batch of {len(self)}.")
        return Problem(self.target[i], self.law[i] if self.law.batch else self.law)

    def __repr__(self) -> str:
        return f"Problem(V={self.vocabulary}, law={self.law.name}, n={self.n}, batch={self.batch})"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the problem to one ``.npz`` file (arrays and a JSON header, no pickle)."""
        write_arrays(path, self.packed())

    def packed(self) -> dict[str, np.ndarray]:
        """Return the problem as named arrays, one of them a JSON header."""
        header = {"format": FORMAT, "law": self.law.spec}
        law = self.law
        parts = law.parts if isinstance(law, laws.Independent) else (law.probs,)
        arrays = {f"draft_{i}": part for i, part in enumerate(parts)}
        return {"header": np.array(json.dumps(header)), "target": self.target} | arrays


def _checked(law: laws.Law) -> laws.Law:
    """Convert a law to float64 and hold it to float64's standard."""
    exact = law.numpy()
    parts = exact.parts if isinstance(exact, laws.Independent) else (exact.probs,)
    for part in parts:
        checks.law(part, "draft")
    return exact


def normalise(probs: Any) -> Float[np.ndarray, "*batch V"]:
    """Divide each row of non-negative numbers by its sum, in float64.

    Raises
    ------
    InputError
        Negative, NaN or infinite entries, or a row that sums to zero.

    Examples
    --------
    >>> normalise([1.0, 3.0])
    array([0.25, 0.75])
    """
    values = float64(checks.as_floats(probs, "probabilities"))
    sums = values.sum(-1, keepdims=True)
    if values.size == 0 or not np.isfinite(values).all() or values.min() < 0 or (sums <= 0).any():
        raise InputError(
            "only rows of finite, non-negative numbers with a positive sum can be normalised."
        )
    return values / sums


def load(path: str | os.PathLike[str]) -> Problem:
    """Read a problem that :meth:`Problem.save` wrote.

    Raises
    ------
    InputError
        No such file, not such a file, or damaged.
    """
    return unpack(read_arrays(path), path)


def unpack(arrays: dict[str, np.ndarray], path: str | os.PathLike[str]) -> Problem:
    """Build the problem from the arrays of the file at `path`; other arrays are left alone."""
    try:
        header = json.loads(str(arrays["header"]))
        drafts = sum(name.startswith("draft_") for name in arrays)
        parts = [arrays[f"draft_{i}"] for i in range(drafts)]
        version, spec, target = header["format"], header["law"], arrays["target"]
        probs = parts if spec.get("law") == laws.Independent.name else parts[0]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        raise _damaged(path) from None
    if version != FORMAT:
        raise InputError(f"{os.fspath(path)} has format {version}; this version reads {FORMAT}.")
    return Problem(target, laws.make(spec, probs))


def write_arrays(path: str | os.PathLike[str], arrays: dict[str, np.ndarray]) -> None:
    """Write named arrays to one ``.npz`` file, whole or not at all."""
    with atomic(path) as temporary, open(temporary, "wb") as out:
        np.savez_compressed(out, allow_pickle=False, **arrays)


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read what :func:`write_arrays` wrote.

    Raises
    ------
    InputError
        No such file, not such a file, or damaged.
    """
    try:
        return _arrays(path)
    except FileNotFoundError:
        raise InputError(f"there is no file {os.fspath(path)}.") from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        raise _damaged(path) from None


def _damaged(path: str | os.PathLike[str]) -> InputError:
    return InputError(f"{os.fspath(path)} is damaged, or not a file that save() wrote.")


def _arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Read all arrays, each only after its header agrees with the size of its member."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            with archive.open(info) as member:
                np.lib.format.read_magic(member)
                shape, _, dtype = np.lib.format.read_array_header_1_0(member)
                if math.prod(shape) * dtype.itemsize + member.tell() != info.file_size:
                    raise ValueError(info.filename)
    with np.load(path, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}
