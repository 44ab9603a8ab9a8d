"""The oracle: the answer of a query, executed naively from its algebra alone ([semantics 2], the law).

Everything else in Penstock is tested against this module and `definitions/`, which defines every operator. This module
has what surrounds the operators: which rows are late, when time begins and ends, and the order of the answer. Nothing
physical is imported, nothing is incremental, and speed is not a goal.

Contract: `run_oracle` returns canonical, sorted events `(ts, op, tuple)`; `op` is None for a stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from penstock.algebra import (
    Algebra,
    Coalesce,
    EndedPeriods,
    Frequency,
    Gaps,
    Lasting,
    NRRJoin,
    RelationToStream,
    Restamp,
    Scan,
    Sequenced,
    SessionWindow,
    Source,
    StreamScan,
    TimeModelWindow,
    TopK,
    UntilNext,
    ValidWindow,
)
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.coalesce import Closing
from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.algebra.nodes.promised import ClosedRows, ClosingGroups
from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import declared_sources
from penstock.algebra.properties.punctuations import Punctuation
from penstock.deep_trees import deep
from penstock.testing.arrivals import NOTHING, AcceptedRows, ArrivedSource, arrived
from penstock.testing.definitions import (
    Shards,
    Stream,
    World,
    content,
    denote,
    first_instant,
    frequency,
    minus,
    relation,
    steps,
    until_next,
    validity,
)
from penstock.testing.preferences import kinds  # noqa: F401 - registers the denotations of preferences
from penstock.testing.promises.closings import checked
from penstock.testing.promises.held import longest_within
from penstock.testing.scalars.values import Event, Row, event_order
from penstock.types import END


@dataclass(frozen=True)
class Answer:
    """The events of a query in canonical order, with counts by source.

    The counts are of late rows, of rows that were too far ahead, and, by reason, of rows that the relation rejected.
    """

    events: list[Event]
    late: Mapping[str, int]
    final: int | None
    rejected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def as_table(self, query: Query) -> pa.Table:
        """Return the events as a result table: the columns `query.output_names`, with `ts` in the type of the query's
        domain.
        """
        columns: list[list[Any]] = [[ts for ts, _, _ in self.events]]
        types = [query.domain.type()]
        if not query.root.is_stream:
            columns.append([op for _, op, _ in self.events])
            types.append(pa.string())
        for place, type_ in enumerate(query.root.schema.types):
            columns.append([row[place] for _, _, row in self.events])
            types.append(type_)
        arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
        return pa.Table.from_arrays(arrays, names=list(query.output_names))


@deep
def run_oracle(
    query: Query,
    inputs: Mapping[str, pa.Table],
    drain: bool = False,
    optimized_root: Algebra | None = None,
    arrivals: Mapping[str, Sequence[int]] | None = None,
    shards: Shards | None = None,
) -> Answer:
    """Return the answer of `query` over bounded `inputs`.

    Args:
        inputs: source name -> table of its declared columns in arrival order.
        drain: let time continue after the input until every window is empty.
        optimized_root: executed in place of the query's own root, to show that a rewrite kept the meaning.
        arrivals: source name -> arrival time of each row by the wall clock, in microseconds, for SYSTEM TIME and IDLE
            TIMEOUT.
        shards: of the run, for preferences; None for one.
    """
    root = optimized_root or query.root
    read = _read(root, inputs, arrivals)
    whole = {**read.rows, **read.accepted}
    timed = [ts for name, rows in whole.items() if not read.sources[name].is_static for ts, _ in rows]
    if not timed and any(not s.is_static for s in read.sources.values()):
        return Answer([], read.late, None, read.rejected)  # no input ever had an element
    last = max([*timed, *read.beats.values()], default=0)
    world = World(read.rows, last, shards=shards, accepted=read.accepted, punctuations=read.punctuations)
    if drain:
        end = _last_end(
            root, world, read.highs, not any(e.ticks for node in operators(root) for e in node.evaluations())
        )
        world = replace(world, final=world.final if end is None else min(max(world.final, end), END - 1), known={})
    return Answer(events_in(root, world), read.late, world.final, read.rejected)


@deep
def run_oracle_once(
    query: OneTimeQuery, inputs: Mapping[str, pa.Table], arrivals: Mapping[str, Sequence[int]] | None = None
) -> list[Row]:
    """Return the rows of a one-time query over bounded `inputs`, as many as it has columns: R at its instant, by
    default the largest timestamp of its inputs. Only elements up to that instant are read; rows that its order does not
    distinguish are in any order.

    Args:
        inputs, arrivals: as of `run_oracle`.
    """
    read = _read(query.root, inputs, arrivals)
    whole = {**read.rows, **read.accepted}
    timed = [ts for name, rows in whole.items() if not read.sources[name].is_static for ts, _ in rows]
    last = max([*timed, *(read.beats.values() if timed else ())], default=0)
    at = last if query.as_of is None else query.as_of
    root = query.root
    if query.limit is not None:
        root = TopK(root, query.order, query.limit, query.offset)
    past = {name: [(ts, row) for ts, row in rows if ts <= at] for name, rows in read.rows.items()}
    return [row[: query.width] for row in relation(root, World(past, at)).at(at)]


@dataclass(frozen=True)
class _ReadInputs:
    """The inputs of a query by source: the rows that were not late with their timestamps, the heartbeats beside them,
    the largest timestamps, those of late rows too, and counts of the others. accepted: of streams with promises that
    are CHECKED also the rows that break them, and of those with punctuations the rows that fulfil one."""

    sources: Mapping[str, Source]
    rows: Mapping[str, list[tuple[int, Row]]]
    beats: Mapping[str, int]
    highs: Mapping[str, int]
    late: Mapping[str, int]
    rejected: Mapping[str, Mapping[str, int]]
    accepted: Mapping[str, list[tuple[int, Row]]]
    punctuations: Mapping[str, Sequence[tuple[int, Sequence[Punctuation]]]]


def _read(root: Algebra, inputs: Mapping[str, pa.Table], arrivals: Mapping[str, Sequence[int]] | None) -> _ReadInputs:
    sources = declared_sources(root)
    found = arrived(sources, inputs, arrivals or {})
    rows: dict[str, list[tuple[int, Row]]] = {name: one.rows for name, one in found.items()}
    late = {name: one.late for name, one in found.items()}
    # The clock of SYSTEM TIME goes no further than its elements.
    beats = {name: one.beat for name, one in found.items() if one.beat != NOTHING and not one.source.system_time}
    rejected = {name: _rejected(source, rows[name]) for name, source in sources.items() if not source.is_stream}
    rejected |= {n: _set_apart(one) for n, one in found.items() if n not in rejected}
    highs = {name: one.high for name, one in found.items() if one.high is not None and not one.source.is_static}
    accepted: dict[str, list[tuple[int, Row]]] = {}
    for scan in (node for node in operators(root) if isinstance(node, StreamScan)):
        name = scan.source.name
        if name in accepted:
            continue
        whole, punctuated = found[name].accepted, found[name].punctuated
        broken = {
            promise: [position for position in positions if position not in punctuated]
            for promise, positions in checked(scan.checks, whole).items()
        }
        gone = {*punctuated, *(position for positions in broken.values() for position in positions)}
        if broken:
            # One that breaks several promises is a dead letter of the first that was declared.
            first = {position: promise for promise in reversed(broken) for position in broken[promise]}
            counts = Counter(f"constraint {promise}" for promise in first.values())
            rejected[name] = {**rejected.get(name, {}), **counts}
        if broken or punctuated:
            accepted[name] = whole
            rows[name] = [row for position, row in enumerate(whole) if position not in gone]
    spoken = {name: one.spoken for name, one in found.items()}
    return _ReadInputs(sources, rows, beats, highs, late, rejected, accepted, spoken)


def _set_apart(one: ArrivedSource) -> dict[str, int]:
    """Return by reason how many records of a stream are dead letters although they are well formed."""
    counts = {"too far ahead": one.far, "punctuated": len(one.punctuated)}
    return {reason: count for reason, count in counts.items() if count}


def timely_rows(source: Source, table: pa.Table) -> AcceptedRows:
    """Return the (timestamp, row) pairs of a source that become elements, in arrival order. Whether a row does depends
    only on the records before it. A static relation's rows are valid from BEGIN."""
    return timely_source(source, table).rows


def timely_source(source: Source, table: pa.Table) -> ArrivedSource:
    """Return what comes of a source, however its clock goes."""
    found = arrived({source.name: replace(source, idle=None)}, {source.name: table}, {})[source.name]
    found.rows.beat = found.beat
    return found


def _closed(closing: Closing, last: int, waits: bool) -> int:
    if closing.longest is None:
        return _end_of_rows(last, waits)
    return max(last, closing.closes(last + closing.longest))


def _end_of_rows(last: int, waits: bool) -> int:
    """Return the end of rows that end at instants of their own: END, unless an operator is evaluated at boundaries."""
    return END if waits else last


def _last_end(node: Algebra, world: World, highs: Mapping[str, int], waits: bool) -> int | None:
    """Return the instant at which time stops with drain: when every window over the last element of its sources has
    ended.

    Elements that a WHERE drops count too, so that a rewritten plan stops at the same instant.
    """
    if isinstance(node, Scan):
        return highs.get(node.source.name)
    if isinstance(node, NRRJoin):
        return _last_end(node.left, world, highs, waits)
    below = node.streams if isinstance(node, Sequenced) else node.inputs
    if isinstance(node, RelationToStream) and node.settled:
        below = node.ending_inputs
    last = max(
        (end for end in (_last_end(child, world, highs, waits) for child in below) if end is not None), default=None
    )
    if last is not None and isinstance(node, Frequency | Sequenced):
        return max(last, *frequency.last_boundaries(node, last))
    if last is not None and isinstance(node, ValidWindow):
        return _end_of_rows(last, waits) if node.longest is None else last + node.longest
    if last is not None and isinstance(node, SessionWindow):
        return _end_of_rows(last, waits) if node.longest is None else last + node.longest + 1
    if last is not None and isinstance(node, Coalesce) and node.closed is not None:
        return _closed(node.closed, last, waits)
    if last is not None and isinstance(node, Gaps) and not node.only_ended:
        return _closed(node.closing, last, waits)
    if last is not None and isinstance(node, ClosedRows | ClosingGroups):
        return last + longest_within(node)
    if last is not None and isinstance(node, UntilNext | EndedPeriods | Lasting):
        return max(last, until_next.last_end(node, last))
    if last is None or not isinstance(node, TimeModelWindow | Restamp):
        return last
    start, end = validity(node.window if isinstance(node, Restamp) else node, last)
    return start if end == END else end


def events_in(root: Algebra, world: World) -> list[Event]:
    """Return the elements of a stream root, or the netted changes of a relation root, up to the final instant, in
    canonical order."""
    meaning = denote(root, world)
    if isinstance(meaning, Stream):
        found: list[Event] = [(ts, None, row) for ts, row in meaning.elements]
    else:
        found = []
        for tau, before, now in steps(meaning, first_instant(root, world)):
            found += [(tau, "-", row) for row in minus(before, now)]
            found += [(tau, "+", row) for row in minus(now, before)]
    return sorted((event for event in found if event[0] <= world.final), key=event_order)


def _rejected(source: Source, rows: Sequence[tuple[int, Row]]) -> dict[str, int]:
    _, reasons = content(source, [row for _, row in sorted(rows, key=lambda row: row[0])])
    return dict(Counter(reasons))
