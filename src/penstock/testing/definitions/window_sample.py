"""Samples of the content of a window, by the draws of its rows [semantics 4.1]."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from itertools import compress

import numpy as np
import pyarrow as pa

from penstock.algebra import Algebra, RowWindow, WindowSample
from penstock.algebra.nodes.base import has_lives
from penstock.algebra.nodes.row_draws import RowDraws
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.draws import draws, salted, universe
from penstock.testing.definitions.base import Bag, Relation, World, denote, relation, values_of
from penstock.testing.definitions.results import lives
from penstock.testing.definitions.rowwindow import partitioned
from penstock.testing.scalars.values import Row, key_of, value_order

#: The start and end of a row's pane, 0 without one, and the row.
Started = tuple[int, int, Row]
#: A row and its draw.
Drawn = tuple[Row, int]


@denote.register
def _(node: RowDraws, world: World) -> Relation:
    below = relation(node.input, world)
    panes = _panes(node.input, world)
    return Relation(below.instants, lambda tau: [(*row, draw) for row, draw in _draws(node, panes(tau))])


@denote.register
def _(node: WindowSample, world: World) -> Relation:
    """Return the first rows by their draws at every instant, recomputed."""
    below = relation(node.input, world)
    panes = _panes(node.input, world) if node.blocks is None else _blocks(node, world)

    def at(tau: int) -> Bag:
        strata: dict[Row, list[Drawn]] = {}
        for row, draw in _draws(node, panes(tau)):
            strata.setdefault(key_of(tuple(row[i] for i in node.per)), []).append((row, draw))
        return [row for members in strata.values() for row in _first(node, members)]

    return Relation(below.instants, at)


def _panes(window: Algebra, world: World) -> Callable[[int], list[Started]]:
    """Return, by instant, the live rows with their panes, 0 where rows may be retracted."""
    if window.pattern is Pattern.STRICT or not has_lives(window):
        below = relation(window, world)
        return lambda tau: [(0, 0, row) for row in below.at(tau)]
    found = lives(window, world)
    return lambda tau: [(start, end, row) for start, end, row in found if start <= tau < end]


def _blocks(node: WindowSample, world: World) -> Callable[[int], list[Started]]:
    """Return, by instant, the last rows with the numbers of the elements at which they enter and leave."""
    window = node.input
    assert isinstance(window, RowWindow) and window.rows is not None
    (members,) = partitioned(window, world) or ([],)
    last, step = window.rows, window.step or 1

    def numbered(tau: int) -> list[Started]:
        counted = len([None for ts, _ in members if ts <= tau]) // step * step
        places = range(max(0, counted - last), counted)
        return [(p // step * step + step, -(-(p + 1 + last) // step) * step, members[p][1]) for p in places]

    return numbered


def _draws(node: RowDraws | WindowSample, rows: list[Started]) -> list[Drawn]:
    copies: Counter[Started] = Counter()
    numbers = []
    for start, end, row in rows:
        numbers.append(copies[start, end, key_of(row)])
        copies[start, end, key_of(row)] += 1
    types = node.input.schema.types
    columns = [pa.array([row[i] for *_, row in rows], type_) for i, type_ in enumerate(types)]
    starts = np.array([start for start, *_ in rows], np.int64)
    beside = [pa.array([end for _, end, _ in rows], pa.int64()), pa.array(numbers, pa.int64())]
    drawn = draws(node.seed, f"{node.name}/rows", starts, [*columns, *beside])
    return list(zip([row for *_, row in rows], drawn.view(np.int64).tolist(), strict=True))


def _first(node: WindowSample, rows: list[Drawn]) -> Bag:
    weights: list[float] = [1.0] * len(rows)
    if node.weight is not None:
        found = [None if w is None else float(w) for w in values_of(node.weight, [row for row, _ in rows])]
        rows = list(compress(rows, [w is not None and w > 0 for w in found]))
        weights = [w for w in found if w is not None and w > 0]
    ranks: list[float] = [draw for _, draw in rows]
    if node.weight is not None:
        ranks = [-w / ((float(d % 2**64) + 0.5) / 2.0**64) for w, (_, d) in zip(weights, rows, strict=True)]
    order = sorted(range(len(rows)), key=lambda i: (ranks[i], value_order(rows[i][0]), rows[i][1]))
    chosen, limit = order[: node.rows], order[node.rows : node.rows + 1]
    if not node.records:
        return [rows[i][0] for i in chosen]
    stratum = 0
    if node.weight is None and chosen:
        by = [pa.array([rows[0][0][i]], node.input.schema.types[i]) for i in node.per]
        own = salted(node.seed, f"{node.name}/strata")
        stratum = int(universe(own, by, 1, "/rows").view(np.int64)[0])
    made = []
    for i in chosen:
        row, draw = rows[i]
        pi = min(1.0, node.rows / len(rows))
        if node.weight is not None:
            pi = min(1.0, weights[i] / -ranks[limit[0]]) if limit else 1.0
        size = 0 if node.weight is not None else min(node.rows, len(rows))
        made.append((*row, struct.pack("<dqqq", pi, draw, stratum, size)))
    return made
