"""Arrival of rows: their timestamps, heartbeats, and the effects of the wall clock [semantics 1]. Part of the oracle.

The records of all sources are gone through once, in the order of their arrival. What has come of a source is its
largest timestamp and its heartbeat; whether a record becomes an element depends on these alone:

- an element is late when it is older than the largest timestamp before it by more than the slack, or not above the
  heartbeat;
- a heartbeat, a record that is no element, sets the heartbeat to its timestamp where that is above it;
- a punctuation, another record that is no element, is kept; an element that fulfils one that came before it is
  punctuated. Its timestamp counts all the same;
- elements and heartbeats are too far ahead, and have no effect, when they are beyond the larger of the largest
  timestamp and the heartbeats before them by more than ADVANCE AT MOST. Before the first element nothing is. What
  an idle stream gets from other ones is no heartbeat of its own there.

With IDLE TIMEOUT a silent stream gets a heartbeat from the clock, at every instant at which a record of any source
arrives: that of the sources beside it, or with ADVANCE its own one, which goes on with the clock from the end of the
timeout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algebra import Source
from penstock.algebra.properties.heartbeats import heartbeats_of
from penstock.algebra.properties.punctuations import PlainValue, Punctuation
from penstock.testing.promises.punctuations import NoPunctuation, fulfils, plain_rows, read_text
from penstock.testing.scalars.dates import evaluate_apart
from penstock.testing.scalars.values import Row, python_values
from penstock.types import BEGIN, END, MOST_TICKS

NOTHING = BEGIN - 1


@dataclass(frozen=True)
class ReadRecord:
    """A record. ts: of an element or a heartbeat; row: None of a record that is no element; arrival: by the wall clock;
    plain: the row as punctuations compare it; punctuation: the conditions of one, None for no punctuation."""

    ts: int | None
    row: Row | None
    arrival: int
    plain: tuple[PlainValue | None, ...] = ()
    punctuation: Sequence[Punctuation] | None = None


class AcceptedRows(list[tuple[int, Row]]):
    """The elements of a source with their timestamps, in arrival order. beat: the heartbeat beside them, which records
    and the clock have set; heartbeats: the number of such records."""

    beat: int = NOTHING
    heartbeats: int = 0


@dataclass
class ArrivedSource:
    """What has come of one source.

    Args:
        high: the largest timestamp of an element, late or not; None before the first.
        beat: the heartbeat that records or the clock have set.
        recorded: that of records alone.
        heard: the instant of its last record.
        promised: its heartbeat after that record.
        late, far: numbers of records that were late and too far ahead.
        accepted: the elements, and those that a punctuation rejects, whose positions among them are in `punctuated`.
        kept: the punctuations that have come, each as conditions all of which a row must fulfil.
    """

    source: Source
    records: Sequence[ReadRecord]
    heard: int
    rows: AcceptedRows = field(default_factory=AcceptedRows)
    high: int | None = None
    beat: int = NOTHING
    recorded: int = NOTHING
    promised: int = NOTHING
    late: int = 0
    far: int = 0
    accepted: list[tuple[int, Row]] = field(default_factory=list)
    punctuated: set[int] = field(default_factory=set)
    kept: list[Sequence[Punctuation]] = field(default_factory=list)
    #: The same, with the instants from which on nothing fulfils one.
    spoken: list[tuple[int, Sequence[Punctuation]]] = field(default_factory=list)

    @property
    def heartbeat(self) -> int:
        by_rows = NOTHING if self.high is None else self.high - self.source.slack - 1
        return max(by_rows, self.beat)

    def take(self, record: ReadRecord) -> None:
        """Take the next record."""
        source, ts = self.source, record.ts
        if record.punctuation is not None:
            self.kept.append(record.punctuation)
            tick = NOTHING if self.high is None else max(self.high, self.beat + 1)
            self.spoken.append((tick, record.punctuation))
        if ts is None:
            return
        # `self.high or 0` is only read where there is one.
        limited = source.ahead is not None and self.high is not None
        heard = self.beat if source.idle_advances else self.recorded
        if limited and ts > max(self.high or 0, heard) + (source.ahead or 0):
            self.far += 1
        elif record.row is None:
            self.rows.heartbeats += 1
            self.recorded = max(self.recorded, ts)
            self.set_beat(ts)
        elif source.is_static:
            self.rows.append((ts, record.row))
        else:
            behind = not source.system_time and ts <= self.beat
            if behind or (self.high is not None and ts < self.high - source.slack):
                self.late += 1
            else:
                self._accept(ts, record.row, record.plain)
            self.high = ts if self.high is None else max(self.high, ts)

    def _accept(self, ts: int, row: Row, plain: Sequence[PlainValue | None]) -> None:
        if any(all(fulfils(plain, part) for part in one) for one in self.kept):
            self.punctuated.add(len(self.accepted))
        else:
            self.rows.append((ts, row))
        self.accepted.append((ts, row))

    def set_beat(self, tick: int) -> None:
        self.beat = max(self.beat, tick)


def read_records(source: Source, table: pa.Table | None, arrivals: Sequence[int] | None = None) -> Iterator[ReadRecord]:
    """Yield the records of a source that have a timestamp, in arrival order.

    A row without a timestamp, an operation, a part of its primary key or its declared period is not an element, nor is
    one whose timestamp lies too near the ends of time. Under SYSTEM TIME the timestamp is the arrival.
    """
    if table is None:
        return
    placed = [*heartbeats_of(table.schema)]
    came = [0] * table.num_rows if arrivals is None or source.is_static else list(arrivals)
    ticks: Sequence[int | None] = came if source.system_time else [BEGIN] * table.num_rows
    if source.timestamp is not None:
        ticks = table.column(source.timestamp).cast(pa.int64()).to_pylist()
    elif source.computed_timestamp is not None:
        columns = [column.combine_chunks() for column in table.columns]
        ticks = evaluate_apart(source.computed_timestamp, columns, table.num_rows).cast(pa.int64()).to_pylist()
    far = [tick is not None and abs(tick) >= MOST_TICKS and source.has_timestamps for tick in ticks]
    # A timestamp beyond the ends of time may have no Python value.
    rows = _rows(table, far)
    plain = plain_rows(table)
    for number in range(table.num_rows + 1):
        while placed and placed[0].rows == number:
            beat = placed.pop(0)
            record = beat.record
            if isinstance(record, Punctuation):
                yield ReadRecord(None, None, beat.arrival, punctuation=[record])
            else:
                yield ReadRecord(beat.tick, None, beat.arrival)
        if number == table.num_rows:
            return
        ts, row = ticks[number], rows[number]
        text = None if source.punctuated is None else plain[number][source.punctuated]
        if text is not None:
            conditions = _conditions(str(text), source)
            is_beat = source.heartbeat is not None and ts is not None and bool(plain[number][source.heartbeat])
            if conditions is not None or is_beat:
                yield ReadRecord(ts if is_beat else None, None, came[number], punctuation=conditions)
            continue
        if ts is None or row is None:
            continue
        if source.heartbeat is not None and row[source.heartbeat]:
            yield ReadRecord(ts, None, came[number])
        elif _usable(source, row):
            yield ReadRecord(ts, row, came[number], plain[number])


def _conditions(text: str, source: Source) -> list[Punctuation] | None:
    """Return the conditions of a text of PUNCTUATED BY; None of one that is malformed."""
    try:
        return read_text(text, source)
    except NoPunctuation:
        return None


def _rows(table: pa.Table, left_out: Sequence[bool]) -> list[Row | None]:
    kept = table.filter(pa.array([not one for one in left_out], pa.bool_()))
    rows = iter(zip(*map(python_values, kept.columns), strict=True))
    return [None if out else next(rows) for out in left_out]


def _usable(source: Source, row: Row) -> bool:
    known = source.operation is None or row[source.operation] in ("+", "-")
    return known and all(row[i] is not None for i in source.primary_key) and _has_period(source, row)


def _has_period(source: Source, row: Row) -> bool:
    """Return whether a row has a begin and at least one tick, or day, of its declared period."""
    if source.period is None:
        return True
    begin, end = row[source.period.begin], row[source.period.end]
    if begin is None or (isinstance(begin, int) and begin >= END):
        return False
    return end is None or begin < end or (source.period.through and begin == end)


def arrived(
    sources: Mapping[str, Source], inputs: Mapping[str, pa.Table], arrivals: Mapping[str, Sequence[int]]
) -> dict[str, ArrivedSource]:
    """Return what has come of each source at the end of the inputs.

    Args:
        inputs: source name -> table of its declared columns in arrival order.
        arrivals: source name -> arrival of each row by the wall clock, in microseconds; empty without a clock.
    """
    found = {
        name: ArrivedSource(source, list(read_records(source, inputs.get(name), arrivals.get(name))), 0)
        for name, source in sources.items()
    }
    timed = {name: one for name, one in found.items() if not one.source.is_static}
    if not any(one.source.idle is not None for one in timed.values()):
        for one in found.values():
            for record in one.records:
                one.take(record)
        return found
    for one in (one for one in found.values() if one.source.is_static):
        for record in one.records:
            one.take(record)
    _by_clock(timed, {name: _instants(one, inputs.get(name), arrivals[name]) for name, one in timed.items()})
    return found


def _instants(one: ArrivedSource, table: pa.Table | None, arrivals: Sequence[int]) -> set[int]:
    """Return the instants at which something arrives of a source, malformed records too."""
    placed = [] if table is None else heartbeats_of(table.schema)
    return {*arrivals, *(beat.arrival for beat in placed)}


def _by_clock(timed: Mapping[str, ArrivedSource], instants: Mapping[str, set[int]]) -> None:
    """Take the records of sources of which some may be idle, at one instant of the clock after the other."""
    moments = sorted(set().union(*instants.values()))
    read = BEGIN - 1
    for one in timed.values():
        one.heard = moments[0] if moments else 0

    def known(name: str) -> int:
        return read if timed[name].source.system_time else timed[name].heartbeat

    for now in moments:
        going = [name for name in timed if any(at >= now for at in instants[name])]
        for name in going:
            if now not in instants[name]:
                _advance_alone(timed[name], now)
        idle = [name for name in going if _is_idle(timed[name], now)]
        live = [name for name in going if name not in idle]
        highs = [one.high for one in timed.values() if one.high is not None]
        reached = min(map(known, live)) if live else max(highs, default=NOTHING)
        for name in idle:
            timed[name].set_beat(reached)
        for name, one in timed.items():
            for record in (record for record in one.records if record.arrival == now):
                one.take(record)
            if now in instants[name]:
                one.heard, one.promised = now, one.heartbeat
        read = now


def _is_idle(one: ArrivedSource, now: int) -> bool:
    """Return whether a stream no longer holds the others back."""
    idle = one.source.idle
    return idle is not None and not one.source.idle_advances and now - one.heard > idle


def _advance_alone(one: ArrivedSource, now: int) -> None:
    """Let the time of a silent stream with IDLE TIMEOUT .. ADVANCE go on by the clock."""
    source = one.source
    if source.idle is None or not source.idle_advances or one.promised == NOTHING:
        return
    silent = now - one.heard - source.idle
    if silent >= 0:
        assert source.domain is not None, "it has a time"
        one.set_beat(min(one.promised + silent // source.domain.unit.value, MOST_TICKS - 1))
