"""Tables and figures of sweeps: pure functions of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from multidraft import bounds, checks, plots, results
from multidraft.errors import InputError
from multidraft.experiments.sweep_file import OPTIMUM, PlotSpec, TableSpec

if TYPE_CHECKING:
    import polars
    from matplotlib.figure import Figure

#: Columns that are no setting: what the runner and the methods add.
ADDED = (
    *("key", "seed", "seconds", "error", "trace", "contexts", "draws"),
    *("context", "cluster", "short", "value", "lower", "upper", "kind", "stderr", "tested"),
)
ACCEPTANCE = "acceptance"
ROUND_OFF = 1e-12  # contexts that differ by less do not differ
LOG = 4  # an axis is logarithmic when its values span such a factor and lie no closer than doubling
LAYERS = "layers skipped"
GAP = "gap to the optimum"


def settings(frame: polars.DataFrame) -> list[str]:
    """Columns of a sweep's rows that hold settings, in the order of the cells."""
    return [name for name in frame.columns if name not in ADDED]


def varied(frame: polars.DataFrame) -> list[str]:
    """Columns of settings with more than one value."""
    return [name for name in settings(frame) if frame[name].n_unique() > 1]


def with_layers(frame: polars.DataFrame) -> polars.DataFrame:
    """Add ``layers skipped`` where every draft is a target without some of its layers."""
    import polars

    draft = polars.col("draft")
    if "draft" not in frame.columns or not frame["draft"].str.starts_with("skip:").all():
        return frame
    return frame.with_columns(draft.str.count_matches(",").add(1).alias(LAYERS))


def chosen(frame: polars.DataFrame, where: Mapping[str, Sequence[Any]]) -> polars.DataFrame:
    """Rows without failures whose settings have one of the given values each.

    Raises
    ------
    InputError
        A column that does not exist, or no rows left.
    """
    frame = with_layers(frame.filter(frame["error"].is_null()))
    for name, values in where.items():
        checks.choice(name, tuple(settings(frame)), "setting")
        allowed = [None if value == "all" else value for value in values]
        frame = frame.filter(frame[name].is_in(allowed, nulls_equal=True))
    if frame.is_empty():
        raise InputError("no rows are left: the filter fits no computed cell.")
    return _ordered(frame)


def _ordered(frame: polars.DataFrame) -> polars.DataFrame:
    """Rows by their settings; of one setting the optimum comes first."""
    import polars

    first = polars.col("method") != OPTIMUM
    others = [name for name in settings(frame) if name != "method"]
    return frame.sort(*others, first, "method", nulls_last=True, maintain_order=True)


def means(frame: polars.DataFrame, value: str = "value") -> polars.DataFrame:
    """Mean over the contexts of every setting, with its standard error clustered by passage.

    Returns
    -------
    polars.DataFrame
        The settings, ``value``, ``stderr`` (null where one exact context is all there is) and the
        number of ``contexts``, ordered by the settings.
    """
    import polars

    names = settings(frame)
    groups = frame.partition_by(names, as_dict=True, maintain_order=True)
    rows = [
        {**dict(zip(names, setting, strict=True)), **_mean(part, value)}
        for setting, part in groups.items()
    ]
    return _ordered(polars.DataFrame(rows, infer_schema_length=None))


def _mean(part: polars.DataFrame, value: str) -> dict[str, Any]:
    if len(part) == 1:
        return {"value": part[value][0], "stderr": part["stderr"][0], "contexts": 1}
    values = part[value].to_numpy()
    found = results.clustered_mean(values, part["cluster"].to_numpy())
    stderr = found.stderr if np.ptp(values) > ROUND_OFF else 0.0
    return {"value": found.mean, "stderr": stderr, "contexts": len(part)}


def table(frame: polars.DataFrame, spec: TableSpec | None = None) -> results.Table:
    """Table of the means; by default one column for each n, one row for each other setting."""
    spec = spec or TableSpec()
    frame = chosen(frame, spec.where)
    free = varied(frame)
    columns = spec.columns or ("n" if "n" in free or not free else free[-1])
    rows = spec.rows or [name for name in free if name != columns] or ["method"]
    ordered = means(frame).sort(columns, nulls_last=True, maintain_order=True)
    ordered = ordered.with_columns(_shown(name).alias(name) for name in rows)
    return results.pivot(ordered, rows=rows, columns=columns, digits=spec.digits)


def _acceptances(frame: polars.DataFrame) -> polars.DataFrame:
    """Rows without the bounds of a loss, which belong on no axis of acceptances."""
    return frame.filter(~frame["method"].is_in([f"bound:{name}" for name in bounds.losses()]))


def gaps(frame: polars.DataFrame) -> polars.DataFrame:
    """Rows of all other methods, with ``gap``: the optimum of the same context minus the value.

    Bounds of a loss are left out.

    Raises
    ------
    InputError
        The optimum was not among the methods.
    """
    import polars

    optimum = frame.filter(polars.col("method") == OPTIMUM)
    if optimum.is_empty():
        raise InputError("gaps need the optimum: add it to the methods of the sweep.")
    names = [name for name in settings(frame) if name != "method"] + ["context"]
    others = _acceptances(frame.filter(polars.col("method") != OPTIMUM))
    known = optimum.select(*names, optimum="value")
    joined = others.join(known, on=names, nulls_equal=True, maintain_order="left")
    return joined.with_columns(gap=polars.col("optimum") - polars.col("value"))


def measured(frame: polars.DataFrame) -> polars.DataFrame:
    """Measured rates beside what theory says about the same rule and context.

    Returns
    -------
    polars.DataFrame
        Rows of the methods ``measure:NAME`` with the column ``theory``, the exact acceptance that
        ``rule:NAME`` gives; those without an exact one are left out.
    """
    import polars

    method = polars.col("method")
    theory = frame.filter(method.str.starts_with("rule:") & (polars.col("kind") == "exact"))
    names = [*settings(frame), "context"]
    theory = theory.with_columns(method.str.replace("rule:", "measure:")).select(
        *names, theory="value"
    )
    found = frame.filter(method.str.starts_with("measure:"))
    joined = found.join(theory, on=names, nulls_equal=True, maintain_order="left")
    if joined.is_empty():
        raise InputError("calibration needs measure:NAME and rule:NAME with an exact acceptance.")
    return joined


def figure(frame: polars.DataFrame, spec: PlotSpec) -> Figure:
    """Draw the figure that a spec describes; what it leaves open follows from what varies."""
    frame = _acceptances(chosen(frame, spec.where))
    return _FIGURES[spec.kind](frame, spec)


def defaults(frame: polars.DataFrame) -> list[PlotSpec]:
    """Figures of a sweep whose file describes none."""
    methods, free = set(frame["method"]), varied(frame)
    found = [PlotSpec(name="acceptance", kind="lines")] if free else []
    if {"n", "top_k"} <= set(free) or {"n", "temperature"} <= set(free):
        found.append(PlotSpec(name="heat", kind="heat"))
    if OPTIMUM in methods and len(methods) > 1:
        found.append(PlotSpec(name="gap", kind="gap"))
    if any(method.startswith("measure:") for method in methods):
        found.append(PlotSpec(name="calibration", kind="calibration"))
    return found


def _lines(frame: polars.DataFrame, spec: PlotSpec) -> Figure:
    free = varied(frame)
    x = spec.x or next((name for name in ("n", *free) if name in free), "n")
    colour = spec.colour or ("method" if x != "method" else "law")
    dash = spec.dash or ("law" if "law" in free and "law" not in (x, colour, spec.panel) else None)
    found, panel = _panelled(means(frame), free, {x, colour, dash}, spec.panel)
    found = found.with_columns(_named(name) for name in (colour, dash) if _is_number(found, name))
    return plots.lines(
        found,
        x=x,
        colour=colour,
        dash=dash,
        panel=panel,
        xlabel=_label(x),
        ylabel=ACCEPTANCE,
        log_x=_doubles(found[x].unique().to_numpy()),
    )


def _doubles(values: np.ndarray) -> bool:
    """Whether positive values spread like powers of two, or wider."""
    span = values.max() / values.min() if values.min() > 0 else 1.0
    return bool(span >= LOG and len(values) <= np.log2(span) + 1.5)


def _is_number(frame: polars.DataFrame, name: str | None) -> bool:
    return name is not None and frame[name].dtype.is_numeric()


def _named(name: str | None) -> polars.Expr:
    """Values with the column's name before them, for legends: ``n=2``."""
    import polars

    assert name is not None  # columns of numbers have names
    return polars.format(f"{name}={{}}", polars.col(name)).alias(name)


def _heat(frame: polars.DataFrame, spec: PlotSpec) -> Figure:
    free = varied(frame)
    x, y = spec.x or "n", spec.y or next((n for n in ("top_k", "temperature") if n in free), "law")
    found, panel = _panelled(means(frame), free, {x, y}, spec.panel)
    found = found.with_columns(_shown(name).alias(name) for name in (x, y))
    return plots.heat_map(
        found, x=x, y=y, panel=panel, xlabel=_label(x), ylabel=_label(y), label=ACCEPTANCE
    )


def _gap(frame: polars.DataFrame, spec: PlotSpec) -> Figure:
    found, colour = gaps(frame), spec.colour or "method"
    found, panel = _panelled(found, varied(frame), {colour}, spec.panel)
    return plots.histogram(found, value="gap", colour=colour, panel=panel, xlabel=GAP)


def _calibration(frame: polars.DataFrame, spec: PlotSpec) -> Figure:
    return plots.calibration(
        measured(frame),
        measured="value",
        theory="theory",
        count="draws",
        colour=spec.colour or "method",
        xlabel="exact acceptance",
        ylabel="measured rate",
    )


_FIGURES = {"lines": _lines, "heat": _heat, "gap": _gap, "calibration": _calibration}


def _panelled(
    frame: polars.DataFrame, free: Sequence[str], used: set[str | None], panel: str | None
) -> tuple[polars.DataFrame, str | None]:
    """Name each panel by the settings that vary and are not drawn otherwise."""
    import polars

    left = [panel] if panel else [name for name in free if name not in used]
    if not left:
        return frame, None
    words = [polars.format("{} {}", polars.lit(_label(name)), _shown(name)) for name in left]
    return frame.with_columns(panel=polars.concat_str(words, separator=", ")), "panel"


def _shown(name: str) -> polars.Expr:
    import polars

    return polars.col(name).cast(polars.String).fill_null("all" if name == "top_k" else "same")


def _label(name: str) -> str:
    return {"n": "drafts n", "top_k": "top-k", "top_p": "top-p", "method": ""}.get(name, name)
