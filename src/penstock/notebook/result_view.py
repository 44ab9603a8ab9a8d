"""A result as HTML: a table of its rows and a chart, without scripts or styles of the page.

Every name and every value is escaped, and control characters are shown as escapes: a result is written by others.
"""

from __future__ import annotations

import datetime as dt
import html
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.notebook.latest_rows import LatestRows

#: Pixels: of the chart, beside its axes, and where their texts stand.
_WIDTH, _HEIGHT, _EDGE, _LEFT, _BELOW = 640, 220, 8, 76, 24
_COLORS = ("#117a65", "#c0392b", "#2471a3", "#b7950b", "#7d3c98", "#ca6f1e", "#566573", "#1abc9c", "#e84393", "#34495e")
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
#: Letters of a value that are shown.
_LONGEST = 1_000


@dataclass(frozen=True)
class ResultView:
    """A result at a moment, as a notebook shows it. title: its name; state: the text on its progress."""

    title: str
    state: str
    rows: LatestRows

    def _repr_html_(self) -> str:
        return "".join(self._parts())

    def __repr__(self) -> str:
        return f"{_plain(self.title)}: {self.state}, {self.rows.total:,} row{'s' * (self.rows.total != 1)}"

    def _parts(self) -> Iterator[str]:
        rows = self.rows
        yield f"<div><p><b>{text_of(self.title)}</b>: {text_of(self.state)}</p>"
        if rows.columns:
            yield "<table><thead><tr>"
            yield from (f"<th>{text_of(name)}</th>" for name in rows.columns)
            yield "</tr></thead><tbody>"
            for row in rows.shown:
                yield f"<tr>{''.join(f'<td>{cell_of(value)}</td>' for value in row)}</tr>"
            yield "</tbody></table>"
        hidden = rows.total - len(rows.shown)
        if hidden > 0:
            yield f"<p>{hidden:,} more row{'s' * (hidden != 1)}</p>"
        if rows.lost:
            yield f"<p>{text_of(rows.lost)}</p>"
        if any(len(line) > 1 for line in rows.lines.values()):
            yield chart_of(rows.lines, rows.drawn, rows.is_clock)
        yield "</div>"


def text_of(value: object) -> str:
    """Return a text as HTML."""
    return html.escape(_plain(str(value)))


def cell_of(value: object) -> str:
    """Return a value as HTML; NULL differs from any text."""
    if value is None:
        return "<i>NULL</i>"
    if isinstance(value, dt.datetime):
        value = value.isoformat().replace("+00:00", "Z")
    elif isinstance(value, bytes):
        value = value.hex()
    elif isinstance(value, bool):
        value = str(value).lower()
    return text_of(value)


def chart_of(lines: Mapping[str, Sequence[tuple[float, float]]], value: str = "", is_clock: bool = False) -> str:
    """Return lines over time as an SVG element with axes.

    Args:
        value: the name of what is drawn.
        is_clock: whether it is drawn against seconds since 1970, not ticks.
    """
    points = [point for line in lines.values() for point in line]
    left, right = _range(x for x, _ in points)
    low, high = _range(y for _, y in points)

    def across(x: float) -> float:
        return _LEFT + (x - left) / (right - left) * (_WIDTH - _LEFT - _EDGE)

    def up(y: float) -> float:
        return _HEIGHT - _BELOW - (y - low) / (high - low) * (_HEIGHT - _BELOW - _EDGE)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" role="img" font-size="11" '
        f'font-family="sans-serif" fill="gray">'
    ]
    step = _step(low, high, 4)
    for y in _ticks(low, high, step):
        text = text_of(f"{y:,.{_digits(step)}f}" if 1e-9 < step < 1e15 else f"{y:.3g}")
        parts.append(
            f'<path d="M{_LEFT} {up(y):.1f} H{_WIDTH - _EDGE}" stroke="gray" stroke-opacity="0.3"/>'
            f'<text x="{_LEFT - 6}" y="{up(y) + 4:.1f}" text-anchor="end">{text}</text>'
        )
    for x in (left, (left + right) / 2, right):
        anchor = "start" if x == left else "end" if x == right else "middle"
        place = f'x="{across(x):.1f}" text-anchor="{anchor}"'
        parts.append(f'<path d="M{across(x):.1f} {_HEIGHT - _BELOW} v4" stroke="gray"/>')
        parts.append(f'<text {place} y="{_HEIGHT - _BELOW + 16}">{text_of(_instant(x, right - left, is_clock))}</text>')
    parts.append(f'<path d="M{_LEFT} {_EDGE} V{_HEIGHT - _BELOW} H{_WIDTH - _EDGE}" fill="none" stroke="gray"/>')
    for color, (name, line) in zip(_COLORS, lines.items(), strict=False):
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{color}"><title>{text_of(name)}</title></polyline>'
        )
    parts.append("</svg><p>")
    named = [(color, name) for color, name in zip(_COLORS, lines, strict=False) if name]
    parts += [f'<span style="color:{color}">■ {text_of(name)}</span> ' for color, name in named]
    against = "ts, UTC" if is_clock else "ts"
    parts.append(f"{text_of(f'{value} against {against}' if value else against)}</p>")
    return "".join(parts)


def _range(values: Iterable[float]) -> tuple[float, float]:
    """Return the least and the greatest of some values, apart where they are one."""
    numbers = list(values)
    low, high = min(numbers), max(numbers)
    if low < high:
        return low, high
    apart = abs(low) / 10 or 1.0
    return low - apart, high + apart


def _step(low: float, high: float, most: int) -> float:
    """Return the distance of marks, 1, 2 or 5 times a power of ten, of which there are at most so many, and one."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= rough)


def _ticks(low: float, high: float, step: float) -> list[float]:
    first = math.ceil(low / step)
    return [(first + i) * step for i in range(12) if (first + i) * step <= high]


def _digits(step: float) -> int:
    return max(0, -math.floor(math.log10(step) + 1e-9))


def _instant(x: float, length: float, is_clock: bool) -> str:
    """Return a mark of the axis of time: in UTC, as exactly as the axis needs it."""
    if not is_clock:
        return f"{x:,.0f}" if length >= 4 else f"{x:,.1f}"
    try:
        at = dt.datetime.fromtimestamp(x, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{x:,.0f} s"
    if length < 5:
        return at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return at.strftime("%Y-%m-%d" if length >= 10 * 86_400 else "%Y-%m-%d %H:%M:%S")


def _plain(text: str) -> str:
    """Return a text without characters that control what shows it; of a long one its beginning."""
    cut = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    # What is half a character is none in HTML.
    return cut.translate(_CONTROLS).encode("utf-8", "backslashreplace").decode("utf-8")
