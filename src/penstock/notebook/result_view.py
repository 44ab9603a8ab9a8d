"""A result as HTML: a table of its rows and a chart, without scripts or styles of the page.

Every name and every value is escaped, and control characters are shown as escapes: a result is written by others.
"""

from __future__ import annotations

import datetime as dt
import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.notebook.latest_rows import LatestRows

_WIDTH, _HEIGHT, _EDGE = 640, 200, 8
_COLORS = ("#117a65", "#c0392b", "#2471a3", "#b7950b", "#7d3c98", "#ca6f1e", "#566573", "#1abc9c", "#e84393", "#34495e")
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))}
#: Letters of a value that are shown.
_LONGEST = 1_000


@dataclass(frozen=True)
class ResultView:
    """A result at a moment, as a notebook shows it. title: its name; state: what is said of it."""

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
            yield chart_of(rows.lines)
        yield "</div>"


def text_of(value: object) -> str:
    """Return a text as HTML."""
    return html.escape(_plain(str(value)))


def cell_of(value: Any) -> str:
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


def chart_of(lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Return lines over time as an SVG element."""
    points = [point for line in lines.values() for point in line]
    left, right = min(x for x, _ in points), max(x for x, _ in points)
    low, high = min(y for _, y in points), max(y for _, y in points)

    def place(x: float, y: float) -> str:
        across = (x - left) / (right - left) if right > left else 0.5
        up = (y - low) / (high - low) if high > low else 0.5
        return f"{_EDGE + across * (_WIDTH - 2 * _EDGE):.1f},{_HEIGHT - _EDGE - up * (_HEIGHT - 2 * _EDGE):.1f}"

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" role="img">']
    for color, (name, line) in zip(_COLORS, lines.items(), strict=False):
        path = " ".join(place(x, y) for x, y in line)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{color}"><title>{text_of(name)}</title></polyline>'
        )
    parts.append("</svg><p>")
    named = [(color, name) for color, name in zip(_COLORS, lines, strict=False) if name]
    parts += [f'<span style="color:{color}">■ {text_of(name)}</span> ' for color, name in named]
    parts.append(f"{text_of(f'{low:g}')} to {text_of(f'{high:g}')}</p>")
    return "".join(parts)


def _plain(text: str) -> str:
    """Return a text without characters that control what shows it; of a long one its beginning."""
    cut = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
    # What is half a character is none in HTML.
    return cut.translate(_CONTROLS).encode("utf-8", "backslashreplace").decode("utf-8")
