from __future__ import annotations

import subprocess
import sys
from typing import Any

import matplotlib
import numpy as np
import polars as pl
import pytest
from matplotlib.colors import to_hex

from multidraft import plots
from multidraft.errors import InputError


@pytest.fixture
def curves() -> pl.DataFrame:
    rows = [
        {
            "setting": f"T={t}, top-k {k}",
            "law": law,
            "rule": rule,
            "n": n,
            "value": 0.4 + 0.1 * i + 0.02 * n,
            "stderr": 0.01 if rule == "optimum" else None,
        }
        for t in (0.6, 1.0)
        for k in (10, "all")
        for i, law in enumerate(("iid", "top"))
        for rule in ("optimum", "match")
        for n in (1, 2, 4, 8)
    ]
    return pl.DataFrame(rows)


def draw_lines(frame: pl.DataFrame, **changes: Any) -> Any:
    options: dict[str, Any] = {
        "x": "n",
        "colour": "law",
        "dash": "rule",
        "panel": "setting",
        "xlabel": "drafts n",
        "ylabel": "acceptance",
        **changes,
    }
    return plots.lines(frame, **options)


def draw_ecdf(frame: pl.DataFrame, panel: str | None = "setting") -> Any:
    return plots.ecdf(frame, value="value", colour="law", panel=panel, xlabel="gap")


def draw_heat(frame: pl.DataFrame, panel: str | None = "rule") -> Any:
    one = frame.filter(setting="T=0.6, top-k all")
    labels: dict[str, Any] = {"xlabel": "drafts n", "ylabel": "law", "label": "acceptance"}
    return plots.heat_map(one, x="n", y="law", panel=panel, **labels)


def draw_dots(frame: pl.DataFrame, panel: str | None = "setting") -> Any:
    one = frame.filter(rule=frame["rule"][0], n=frame["n"][0])
    return plots.dots(one, label="law", colour="rule", panel=panel, xlabel="acceptance")


def test_dots_have_a_line_for_every_label(curves):
    figure = draw_dots(curves)
    area = figure.axes[0]
    laws = curves["law"].unique(maintain_order=True).to_list()
    assert [tick.get_text() for tick in area.get_yticklabels()] == laws
    title = area.get_title()
    part = curves.filter(rule=curves["rule"][0], n=curves["n"][0], setting=title)
    assert area.containers[0].lines[0].get_xdata().tolist() == part["value"].to_list()
    assert figure.legends[0].texts[0].get_text() == curves["rule"][0]


def test_long_titles_are_broken_into_lines(curves):
    long = curves.with_columns(setting=pl.format("law without-replacement, {}", "setting"))
    titles = [area.get_title() for area in draw_lines(long, across=4).figure.axes]
    assert all("\n" in title for title in titles)
    assert [title.replace("\n", " ") for title in titles] == long["setting"].unique(
        maintain_order=True
    ).to_list()


def test_lines_have_a_panel_per_setting_and_a_legend_entry_per_curve(curves):
    figure = draw_lines(curves, log_x=True)
    assert [area.get_title() for area in figure.axes] == curves["setting"].unique(
        maintain_order=True
    ).to_list()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "iid, optimum",
        "iid, match",
        "top, optimum",
        "top, match",
    ]
    line = figure.axes[0].lines[0]
    assert line.get_xdata().tolist() == [1, 2, 4, 8]
    np.testing.assert_allclose(line.get_ydata(), [0.42, 0.44, 0.48, 0.56])


def test_a_band_is_two_standard_errors_wide_and_exact_curves_have_none(curves):
    area = draw_lines(curves).axes[0]
    heights = [band.get_paths()[0].vertices[1:, 1] for band in area.collections]
    assert heights[0].min() == pytest.approx(0.42 - 0.0196)
    assert heights[0].max() == pytest.approx(0.56 + 0.0196)
    assert heights[1].min() == pytest.approx(0.42)


def test_a_curve_looks_the_same_in_every_panel_though_others_are_missing(curves):
    first, *_ = curves["setting"].unique(maintain_order=True)
    thinned = curves.filter((pl.col("setting") != first) | (pl.col("law") == "top"))
    panels = draw_lines(thinned).axes
    assert [len(area.lines) for area in panels] == [2, 4, 4, 4]
    looks = {
        (to_hex(line.get_color()), line.get_linestyle())
        for area in panels
        for line in area.lines
        if line.get_ydata()[0] == pytest.approx(0.52)  # the optimum and the rule for "top"
    }
    assert len(looks) == 2


def test_axes_are_labelled_once_per_row_and_column(curves):
    figure = draw_lines(curves, across=2)
    assert [area.get_xlabel() for area in figure.axes] == ["", "", "drafts n", "drafts n"]
    assert [area.get_ylabel() for area in figure.axes] == ["acceptance", "", "acceptance", ""]


def test_an_ecdf_counts_shares(curves):
    area = draw_ecdf(curves, panel=None).axes[0]
    x, shares = area.lines[0].get_data()
    iid = curves.filter(law="iid")["value"].to_numpy()
    assert shares[np.searchsorted(x, 0.45)] == pytest.approx(np.mean(iid <= 0.45), abs=0.1)
    assert shares[-1] == 1


def test_a_histogram_sums_to_one(curves):
    figure: Any = plots.histogram(curves, value="value", colour="law", xlabel="gap", bins=5)
    outline = figure.axes[0].patches[0].get_xy()
    tops = outline[1:-1:2, 1]
    assert tops.sum() == pytest.approx(1)


def test_a_heat_map_writes_its_numbers_in(curves):
    figure = draw_heat(curves)
    written = [text.get_text() for text in figure.axes[0].texts]
    assert written == ["0.42", "0.44", "0.48", "0.56", "0.52", "0.54", "0.58", "0.66"]


@pytest.mark.parametrize("suffix", ["png", "svg"])
@pytest.mark.parametrize("draw", [draw_lines, draw_ecdf, draw_heat, draw_dots])
def test_the_same_figure_has_the_same_bytes(tmp_path, curves, draw, suffix):
    for name in "ab":
        plots.save(draw(curves), tmp_path / f"{name}.{suffix}")
    assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


def test_plots_leave_the_callers_settings_alone(tmp_path, curves):
    before = dict(matplotlib.rcParams)
    plots.save(draw_lines(curves), tmp_path / "a.png")
    assert dict(matplotlib.rcParams) == before
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False}):
        plots.save(draw_lines(curves), tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_pyplot_and_its_global_figures_are_never_touched():
    code = "import sys, multidraft.plots.lines as l; from multidraft.plots import canvas\n"
    code += "canvas.panels(2, 2, 1.0); assert 'matplotlib.pyplot' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_cannot_be_drawn_is_refused(tmp_path, curves):
    with pytest.raises(InputError, match="no column 'verifier'"):
        draw_lines(curves, dash="verifier")
    with pytest.raises(InputError, match="no rows"):
        draw_lines(curves.head(0))
    with pytest.raises(InputError, match="not finite"):
        draw_ecdf(curves.with_columns(value=pl.lit(np.nan)))
    with pytest.raises(InputError, match="two values"):
        draw_heat(curves, panel=None)
    with pytest.raises(InputError, match=r"neither .png nor .svg"):
        plots.save(draw_ecdf(curves), tmp_path / "figure.pdf")
