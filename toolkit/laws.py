r"""Draft laws: how the n drafted tokens of a context are drawn.

A law is data: probabilities, a number of drafts, and the rule that turns them into tuples. It can
draw a tuple from uniforms, list all its tuples, and say with which probability every draft stays
inside a set of tokens, ``stay(H) = Pr[S(x) in H]``. That function of sets is all that the optimum
depends on: :math:`\alpha^* = 1 + \min_H \{ q(H) - \mathrm{stay}(H) \}`.

Laws keep the arrays they are given: numpy stays numpy, torch keeps its device and dtype.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from multidraft import checks
from multidraft.arrays import Array, float64, is_torch, largest, search, take
from multidraft.errors import InputError

Short: TypeAlias = Literal["refuse", "pad"]
Spec: TypeAlias = dict[str, Any]

# Listing tuples is for small vocabularies; beyond this many it would fill the memory.
MOST_TUPLES = 20_000_000


class Law(ABC):
    """A draft law over tuples of `n` tokens.

    Parameters
    ----------
    probs : (V,) or (B, V)
        Draft probabilities, numpy or torch, each row summing to 1.
    n : int or (B,) integers
        Number of drafts; one number per row makes ragged tuples, filled with -1.
    short : {"refuse", "pad"}
        What to do with a row that has fewer tokens with positive mass than the law needs: raise,
        or draft the m < n tokens there are and fill with -1.
    check : bool
        False skips validation.

    Raises
    ------
    InputError
        Probabilities that are no law, n < 1, or a short row under ``short="refuse"``.
    """

    name: ClassVar[str]
    probs: Array
    n: Any
    short: Short

    def __init__(self, probs: Any, n: Any, *, short: Short = "refuse", check: bool = True) -> None:
        self.probs = checks.as_floats(probs, "draft")
        self.n = n if isinstance(n, int) else _counts(n)
        self.short = short
        if check:
            self._check()

    def _check(self) -> None:
        checks.law(self.probs, "draft")
        if isinstance(self.n, int):
            checks.count(self.n, "n")
        elif self.n.ndim != 1 or self.n.min() < 1:
            raise InputError(
                "n holds an entry below 1 or is not (B,): pass a number of drafts per row."
            )
        checks.choice(self.short, ("refuse", "pad"), "short")
        missing = self.short_rows
        if self.short == "refuse" and missing.any():
            row = f"row {int(np.flatnonzero(missing)[0])} of " if self.batch else ""
            raise InputError(
                f"{row}the draft has fewer tokens with positive mass than {self.name} with "
                f'n={self.width} needs: lower n, or pass short="pad" to fill with -1.'
            )

    @property
    def vocabulary(self) -> int:
        """Number of tokens V."""
        return self.probs.shape[-1]

    @property
    def width(self) -> int:
        """Length of a drafted tuple: the largest n of any row."""
        return self.n if isinstance(self.n, int) else int(self.n.max())

    @property
    def batch(self) -> tuple[int, ...]:
        """Shape of the batch, ``()`` or ``(B,)``."""
        rows = () if isinstance(self.n, int) else self.n.shape
        return checks.broadcast(tuple(self.probs.shape[:-1]), rows)

    @property
    def counts(self) -> Int[np.ndarray, "*batch"]:
        """Number of drafts of each row."""
        return np.broadcast_to(np.asarray(self.n, dtype=np.int64), self.batch)

    @property
    def short_rows(self) -> Bool[np.ndarray, "*batch"]:
        """Rows with fewer tokens of positive mass than the law needs."""
        if not self._distinct:
            return np.zeros(self.batch, dtype=bool)
        supported = float64((self.probs > 0).sum(-1))
        return np.asarray(np.broadcast_to(supported, self.batch) < self.counts)

    # Laws whose drafts are distinct tokens run short; laws that repeat tokens never do.
    _distinct: ClassVar[bool] = False

    @property
    def spec(self) -> Spec:
        """The law without its numbers, as JSON: name, n, options."""
        n = self.n if isinstance(self.n, int) else self.n.tolist()
        return {"law": self.name, "n": n, "short": self.short}

    @property
    @abstractmethod
    def draws(self) -> int:
        """How many uniforms one tuple takes."""

    @abstractmethod
    def draw(self, uniforms: Array) -> Array:
        """Turn uniforms ``(*batch, size, draws)`` into tuples ``(*batch, size, width)``."""

    def sample(self, size: int, generator: Any) -> Array:
        """Draw `size` tuples per row, ``(*batch, size, width)``.

        `generator` is a numpy generator, or a torch generator when the law holds tensors.
        """
        shape = (*self.batch, size, self.draws)
        if not is_torch(self.probs):
            return self.draw(generator.random(shape))
        import torch

        options = {"generator": generator, "dtype": torch.float64, "device": generator.device}
        return self.draw(torch.rand(shape, **options).to(self.probs.device))

    def stay(self, mask: Bool[np.ndarray, "*rows V"]) -> Float[np.ndarray, "*batch"]:
        """Probability that every draft lies in the set `mask`, ``(V,)`` or one row per context."""
        return np.asarray(self._stay(self._set(mask)))

    def hit(self, mask: Bool[np.ndarray, "*rows V"]) -> Float[np.ndarray, "*batch"]:
        """Probability that some draft lies in the set `mask`."""
        return np.asarray(self._hit(self._set(mask)))

    @abstractmethod
    def _stay(self, mask: np.ndarray) -> Any: ...

    def _hit(self, mask: np.ndarray) -> Any:
        return 1 - self._stay(~mask)

    @abstractmethod
    def _tuples(self) -> tuple[Int[np.ndarray, "M n"], Float[np.ndarray, " M"]]: ...

    @abstractmethod
    def tuple_count(self) -> float:
        """How many tuples :meth:`enumerate` would list."""

    def enumerate(self) -> tuple[Int[np.ndarray, "M n"], Float[np.ndarray, " M"]]:
        """List every tuple of positive mass with its mass (small V, one context).

        Raises
        ------
        InputError
            For a batch, or when there are more than `MOST_TUPLES` tuples.
        """
        if self.batch:
            raise InputError(
                "enumerate lists the tuples of one context: index the law first, law[i]."
            )
        if self.tuple_count() > MOST_TUPLES:
            raise InputError(
                f"{self.name} has {self.tuple_count():.3g} tuples, more than {MOST_TUPLES:.0g}: "
                "use a method that does not list them (see multidraft.solvers.explain)."
            )
        return self.numpy()._tuples()

    def numpy(self) -> Law:
        """Return the same law on float64 numpy arrays."""
        return self._like(float64(self.probs), self.n)

    def __getitem__(self, i: int) -> Law:
        if not self.batch:
            raise InputError("this law has no batch to index.")
        probs = self.probs[i] if self.probs.ndim == 2 else self.probs
        return self._like(probs, self.n if isinstance(self.n, int) else int(self.n[i]))

    def _like(self, probs: Any, n: Any) -> Law:
        return type(self)(probs, n, short=self.short, check=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(V={self.vocabulary}, n={self.n}, batch={self.batch})"

    def _set(self, mask: Any) -> Bool[np.ndarray, "*batch V"]:
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.shape[-1:] != (self.vocabulary,):
            raise InputError(
                f"a set of tokens is a boolean array (..., {self.vocabulary}); got {mask.dtype} "
                f"{mask.shape}."
            )
        return mask

    def _pad(self, tokens: Array) -> Array:
        """Fill the columns beyond each row's own n with -1."""
        if isinstance(self.n, int):
            return tokens
        beyond = np.arange(self.width) >= self.counts[:, None, None]
        if is_torch(tokens):
            import torch

            return tokens.masked_fill(torch.from_numpy(beyond).to(tokens.device), -1)
        return np.where(beyond, -1, tokens)


def _counts(n: Any) -> Int[np.ndarray, " B"]:
    counts = np.asarray(n)
    if counts.dtype.kind not in "iu":
        raise InputError(f"n is {n!r}: pass a whole number, or one per row.")
    return int(counts) if counts.ndim == 0 else counts.astype(np.int64)  # type: ignore[return-value]


def _cumulative(probs: Array, batch: tuple[int, ...]) -> Array:
    """Running sums in at least float32, one row per context."""
    if is_torch(probs):
        import torch

        probs = probs.to(torch.promote_types(probs.dtype, torch.float32))
        return probs.expand(*batch, probs.shape[-1]).cumsum(-1)
    return np.broadcast_to(np.cumsum(probs, axis=-1, dtype=np.float64), (*batch, probs.shape[-1]))


def _column(tokens: Array, i: int, ids: Array) -> None:
    tokens[..., i] = ids


def _mass(probs: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return np.asarray(np.where(mask, probs, 0.0).sum(-1))


class IID(Law):
    """`n` independent draws from one law: ``stay(H) = p(H)^n``.

    Examples
    --------
    >>> law = IID(np.array([0.5, 0.3, 0.2]), n=2)
    >>> float(law.stay(np.array([True, True, False])))
    0.64
    """

    name = "iid"

    @property
    def draws(self) -> int:
        return self.width

    def draw(self, uniforms: Array) -> Array:
        flat = uniforms.reshape(*uniforms.shape[:-2], -1)
        tokens = search(_cumulative(self.probs, self.batch), flat)
        return self._pad(tokens.reshape(uniforms.shape))

    def _stay(self, mask: np.ndarray) -> Any:
        return 1 - self._hit(~mask)

    def _hit(self, mask: np.ndarray) -> Any:
        probs = float64(self.probs)
        inside, outside = _mass(probs, mask), _mass(probs, ~mask)
        # Either form is exact where its own sum is the small one.
        with np.errstate(divide="ignore"):
            by_inside = -np.expm1(self.n * np.log1p(-np.minimum(inside, 1.0)))
        return np.where(inside < outside, by_inside, 1 - outside**self.n)

    def tuple_count(self) -> float:
        return float((self.probs > 0).sum()) ** self.width

    def _tuples(self) -> tuple[Int[np.ndarray, "M n"], Float[np.ndarray, " M"]]:
        return _product([self.probs] * self.n)


def _product(laws: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All tuples of independent draws, with the product of their masses."""
    supports = [np.flatnonzero(law) for law in laws]
    grids = np.meshgrid(*supports, indexing="ij")
    tuples = np.stack([grid.ravel() for grid in grids], axis=-1)
    mass = np.ones(len(tuples))
    for i, law in enumerate(laws):
        mass *= law[tuples[:, i]]
    return tuples, mass


class Independent(Law):
    """Independent draws, draft i from its own law: ``stay(H) = prod_i p_i(H)``.

    Parameters
    ----------
    probs : sequence of n arrays, each (V,) or (B, V)
    """

    name = "independent"

    def __init__(
        self, probs: Sequence[Any], n: Any = None, *, short: Short = "refuse", check: bool = True
    ) -> None:
        self.parts = tuple(checks.as_floats(part, "draft") for part in probs)
        if not self.parts or (n is not None and n != len(self.parts)):
            raise InputError(
                f"independent drafts need one law each: got {len(self.parts)} for n={n}."
            )
        if len({part.shape[-1:] for part in self.parts}) != 1:
            raise InputError("the draft laws differ in vocabulary: see multidraft.align.")
        for i, part in enumerate(self.parts if check else ()):
            checks.law(part, f"draft {i}")
        super().__init__(self.parts[0], len(self.parts), short=short, check=check)

    @property
    def batch(self) -> tuple[int, ...]:
        return checks.broadcast(*(tuple(part.shape[:-1]) for part in self.parts))

    @property
    def draws(self) -> int:
        return self.n

    def draw(self, uniforms: Array) -> Array:
        columns = [
            search(_cumulative(part, self.batch), uniforms[..., i])
            for i, part in enumerate(self.parts)
        ]
        if is_torch(uniforms):
            import torch

            return torch.stack(columns, -1)
        return np.stack(columns, -1)

    def _stay(self, mask: np.ndarray) -> Any:
        return np.prod(np.stack([_mass(float64(part), mask) for part in self.parts]), axis=0)

    def _hit(self, mask: np.ndarray) -> Any:
        with np.errstate(divide="ignore"):
            logs = [np.log1p(-np.minimum(_mass(float64(part), mask), 1.0)) for part in self.parts]
        return -np.expm1(sum(logs))

    def tuple_count(self) -> float:
        return float(np.prod([float((part > 0).sum()) for part in self.parts]))

    def _tuples(self) -> tuple[Int[np.ndarray, "M n"], Float[np.ndarray, " M"]]:
        return _product(self.parts)

    def numpy(self) -> Law:
        return type(self)([float64(part) for part in self.parts], short=self.short, check=False)

    def __getitem__(self, i: int) -> Law:
        if not self.batch:
            raise InputError("this law has no batch to index.")
        rows = [part[i] if part.ndim == 2 else part for part in self.parts]
        return type(self)(rows, short=self.short, check=False)


class WithoutReplacement(Law):
    """`n` distinct tokens drawn one after another from what is left of p.

    ``stay(H)`` for n = 2 is ``sum_{i in H} p_i (p(H) - p_i) / (1 - p_i)``; for any n it is the
    probability that the first n arrivals of independent exponential clocks with rates p lie in H.
    """

    name = "without-replacement"
    _distinct = True

    @property
    def draws(self) -> int:
        return self.width

    def draw(self, uniforms: Array) -> Array:
        size, vocabulary = uniforms.shape[-2], self.vocabulary
        # Summing what is left afresh keeps its relative accuracy after a token of mass 1 - 1e-12.
        left = _copies(self.probs, (*self.batch, size, vocabulary))
        tokens = (
            (uniforms * 0).astype(np.int64) if not is_torch(uniforms) else (uniforms * 0).long()
        )
        for i in range(self.width):
            cumulative = left.cumsum(-1)
            ids = search(cumulative, uniforms[..., i : i + 1])
            empty = cumulative[..., -1:] <= 0
            ids = ids.masked_fill(empty, -1) if is_torch(ids) else np.where(empty, -1, ids)
            _column(tokens, i, ids[..., 0])
            _drop(left, ids)
        return self._pad(tokens)

    def _stay(self, mask: np.ndarray) -> Any:
        from multidraft.solvers.prefix import without_replacement_stay as stay

        shape = checks.broadcast(mask.shape[:-1], self.batch)
        masks = np.broadcast_to(mask, (*shape, self.vocabulary)).reshape(-1, self.vocabulary)
        probs = np.broadcast_to(float64(self.probs), (*shape, self.vocabulary))
        counts = np.broadcast_to(self.counts, shape).ravel()
        rows = zip(probs.reshape(masks.shape), masks, counts, strict=True)
        return np.array([stay(row, inside, int(n)) for row, inside, n in rows]).reshape(shape)

    def tuple_count(self) -> float:
        support = int((self.probs > 0).sum())
        return float(np.prod([support - i for i in range(min(self.width, support))]))

    def _tuples(self) -> tuple[Int[np.ndarray, "M n"], Float[np.ndarray, " M"]]:
        support = np.flatnonzero(self.probs)
        probs = self.probs[support]
        tuples, mass = np.empty((1, 0), dtype=np.int64), np.ones(1)
        for _ in range(min(self.n, len(support))):
            free = (tuples[:, :, None] != support).all(1)
            # What is left is summed over the other tokens, never as one minus the drawn ones.
            left = np.where(free, probs, 0.0).sum(-1)
            rows, columns = np.nonzero(free)
            mass = mass[rows] * (probs[columns] / left[rows])
            tuples = np.column_stack([tuples[rows], support[columns]])
        return _fill(tuples, self.n), mass


def _copies(probs: Array, shape: tuple[int, ...]) -> Array:
    if is_torch(probs):
        import torch

        wide = probs.to(torch.promote_types(probs.dtype, torch.float32))
        return wide.unsqueeze(-2).expand(shape).clone()
    return np.broadcast_to(np.asarray(probs, dtype=np.float64)[..., None, :], shape).copy()


def _drop(left: Array, ids: Array) -> None:
    """Set the mass of the drawn tokens to zero (nothing is drawn where the id is -1)."""
    if is_torch(left):
        left.scatter_(-1, ids.clamp(min=0), 0)
    else:
        np.put_along_axis(left, np.maximum(ids, 0), 0.0, axis=-1)


def _fill(tuples: Int[np.ndarray, "M m"], n: int) -> Int[np.ndarray, "M n"]:
    """Pad short tuples with -1."""
    return np.pad(tuples, ((0, 0), (0, n - tuples.shape[1])), constant_values=-1)


class SureAndLast(Law):
    """Laws of sure drafts and at most one random one: ``stay(H) = 1[sure in H] last(H)``."""

    _distinct = True

    @abstractmethod
    def sure(self) -> Array:
        """Ids that are drafted with certainty, ``(*batch, k)``, -1 where the support is short."""

    @abstractmethod
    def last(self) -> Array:
        """Law r of the random draft, ``(*batch, V)``; a row of zeros where there is none."""

    def _stay(self, mask: np.ndarray) -> Any:
        last = float64(self.last())
        drawn = np.where(last.sum(-1) > 0, _mass(last, mask), 1.0)
        return np.where(_covers(mask, _ids(self.sure())), drawn, 0.0)


class Top(SureAndLast):
    """The `n` most probable tokens, no randomness: the default of serving engines (EAGLE-2)."""

    name = "top"

    @property
    def draws(self) -> int:
        return 0

    def sure(self) -> Array:
        """Ids of the top tokens, ``(*batch, width)``, -1 where the support or n is short."""
        return _head(self.probs, self.width, self.batch, self.counts)

    def last(self) -> Array:
        """Rows of zeros: no draft is random."""
        return _copies(self.probs, (*self.batch, 1, self.vocabulary))[..., 0, :] * 0

    def draw(self, uniforms: Array) -> Array:
        tokens = self.sure()[..., None, :]
        shape = (*self.batch, uniforms.shape[-2], self.width)
        return (
            tokens.expand(shape).clone()
            if is_torch(tokens)
            else np.broadcast_to(tokens, shape).copy()
        )

    def tuple_count(self) -> float:
        return 1.0

    def _tuples(self) -> tuple[Int[np.ndarray, "M n"], Float[np.ndarray, " M"]]:
        return self.sure()[None], np.ones(1)


def _head(probs: Array, n: int, batch: tuple[int, ...], counts: np.ndarray) -> Array:
    """Ids of each row's `n` most probable tokens; -1 where mass or the row's count runs out."""
    ids = largest(probs, n)
    absent = take(probs, ids) <= 0
    beyond = np.arange(ids.shape[-1]) >= counts[..., None]
    if is_torch(ids):
        import torch

        ids, absent = ids.expand(*batch, -1), absent.expand(*batch, -1)
        ids = ids.masked_fill(absent | torch.from_numpy(beyond).to(ids.device), -1)
        return torch.nn.functional.pad(ids, (0, n - ids.shape[-1]), value=-1)
    ids = np.where(absent | beyond, -1, ids)
    return np.concatenate([ids, np.full((*ids.shape[:-1], n - ids.shape[-1]), -1)], axis=-1)


def _ids(ids: Array) -> np.ndarray:
    return ids.cpu().numpy() if is_torch(ids) else np.asarray(ids)


def _covers(mask: Bool[np.ndarray, "*sets V"], ids: Int[np.ndarray, "*batch n"]) -> np.ndarray:
    """Whether the set holds every token of `ids` (padding is in every set)."""
    shape = checks.broadcast(mask.shape[:-1], ids.shape[:-1])
    mask = np.broadcast_to(mask, (*shape, mask.shape[-1]))
    ids = np.broadcast_to(ids, (*shape, ids.shape[-1]))
    held = np.take_along_axis(mask, np.maximum(ids, 0), axis=-1)
    return np.all(held | (ids < 0), axis=-1, keepdims=True)[..., 0]


class Greedy(SureAndLast):
    """The n - 1 most probable tokens, then one draw from p renormalised on the rest.

    The law of Hu et al. (2502.18779). ``stay(H) = 1[Top in H] r(H)`` with `r` the law of the last
    draft.
    """

    name = "greedy"

    @property
    def draws(self) -> int:
        return 1

    def sure(self) -> Array:
        """Ids of the n - 1 top tokens, ``(*batch, width - 1)``."""
        return _head(self.probs, self.width - 1, self.batch, np.asarray(self.counts - 1))

    def last(self) -> Array:
        """Law of the last draft, ``(*batch, V)``; a row of zeros where nothing is left."""
        head = self.sure()
        rest = _copies(self.probs, (*self.batch, 1, self.vocabulary))[..., 0, :]
        for i in range(head.shape[-1]):
            _drop_padded(rest, head[..., i : i + 1])
        total = rest.sum(-1)[..., None]
        return rest / (total + (total == 0))

    def draw(self, uniforms: Array) -> Array:
        last = self.last()
        ids = search(last.cumsum(-1), uniforms[..., 0])
        empty = last.sum(-1)[..., None] <= 0
        size = uniforms.shape[-2]
        head = self.sure()[..., None, :]
        if is_torch(ids):
            import torch

            head = head.expand(*self.batch, size, self.width - 1)
            tokens = torch.cat([head, ids.masked_fill(empty, -1)[..., None]], -1)
        else:
            head = np.broadcast_to(head, (*self.batch, size, self.width - 1))
            tokens = np.concatenate([head, np.where(empty, -1, ids)[..., None]], axis=-1)
        return tokens

    def tuple_count(self) -> float:
        return float(self.vocabulary)

    def _tuples(self) -> tuple[Int[np.ndarray, "M n"], Float[np.ndarray, " M"]]:
        last, head = self.last(), self.sure()
        ids = np.flatnonzero(last)
        if len(ids) == 0:
            return np.append(head, -1)[None], np.ones(1)
        return np.column_stack([np.tile(head, (len(ids), 1)), ids]), last[ids]


def _drop_padded(left: Array, ids: Array) -> None:
    """As `_drop`, leaving rows with id -1 alone."""
    if is_torch(left):
        kept = left.gather(-1, ids.clamp(min=0)) * (ids < 0)
        left.scatter_(-1, ids.clamp(min=0), kept)
    else:
        safe = np.maximum(ids, 0)
        np.put_along_axis(left, safe, np.take_along_axis(left, safe, -1) * (ids < 0), axis=-1)


class Hub(SureAndLast):
    """SpecHub's law of two drafts: every pair holds the hub, the most probable token a.

    ``Q(i, a) = p(i)`` and ``Q(a, i) = p(a) p(i) / (1 - p(a))`` for i != a (Sun et al., 2411.05289):
    draw from p; a draw other than the hub is followed by it, the hub by a draw from the rest.
    """

    name = "hub"

    def __init__(
        self, probs: Any, n: Any = 2, *, short: Short = "refuse", check: bool = True
    ) -> None:
        if n != 2:
            raise InputError(f"the hub law drafts two tokens, not n={n}.")
        super().__init__(probs, 2, short=short, check=check)

    @property
    def draws(self) -> int:
        return 2

    def sure(self) -> Array:
        """Id of the hub, ``(*batch, 1)``, ties to the lowest id."""
        return largest(self.probs, 1)

    def last(self) -> Array:
        """Law of the token that is not the hub, ``(*batch, V)``; zeros where p is one-hot."""
        return Greedy(self.probs, 2, short="pad", check=False).last()

    def draw(self, uniforms: Array) -> Array:
        first = search(_cumulative(self.probs, self.batch), uniforms[..., 0])
        last = self.last()
        other = search(last.cumsum(-1), uniforms[..., 1])
        hub, empty = self.sure(), last.sum(-1)[..., None] <= 0
        if is_torch(first):
            import torch

            other = other.masked_fill(empty, -1)
            second = torch.where(first == hub, other, hub.expand_as(first))
            return torch.stack([first, second], -1)
        second = np.where(first == hub, np.where(empty, -1, other), hub)
        return np.stack([first, second], -1)

    def tuple_count(self) -> float:
        return 2.0 * self.vocabulary

    def _tuples(self) -> tuple[Int[np.ndarray, "M n"], Float[np.ndarray, " M"]]:
        hub, last = int(self.sure()[0]), self.last()
        ids = np.flatnonzero(last)
        if len(ids) == 0:
            return np.array([[hub, -1]]), np.ones(1)
        hubs = np.full(len(ids), hub)
        pairs = np.concatenate([np.stack([ids, hubs], -1), np.stack([hubs, ids], -1)])
        return pairs, np.concatenate([self.probs[ids], self.probs[hub] * last[ids]])


class Explicit(Law):
    """Any law, given as a table of tuples with their masses (drafts may be correlated).

    Parameters
    ----------
    tuples : (M, n) integers
        Token ids, -1 for padding.
    probs : (M,)
        Mass of each tuple.
    vocabulary : int
        Number of tokens V.
    """

    name = "explicit"

    def __init__(self, tuples: Any, probs: Any, *, vocabulary: int, check: bool = True) -> None:
        self.tuples = _ids(tuples)
        self._vocabulary = checks.count(vocabulary, "vocabulary")
        if self.tuples.ndim != 2 or self.tuples.dtype.kind not in "iu" or 0 in self.tuples.shape:
            raise InputError("tuples must be an (M, n) array of token ids with M, n >= 1.")
        super().__init__(probs, int(self.tuples.shape[1]), check=check)
        if check and self.probs.shape != (len(self.tuples),):
            raise InputError(
                f"{len(self.tuples)} tuples have masses of shape {tuple(self.probs.shape)}: "
                "pass one each."
            )
        if check and (self.tuples.min() < -1 or self.tuples.max() >= vocabulary):
            raise InputError(
                f"tuples hold an id outside -1..{vocabulary - 1}: ids are 0..V-1, -1 pads."
            )

    @property
    def vocabulary(self) -> int:
        return self._vocabulary

    @property
    def spec(self) -> Spec:
        return {
            "law": self.name,
            "n": self.n,
            "tuples": self.tuples.tolist(),
            "vocabulary": self.vocabulary,
        }

    @property
    def draws(self) -> int:
        return 1

    def draw(self, uniforms: Array) -> Array:
        rows = search(_cumulative(self.probs, self.batch), uniforms[..., 0])
        if is_torch(rows):
            import torch

            return torch.from_numpy(self.tuples).to(rows.device)[rows]
        return self.tuples[rows]

    def _stay(self, mask: np.ndarray) -> Any:
        inside = (mask[..., np.maximum(self.tuples, 0)] | (self.tuples < 0)).all(-1)
        return np.where(inside, float64(self.probs), 0.0).sum(-1)

    def tuple_count(self) -> float:
        return float(len(self.tuples))

    def _tuples(self) -> tuple[Int[np.ndarray, "M n"], Float[np.ndarray, " M"]]:
        held = self.probs > 0
        return self.tuples[held], self.probs[held]

    def _like(self, probs: Any, n: Any) -> Law:
        return type(self)(self.tuples, probs, vocabulary=self.vocabulary, check=False)


LAWS: dict[str, type[Law]] = {
    law.name: law for law in (IID, Independent, WithoutReplacement, Greedy, Hub, Top, Explicit)
}


def names() -> tuple[str, ...]:
    """Names of all draft laws."""
    return tuple(LAWS)


def make(spec: Mapping[str, Any], probs: Any, *, check: bool = True) -> Law:
    """Build the law that `spec` describes on the numbers `probs`.

    Parameters
    ----------
    spec : mapping
        As :attr:`Law.spec` gives it: ``{"law": "iid", "n": 2}``; option ``short``.
    probs : (V,) or (B, V), or a sequence of n such arrays for ``independent``

    Raises
    ------
    InputError
        For an unknown law or option.
    """
    options = dict(spec)
    law = LAWS[checks.choice(str(options.pop("law", None)), LAWS, "draft law")]
    allowed = {"tuples", "vocabulary", "n"} if law is Explicit else {"n", "short"}
    if unknown := options.keys() - allowed:
        raise InputError(f"unknown option {min(unknown)!r} of the draft law {law.name}.")
    if law is Explicit:
        return Explicit(options["tuples"], probs, vocabulary=options["vocabulary"], check=check)
    if law is not Hub and law is not Independent and "n" not in options:
        raise InputError(f"the draft law {law.name} needs a number of drafts: give n.")
    return law(probs, check=check, **options)
