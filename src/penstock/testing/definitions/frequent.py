"""Frequent items by their definition: exact counts of every pane, cut to lists, at every instant `[golab 6]`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from penstock.algebra import Algebra, Frequent, Measure, RowWindow
from penstock.algebra.nodes.frequent import blocks_of_rows
from penstock.testing.aggregates.definitions import aggregate
from penstock.testing.definitions.base import Relation, World, denote, relation, values_of
from penstock.testing.definitions.results import Life, lives
from penstock.testing.definitions.rowwindow import partitioned
from penstock.testing.scalars.values import Row, key_of, value_order
from penstock.types import END


@dataclass(frozen=True)
class _List:
    """What is kept of one pane and one value of the PER columns: counts by item, δ_i and the sum of all counts."""

    start: int
    end: int
    per: Row
    counts: dict[Row, Any]
    missed: Any
    total: Any


@denote.register
def _(node: Frequent, world: World) -> Relation:
    names: dict[Row, Row] = {}
    kept = [_list(node, *pane, names) for pane in _panes(node, world)]
    instants = frozenset(tick for one in kept for tick in (one.start, one.end) if tick != END)

    def at(tau: int) -> list[Row]:
        live = [one for one in kept if one.start <= tau < one.end]
        items = dict.fromkeys((one.per, item) for one in live for item in one.counts)
        return [
            names[item] + tuple(shown[m] for m in node.measures)
            for per, item in items
            if (shown := _told(node, [one for one in live if one.per == per], item)) is not None
        ]

    return Relation(instants | relation(node.input, world).instants, at)


def _told(node: Frequent, lists: list[_List], item: Row) -> dict[Measure, Any] | None:
    """Return the measures of an item, None where it is not frequent."""
    recorded = sum(one.counts.get(item, 0) for one in lists)
    missed = sum(one.missed for one in lists)
    upper = recorded + sum(one.missed for one in lists if item not in one.counts)
    threshold: Any = missed
    if node.above is not None:
        threshold = node.above if node.above >= 1 else node.above * _fraction(sum(one.total for one in lists))
    compared = upper if node.possibly else recorded
    if not _fraction(compared) > _fraction(threshold):
        return None
    return {Measure.RECORDED: recorded, Measure.UPPER: upper, Measure.MISSED: missed}


def _fraction(value: Any) -> Fraction:
    return Fraction(value)


def _list(node: Frequent, start: int, end: int, per: Row, rows: list[Row], names: dict[Row, Row]) -> _List:
    items: dict[Row, list[Row]] = {}
    for row in rows:
        shown = tuple(row[i] for i in node.group)
        items.setdefault(key_of(shown), []).append(row)
        names.setdefault(key_of(shown), shown)
    counts = {item: _count(node, members) for item, members in items.items()}
    counts = {item: count for item, count in counts.items() if count > 0}
    ranked = sorted(counts, key=lambda item: (-counts[item], value_order(names[item])))
    missed: Any = 0
    if len(ranked) > node.k:
        missed = counts[ranked[node.k - 1 if node.thesis else node.k]]
    return _List(start, end, per, {item: counts[item] for item in ranked[: node.k]}, missed, sum(counts.values()))


def _count(node: Frequent, rows: list[Row]) -> Any:
    """Return the count of an item in a pane; values below 0 count 0."""
    call = node.aggregate
    if call.function != "SUM":
        return aggregate(call, rows, values_of)
    if call.filter is not None:
        rows = [row for row, keep in zip(rows, values_of(call.filter, rows), strict=True) if keep is True]
    values = [value for value in values_of(call.arguments[0], rows) if value is not None and value > 0]
    return sum(values, Decimal(0) if values and isinstance(values[0], Decimal) else 0)


def _panes(node: Frequent, world: World) -> Iterator[tuple[int, int, Row, list[Row]]]:
    """Yield of every pane and value of the PER columns: start, end, value, rows."""
    columns = [node.group[i] for i in node.per]
    panes: dict[tuple[Any, Row], tuple[int, int, list[Row]]] = {}
    for pane, (start, end, row) in _elements(node.input, world):
        key = (pane, key_of(tuple(row[i] for i in columns)))
        panes.setdefault(key, (start, end, []))[2].append(row)
    for (_, per), (start, end, rows) in panes.items():
        yield start, end, per, rows


def _elements(below: Algebra, world: World) -> Iterator[tuple[Any, Life]]:
    """Yield the elements of a relation, each with its pane."""
    blocks = blocks_of_rows(below)
    if blocks is None or not isinstance(blocks[0], RowWindow):
        for life in lives(below, world):
            yield life[:2], life
        return
    window, step = blocks
    assert isinstance(window, RowWindow) and window.rows is not None
    rows_of_block = window.rows
    (members,) = partitioned(window, world) or ([],)

    def reached(number: int) -> int:
        return members[number - 1][0] if number <= len(members) else END

    for block in range(len(members) // step):
        start, end = reached((block + 1) * step), reached((block + 1) * step + rows_of_block)
        rows = [row for _, row in members[block * step : (block + 1) * step]]
        here = World({}, world.final, known={window.fingerprint: Relation(frozenset(), lambda tau, rows=rows: rows)})  # type: ignore[misc]  # a default is a parameter to the checker
        if start < end:
            yield from ((block, (start, end, row)) for row in relation(below, here).at(start))
