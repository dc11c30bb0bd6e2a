"""Part files: how the rows of a run reach the disk whole, and stay few.

Parts are numbered; of the outcomes of one cell that in the highest part counts. Compaction keeps
that order: it writes the rows of the last few small parts over the newest of them, then deletes the
others. A crash between leaves older copies, which do not count.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from multidraft.errors import InputError
from multidraft.experiments.cells import Outcome
from multidraft.files import atomic

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars

T = TypeVar("T")

WRITING = 0.01  # share of the time that goes into writing parts, as long as
PATIENCE = 10.0  # seconds: no outcome waits longer than this to be written
TABLE = 1024  # rows that become a table at once
MANY = 128  # so many small parts at the end become one
SMALL = 32 * 2**20  # bytes; larger parts are left alone, so a row is copied a few times at most
LOOKS = 10  # a reader that meets a compaction lists the parts again


class Parts:
    """The part files of a run: whole, numbered, the newest outcome of a cell counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def files(self) -> list[Path]:
        """Part files, oldest first."""
        return sorted(self.folder.glob("[0-9]*.parquet"), key=lambda path: int(path.stem))

    def clear(self, pattern: str) -> None:
        """Delete files by name; ``.*`` are halves of parts that a killed process left."""
        for path in self.folder.glob(pattern):
            path.unlink()

    def size(self) -> int:
        """Bytes on the disk."""
        return self._look(lambda files: sum(path.stat().st_size for path in files))

    def outcomes(self) -> tuple[set[str], set[str]]:
        """Keys of all computed cells, and of those among them that failed."""
        return self._look(_outcomes)

    def frame(self) -> polars.DataFrame:
        """All rows, without the outcomes that a later one replaced."""
        frame = self._look(_newest)
        if frame is None:
            raise InputError(f"{self.folder} holds no results yet; run the cells first")
        return frame

    def collect(self, outcomes: Iterator[Outcome]) -> None:
        """Write outcomes as they come, in parts so large that writing stays a small cost."""
        batch = _Batch()
        began, cost = time.perf_counter(), 0.0
        try:
            for outcome in outcomes:
                batch.add(outcome)
                if time.perf_counter() - began >= min(cost / WRITING, PATIENCE):
                    cost = self._write(batch)
                    batch, began = _Batch(), time.perf_counter()
        finally:  # Ctrl-C and a dead pool keep what was computed
            if batch:
                self._write(batch)

    def _write(self, batch: _Batch) -> float:
        """Write one part and return the seconds that took."""
        start = time.perf_counter()
        last = self.files()[-1:]
        path = self.folder / f"{1 + (int(last[0].stem) if last else 0):06d}.parquet"
        _save(batch.frame(), path)
        self.compact()
        return time.perf_counter() - start

    def compact(self) -> None:
        """Make one part of the small ones at the end, when there are many."""
        files = self.files()
        large = [i for i, path in enumerate(files) if path.stat().st_size >= SMALL]
        tail = files[large[-1] + 1 if large else 0 :]
        if len(tail) < MANY:
            return
        frame = _newest(tail)
        assert frame is not None  # there are files
        _save(frame, tail[-1])
        for path in tail[:-1]:
            path.unlink()

    def _look(self, read: Callable[[list[Path]], T]) -> T:
        """Read the parts, again when a compaction took some away meanwhile."""
        for _ in range(LOOKS - 1):
            try:
                return read(self.files())
            except FileNotFoundError:
                continue
        return read(self.files())


class _Batch:
    """Rows of outcomes on their way to a part.

    They become tables while the workers still compute: little is left to do after the last.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.tables: list[polars.DataFrame] = []

    def __bool__(self) -> bool:
        return bool(self.rows or self.tables)

    def add(self, outcome: Outcome) -> None:
        self.rows += outcome.stamped()
        if len(self.rows) >= TABLE:
            self._fold()

    def frame(self) -> polars.DataFrame:
        """All rows."""
        import polars

        self._fold()
        return polars.concat(self.tables, how="diagonal_relaxed")

    def _fold(self) -> None:
        import polars

        if self.rows:
            self.tables.append(polars.DataFrame(self.rows, infer_schema_length=None))
        self.rows = []


def _save(frame: polars.DataFrame, path: Path) -> None:
    with atomic(path) as temporary:
        frame.write_parquet(temporary)


def _outcomes(files: list[Path]) -> tuple[set[str], set[str]]:
    import polars

    done: set[str] = set()
    failed: set[str] = set()
    for path in files:
        part = polars.read_parquet(path, columns=["key", "error"])
        keys = set(part["key"])
        done |= keys
        failed = (failed - keys) | set(part.filter(part["error"].is_not_null())["key"])
    return done, failed


def _newest(files: list[Path]) -> polars.DataFrame | None:
    """Rows of some parts, of each cell those in the highest."""
    import polars

    if not files:
        return None
    parts = [polars.read_parquet(path).with_columns(part=i) for i, path in enumerate(files)]
    frame = polars.concat(parts, how="diagonal_relaxed")
    return frame.filter(polars.col("part") == polars.col("part").max().over("key")).drop("part")
