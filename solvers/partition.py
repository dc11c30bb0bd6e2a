"""The partition of the unit interval that realises a selection law exactly, and its verifier side.

Draw n iid drafts, give each an independent time that is uniform on the piece of [0, 1] its token
owns, and select the earliest.  If the pieces of token y have total length ``p(y)``, all times are
uniform, the earliest has density ``g(t) = n (1 - t)^(n-1)``, and y is selected with probability
``b(y)``, the mass that g gives to its pieces.  This file builds such pieces for every realisable b
(docs/interval-partition has the proof).

Layout.  Positions are stored as ``x = 1 - t``, so that g is ``n x^(n-1)`` and short pieces near
t = 1 keep their digits.  Tokens come in decreasing ``b/p`` (groups of equal ``b/p`` share one
*region*).  The assigned set is a stack of blocks, left to right.  A region whose interval fits
right of the last block starts a new block; otherwise it straddles the last block: a length l on its
left side, the rest on its right side, the one l with the right mass.  When the free space on the
left is used up the block merges with the one before.

What is kept of a partition is only the *order* of its pieces and their lengths: the blocks are
linked lists, so no comparison of rounded positions ever decides which of two pieces comes first,
and the law that a partition realises is a sum over that order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from jaxtyping import Float, Int
from numba import njit

from multidraft.solvers.prefix import (
    COMPILED,
    Keys,
    Reals,
    Rows,
    Scalar,
    argsort_nonnegative,
    in_parallel,
)

Tuples: TypeAlias = Int[np.ndarray, "M n"]
# Edges of the blocks, their first and last piece; sizes and links of the pieces.
Blocks: TypeAlias = tuple[Rows, Int[np.ndarray, "2 blocks"], Reals, Keys]

_EPS = float(np.finfo(np.float64).eps)
_TIE = 4 * _EPS  # ratios b/p this close, relatively, share a region
_STEPS = 60  # of Newton's method, which needs two to five
_THIN = 1e-4  # thinner intervals, relative to x, are placed in closed form to the last digit


@dataclass(frozen=True)
class Partition:
    """Pieces of [0, 1] for the tokens of one context, in flat arrays.

    Token y owns the pieces ``offsets[region[y]] : offsets[region[y] + 1]``, in order of time;
    tokens of one region share them.  A draft with uniform ``u`` has its time in the piece k with
    ``after[k] < 1 - u <= survival[k]``, where ``after[k]`` is the next survival of the region (0 at
    its end).  Of several drafts the one with the smallest ``(rank[k], u)`` is selected: two drafts
    in one piece belong to one region, where time increases with u.

    Attributes
    ----------
    region : (V,) int32, -1 for tokens without draft mass.
    offsets : (R + 1,) int32, first piece of every region.
    rank : (K,) int32, place of each piece in the order of time, a permutation of 0..K-1.
    survival : (K,) float64, share of the region's length in this piece and its later ones.
    length : (R,) float64, length of every region, the draft mass of its tokens.
    n : number of drafts.
    """

    region: Int[np.ndarray, " V"]
    offsets: Int[np.ndarray, " R1"]
    rank: Int[np.ndarray, " K"]
    survival: Float[np.ndarray, " K"]
    length: Float[np.ndarray, " R"]
    n: int

    def weights(self, drafts: Int[np.ndarray, "M n"]) -> Float[np.ndarray, "M n"]:
        """Probability that each draft is selected, exactly, by integration over the pieces.

        Repeats of a token count for its first occurrence; -1 pads.  The cost depends on the number
        of pieces of the drafted tokens, not on V.
        """
        out = np.zeros(drafts.shape)
        arrays = (self.region, self.offsets, self.rank, self.survival)
        _weights(np.ascontiguousarray(drafts, dtype=np.int64), *arrays, out)
        return out

    def select(
        self, drafts: Int[np.ndarray, "M n"], uniforms: Float[np.ndarray, "M n"]
    ) -> Int[np.ndarray, " M"]:
        """Index of the earliest draft, one uniform per draft; -1 pads."""
        out = np.empty(len(drafts), dtype=np.int64)
        arrays = (self.region, self.offsets, self.rank, self.survival)
        _select(np.ascontiguousarray(drafts, dtype=np.int64), uniforms, *arrays, out)
        return out

    @cached_property
    def pieces(self) -> Float[np.ndarray, " K"]:
        """Length of every piece, in storage order."""
        after = np.append(self.survival[1:], 0.0)
        after[self.offsets[1:] - 1] = 0.0
        owner = np.repeat(np.arange(len(self.length)), np.diff(self.offsets))
        return (self.survival - after) * self.length[owner]

    def realised(self, draft: Float[np.ndarray, " V"]) -> Float[np.ndarray, " V"]:
        """Selection law that the order and the lengths of the pieces give, recomputed."""
        mass = _region_masses(self.rank, self.pieces, self.offsets, self.n)
        share = np.append(mass / self.length, 0.0)
        return draft * share[self.region]

    def length_error(self, draft: Float[np.ndarray, " V"]) -> float:
        """Largest distance of a region's length from the draft mass of its tokens."""
        owned = self.region >= 0
        order = np.argsort(self.region[owned], kind="stable")
        first = np.searchsorted(self.region[owned][order], np.arange(len(self.length)))
        mass = np.add.reduceat(draft[owned][order], first)
        pieces = np.add.reduceat(self.pieces, self.offsets[:-1])
        return float(np.abs(pieces - mass).max())


def partition(
    draft: Float[np.ndarray, "*#batch V"],
    selection: Float[np.ndarray, "*#batch V"],
    n: int | Int[np.ndarray, "*#batch"],
) -> list[Partition]:
    """Build the partition of every context, in parallel; time O(V log V), memory O(V) for each.

    Parameters
    ----------
    draft, selection
        Draft laws p and realisable selection laws b, ``(*batch, V)``, float64.  A law outside the
        base polytope is approximated; `Partition.realised` shows what came out.
    n
        Number of drafts, one integer or one per batch element.
    """
    draft, selection = np.broadcast_arrays(draft, selection)
    counts = np.broadcast_to(np.asarray(n, dtype=np.int64), draft.shape[:-1]).reshape(-1)
    p = np.ascontiguousarray(draft, dtype=np.float64).reshape(len(counts), -1)
    b = np.ascontiguousarray(selection, dtype=np.float64).reshape(len(counts), -1)
    out: dict[int, Partition] = {}

    def work(start: int, stop: int) -> None:
        for row in range(start, stop):
            out[row] = Partition(*_partition(p[row], b[row], counts[row]), int(counts[row]))

    in_parallel(work, len(counts))
    return [out[row] for row in range(len(counts))]


# --------------------------------------------------------------------------------- construction


@njit(**COMPILED)
def _partition(p: Reals, b: Reals, n: int) -> tuple[Keys, Keys, Keys, Reals, Reals]:
    region, length, mass = _regions(p, b, n)
    offsets, size, follow, heads = _lay_out(length, mass, n)
    rank = np.empty(size.size, dtype=np.int32)
    place = 0
    for head in heads:
        piece = head
        while piece >= 0:
            rank[piece] = place
            place += 1
            piece = follow[piece]
    survival = np.empty(size.size)
    for k in range(length.size):
        # The last piece was created first: created order is the reverse of time.
        _reverse(rank, offsets[k], offsets[k + 1])
        _survivals(size, survival, offsets[k], offsets[k + 1])
    return region, offsets, rank, survival, length


@njit(**COMPILED)
def _reverse(values: Keys, start: Scalar, stop: Scalar) -> None:
    stop -= 1
    while start < stop:
        values[start], values[stop] = values[stop], values[start]
        start, stop = start + 1, stop - 1


@njit(**COMPILED)
def _survivals(size: Reals, survival: Reals, start: Scalar, stop: Scalar) -> None:
    """Share of a region in each piece and the later ones; its sizes run against time."""
    total, lost = 0.0, 0.0
    for i in range(start, stop):
        total, lost = _add(total, lost, size[i])
        survival[start + stop - 1 - i] = total
    for i in range(start, stop):
        survival[i] /= total


@njit(**COMPILED)
def _regions(p: Reals, b: Reals, n: int) -> tuple[Keys, Reals, Reals]:
    """Group the supported tokens by b/p, decreasing; all tokens alike when n = 1."""
    tokens = np.flatnonzero(p > 0.0)
    ratio = b[tokens] / p[tokens] if n > 1 else np.ones(tokens.size)
    order = argsort_nonnegative(ratio)
    region = np.full(p.size, -1, dtype=np.int32)
    length, mass = np.zeros(tokens.size), np.zeros(tokens.size)
    current, anchor = -1, np.inf
    lost_length, lost_mass = 0.0, 0.0
    for i in range(order.size - 1, -1, -1):
        y = tokens[order[i]]
        if current < 0 or ratio[order[i]] < anchor * (1.0 - _TIE):
            current += 1
            anchor = ratio[order[i]]
            lost_length, lost_mass = 0.0, 0.0
        region[y] = current
        length[current], lost_length = _add(length[current], lost_length, p[y])
        mass[current], lost_mass = _add(mass[current], lost_mass, b[y])
    return region, length[: current + 1].copy(), mass[: current + 1].copy()


@njit(**COMPILED)
def _add(total: Scalar, lost: Scalar, term: Scalar) -> tuple[float, float]:
    """One step of compensated summation: the true sum is ``total - lost``."""
    term -= lost
    new = total + term
    return new, (new - total) - term


@njit(**COMPILED)
def _lay_out(length: Reals, mass: Reals, n: int) -> tuple[Keys, Reals, Keys, Keys]:
    """Place the regions one after another.

    Returns offsets, sizes and links of the pieces, and the first piece of every block.  The pieces
    of a region are stored from right to left.
    """
    edges = np.zeros((4, length.size + 1))  # left x, its lost digits, right x, its lost digits
    ends = np.full((2, length.size + 1), -1, dtype=np.int32)  # first and last piece
    size, follow = np.zeros(2 * length.size), np.full(2 * length.size, -1, dtype=np.int32)
    state = (edges, ends, size, follow)
    for k in range(length.size):  # an empty block at t = 0: nothing lies left of it
        edges[0, 0], edges[1, 0] = _add(edges[0, 0], edges[1, 0], length[k])
    edges[2:, 0] = edges[:2, 0]
    offsets = np.zeros(length.size + 1, dtype=np.int32)
    top, count = 0, 0
    for k in range(length.size):
        right, density = edges[2, top], mass[k] / length[k]
        if length[k] < right and density < mean_density(right, right - length[k], n):
            x = _position(length[k], density, n)
            top += 1
            edges[0, top], edges[2, top] = x, x
            edges[1, top], edges[3, top] = 0.0, 0.0
            ends[:, top] = -1
            _append(state, top, count, length[k])
            count += 1
        else:
            top, count = _straddle(state, top, count, length[k], mass[k], n)
        offsets[k + 1] = count
    return offsets, size[:count], follow, ends[0, : top + 1]


@njit(**COMPILED)
def _append(state: Blocks, block: int, piece: int, size: Scalar) -> None:
    """Add a piece at the right end of a block."""
    edges, ends, sizes, follow = state
    edges[2, block], edges[3, block] = _add(edges[2, block], edges[3, block], -size)
    sizes[piece] = size
    if ends[1, block] >= 0:
        follow[ends[1, block]] = piece
    else:
        ends[0, block] = piece
    ends[1, block] = piece


@njit(**COMPILED)
def _prepend(state: Blocks, block: int, piece: int, size: Scalar) -> None:
    """Add a piece at the left end of a block."""
    edges, ends, sizes, follow = state
    edges[0, block], edges[1, block] = _add(edges[0, block], edges[1, block], size)
    sizes[piece] = size
    follow[piece] = ends[0, block]
    ends[0, block] = piece


@njit(**COMPILED)
def _merge(state: Blocks, block: int) -> None:
    """Join a block to the one before it; the space between them is taken."""
    edges, ends, _, follow = state
    follow[ends[1, block - 1]] = ends[0, block]
    ends[1, block - 1] = ends[1, block]
    edges[2:, block - 1] = edges[2:, block]


@njit(**COMPILED)
def _straddle(
    state: Blocks, top: int, count: int, length: Scalar, mass: Scalar, n: int
) -> tuple[int, int]:
    """Lay a region around the last block, merging blocks while the space on its left is used up."""
    edges = state[0]
    right_piece, left = count, 0.0
    count += 1
    while top > 0:
        room = (edges[2, top - 1] - edges[0, top]) - (edges[3, top - 1] - edges[1, top])
        room = max(room, 0.0)  # round-off may take it below
        outer, inner = edges[0, top], edges[2, top]
        if room >= length or (
            room >= length - inner and _excess(room, length, mass, n, outer, inner) >= 0.0
        ):
            left = _left_share(length, mass, n, outer, inner, min(room, length))
            break
        mass -= room * mean_density(outer + room, outer, n)
        length -= room
        _append(state, top - 1, count, room)
        _merge(state, top)
        top, count = top - 1, count + 1
    if left > 0.0:
        _prepend(state, top, count, left)
        count += 1
    _append(state, top, right_piece, length - left)
    return top, count


@njit(**COMPILED)
def _position(length: Scalar, density: Scalar, n: int) -> float:
    """Left end x of the interval of this length on which g has this mean density."""
    middle = (density / n) ** (1.0 / (n - 1)) if n > 1 else 0.0
    if n * length < _THIN * middle:
        return middle * (1.0 - (n - 2) / 24.0 * (length / middle) ** 2) + length / 2
    x = max(middle + length / 2, length)  # not left of the root: the mean exceeds the middle value
    for _ in range(_STEPS):
        slope = n * mean_density(x, x - length, n - 1)
        step = (mean_density(x, x - length, n) - density) / slope if slope > 0.0 else 0.0
        new = max(x - step, length)
        if not new < x * (1.0 - _EPS):
            break
        x = new
    return x


@njit(**COMPILED)
def _excess(
    share: Scalar, length: Scalar, mass: Scalar, n: int, left: Scalar, right: Scalar
) -> float:
    """Mass of a region with ``share`` left of the block [left, right], less what it should have."""
    rest = length - share
    inner = max(right - rest, 0.0)
    return share * mean_density(left + share, left, n) + rest * mean_density(right, inner, n) - mass


@njit(**COMPILED)
def _left_share(
    length: Scalar, mass: Scalar, n: int, left: Scalar, right: Scalar, most: Scalar
) -> float:
    """Length on the left of the block that gives a straddling region its mass.

    The mass increases with the share and is convex in it, so Newton's steps overshoot at most once.
    """
    least = max(0.0, length - right)
    share = _first_share(length, mass, n, left, right)
    share = min(max(share, least), most) if share == share else most
    for _ in range(_STEPS):
        error = _excess(share, length, mass, n, left, right)
        if abs(error) <= n * _EPS * mass:
            break
        inner = max(right - (length - share), 0.0)
        slope = n * (_power(left + share, n - 1) - _power(inner, n - 1))
        new = min(max(share - error / slope, least), most) if slope > 0.0 else share
        if new == share:
            break
        share = new
    return share


@njit(**COMPILED)
def _first_share(length: Scalar, mass: Scalar, n: int, left: Scalar, right: Scalar) -> float:
    """Solution when g is taken as linear on each side of the block; nan if there is none."""
    steep, flat = n * _power(left, n - 1), n * _power(right, n - 1)
    rise, fall = (n - 1) * steep / left, (n - 1) * flat / right
    slope = steep - flat + fall * length
    gap = mass - length * (flat - fall * length / 2)
    return 2 * gap / (slope + math.sqrt(slope * slope + 2 * (rise - fall) * gap))


@njit(**COMPILED)
def mean_density(x: Scalar, y: Scalar, n: int) -> float:
    """``(x^n - y^n) / (x - y)``, the mean of ``n s^(n-1)`` over [y, x], without cancellation."""
    if n == 0:
        return 0.0
    mean, high, low = 1.0, x, y
    bit = _highest_bit(n) >> 1
    while bit:
        mean *= high + low
        high *= high
        low *= low
        if n & bit:
            mean = mean * x + low
            high *= x
            low *= y
        bit >>= 1
    return mean


@njit(**COMPILED)
def _power(x: Scalar, n: Scalar) -> float:
    out, bit = 1.0, _highest_bit(n)
    while bit:
        out *= out
        if n & bit:
            out *= x
        bit >>= 1
    return out


@njit(**COMPILED)
def _highest_bit(n: Scalar) -> int:
    bit = 1
    while bit <= n:
        bit <<= 1
    return bit >> 1


# -------------------------------------------------------------------------------- verifier side


@njit(**COMPILED)
def _region_masses(rank: Keys, pieces: Reals, offsets: Keys, n: int) -> Reals:
    """Mass of g on every region, from the order and the lengths of the pieces alone."""
    order = np.empty_like(rank)
    owner = np.empty_like(rank)
    for k in range(offsets.size - 1):
        for piece in range(offsets[k], offsets[k + 1]):
            order[rank[piece]], owner[rank[piece]] = piece, k
    mass, lost = np.zeros((2, offsets.size - 1)), 0.0
    x, low = 0.0, 0.0
    for i in range(order.size - 1, -1, -1):  # from t = 1 leftwards: small x first
        x, lost = _add(x, lost, pieces[order[i]])
        k = owner[i]
        mass[0, k], mass[1, k] = _add(
            mass[0, k], mass[1, k], pieces[order[i]] * mean_density(x, low, n)
        )
        low = x
    return mass[0]


@njit(**COMPILED)
def _weights(
    drafts: Tuples, region: Keys, offsets: Keys, rank: Keys, survival: Reals, out: Rows
) -> None:
    """Selection probabilities of every row of drafts.

    Region k with m of the drafts is earliest with probability
    ``sum over its pieces of (before^m - after^m) prod_{other} S_other(piece)^m_other``, shared
    equally by its drafts.  The region with the most pieces gets what the others leave.
    """
    n = drafts.shape[1]
    kinds, counts = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    chance, places = np.empty(n), np.empty(n, dtype=np.int64)
    for row in range(drafts.shape[0]):
        size = _distinct_regions(drafts[row], region, kinds, counts)
        longest, rest = 0, 1.0
        for i in range(1, size):
            if _pieces(offsets, kinds[i]) > _pieces(offsets, kinds[longest]):
                longest = i
        for i in range(size):
            if i != longest:
                chance[i] = _first(i, kinds[:size], counts, places, offsets, rank, survival)
                rest -= chance[i]
        chance[longest] = max(rest, 0.0)
        _share_out(drafts[row], region, kinds[:size], counts, chance, out[row])


@njit(**COMPILED)
def _pieces(offsets: Keys, k: Scalar) -> Scalar:
    return offsets[k + 1] - offsets[k]


@njit(**COMPILED)
def _distinct_regions(drafts: Keys, region: Keys, kinds: Keys, counts: Keys) -> int:
    size = 0
    for y in drafts:
        k = region[y] if y >= 0 else -1
        if k < 0:
            continue
        i = 0
        while i < size and kinds[i] != k:
            i += 1
        if i == size:
            kinds[size], counts[size] = k, 0
            size += 1
        counts[i] += 1
    return size


@njit(**COMPILED)
def _first(
    i: int, kinds: Keys, counts: Keys, places: Keys, offsets: Keys, rank: Keys, survival: Reals
) -> float:
    """Probability that some draft of region ``kinds[i]`` is earlier than all others."""
    for j in range(kinds.size):
        places[j] = offsets[kinds[j]]
    stop = offsets[kinds[i] + 1]
    chance, before = 0.0, 1.0
    for piece in range(offsets[kinds[i]], stop):
        after = survival[piece + 1] if piece + 1 < stop else 0.0
        term = _power(before, counts[i]) - _power(after, counts[i])
        for j in range(kinds.size):
            if j != i:
                end = offsets[kinds[j] + 1]
                places[j] = _first_later(rank, rank[piece], places[j], end)
                term *= _power(survival[places[j]], counts[j]) if places[j] < end else 0.0
        chance += term
        before = after
    return chance


@njit(**COMPILED)
def _first_later(rank: Keys, place: Scalar, low: Scalar, stop: Scalar) -> int:
    """First piece from ``low`` on that is later than ``place``, in steps that double."""
    high, step = low, 1
    while high < stop and rank[high] <= place:
        low, high, step = high + 1, high + step, 2 * step
    high = min(high, stop)
    while low < high:
        middle = (low + high) // 2
        if rank[middle] > place:
            high = middle
        else:
            low = middle + 1
    return low


@njit(**COMPILED)
def _share_out(
    drafts: Keys, region: Keys, kinds: Keys, counts: Keys, chance: Reals, out: Reals
) -> None:
    """Split every region's chance equally over its drafts, repeats added to the first."""
    for i in range(drafts.size):
        y = drafts[i]
        k = region[y] if y >= 0 else -1
        for j in range(kinds.size):
            if kinds[j] == k:
                first = 0
                while drafts[first] != y:
                    first += 1
                out[first] += chance[j] / counts[j]


@njit(**COMPILED)
def _select(
    drafts: Tuples,
    uniforms: Rows,
    region: Keys,
    offsets: Keys,
    rank: Keys,
    survival: Reals,
    out: Keys,
) -> None:
    for row in range(drafts.shape[0]):
        best, place, time = -1, rank.size, 2.0
        for i in range(drafts.shape[1]):
            y = drafts[row, i]
            k = region[y] if y >= 0 else -1
            if k >= 0:
                here = rank[_piece_of(uniforms[row, i], k, offsets, survival)]
                if here < place or (here == place and uniforms[row, i] < time):
                    best, place, time = i, here, uniforms[row, i]
        out[row] = best


@njit(**COMPILED)
def _piece_of(u: Scalar, k: Scalar, offsets: Keys, survival: Reals) -> Scalar:
    """Last piece of region k that starts at or before the uniform's time."""
    low, high = offsets[k], offsets[k + 1] - 1
    while low < high:
        middle = (low + high + 1) // 2
        if 1.0 - u <= survival[middle]:
            low = middle
        else:
            high = middle - 1
    return low
