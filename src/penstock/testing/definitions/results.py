"""The lives of results, which WSTREAM and RESTORE count ([semantics 4.3], `[golab 3.3.3, 3.3.4]`)."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from functools import singledispatch
from itertools import compress

from penstock.algebra import (
    Algebra,
    Constant,
    IndividualResults,
    Join,
    MultiJoin,
    Project,
    RelationScan,
    RelationToStream,
    Restored,
    RowWindow,
    Select,
    StreamKind,
    TimeModelWindow,
    UnionAll,
)
from penstock.algebra.nodes.base import is_static
from penstock.testing.definitions.base import (
    Stream,
    World,
    denote,
    first_instant,
    minus,
    relation,
    steps,
    values_of,
)
from penstock.testing.definitions.core import boundaries, boundary, same_classes, same_key, validity
from penstock.testing.definitions.relations import constant_rows
from penstock.testing.definitions.rowwindow import partitioned
from penstock.testing.scalars.values import Row, key_of
from penstock.types import BEGIN, END

#: (start, end, row): the row is in R(τ) once for start ≤ τ < end.
Life = tuple[int, int, Row]


@denote.register
def _(node: IndividualResults, world: World) -> Stream:
    start = first_instant(node, world)
    if start is None:
        return Stream([])
    return Stream([(max(begin, start), row) for begin, end, row in lives(node.input, world) if end > start])


@denote.register
def _(node: Restored, world: World) -> Stream:
    """Emit, in addition to the usual results, what the boundaries leave out: of RSTREAM every life that contains none,
    of ISTREAM every insertion that continual evaluation emits; at the boundary after it."""
    reported = denote(node.reported, world)
    assert isinstance(reported, Stream)
    if node.reported.kind is StreamKind.ISTREAM:
        return _insertions(node, reported, world)
    found = lives(node.continual, world) if node.by_life else _lives_of_bag(node, world)
    short = [
        (boundary(begin, node.slide, node.align), row)
        for begin, end, row in found
        if end != END and begin != BEGIN and end <= boundary(begin, node.slide, node.align)
    ]
    return Stream(reported.elements + short)


def _insertions(node: Restored, reported: Stream, world: World) -> Stream:
    """Return all insertions of the continual query, at the boundary at or behind them. What `reported` emits between
    boundaries (at the first instant, and where relations change) stays where it is, in place of the same insertion."""
    continual = denote(RelationToStream(node.continual, StreamKind.ISTREAM), world)
    assert isinstance(continual, Stream)

    def at_boundary(tick: int) -> int:
        return boundary(tick, node.slide, node.align)

    between = [(ts, row) for ts, row in reported.elements if at_boundary(ts) != ts]
    known = Counter((ts, key_of(row)) for ts, row in between)
    restored = []
    for ts, row in continual.elements:
        if known[ts, key_of(row)]:
            known[ts, key_of(row)] -= 1
        else:
            restored.append((at_boundary(ts), row))
    return Stream(between + restored)


def _lives_of_bag(node: Restored, world: World) -> list[Life]:
    """Return lives that agree with R at every instant: of equal tuples the oldest ends first."""
    found: list[Life] = []
    alive: defaultdict[Row, deque[int]] = defaultdict(deque)
    for tau, before, now in steps(relation(node.continual, world), first_instant(node, world)):
        found += [(alive[key_of(row)].popleft(), tau, row) for row in minus(before, now)]
        for row in minus(now, before):
            alive[key_of(row)].append(tau)
    return found


def lives(node: Algebra, world: World) -> list[Life]:
    """Return the lives of a relation whose elements have them."""
    if is_static(node):
        return [(BEGIN, END, row) for row in relation(node, world).at(0)]
    return [life for life in _lives(node, world) if life[0] < life[1]]


@singledispatch
def _lives(node: Algebra, world: World) -> list[Life]:
    raise TypeError(f"the results of {type(node).__name__} have no lives")


@_lives.register
def _(node: TimeModelWindow, world: World) -> list[Life]:
    below = denote(node.input, world)
    assert isinstance(below, Stream)
    return [(*validity(node, ts), row) for ts, row in below.elements]


@_lives.register
def _(node: RowWindow, world: World) -> list[Life]:
    """Return the lives of a row window's elements.

    An element enters when the count next reaches a multiple of the step, and ends when the count of `rows` later ones
    does; in a RANGE that moves by rows, at the first multiple after its time.
    """
    step = node.step or 1
    found: list[Life] = []
    for members in partitioned(node, world):
        whole = len(members) // step * step

        def brought_up(place: int) -> int:
            """Return the instant at which the count reaches the first multiple of the step above `place`."""
            counted = place // step * step + step
            return members[counted - 1][0] if counted <= whole else END  # noqa: B023

        counts = [members[i][0] for i in range(step - 1, len(members), step)]
        for place, (ts, row) in enumerate(members):
            limit = END if node.length is None else min(END, ts + node.length)
            if node.rows is None:
                end = next((tick for tick in counts if tick >= limit), END)
            else:
                end = min(limit, brought_up(place + node.rows))
            begin = brought_up(place)
            if begin < end:
                found.append((*boundaries(node, begin, end), row))
    return found


@_lives.register
def _(node: MultiJoin, world: World) -> list[Life]:
    combinations: list[list[Life]] = [[]]
    for member in node.members:
        more = lives(member, world)
        combinations = [
            [*c, one] for c in combinations for one in more if same_classes(node, [life[2] for life in c], one[2])
        ]
    joined = [
        (max(life[0] for life in c), min(life[1] for life in c), tuple(value for life in c for value in life[2]))
        for c in combinations
    ]
    return _passing(node, joined)


def _passing(node: Join | MultiJoin, joined: list[Life]) -> list[Life]:
    """Return those of `joined` that satisfy the join's residual condition."""
    if node.residual is None:
        return joined
    values = values_of(node.residual, [row for _, _, row in joined])
    return [life for life, value in zip(joined, values, strict=True) if value is True]


@_lives.register
def _(node: RelationScan, world: World) -> list[Life]:
    return [(ts, END, tuple(row[c] for c in node.columns)) for ts, row in world.rows[node.source.name]]


@_lives.register
def _(node: Constant, world: World) -> list[Life]:
    return [(BEGIN, END, row) for row in constant_rows(node)]


@_lives.register
def _(node: Select, world: World) -> list[Life]:
    below = lives(node.input, world)
    kept = [value is True for value in values_of(node.predicate, [row for _, _, row in below])]
    return list(compress(below, kept))


@_lives.register
def _(node: Project, world: World) -> list[Life]:
    below = lives(node.input, world)
    columns = [values_of(e, [row for _, _, row in below]) for e in node.expressions]
    return [(begin, end, tuple(c[i] for c in columns)) for i, (begin, end, _) in enumerate(below)]


@_lives.register
def _(node: UnionAll, world: World) -> list[Life]:
    return [life for member in node.members for life in lives(member, world)]


@_lives.register
def _(node: Join, world: World) -> list[Life]:
    others = lives(node.right, world)
    pairs = [
        (max(one[0], other[0]), min(one[1], other[1]), one[2] + other[2])
        for one in lives(node.left, world)
        for other in others
        if same_key(node, one[2], other[2])
    ]
    return _passing(node, pairs)
