"""Declared relations: the updates up to τ, one after the other [semantics 3].

An update that is not allowed gives a reason and leaves the relation unchanged: a `-` of a row that does not exist, a
`+` of an existing primary key, a key of a NON RETROACTIVE relation used again, a key that occurs twice in a static one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cache

import pyarrow as pa

from penstock.algebra import Constant, RelationScan, Source
from penstock.testing.definitions.base import Bag, Relation, World, denote
from penstock.testing.scalars.values import Row, key_of, python_values
from penstock.types import BEGIN


@denote.register
def _(node: RelationScan, world: World) -> Relation:
    updates = sorted(world.rows[node.source.name], key=lambda update: update[0])

    @cache
    def after(count: int) -> Bag:
        held, _ = content(node.source, [row for _, row in updates[:count]])
        return [tuple(row[c] for c in node.columns) for row in held]

    def at(tau: int) -> Bag:
        return list(after(bisect_right(updates, tau, key=lambda update: update[0])))

    if world.line is not None and not node.source.is_static:
        return _on_the_line(world.line.ticks, [ts for ts, _ in updates], at)
    return Relation(frozenset(ts for ts, _ in updates if ts != BEGIN), at)


@denote.register
def _(node: Constant, world: World) -> Relation:
    rows = constant_rows(node)
    return Relation(frozenset(), lambda tau: list(rows))


def constant_rows(node: Constant) -> Bag:
    """Return the rows of a constant, which are there at every instant."""
    columns = (pa.array([row[i] for row in node.rows], field.type) for i, field in enumerate(node.fields))
    return list(zip(*map(python_values, columns), strict=True))


def _on_the_line(ticks: list[int], updated: list[int], at: Callable[[int], Bag]) -> Relation:
    """Map a relation to the sequence model: at an instant it is the relation at the instant's timestamp.

    An update is visible at the first instant with its timestamp or a later one.
    """
    seen = (bisect_left(ticks, ts) + 1 for ts in updated)
    return Relation(frozenset(instant for instant in seen if instant <= len(ticks)), lambda i: at(ticks[i - 1]))


def content(source: Source, updates: Sequence[Row]) -> tuple[Bag, list[str]]:
    """Return the rows that remain after `updates`, in order of (timestamp, arrival), and the reasons of rejected
    updates.
    """
    held: Bag = []
    #: The identity of each row of `held`.
    names: list[Row] = []
    used: set[Row] = set()
    reasons: list[str] = []
    for row in updates:
        taken_back = source.operation is not None and row[source.operation] == "-"
        if not taken_back and not source.primary_key:
            held.append(row)
            names.append(_identity(source, row))
            continue
        name = _identity(source, row)
        found = names.index(name) if name in names else None
        if taken_back:
            if found is None and source.upserts:
                continue
            if found is None:
                reasons.append("no such row to delete")
            else:
                held.pop(found)
                used.add(names.pop(found))
        elif found is not None and (source.is_static or source.operation is not None) and not source.upserts:
            reasons.append("duplicate primary key")
        elif found is not None:
            held[found] = row
        elif source.non_retroactive and name in used:
            reasons.append("primary key used again after its deletion")
        else:
            held.append(row)
            names.append(name)
    return held, reasons


def _identity(source: Source, row: Row) -> Row:
    """Return the values by which a `-` identifies a row: its primary key, or all its columns but those of
    timestamp and operation.
    """
    rest = [i for i in range(len(row)) if i not in (*source.time_columns, source.operation)]
    return key_of(tuple(row[i] for i in source.primary_key or rest))
