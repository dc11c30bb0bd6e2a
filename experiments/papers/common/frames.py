"""Rows of an item: chosen, paired, averaged."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from multidraft import results
from multidraft.errors import InputError

if TYPE_CHECKING:
    import polars

ROUND_OFF = 1e-6  # results are stored in single precision


def chosen(frame: polars.DataFrame, **columns: Any) -> polars.DataFrame:
    """Rows whose columns have these values (None: nothing there), in the order of contexts."""
    import polars

    for name, value in columns.items():
        frame = frame.filter(polars.col(name).eq_missing(polars.lit(value)))
    return frame.sort("context") if "context" in frame.columns else frame


def means(
    frame: polars.DataFrame, value: str = "value", **by: Collection[Any] | None
) -> polars.DataFrame:
    """Mean of a column with its clustered error for all values of the columns `by`.

    Each column lists its values in the order wanted, others are left out; None takes all, sorted.
    The error is null, for exact, where all contexts have one value.

    Returns
    -------
    polars.DataFrame
        The columns `by`, value, stderr.
    """
    import polars

    orders = {
        name: frame[name].unique().sort(nulls_last=True).to_list() if order is None else list(order)
        for name, order in by.items()
    }
    groups = frame.partition_by(list(by), as_dict=True)
    kept = [key for key in groups if all(k in o for k, o in zip(key, orders.values(), strict=True))]
    kept.sort(key=lambda key: [o.index(k) for k, o in zip(key, orders.values(), strict=True)])
    rows = [{**dict(zip(by, key, strict=True)), **_mean(groups[key], value)} for key in kept]
    return polars.DataFrame(rows, infer_schema_length=None)


def _mean(part: polars.DataFrame, value: str) -> dict[str, float | None]:
    values = part[value].to_numpy().astype(np.float64)
    found = results.clustered_mean(values, part["passage"].to_numpy())
    return {"value": found.mean, "stderr": found.stderr if np.ptp(values) > ROUND_OFF else None}


Pair = tuple[Float[np.ndarray, " N"], Float[np.ndarray, " N"], Int[np.ndarray, " N"]]


def pair(
    frame: polars.DataFrame,
    first: dict[str, Any],
    second: dict[str, Any],
    value: str = "value",
    over: Sequence[str] = (),
) -> Pair:
    """Values of two selections on the same contexts, and the passages of these.

    `over` names columns that are no part of the selections: their values are paired as well.

    Raises
    ------
    InputError
        The selections do not hold the same contexts, each once.
    """
    key = [*over, "context"]
    one, two = (chosen(frame, **columns).sort(key) for columns in (first, second))
    if one.is_empty() or not one.select(key).equals(two.select(key)):
        raise InputError(f"{first} and {second} are not on the same contexts: nothing is paired.")
    parts = [part[value].to_numpy().astype(np.float64) for part in (one, two)]
    return parts[0], parts[1], one["passage"].to_numpy()


def difference(
    frame: polars.DataFrame,
    first: dict[str, Any],
    second: dict[str, Any],
    value: str = "value",
    factor: float = 1.0,
) -> results.Mean:
    """Mean of ``first - factor * second`` over the contexts, with its clustered error."""
    one, two, passages = pair(frame, first, second, value)
    return results.paired_difference(one, factor * two, passages)


def ratio(
    above: Float[np.ndarray, " N"], below: Float[np.ndarray, " N"], passages: Int[np.ndarray, " N"]
) -> results.Mean:
    """Ratio of two means over the same contexts; its error by linearisation."""
    share = above.mean() / below.mean()
    residual = results.clustered_mean((above - share * below) / below.mean(), passages)
    return results.Mean(float(share), residual.stderr, residual.clusters)


def wide(frame: polars.DataFrame, *index: str, value: str = "value") -> polars.DataFrame:
    """One row per values of `index`, one column per method."""
    return frame.pivot("method", index=list(index), values=value).sort(*index)


def gaps(
    frame: polars.DataFrame,
    first: str | dict[str, Any],
    second: str | dict[str, Any],
    /,
    *,
    factor: float = 1.0,
    **where: Any,
) -> dict[str, results.Mean]:
    """:func:`difference` in several settings: tuples in `where` are axes, all else is fixed.

    `first` and `second` are methods, or columns and their values. Labels are "n=2, k=10".
    """
    axes = {name: values for name, values in where.items() if isinstance(values, tuple)}
    fixed = {name: value for name, value in where.items() if name not in axes}
    sides = [{"method": s} if isinstance(s, str) else s for s in (first, second)]
    found = {}
    for values in product(*axes.values()):
        place = dict(zip(axes, values, strict=True))
        label = ", ".join(_setting(name, value) for name, value in place.items())
        one, two = ({**fixed, **place, **side} for side in sides)
        found[label] = difference(frame, one, two, factor=factor)
    return found


def _setting(name: str, value: Any) -> str:
    return f"{_SHORT.get(name, name)}={'all' if value is None else value}"


# How labels name long columns.
_SHORT = {"temperature": "T", "draft_temperature": "draft T", "top_k": "k", "draft_top_k": "k"}


def exact(frame: polars.DataFrame) -> polars.DataFrame:
    """Add the column stderr that says that every value is exact."""
    import polars

    return frame.with_columns(stderr=polars.lit(None, dtype=polars.Float64))


def as_text(frame: polars.DataFrame, column: str, name: str) -> polars.DataFrame:
    """Add a column of words "name value" for panels and legends; nothing there reads "all"."""
    import polars

    words = polars.col(column).cast(polars.String).fill_null("all")
    return frame.with_columns(polars.format(f"{name} {{}}", words).alias(name))


def named(frame: polars.DataFrame, names: dict[str, dict[str, str]]) -> polars.DataFrame:
    """Methods under the names that a page calls them by: draft law -> method -> name.

    Others are left out.
    """
    import polars

    table = polars.DataFrame(
        [
            {"law": law, "method": method, "name": name}
            for law, methods in names.items()
            for method, name in methods.items()
        ]
    )
    return frame.join(table, on=["law", "method"]).drop("method").rename({"name": "method"})
