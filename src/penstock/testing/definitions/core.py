"""Scans, time windows, windows as columns, selection, projection, inner join, grouping, DISTINCT, UNION ALL and
relation to stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import singledispatch
from itertools import compress, product
from typing import Any

import pyarrow as pa

from penstock.algebra import (
    Aggregate,
    Algebra,
    Distinct,
    Join,
    MultiJoin,
    NegativeTuples,
    Project,
    RelationToStream,
    Restamp,
    Select,
    SessionWindow,
    StreamKind,
    StreamScan,
    TimeModelWindow,
    UnionAll,
    Window,
    WindowKind,
    evaluation_period,
)
from penstock.expressions.nodes import Column
from penstock.testing.aggregates.definitions import aggregate
from penstock.testing.definitions.base import (
    Bag,
    Relation,
    Stream,
    World,
    crossed,
    denote,
    first_instant,
    minus,
    relation,
    steps,
    values_of,
    windowed,
)
from penstock.testing.definitions.sessions import sessions
from penstock.testing.scalars.values import Row, key_of
from penstock.types import END


@denote.register
def _(node: StreamScan, world: World) -> Stream:
    return Stream([(ts, tuple(row[c] for c in node.columns)) for ts, row in world.rows[node.source.name]])


@denote.register
def _(node: TimeModelWindow, world: World) -> Relation:
    below = denote(node.input, world)
    assert isinstance(below, Stream), "a window stands on a stream"
    return windowed([(ts, validity(node, ts), row) for ts, row in below.elements])


@singledispatch
def validity(window: TimeModelWindow, ts: int) -> tuple[int, int]:
    """Return the interval [start, end) of an element with timestamp `ts`, by the table of [semantics 4.1].

    Of a row window, as far as time decides. Implementations are registered by kind of window.
    """
    raise TypeError(f"the oracle does not know when elements of {type(window).__name__} end")


@validity.register
def _(window: Window, ts: int) -> tuple[int, int]:
    length = {WindowKind.NOW: 1, WindowKind.RANGE: window.length, WindowKind.UNBOUNDED: None}[window.kind]
    return lasting(window, ts, length)


def lasting(window: TimeModelWindow, ts: int, length: int | None) -> tuple[int, int]:
    """[start, end) of an element that lasts `length` ticks, at the boundaries of the window's SLIDE."""
    return boundaries(window, ts, END if length is None else min(END, ts + length))


def boundaries(window: TimeModelWindow, start: int, end: int) -> tuple[int, int]:
    """Round [start, end) up to the boundaries of the window's SLIDE, if it has one in time."""
    if window.slide is None:
        return start, end
    after = END if end == END else boundary(end, window.slide, window.align)
    return boundary(start, window.slide, window.align), after


def boundary(tick: int, slide: int, align: int) -> int:
    """Return ⌈tick⌉s: the smallest k·slide + align that is not before `tick`; the end of time is the last boundary."""
    return min(END, align - (align - tick) // slide * slide)


@denote.register
def _(node: Restamp, world: World) -> Stream:
    below = denote(node.input, world)
    assert isinstance(below, Stream), "windows as columns are those of a stream"
    found = [
        (end, (*row, *_bounds(node, start, end, end - 1)))
        for ts, row in below.elements
        for start, end in holding(node, ts)
    ]
    elements = [(end - 1, row) for end, row in found if end - 1 < END]
    return Stream(sorted(elements, key=lambda element: element[0]))


def holding(node: Restamp, ts: int) -> Iterator[tuple[int, int]]:
    """Yield [start, end) of every window that holds `ts`."""
    between = node.length if node.cumulative else node.slide
    start = ts - (ts - node.offset) % between
    if node.cumulative:
        yield from ((start, end) for end in range(start + node.slide, start + node.length + 1, node.slide) if end > ts)
        return
    while start + node.length > ts:
        yield start, start + node.length
        start -= node.slide


def _bounds(node: Restamp, *ticks: int) -> Row:
    """Return ticks as they stand in the columns of a window."""
    shown = node.shown(Column(pa.int64(), 0, "ticks"))
    return tuple(values_of(shown, [(tick,) for tick in ticks]))


@denote.register
def _(node: NegativeTuples, world: World) -> Relation:
    return relation(node.input, world)


@denote.register
def _(node: Select, world: World) -> Stream | Relation:
    def keep(rows: Bag) -> list[bool]:
        return [value is True for value in values_of(node.predicate, rows)]

    below = denote(node.input, world)
    if isinstance(below, Stream):
        return Stream(list(compress(below.elements, keep([row for _, row in below.elements]))))
    lives = below.lives
    return Relation(
        below.instants,
        lambda tau: list(compress(rows := below.at(tau), keep(rows))),
        None if lives is None else lambda tau: list(compress(lives(tau), keep(below.at(tau)))),
    )


@denote.register
def _(node: Project, world: World) -> Stream | Relation:
    def project(rows: Bag) -> Bag:
        columns = [values_of(expression, rows) for expression in node.expressions]
        return list(zip(*columns, strict=True)) if columns else [()] * len(rows)

    below = denote(node.input, world)
    if isinstance(below, Stream):
        rows = project([row for _, row in below.elements])
        return Stream([(ts, row) for (ts, _), row in zip(below.elements, rows, strict=True)])
    return Relation(below.instants, lambda tau: project(below.at(tau)), below.lives)


@denote.register
def _(node: Join, world: World) -> Relation:
    """Join by nested loops. A NULL key joins nothing; NaN joins NaN, and -0.0 joins 0.0."""
    left, right = relation(node.left, world), relation(node.right, world)

    def at(tau: int) -> Bag:
        return [one + other for one, other in joined_rows(tau, left.at(tau), right.at(tau))]

    def joined_rows(tau: int, ones: list[Any], others: list[Any]) -> list[tuple[Any, Any]]:
        """Return the pairs that join of `ones` and `others`, which belong to the rows of the two sides."""
        rows = list(product(left.at(tau), right.at(tau)))
        kept = [same_key(node, one, other) for one, other in rows]
        if node.residual is not None and any(kept):
            whole = [one + other for one, other in compress(rows, kept)]
            holds = iter(values_of(node.residual, whole))
            kept = [same and next(holds) is True for same in kept]
        return list(compress(product(ones, others), kept))

    def lives(tau: int) -> list[tuple[int, int]]:
        assert left.lives is not None and right.lives is not None
        return [crossed(one, other) for one, other in joined_rows(tau, left.lives(tau), right.lives(tau))]

    known = left.lives is not None and right.lives is not None
    return Relation(left.instants | right.instants, at, lives if known else None)


def same_key(node: Join, one: Row, other: Row) -> bool:
    """Return whether two rows agree on the equi-join's columns."""
    keys = [(one[i], other[j]) for i, j in node.equal]
    return all(a is not None and b is not None and key_of((a,)) == key_of((b,)) for a, b in keys)


@denote.register
def _(node: MultiJoin, world: World) -> Relation:
    """Join by nested loops, checking each class as soon as its columns are bound."""
    members = [relation(member, world) for member in node.members]

    def at(tau: int) -> Bag:
        combinations: list[list[Row]] = [[]]
        for member in members:
            rows = member.at(tau)
            combinations = [[*c, row] for c in combinations for row in rows if same_classes(node, c, row)]
        joined: Bag = [tuple(value for row in c for value in row) for c in combinations]
        if node.residual is None:
            return joined
        return [row for row, value in zip(joined, values_of(node.residual, joined), strict=True) if value is True]

    return Relation(frozenset().union(*(member.instants for member in members)), at)


def same_classes(node: MultiJoin, rows: list[Row], more: Row) -> bool:
    """Return whether `more`, of the member after those of `rows`, agrees with them in every class."""
    number = len(rows)
    pairs = [
        (rows[k][theirs], more[mine])
        for places in node.classes
        if (mine := places[number]) is not None
        for k, theirs in enumerate(places[:number])
        if theirs is not None
    ]
    return all(a is not None and b is not None and key_of((a,)) == key_of((b,)) for a, b in pairs)


@denote.register
def _(node: Aggregate, world: World) -> Relation:
    """Return one row per non-empty group; the ungrouped aggregate always has one row. NULLs are one group."""
    below = relation(node.input, world)

    def at(tau: int) -> Bag:
        rows = below.at(tau)
        panes: list[Any] = [None] * len(rows) if below.lives is None else below.lives(tau)
        groups: dict[Row, list[tuple[Row, Any]]] = {} if node.group else {(): []}
        for row, pane in zip(rows, panes, strict=True):
            groups.setdefault(key_of(tuple(row[i] for i in node.group)), []).append((row, pane))
        result: Bag = []
        for members in groups.values():
            own, lives = [row for row, _ in members], [pane for _, pane in members]
            computed = tuple(aggregate(a, own, values_of, lives) for a in node.aggregates)
            result.append(tuple(own[0][i] for i in node.group) + computed)
        return result

    return Relation(below.instants, at)


@denote.register
def _(node: Distinct, world: World) -> Relation:
    below = relation(node.input, world)
    return Relation(below.instants, lambda tau: list({key_of(row): row for row in below.at(tau)}.values()))


@denote.register
def _(node: UnionAll, world: World) -> Relation:
    members = [relation(member, world) for member in node.members]
    instants = frozenset().union(*(member.instants for member in members))
    lives = [member.lives for member in members if member.lives is not None]
    return Relation(
        instants,
        lambda tau: [row for member in members for row in member.at(tau)],
        (lambda tau: [life for of in lives for life in of(tau)]) if len(lives) == len(members) else None,
    )


@denote.register
def _(node: RelationToStream, world: World) -> Stream:
    """Apply [semantics 4.3] to the bags of consecutive instants."""
    below = relation(node.input, world)
    start = first_instant(node, world)
    course = list(steps(below, start))
    if node.kind is StreamKind.ISTREAM:
        return Stream([(tau, row) for tau, before, now in course for row in minus(now, before)])
    if node.kind is StreamKind.DSTREAM:
        return Stream([(tau, row) for tau, before, now in course for row in minus(before, now)])
    if start is None:
        return Stream([])
    period = evaluation_period(node)
    if period is not None:
        evaluated: Iterable[int] = range(boundary(start, *period), world.final + 1, period[0])
    else:
        changed = {tau for tau, before, now in course if minus(now, before) or minus(before, now)}
        # Elements of a stream of static relations may be older than the time line.
        evaluated = sorted(changed | {tau for tau in _arrivals(node, world) if tau >= start})
    return Stream([(tau, row) for tau in evaluated for row in below.at(tau)])


def _arrivals(node: Algebra, world: World) -> Iterable[int]:
    """Return the instants at which an element of one of the query's own streams arrives."""
    for child in node.inputs:
        if isinstance(child, SessionWindow):
            # Where sessions end; what arrives in between is in no R(τ) yet, but for open ones.
            for _, end, until, members in sessions(child, world):
                if child.open:
                    entered = [ts for ts, _ in members if ts < until]
                    instants = [*entered, min(end, until)] if entered else []
                else:
                    instants = [end] if until == END else []
                yield from (tau for tau in instants if tau <= world.final)
            continue
        stream = child.input if isinstance(child, TimeModelWindow) else child
        if stream.is_stream:
            meaning = denote(stream, world)
            assert isinstance(meaning, Stream)
            yield from (ts for ts, _ in meaning.elements)
        else:
            yield from _arrivals(child, world)
