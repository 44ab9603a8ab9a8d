"""Arrival of rows: their timestamps, and the effects of the wall clock [semantics 1]. Part of the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from penstock.algebra import Source
from penstock.testing.scalars.values import Row, python_values
from penstock.types import BEGIN, END, MOST_TICKS

#: (timestamp, row, arrival by the wall clock)
Stamped = tuple[int, Row, int]


def stamped_rows(source: Source, table: pa.Table | None, arrivals: Sequence[int] | None = None) -> list[Stamped]:
    """Return the rows of a source with their ticks, in arrival order.

    A row without a timestamp, an operation, a part of its primary key or its declared period is not an element, nor is
    one whose timestamp lies too near the ends of time. Under SYSTEM TIME the timestamp is the arrival.
    """
    if table is None or not table.num_rows:
        return []
    came = [0] * table.num_rows if arrivals is None or source.is_static else list(arrivals)
    if source.timestamp is not None and not source.is_static:
        known = [ts is not None and abs(ts) < MOST_TICKS for ts in _ticks(source, table)]
        table, came = (
            table.filter(pa.array(known, pa.bool_())),
            [at for at, keep in zip(came, known, strict=True) if keep],
        )
    rows = list(zip(*map(python_values, table.columns), strict=True))
    ticks = came if source.system_time else [BEGIN] * len(rows)
    if source.timestamp is not None:
        ticks = _ticks(source, table)
    found = zip(ticks, rows, came, strict=True)
    return [(ts, row, at) for ts, row, at in found if ts is not None and _usable(source, row)]


def _ticks(source: Source, table: pa.Table) -> list[int]:
    """Return the timestamps of a source, None for a row that has none."""
    ticks: list[int] = table.column(source.timestamp).cast(pa.int64()).to_pylist()
    return ticks


def not_too_far(rows: list[Stamped], ahead: int | None) -> tuple[list[Stamped], int]:
    """Return the rows at most `ahead` beyond the largest timestamp before them, and the number of the others.

    The others do not advance time. The first row is always accepted, and with None every row is.
    """
    kept: list[Stamped] = []
    for row in rows:
        if ahead is None or not kept or row[0] <= max(ts for ts, _, _ in kept) + ahead:
            kept.append(row)
    return kept, len(rows) - len(kept)


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


def idle_beats(
    sources: Mapping[str, Source], inputs: Mapping[str, pa.Table], arrivals: Mapping[str, Sequence[int]]
) -> dict[str, dict[int, int]]:
    """Return, for each stream with an IDLE TIMEOUT, the heartbeats that it received while it was idle.

    There is one for every instant of the wall clock at which a row of any source arrives. A stream that was silent for
    longer than its timeout does not hold time back: it receives the smallest heartbeat of the live sources, or where
    there are none the largest timestamp of all. The heartbeat of a live stream of SYSTEM TIME is the clock at its last
    read.
    """
    timed = {name: source for name, source in sources.items() if not source.is_static}
    if all(source.idle is None for source in timed.values()):
        return {}
    rows = {
        name: not_too_far(stamped_rows(source, inputs.get(name), arrivals[name]), source.ahead)[0]
        for name, source in timed.items()
    }
    instants = sorted({at for name in timed for at in arrivals[name]})
    last_read = dict.fromkeys(timed, instants[0] if instants else 0)
    high: dict[str, int] = {}
    beat: dict[str, int] = {}
    beats: dict[str, dict[int, int]] = {name: {} for name in timed}
    read = BEGIN - 1

    def known(name: str) -> int:
        if timed[name].system_time:
            return read
        by_rows = high[name] - timed[name].slack - 1 if name in high else BEGIN - 1
        return max(by_rows, beat.get(name, BEGIN - 1))

    for now in instants:
        going = [name for name in timed if any(at >= now for at in arrivals[name])]
        idle = [name for name in going if (limit := timed[name].idle) is not None and now - last_read[name] > limit]
        live = [name for name in going if name not in idle]
        reached = min(map(known, live)) if live else max(high.values(), default=BEGIN - 1)
        for name in idle:
            beat[name] = max(reached, beat.get(name, BEGIN - 1))
        for name in timed:
            if name in beat:
                beats[name][now] = beat[name]
            if now in arrivals[name]:
                last_read[name] = now
            for ts in (ts for ts, _, at in rows[name] if at == now):
                high[name] = max(high.get(name, ts), ts)
        read = now
    return beats
