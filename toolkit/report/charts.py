"""Small pictures that follow the page's colours and stay readable on a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _HEIGHT = 440, 300  # user units; a phone shows them at about four fifths
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 12, 44


def lines(
    series: Sequence[tuple[str, Sequence[Mapping[str, Any]]]],
    places: Sequence[str],
    x: str,
    title: str,
) -> str:
    """One line per series over equally spaced places, values in [0, 1]; two for an interval."""
    parts = [_grid(), *_labels(places, x)]
    xs = [_x(i, len(places)) for i in range(len(places))]
    for number, (_, values) in enumerate(series):
        ends = ("high",) if all(v["low"] == v["high"] for v in values) else ("high", "low")
        parts += [_line(xs, [value[end] for value in values], number) for end in ends]
    legend = "".join(
        f'<li class="s{number}">{escape(name)}</li>' for number, (name, _) in enumerate(series)
    )
    return (
        f'<figure><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
        f'<figcaption><ul class="legend">{legend}</ul></figcaption></figure>'
    )


def _x(i: int, count: int) -> float:
    room = _WIDTH - _LEFT - _RIGHT - 24
    return _LEFT + 12 + (room * i / (count - 1) if count > 1 else room / 2)


def _y(value: float) -> float:
    return _TOP + (1 - value) * (_HEIGHT - _TOP - _BOTTOM)


def _grid() -> str:
    return "".join(
        f'<path class="grid" d="M{_LEFT} {_y(t):.1f}H{_WIDTH - _RIGHT}"/>'
        f'<text x="{_LEFT - 6}" y="{_y(t) + 4:.1f}" text-anchor="end">{t:.1f}</text>'
        for t in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    )


def _labels(places: Sequence[str], x: str) -> list[str]:
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    texts = [(_x(i, len(places)), _HEIGHT - 22, place) for i, place in enumerate(places)]
    return [
        f'<text x="{across:.1f}" y="{down}" text-anchor="middle">{escape(text)}</text>'
        for across, down, text in [*texts, (middle, _HEIGHT - 4, x)]
    ]


def _line(xs: Sequence[float], values: Sequence[float], number: int) -> str:
    points = [(x, _y(value)) for x, value in zip(xs, values, strict=True)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    marks = "".join(
        f'<circle class="s{number}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points
    )
    return f'<polyline class="s{number}" points="{path}"/>{marks}'


def bars(
    rows: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any], str]], title: str, mark: str
) -> str:
    """A table with a bar for each value in [0, 1], and a mark at another one.

    Rows are name, value, marked value, text. An interval is a bar between its ends.
    """
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td><div class="track">{_bar(value)}'
        f'<div class="mark" style="left:{100 * marked["high"]:.2f}%"></div></div></td>'
        f"<td>{escape(text)}</td></tr>"
        for name, value, marked, text in rows
    )
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("", "0 to 1", "acceptance"))
    return (
        f'<p class="caption">{escape(title)}; {escape(mark)}</p>'
        f'<table class="bars"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _bar(value: Mapping[str, Any]) -> str:
    start = 0.0 if value["low"] == value["high"] else value["low"]
    width = max(100 * (value["high"] - start), 0.6)
    return f'<div class="bar" style="left:{100 * start:.2f}%;width:{width:.2f}%"></div>'
