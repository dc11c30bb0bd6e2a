"""Result files: Parquet, with a JSON header in the schema's metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multidraft.errors import InputError
from multidraft.files import atomic
from multidraft.results.provenance import SCHEMA, digest

if TYPE_CHECKING:
    import polars

_KEY = b"multidraft"
_PARTS = ("schema", "configuration", "configuration_hash", "seeds", "versions", "git", "machine")


@dataclass(frozen=True)
class Results:
    """Rows and where they come from.

    Attributes
    ----------
    frame : polars.DataFrame
        One row per value.
    header : dict
        As made by `header`: schema, configuration and its hash, seeds, versions, git, machine.
    """

    frame: polars.DataFrame
    header: dict[str, Any]


def write(path: str | Path, frame: polars.DataFrame, header: Mapping[str, Any]) -> None:
    """Write rows and header to a Parquet file, whole or not at all."""
    import pyarrow.parquet

    table = frame.to_arrow(compat_level=_oldest())
    table = table.replace_schema_metadata({_KEY: json.dumps(header, sort_keys=True).encode()})
    with atomic(path) as temporary:
        pyarrow.parquet.write_table(table, temporary, compression="zstd")


def _oldest() -> Any:
    import polars

    return polars.CompatLevel.oldest()  # plain strings, which every Parquet reader knows


def read(path: str | Path) -> Results:
    """Read a result file and check its header.

    Raises
    ------
    InputError
        When the file is missing, unreadable, of another program, of a newer schema, or when its
        configuration does not have the hash that was recorded with it.
    """
    import polars
    import pyarrow.parquet

    path = Path(path)
    if not path.is_file():
        raise InputError(f"there is no result file {path}")
    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(
            f"{path} is not a readable Parquet file ({error}); make it again"
        ) from None
    header = _checked(path, (table.schema.metadata or {}).get(_KEY))
    frame = polars.from_arrow(table)
    assert isinstance(frame, polars.DataFrame)  # from_arrow of a Table
    return Results(frame, header)


def _checked(path: Path, text: bytes | None) -> dict[str, Any]:
    """The header, once it is known to be one that this version reads."""
    if text is None:
        raise InputError(f"{path} was not written by multidraft: it has no header")
    header = json.loads(text)
    lacking = [name for name in _PARTS if name not in header]
    if lacking:
        raise InputError(f"the header of {path} lacks {lacking[0]}: the file is damaged")
    if header["schema"] > SCHEMA:
        raise InputError(
            f"{path} has schema {header['schema']}, this version reads up to {SCHEMA}; "
            f"use multidraft {header['versions']['multidraft']} or later"
        )
    if digest(header["configuration"]) != header["configuration_hash"]:
        raise InputError(f"the header of {path} was altered: its configuration has another hash")
    return header
