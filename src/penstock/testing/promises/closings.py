"""When values are closed by what streams promise [docs/promises.md], of whole inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from penstock.algebra.nodes.scans import AcceptedScan, Check, PunctuationScan, RejectedScan
from penstock.algebra.properties.promises import (
    Base,
    Clustered,
    ForeignKey,
    Ordered,
    PassedPromise,
    Promise,
    Promises,
    Punctuated,
    Unique,
    Within,
)
from penstock.testing.definitions.base import Stream, World, denote
from penstock.testing.promises.punctuations import fulfils, plain_value
from penstock.testing.scalars.values import Row, key_of, order_key
from penstock.types import END

#: (timestamp, row) of the elements of a declared stream that were accepted.
Accepted = Sequence[tuple[int, Row]]


def whole(row: Row, columns: Sequence[int]) -> Row | None:
    """Return the values of columns, equal ones identical; None where one is NULL or NaN: such a value is never
    closed."""
    values = tuple(row[c] for c in columns)
    if any(value is None or (isinstance(value, float) and math.isnan(value)) for value in values):
        return None
    return key_of(values)


def count(rows: Accepted, instant: int) -> int:
    """Return N: the number of accepted elements with a timestamp up to an instant."""
    return sum(ts <= instant for ts, _ in rows)


def cluster_closings(promise: Clustered, rows: Accepted) -> Mapping[Row, list[int]]:
    """Return the instants at which each value is closed."""
    instants = sorted({ts for ts, _ in rows})
    came: dict[Row, list[int]] = {}
    for ts, row in sorted(rows, key=lambda one: one[0]):
        value = whole(row, promise.columns)
        if value is not None:
            came.setdefault(value, []).append(ts)
    if promise.within.ticks is not None:
        within = promise.within.ticks
        return {
            value: [ts + within for ts in sorted(set(own)) if not any(ts < other <= ts + within for other in own)]
            for value, own in came.items()
        }
    assert promise.within.rows is not None, "k is one of the two"
    closed: dict[Row, list[int]] = {}
    for value, own in came.items():
        last: int | None = None
        for t in instants:
            if t in own:
                last = t
            elif last is not None and count(rows, t) - count(rows, last) > promise.within.rows:
                closed.setdefault(value, []).append(t)
                last = None  # as if it had never been seen
    return closed


def order_closing(promise: Ordered, rows: Accepted, value: Row) -> int | None:
    """Return the first instant at which a value is below the bound; DESC: above."""

    def is_above(row: Row) -> bool:
        mine = whole(row, promise.columns)
        if mine is None:
            return False
        one, other = order_key(mine[0]), order_key(value[0])
        return one < other if promise.descending else one > other

    above = [ts for ts, row in rows if is_above(row)]
    if promise.within.ticks is not None:
        return min((ts + promise.within.ticks for ts in above), default=None)
    instants = sorted({ts for ts, _ in rows})
    return min((_counted(rows, instants, ts, promise.within) for ts in above), key=late, default=None)


def settling(reference: ForeignKey, parents: Accepted, child: int) -> int | None:
    """Return the instant at which a row that refers to a parent is settled. child: its timestamp."""
    if reference.within.ticks is not None:
        return child + reference.within.ticks
    return _counted(parents, sorted({child, *(ts for ts, _ in parents)}), child, reference.within)


def _counted(rows: Accepted, instants: Sequence[int], start: int, within: Within) -> int | None:
    """Return the first instant t from `start` on with N(t) - N(start) >= k."""
    assert within.rows is not None, "k is one of the two"
    first = count(rows, start)
    return next((t for t in instants if t >= start and count(rows, t) - first >= within.rows), None)


def late(instant: int | None) -> int:
    """Return an instant; the end of time for one that never comes."""
    return END if instant is None else instant


def first_closing(promise: PassedPromise, value: Row | None, start: int, world: World) -> int | None:
    """Return the first instant from `start` on at which a value is closed in every branch; None for never. UNIQUE
    closes the value of a row at its own instant."""
    if value is None:
        return None
    if isinstance(promise.promise, Punctuated):
        closed = [punctuated_from(base, value, world) for base in promise.bases]
        return None if any(one is None for one in closed) else max(start, *map(late, closed))
    found = [_base_closing(base, value, start, world) for base in promise.bases]
    return None if any(one is None for one in found) else max(map(late, found))


def _base_closing(base: Base, value: Row, start: int, world: World) -> int | None:
    promise, rows = base.promise, world.accepted_of(base.source)
    if isinstance(promise, Unique):
        return start
    if isinstance(promise, Clustered):
        return next((t for t in cluster_closings(promise, rows).get(value, ()) if t >= start), None)
    assert isinstance(promise, Ordered), "a reference closes no value"
    closed = order_closing(promise, rows, value)
    return None if closed is None else max(start, closed)


def punctuated_from(base: Base, value: Row, world: World) -> int | None:
    """Return from which instant on a punctuation says that no row has some values; None for never. Those that name
    other columns than the promise say nothing."""
    row = dict(zip(base.promise.columns, map(plain_value, value), strict=True))
    return min(
        (
            tick
            for tick, conditions in world.punctuations.get(base.source, ())
            if all(set(one.columns) <= row.keys() and fulfils(row, one) for one in conditions)
        ),
        default=None,
    )


def value_of(promise: PassedPromise, row: Row, columns: Sequence[int]) -> Row | None:
    """Return the value of a row that a promise may close; None for one that is never closed. columns: of the row, in
    the order of those of the promise."""
    return tuple(row[c] for c in columns) if isinstance(promise.promise, Punctuated) else whole(row, columns)


def first_of(promises: Promises, row: Row, start: int, world: World) -> int | None:
    """Return the first closing of a row's value from `start` on, by any of several promises."""
    closed = [first_closing(one, value_of(one, row, one.columns), start, world) for one in promises]
    known = [one for one in closed if one is not None]
    return min(known, default=None)


def checked(checks: Sequence[Check], rows: Accepted) -> dict[str, list[int]]:
    """Return by name of each promise that is CHECKED the positions of the rows that it rejects. What one rejects counts
    for the others, in N and as a row of its values, and is a dead letter of each that rejects it.

    Args:
        rows: in order of arrival: of two rows of one instant that UNIQUE closes the first stays.
    """
    rejected: dict[str, list[int]] = {}
    for check in checks:
        promise = check.promise
        broken = {position for position, row in enumerate(rows) if breaches_at(promise, row, rows)}
        if isinstance(promise, Unique):
            first: dict[Row, int] = {}
            for position, element in sorted(enumerate(rows), key=lambda one: one[1][0]):
                value = whole(element[1], promise.columns)
                if value is not None and first.setdefault(value, position) != position:
                    broken.add(position)
        rejected[check.name] = sorted(broken)
    return rejected


@denote.register
def _(node: AcceptedScan, world: World) -> Stream:
    return Stream([(ts, tuple(row[c] for c in node.columns)) for ts, row in world.accepted_of(node.source.name)])


@denote.register
def _(node: PunctuationScan, world: World) -> Stream:
    placed = world.punctuations.get(node.source.name, ())
    return Stream([(ts, (one.as_text(),)) for ts, punctuations in placed for one in punctuations])


@denote.register
def _(node: RejectedScan, world: World) -> Stream:
    rows = world.accepted_of(node.source.name)
    positions = checked([node.check], rows)[node.check.name]
    return Stream([(rows[i][0], tuple(rows[i][1][c] for c in node.columns)) for i in positions])


def breaches_at(promise: Promise, element: tuple[int, Row], rows: Accepted) -> bool:
    """Return whether one element breaks a promise on values of its own stream."""
    ts, row = element
    value = whole(row, promise.columns)
    if value is None:
        return False
    if isinstance(promise, Unique):
        closed: int | None = min(at for at, other in rows if whole(other, promise.columns) == value)
    elif isinstance(promise, Clustered):
        closed = min(cluster_closings(promise, rows).get(value, ()), default=None)
    else:
        assert isinstance(promise, Ordered), "a reference closes no value"
        closed = order_closing(promise, rows, value)
    return closed is not None and closed < ts


def breaches(promise: Promise, rows: Accepted, parents: Accepted = ()) -> list[tuple[int, Row]]:
    """Return the elements that break a promise: their value was closed at an earlier instant; of a reference those
    whose parent comes after they are settled, or never. Of a row with a NULL nothing is promised.

    Args:
        rows: the accepted elements of the stream.
        parents: those of the stream that a reference names.
    """
    if not isinstance(promise, ForeignKey):
        return [element for element in rows if breaches_at(promise, element, rows)]
    found = []
    for ts, row in rows:
        value, settled = whole(row, promise.columns), settling(promise, parents, ts)
        came = [at for at, other in parents if whole(other, promise.parent_columns) == value]
        if value is not None and settled is not None and not any(at <= settled for at in came):
            found.append((ts, row))
    return found
