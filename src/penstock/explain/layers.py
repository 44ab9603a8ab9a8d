"""Layers of a drawn plan: which node is in which row and in which order, and where it lies from left to right.

Rows are those of the longest path from the root, so that every node lies below all that read it. The output
of a node that is read further up than in the next row passes the rows between through a *lane*, one for all its
readers. The order in a row is that of the mean places of what it is connected to, by sweeps down and up; then every row
is placed as near to these means as its order and the widths allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

#: A node, or the lane of a node in a row.
Item = tuple[str, int | None]
#: Sweeps over all rows, for the order and for the places.
_SWEEPS = 8
#: Between neighbours in a row, in pixels.
_BETWEEN = 28.0


@dataclass(frozen=True)
class Layers:
    """A layout.

    Args:
        rows: from the root down, each from left to right.
        row: of each node.
        center: of each item, in pixels from the left edge.
        lanes: by node, the lanes of its output from below upward.
        width: of all, in pixels.
    """

    rows: Sequence[Sequence[Item]]
    row: Mapping[str, int]
    center: Mapping[Item, float]
    lanes: Mapping[str, tuple[Item, ...]]
    width: float

    def row_of(self, item: Item) -> int:
        """Return the row in which an item lies."""
        return self.row[item[0]] if item[1] is None else item[1]


@dataclass
class _Graph:
    """Items and what they are connected to, in the rows above and below."""

    rows: list[list[Item]] = field(default_factory=list)
    above: dict[Item, list[Item]] = field(default_factory=dict)
    below: dict[Item, list[Item]] = field(default_factory=dict)

    def add(self, item: Item, row: int) -> None:
        self.rows[row].append(item)
        self.above[item], self.below[item] = [], []

    def connect(self, lower: Item, upper: Item) -> None:
        self.above[lower].append(upper)
        self.below[upper].append(lower)


def layered(inputs: Mapping[str, Sequence[str]], widths: Mapping[str, float]) -> Layers:
    """Return the layout of a plan.

    Args:
        inputs: by node, those that it reads; the first node is the root, from which all are reached.
        widths: of the nodes, in pixels.
    """
    row = _rows_of(inputs)
    graph, lanes = _graph(inputs, row)
    _order(graph)
    sizes = {item: widths[item[0]] if item[1] is None else 0.0 for items in graph.rows for item in items}
    center = _places(graph, sizes)
    left = min(center[item] - sizes[item] / 2 for item in center)
    center = {item: x - left for item, x in center.items()}
    width = max(center[item] + sizes[item] / 2 for item in center)
    return Layers(graph.rows, row, center, lanes, width)


def _rows_of(inputs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Return the length of the longest path from the root to each node."""
    waiting = dict.fromkeys(inputs, 0)
    for read in inputs.values():
        for child in read:
            waiting[child] += 1
    ready = [node for node, count in waiting.items() if count == 0]
    row = dict.fromkeys(ready, 0)
    while ready:
        node = ready.pop()
        for child in inputs[node]:
            row[child] = max(row.get(child, 0), row[node] + 1)
            waiting[child] -= 1
            if waiting[child] == 0:
                ready.append(child)
    return row


def _graph(inputs: Mapping[str, Sequence[str]], row: Mapping[str, int]) -> tuple[_Graph, dict[str, tuple[Item, ...]]]:
    graph = _Graph([[] for _ in range(1 + max(row.values()))])
    for node in inputs:
        graph.add((node, None), row[node])
    highest: dict[str, int] = {}
    for node, read in inputs.items():
        for child in read:
            highest[child] = min(highest.get(child, row[node]), row[node])
    lanes: dict[str, tuple[Item, ...]] = {}
    for node, top in highest.items():
        lane = tuple((node, at) for at in range(row[node] - 1, top, -1))
        for at, item in zip(range(row[node] - 1, top, -1), lane, strict=True):
            graph.add(item, at)
        for lower, upper in zip(((node, None), *lane), lane, strict=False):
            graph.connect(lower, upper)
        if lane:
            lanes[node] = lane
    for node, read in inputs.items():
        for child in dict.fromkeys(read):
            graph.connect(end_of(child, row[node], row[child]), (node, None))
    return graph, lanes


def end_of(child: str, row: int, own: int) -> Item:
    """Return from where an edge rises into a row: from the child itself, or from its lane in the row below."""
    return (child, None) if own == row + 1 else (child, row + 1)


def _order(graph: _Graph) -> None:
    place = {item: float(i) for items in graph.rows for i, item in enumerate(items)}
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for items in graph.rows if down else reversed(graph.rows):
            near = graph.above if down else graph.below
            wished = {item: _mean(near[item], place, place[item]) for item in items}
            items.sort(key=wished.__getitem__)
            place.update((item, float(i)) for i, item in enumerate(items))


def _places(graph: _Graph, sizes: Mapping[Item, float]) -> dict[Item, float]:
    center: dict[Item, float] = {}
    for items in graph.rows:
        x = 0.0
        for item in items:
            center[item] = x + sizes[item] / 2
            x += sizes[item] + _BETWEEN
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for items in graph.rows if down else reversed(graph.rows):
            near = graph.above if down else graph.below
            wished = [_mean(near[item], center, center[item]) for item in items]
            center.update(zip(items, _apart(wished, [sizes[item] for item in items]), strict=True))
    return center


def _mean(items: Sequence[Item], values: Mapping[Item, float], otherwise: float) -> float:
    return fmean(values[item] for item in items) if items else otherwise


def _apart(wished: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Return the places of a row's items nearest to the wished ones by least squares, in order and without overlaps.

    Without the distances that items need, the places are a sequence that never falls: neighbours that would are pooled
    at their mean.
    """
    offsets = [0.0]
    for i in range(1, len(sizes)):
        offsets.append(offsets[-1] + (sizes[i - 1] + sizes[i]) / 2 + _BETWEEN)
    pools: list[tuple[float, int]] = []
    for wish, offset in zip(wished, offsets, strict=True):
        total, count = wish - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before = pools.pop()
            total, count = total + before[0], count + before[1]
        pools.append((total, count))
    flat = [total / count for total, count in pools for _ in range(count)]
    return [x + offset for x, offset in zip(flat, offsets, strict=True)]
