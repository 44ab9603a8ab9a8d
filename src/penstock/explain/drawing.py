"""A render tree as a picture: one SVG document that needs nothing else.

It has neither scripts nor style sheets, so a page with a strict content security policy shows it too. Every text is
escaped; a character that XML does not have is replaced. A text that is too long is cut in the picture; the whole of it
is in the `<title>` of its node, which viewers show under the pointer. Each node is a `<g data-node="...">`, each edge a
`<path data-from="..." data-to="...">` with the ids that JSON has, behind the number of the plan: `0:7`.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from penstock.explain.layers import Item, Layers, end_of, layered
from penstock.explain.nodes import RenderNode, once

#: Columns of a node's text, lines that one of its parameters may take, and characters of it that are looked at.
_COLUMNS, _LINES, _MOST = 46, 5, 1_000
#: Pixels: of a column and a line of text, inside of boxes, between rows, around everything.
_COLUMN, _LINE, _PADDING, _GAP, _MARGIN = 7.3, 16.0, 8.0, 56.0, 20.0
_FONT = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12"'
_INK, _PALE, _FILL, _BACK, _LABEL = "#1f2933", "#7b8794", "#f0f4f8", "#ffffff", "#3e5c76"
#: The id of the result, which no step has.
_RESULT = "result"
#: Pixels between an edge and its text.
_BESIDE = 6.0
#: Everything that an XML 1.0 document cannot hold, and the line ends that would be lost.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class _Box:
    """A node as it is drawn. lines: (kind of text, text); size: width and height in pixels; whole: all of its text."""

    lines: tuple[tuple[str, str], ...]
    width: float
    height: float
    whole: str


def to_svg(plans: Sequence[tuple[str, RenderNode]]) -> str:
    """Return titled plans as one SVG document, side by side, data flowing upward to the result. Ends with a newline."""
    parts: list[str] = []
    x, height = _MARGIN, 0.0
    for number, (title, tree) in enumerate(plans):
        lines, size = _plan(number, title, tree)
        parts += [f'<g data-plan="{number}" transform="translate({x:.1f} {_MARGIN:.1f})">', *lines, "</g>"]
        x += size[0] + 2 * _MARGIN
        height = max(height, size[1])
    width, height = x - (_MARGIN if plans else 0), height + 2 * _MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" {_FONT}>'
    )
    whole = f"<title>{_text('; '.join(title for title, _ in plans))}</title>"
    back = f'<rect width="{width:.0f}" height="{height:.0f}" fill="{_BACK}"/>'
    return "\n".join([head, whole, back, *parts, "</svg>"]) + "\n"


def _plan(number: int, title: str, tree: RenderNode) -> tuple[list[str], tuple[float, float]]:
    """Return a plan as elements, and its width and height."""
    result = RenderNode(_RESULT, (), (), (tree,), _RESULT)
    nodes = {node.id: node for node in (result, *once(tree))}
    inputs = {id_: [child.id for child in node.children] for id_, node in nodes.items()}
    boxes = {id_: _box(node) for id_, node in nodes.items()}
    layers = layered(inputs, {id_: box.width for id_, box in boxes.items()})
    heights = [max((boxes[item[0]].height for item in row if item[1] is None), default=0.0) for row in layers.rows]
    top = _LINE + _PADDING
    tops = []
    for height in heights:
        tops.append(top)
        top += height + _GAP
    drawn = _Picture(number, layers, boxes, tops, heights)
    shown = _cut(title, int(max(layers.width, 200) / _COLUMN))
    lines = [f'<text x="0" y="{_LINE - 4:.1f}" font-weight="bold" fill="{_INK}">{_text(shown)}</text>']
    for id_, lane in layers.lanes.items():
        lines.append(drawn.trunk(id_, lane))
    for node in nodes.values():
        lines += drawn.edges(node)
    for id_ in nodes:
        lines += drawn.node(id_)
    single = ((layers.center[node.id, None], node.children[0]) for node in nodes.values() if len(node.children) == 1)
    # The text of the edge of a single input begins below the middle of its node.
    labels = max((center + _BESIDE + _width(_label(child)) for center, child in single), default=0.0)
    return lines, (max(layers.width, labels, _width(shown)), top - _GAP)


@dataclass(frozen=True)
class _Picture:
    """A plan that is drawn. number: of the plan; tops, heights: of the rows, in pixels."""

    number: int
    layers: Layers
    boxes: Mapping[str, _Box]
    tops: Sequence[float]
    heights: Sequence[float]

    def node(self, id_: str) -> Iterator[str]:
        """Yield the elements of a node."""
        box, y = self.boxes[id_], self.tops[self.layers.row[id_]]
        x = self.layers.center[id_, None] - box.width / 2
        yield f'<g data-node="{self._id(id_)}"><title>{_text(box.whole)}</title>'
        yield (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
            f'rx="{box.height / 2 if id_ == _RESULT else 5:.1f}" fill="{_FILL}" stroke="{_PALE}"/>'
        )
        for i, (kind, text) in enumerate(box.lines):
            base = y + _PADDING + _LINE * (i + 1) - 4
            looks = f'{_LOOKS[kind]} xml:space="preserve"'
            yield f'<text x="{x + _PADDING:.1f}" y="{base:.1f}" {looks}>{_text(text)}</text>'
        yield "</g>"

    def trunk(self, id_: str, lane: Sequence[Item]) -> str:
        """Return the line of an output through the rows that it passes."""
        x, y = self.layers.center[id_, None], self.tops[self.layers.row[id_]]
        path = [f"M{x:.1f} {y:.1f}"]
        for item in lane:
            row = self.layers.row_of(item)
            below = self.tops[row] + self.heights[row]
            path.append(f"{_curve(x, y, self.layers.center[item], below)} V{self.tops[row]:.1f}")
            x, y = self.layers.center[item], self.tops[row]
        return f'<path data-trunk="{self._id(id_)}" d="{" ".join(path)}" fill="none" stroke="{_PALE}"/>'

    def edges(self, node: RenderNode) -> Iterator[str]:
        """Yield the edges into a node, each with an arrow and its text at its end."""
        row, box = self.layers.row[node.id], self.boxes[node.id]
        bottom, left = self.tops[row] + box.height, self.layers.center[node.id, None] - box.width / 2
        port = left
        sizes = [_label_width(child) for child in node.children]
        spare = (box.width - sum(sizes)) / (len(sizes) or 1)
        for child, size in zip(node.children, sizes, strict=True):
            x = port + (size + spare) / 2 if len(sizes) > 1 else left + box.width / 2
            port += size + spare
            own = self.layers.row[child.id]
            start = end_of(child.id, row, own)
            below = self.tops[row] + self.heights[row]
            path = f"M{self.layers.center[start]:.1f} {self.tops[row + 1]:.1f} " + _curve(
                self.layers.center[start], self.tops[row + 1], x, below
            )
            arrow = f"V{bottom:.1f} m-4 7 l4 -7 l4 7"
            names = f'data-from="{self._id(child.id)}" data-to="{self._id(node.id)}"'
            yield f'<path {names} d="{path} {arrow}" fill="none" stroke="{_PALE}"/>'
            if text := _label(child):
                where = f'x="{x + _BESIDE:.1f}" y="{below + 18:.1f}" font-size="11" fill="{_LABEL}"'
                yield f"<text {where}><title>{_text(_edge(child))}</title>{_text(text)}</text>"

    def _id(self, id_: str) -> str:
        return _text(f"{self.number}:{id_}")


_LOOKS = {
    "label": f'font-weight="bold" fill="{_INK}"',
    "parameter": f'fill="{_INK}"',
    "measured": f'font-style="italic" fill="{_LABEL}"',
}


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    """Return a curve that begins and ends vertically."""
    middle = (y + to_y) / 2
    return f"C{x:.1f},{middle:.1f} {to_x:.1f},{middle:.1f} {to_x:.1f},{to_y:.1f}"


def _box(node: RenderNode) -> _Box:
    lines = [("label", _cut(_line(node.label), _COLUMNS))]
    whole = [node.label]
    for name, value in node.parameters:
        if value:
            whole.append(f"{name}: {value}")
            wrapped = textwrap.wrap(_line(whole[-1])[:_MOST], _COLUMNS, subsequent_indent="  ")
            wrapped[_LINES:] = ["  …"] * (len(wrapped) > _LINES)
            lines += [("parameter", _cut(one, _COLUMNS)) for one in wrapped]
    if node.measured:
        whole.append("  ".join(f"{name} {figure:,}" for name, figure in node.measured))
        lines += [("measured", one) for one in textwrap.wrap(_line(whole[-1]), _COLUMNS)]
    ports = sum(_label_width(child) for child in node.children)
    width = max([ports, *(_width(text) for _, text in lines)]) + 2 * _PADDING
    return _Box(tuple(lines), width, len(lines) * _LINE + 2 * _PADDING - 4, "\n".join(whole))


def _edge(child: RenderNode) -> str:
    """Return the text of an edge."""
    return "\n".join(f"{name}: {text}" for name, text in child.edge if text and text != "-")


def _label(child: RenderNode) -> str:
    return _cut(_line(" · ".join(text for _, text in child.edge if text and text != "-")), _COLUMNS)


def _label_width(child: RenderNode) -> float:
    return _width(_label(child)) + 3 * _PADDING


def _line(text: str) -> str:
    return " ".join(text.split())


def _columns(text: str) -> int:
    """Return the columns that a text takes: letters of some scripts take two, combining marks none."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) > 0 for letter in text)


def _width(text: str) -> float:
    return _columns(text) * _COLUMN


def _cut(text: str, columns: int) -> str:
    """Return a text in so many columns at most, with dots where it was cut."""
    if _columns(text) <= columns:
        return text
    text = text[: columns - 1]
    while _columns(text) >= columns:
        text = text[:-1]
    return text + "…"


def _text(text: str) -> str:
    """Return a text as XML has it, also inside of double quotes."""
    return escape(_FORBIDDEN.sub("\ufffd", text))
