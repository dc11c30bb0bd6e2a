"""Sweep files: TOML in, a checked description out; faults name the line and what is allowed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from multidraft import bounds, checks, laws, solvers, verifiers
from multidraft.errors import InputError
from multidraft.experiments import families

Place: TypeAlias = tuple[Any, ...]  # of a value in a file: keys, and numbers of list items

SCHEMA = 1
READY = Path(__file__).parent / "sweeps"  # the ready-made ones
ALL, SAME = "all", "same"  # TOML has no null
OPTIMUM = "optimum"
#: What stands before the colon of a method -> the names that may follow.
KINDS: dict[str, Callable[[], Iterable[str]]] = {
    "rule": verifiers.names,
    "measure": verifiers.names,
    "bound": bounds.names,
    "solver": solvers.names,
}
LAWS = tuple(name for name in laws.names() if name != laws.Explicit.name)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _each(check: Callable[[Any], Any]) -> BeforeValidator:
    """Check every value of a list; one value stands for a list of one."""

    def checked(values: Any) -> list[Any]:
        if not (values := _listed(values)):
            raise ValueError("give at least one value")
        return [check(value) for value in values]

    return BeforeValidator(checked)


def _number(low: float, high: float, word: str | None = None) -> Callable[[Any], Any]:
    """A check that a value is a number in ``low..high``, or the word."""

    def check(value: Any) -> Any:
        if word is not None and value == word:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float) or not low < value <= high:
            instead = f', or "{word}"' if word else ""
            raise ValueError(f"{value!r} is not a number above {low:g}, up to {high:g}{instead}")
        return float(value)

    return check


def _temperature(value: Any) -> Any:
    return 0.0 if value == 0 and not isinstance(value, bool) else _number(0, 1000)(value)


def _draft_temperature(value: Any) -> Any:
    return value if value == SAME else _temperature(value)


def _count(value: Any) -> Any:
    return checks.count(value, "this entry")


def _top_k(value: Any) -> Any:
    if value == ALL or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ValueError(f'{value!r} is not a whole number of at least 1, or "{ALL}"')


def _law(value: Any) -> Any:
    return checks.choice(value, LAWS, "draft law")


def _methods(values: list[Any]) -> list[str]:
    """Check methods, and replace ``rule:*`` by every rule."""
    return list(dict.fromkeys(name for value in values for name in _expanded(value)))


def _expanded(value: Any) -> list[str]:
    kind, _, name = str(value).partition(":")
    if kind == OPTIMUM and not name:
        return [OPTIMUM]
    if kind not in KINDS or not name:
        forms = ", ".join([OPTIMUM, *(f"{kind}:NAME" for kind in KINDS)])
        raise ValueError(f"unknown method {value!r}: choose one of {forms} (NAME * for all)")
    names = tuple(KINDS[kind]())
    chosen = names if name == "*" else (checks.choice(name, names, kind),)
    return [f"{kind}:{name}" for name in chosen]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TraceSource(_Strict):
    """Contexts of a recorded trace: ``default`` (in the cache), ``frozen``, or a path."""

    kind: Literal["trace"]
    path: str = "default"
    contexts: int | None = Field(None, ge=1)
    chunk: int = Field(32, ge=1)


class ModelSource(_Strict):
    """Contexts of a model pair, recorded into the cache when first needed."""

    kind: Literal["models"]
    target: str = "smollm2"
    drafts: list[str] = Field(min_length=1)
    contexts: int = Field(64, ge=1)
    passages: int = Field(64, ge=2)
    seed: int = Field(0, ge=0)
    chunk: int = Field(32, ge=1)


class FamilySource(_Strict):
    """Instances of a synthetic family, for every combination of its parameters' values."""

    kind: Literal["family"]
    name: str
    parameters: dict[str, Annotated[list[float | int], BeforeValidator(_listed)]] = {}
    contexts: int = Field(32, ge=1)
    chunk: int = Field(32, ge=1)

    @model_validator(mode="after")
    def _parameters(self) -> FamilySource:
        families.complete(self.name, {})
        for name, values in self.parameters.items():
            for value in values:
                families.complete(self.name, {name: value})
        return self


Source: TypeAlias = TraceSource | ModelSource | FamilySource
_SOURCES = {"trace": TraceSource, "models": ModelSource, "family": FamilySource}


class Grid(_Strict):
    """A cross product of settings; a table with one value each is a single setting."""

    draft: Annotated[list[str], BeforeValidator(_listed)] = []
    temperature: Annotated[list[Any], _each(_temperature)] = [1.0]
    top_k: Annotated[list[Any], _each(_top_k)] = [ALL]
    top_p: Annotated[list[Any], _each(_number(0, 1))] = [1.0]
    draft_temperature: Annotated[list[Any], _each(_draft_temperature)] = [SAME]
    law: Annotated[list[Any], _each(_law)] = ["iid"]
    n: Annotated[list[Any], _each(_count)] = [1]
    method: Annotated[list[Any], BeforeValidator(_listed), AfterValidator(_methods)] = [OPTIMUM]
    draws: int = Field(1000, ge=1)


class TableSpec(_Strict):
    """A table: which columns label its rows, which one is spread over its columns."""

    rows: list[str] | None = None
    columns: str | None = None
    where: dict[str, Annotated[list[Any], BeforeValidator(_listed)]] = {}
    digits: int = Field(default=3, ge=1, le=12)


class PlotSpec(_Strict):
    """A figure of the means, of their gaps to the optimum, or of measurements and theory."""

    name: str = Field(pattern=r"^[A-Za-z0-9._-]+$")
    kind: Literal["lines", "heat", "gap", "calibration"] = "lines"
    x: str | None = None
    y: str | None = None
    colour: str | None = None
    dash: str | None = None
    panel: str | None = None
    where: dict[str, Annotated[list[Any], BeforeValidator(_listed)]] = {}


class SweepFile(_Strict):
    """A whole sweep file."""

    schema_: int = Field(alias="schema")
    name: str = Field(pattern=r"^[A-Za-z0-9._-]+$")
    description: str = ""
    source: Annotated[Source, Field(discriminator="kind")]
    grid: list[Grid] = Field(min_length=1)
    table: TableSpec = TableSpec()
    plot: list[PlotSpec] = []

    @field_validator("schema_")
    @classmethod
    def _known(cls, value: int) -> int:
        if value != SCHEMA:
            raise ValueError(
                f"schema {value} is not {SCHEMA}, which this version reads: "
                "use the multidraft that the file was written for, or adapt it"
            )
        return value


def read(path: str | Path) -> SweepFile:
    """Read and check a sweep file.

    Raises
    ------
    InputError
        The file is missing, no TOML, or has a fault: the sentence names line and allowed values.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): give a sweep file.") from None
    except ValueError as error:
        raise InputError(f"{path} is no TOML: {error}.") from None
    try:
        found = SweepFile.model_validate(content)
    except ValidationError as error:
        raise InputError(_sentence(path, text, content, error)) from None
    _check_drafts(path, found)
    return found


def _check_drafts(path: Path, found: SweepFile) -> None:
    """Drafts are named in the grid of a trace or pair; a family has its own."""
    for grid in found.grid:
        if isinstance(found.source, FamilySource) == bool(grid.draft):
            wanted = "takes no" if grid.draft else "needs a"
            raise InputError(f"{path}: a grid on {found.source.kind} {wanted} draft.")
        for name in grid.draft:
            if "+" in name and grid.law != [laws.Independent.name]:
                raise InputError(f"{path}: draft {name!r} names several, for independent only.")
            for part in name.split("+") if isinstance(found.source, ModelSource) else ():
                checks.choice(part, tuple(found.source.drafts), "draft")  # type: ignore[union-attr]


def _sentence(path: Path, text: str, content: dict[str, Any], error: ValidationError) -> str:
    fault = error.errors()[0]
    place = tuple(part for i, part in enumerate(fault["loc"]) if not (i == 1 and part in _SOURCES))
    words = fault["msg"].removeprefix("Value error, ").rstrip(".")
    if fault["type"] == "missing":
        words = "this key is missing: add it, see docs/sweeps.md"
    if fault["type"].startswith("union_tag"):
        place, words = (*place, "kind"), f"choose one of {', '.join(_SOURCES)}"
    if fault["type"] == "extra_forbidden":
        allowed = ", ".join(_allowed(place, content))
        words = f"unknown key {place[-1]!r}: choose one of {allowed}"
    name = ".".join(str(part) for part in place if not isinstance(part, int))
    return f"{path}, line {_line(text, place)}: {name}: {words}."


def _allowed(place: Place, content: dict[str, Any]) -> list[str]:
    """Keys of the table that holds the place."""
    model: type[BaseModel] = SweepFile
    if len(place) > 1:
        tables = {"grid": Grid, "table": TableSpec, "plot": PlotSpec}
        kind = content["source"].get("kind") if place[0] == "source" else None
        model = _SOURCES[kind] if kind else tables[place[0]]
    return [field.alias or name for name, field in model.model_fields.items()]


def _line(text: str, place: Place) -> int:
    """Line of the longest prefix of the place that stands in the file."""
    lines = _lines(text)
    prefixes = (place[:length] for length in range(len(place), 0, -1))
    return next((lines[prefix] for prefix in prefixes if prefix in lines), 1)


def _lines(text: str) -> dict[Place, int]:
    """Line of every table and key of a TOML text, by its path."""
    found: dict[Place, int] = {}
    table: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r"\s*\[\[\s*([^\]]+?)\s*\]\]", line):
            name = tuple(match[1].split("."))
            table = (*name, sum(path[:-1] == name and isinstance(path[-1], int) for path in found))
            found[table] = number
        elif match := re.match(r"\s*\[\s*([A-Za-z0-9_.-]+)\s*\]\s*(#.*)?$", line):
            table = tuple(match[1].split("."))
            found[table] = number
        elif match := re.match(r"\s*([A-Za-z0-9_.-]+)\s*=", line):
            found[(*table, *match[1].split("."))] = number
    return found
