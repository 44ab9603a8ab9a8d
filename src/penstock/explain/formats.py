"""A render tree as text, JSON and Mermaid: JSON and Mermaid contain a shared node once, text labels it and refers back
to it."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from penstock.explain.nodes import RenderNode, once, reached

#: Text is laid out for this many columns.
WIDTH = 120

#: A non-breaking space holds a parameter's name and its first word together when a line is wrapped.
_JOINED = "\u00a0"


def to_text(tree: RenderNode) -> str:
    """Return a box-drawing tree; the edges' properties are in columns at the right, `-` for none. Ends with a
    newline."""
    headings = list(dict.fromkeys(name for node in once(tree) for name, _ in node.edge))
    rows = list(_rows(tree, "", "", _marks(tree), set()))
    cells = [[dict(node.edge).get(name, "-") for name in headings] for node, _, _ in rows]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(headings)]
    right = sum(widths) + 2 * len(widths)
    room = max(40, WIDTH - right)
    blocks = [
        _wrapped(first, rest, _title(node), room) + _wrapped(rest + "  ", rest, _figures(node), room)
        for node, first, rest in rows
    ]
    left = max(len(line) for block in blocks for line in block)
    lines = [_line("plan", headings, widths, left)] if headings else []
    for block, row in zip(blocks, cells, strict=True):
        lines.append(_line(block[0], row, widths, left))
        lines += block[1:]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def to_json(tree: RenderNode) -> str:
    """The plan as JSON, with stable keys::

        {"format": 1, "root": "0", "edge": {...of the root's output...},
         "nodes": [{"id": "0", "label": "...", "parameters": {"name": "text"},
                    "inputs": [{"node": "1", "edge": {"pattern": "WKS", ...}}],
                    "measured": {"rows_in": 5, ...}}]}

    `measured` is there only for a plan that ran. Every node stands once, parents before children. Ends with a newline.
    """
    nodes = {
        node.id: {
            "id": node.id,
            "label": node.label,
            "parameters": dict(node.parameters),
            "inputs": [{"node": child.id, "edge": dict(child.edge)} for child in node.children],
            **({"measured": {k.replace(" ", "_"): v for k, v in node.measured}} if node.measured else {}),
        }
        for node in once(tree)
    }
    plan = {"format": 1, "root": tree.id, "edge": dict(tree.edge), "nodes": list(nodes.values())}
    return json.dumps(plan, indent=2, ensure_ascii=False) + "\n"


def to_mermaid(plans: Sequence[tuple[str, RenderNode]]) -> str:
    """Return titled plans as one Mermaid flowchart, each in a box of its own, data flowing upward to the result. Ends
    with a newline.
    """
    lines = ["flowchart BT"]
    for number, (title, tree) in enumerate(plans):
        lines += [f'  subgraph plan{number}["{_escaped(title)}"]', *_chart(tree, f"p{number}"), "  end"]
    return "\n".join(lines) + "\n"


def _chart(tree: RenderNode, prefix: str) -> list[str]:
    nodes = list(once(tree))
    names = {node.id: f"{prefix}n{i}" for i, node in enumerate(nodes)}
    lines: list[str] = []
    for node in nodes:
        title = [f"<b>{_escaped(node.label)}</b>"] + [f"{_escaped(k)}: {_escaped(v)}" for k, v in node.parameters if v]
        figures = _escaped(_figures(node)).replace(_JOINED, " ")
        title += [f"<i>{figures}</i>"] if figures else []
        lines.append(f'  {names[node.id]}["{"<br/>".join(title)}"]')
    lines.append(f'  {prefix}result(["result"])')
    for node in nodes:
        lines += [f"  {names[child.id]} {_arrow(child)} {names[node.id]}" for child in node.children]
    lines.append(f"  {names[tree.id]} {_arrow(tree)} {prefix}result")
    return lines


def _marks(tree: RenderNode) -> dict[str, str]:
    """Return id -> label of the nodes that several parents share."""
    counts = Counter(node.id for node in reached(tree, set()))
    return {id_: f"#{number}" for number, id_ in enumerate((i for i, n in counts.items() if n > 1), 1)}


def _rows(
    node: RenderNode, first: str, rest: str, marks: dict[str, str], drawn: set[str]
) -> Iterator[tuple[RenderNode, str, str]]:
    """Yield every line's node with the guides before its first line and before its further lines. A shared node's
    inputs are drawn at its first occurrence."""
    mark = marks.get(node.id)
    again = node.id in drawn
    drawn.add(node.id)
    children = () if again else node.children
    shown = node
    if mark is not None:
        note = f"as {mark} above" if again else mark
        label = f"{node.label} ({note})"
        shown = replace(node, label=label, children=children)
        shown = replace(shown, parameters=(), measured=()) if again else shown
    yield shown, first, rest + ("│  " if children else "   ")
    for number, child in enumerate(children, 1):
        last = number == len(children)
        yield from _rows(child, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "), marks, drawn)


def _title(node: RenderNode) -> str:
    shown = [f"{name.replace(' ', _JOINED)}:{_JOINED}{text}" for name, text in node.parameters if text]
    return "  ".join([node.label, *shown])


def _figures(node: RenderNode) -> str:
    return "  ".join(f"{name.replace(' ', _JOINED)}{_JOINED}{figure:,}" for name, figure in node.measured)


def _wrapped(first: str, rest: str, title: str, room: int) -> list[str]:
    lines = textwrap.wrap(
        title, max(room, len(rest) + 30), initial_indent=first, subsequent_indent=rest + "  ", break_long_words=False
    )
    return [line.replace(_JOINED, " ") for line in lines]


def _line(left: str, cells: list[str], widths: list[int], width: int) -> str:
    padded = "  ".join(cell.ljust(size) for cell, size in zip(cells, widths, strict=True))
    return f"{left.ljust(width)}  {padded}"


def _arrow(child: RenderNode) -> str:
    shown = " · ".join(_escaped(text) for _, text in child.edge if text and text != "-")
    return f'-->|"{shown}"|' if shown else "-->"


#: Mermaid reads HTML and its own `#code;` entities inside quotes; these characters would end or change a text.
_ENTITIES = {ord(c): f"#{ord(c)};" for c in '#"&<>`|{}\\;'} | {ord("\n"): " ", ord("\r"): " ", ord("\t"): " "}


def _escaped(text: str) -> str:
    return text.translate(_ENTITIES)
