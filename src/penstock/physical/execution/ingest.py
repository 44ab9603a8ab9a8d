"""Stamping: from records to stream elements. Timestamps become ticks, late and unusable records are separated.

An element is late when its timestamp is more than the slack below the largest seen before it, in arrival order
[semantics 1], or not above the heartbeat that the clock or a record before it has set: a record of HEARTBEAT BY is no
element. Both kinds of record are too far ahead when they are further beyond what has been seen than ADVANCE AT MOST
allows, and do not count as seen then. The progress before a batch is an argument, so the result does not depend on how
input was cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.scans import Source
from penstock.compilation import loop
from penstock.physical.elements import Bools, Elements, Int64s
from penstock.physical.execution.progress import NOTHING, SourceProgress
from penstock.types import CALENDAR, END, MOST_TICKS, Unit

NULL_KEY = "NULL in the primary key"
TOO_FAR_AHEAD = "too far ahead"
NO_BEGIN = "the period has no begin"
EMPTY_PERIOD = "the period is empty"
_DAY = 86_400_000_000
#: Seconds since 1970 of instants from 2001 until 2100.
_PRESENT = range(1_000_000_000, 4_102_444_800)


@dataclass(frozen=True)
class StampedRows:
    """The result of stamping a batch.

    `elements`: the accepted rows, with the columns at the requested positions; `late`, `unusable`: positions in the
    batch of the others; `reasons`: why, for each unusable one; `lag`: for each late one, the ticks by which it missed
    the largest timestamp seen; `progress`: the new progress; `jump`: the longest step of the largest timestamp by one
    element.
    """

    elements: Elements
    late: Int64s
    lag: Int64s
    unusable: Int64s
    reasons: tuple[str, ...]
    progress: SourceProgress
    jump: int


def read_columns(source: Source, needed: Sequence[int]) -> tuple[int, ...]:
    """Return the declared columns to read: the needed ones, and those that stamping reads."""
    period = () if source.period is None else (source.period.begin, source.period.end)
    own = (source.timestamp, source.operation, source.heartbeat, *source.primary_key, *period)
    extra = {c for c in own if c is not None}
    return tuple(sorted({*needed, *extra}))


def stamp(
    source: Source,
    batch: pa.RecordBatch,
    columns: Sequence[int],
    needed: Sequence[int],
    seen: SourceProgress,
    now: int | Int64s | None = None,
) -> StampedRows:
    """Stamp a batch whose columns are the declared ones at `columns`.

    Args:
        source: the declaration.
        batch: its rows.
        columns: positions of the batch's columns in the declaration.
        needed: positions of the columns that the result has.
        seen: the progress of the source before the batch.
        now: stamp of a SYSTEM TIME stream in microseconds, for all rows or each.
    """
    length = batch.num_rows
    ts, usable = _ticks(source, batch, columns, now)
    reasons: dict[int, str] = {int(i): "no timestamp" for i in np.flatnonzero(~usable)}
    outside = usable & ((ts <= -MOST_TICKS) | (ts >= MOST_TICKS))
    if outside.any():
        reasons |= {int(i): "timestamp out of range" for i in np.flatnonzero(outside)}
        usable = usable & ~outside
    sign: Int64s | None = None
    if source.operation is not None:
        sign, known = _signs(batch.column(columns.index(source.operation)))
        reasons = {int(i): "operation is neither + nor -" for i in np.flatnonzero(~known)} | reasons
        usable = usable & known
    for position in source.primary_key:
        absent = usable & batch.column(columns.index(position)).is_null().to_numpy(zero_copy_only=False)
        reasons |= dict.fromkeys(np.flatnonzero(absent).tolist(), NULL_KEY)
        usable = usable & ~absent
    is_beat = _heartbeats(source, batch, columns)
    if source.period is not None:
        malformed = malformed_periods(source, batch, columns)
        if is_beat is not None:
            malformed = {position: reason for position, reason in malformed.items() if not is_beat[position]}
        reasons = malformed | reasons
        usable[list(malformed)] = False
    seen_before = NOTHING if seen.high is None else seen.high
    if source.ahead is not None:
        beats = np.zeros(length, np.bool_) if is_beat is None else is_beat
        far = _too_far_ahead(ts, usable, beats, seen_before, _heard(source, seen), source.ahead)
        reasons |= dict.fromkeys(np.flatnonzero(far).tolist(), TOO_FAR_AHEAD)
        usable = usable & ~far
    #: At each record, the heartbeat that the clock and the records before it have set.
    beat, recorded = np.full(length, seen.beat, np.int64), seen.recorded
    if is_beat is not None and length:
        by_records = np.maximum.accumulate(np.where(usable & is_beat, ts, NOTHING))
        beat, recorded = np.maximum(by_records, seen.beat), max(int(by_records[-1]), seen.recorded)
        usable = usable & ~is_beat
    largest = np.maximum(np.maximum.accumulate(np.where(usable, ts, NOTHING)), seen_before) if length else ts
    late = usable & (ts < largest - source.slack)
    if not source.system_time:
        # Rows below the heartbeat that advanced without them.
        late |= usable & (ts <= beat)
    kept = usable & ~late
    progress = SourceProgress(
        int(ts[kept].min()) if kept.any() else None,
        int(largest[-1]) if length and largest[-1] > NOTHING else seen.high,
        beat=recorded,
        recorded=recorded,
    )
    elements = _elements(source, batch, columns, needed, ts, sign, kept)
    lates = np.flatnonzero(late)
    unusable = np.array(sorted(reasons), np.int64)
    return StampedRows(
        elements,
        lates,
        np.maximum(largest[lates], beat[lates] + 1 + source.slack) - ts[lates],
        unusable,
        tuple(reasons[int(i)] for i in unusable),
        progress,
        _longest_jump(np.maximum(largest, beat)[largest > NOTHING], seen),
    )


def after_heartbeat(source: Source, tick: int, seen: SourceProgress) -> SourceProgress | None:
    """Return the progress of a source after a heartbeat that is no row; None where that is too far ahead. seen: before
    it."""
    if (
        source.ahead is not None
        and seen.high is not None
        and tick > max(seen.high, _heard(source, seen)) + source.ahead
    ):
        return None
    return seen.merge(SourceProgress(beat=tick, recorded=tick))


def _heard(source: Source, seen: SourceProgress) -> int:
    """Return the heartbeat against which ADVANCE AT MOST holds a record, beside the largest timestamp: not that which
    an idle stream gets from other ones."""
    return seen.beat if source.idle_advances else seen.recorded


def unit_warning(source: Source, tick: int | None) -> str | None:
    """Return the warning for a timestamp of an integer column that is none of this century by the declared UNIT, but by
    another one; None for any other timestamp.

    Milliseconds that are read as seconds lie tens of thousands of years ahead, and seconds that are read as
    milliseconds in January 1970: windows over them answer, and nothing in the answer shows it.
    """
    if tick is None or source.domain is None or source.domain.calendar or source.timestamp is None:
        return None
    declared, column = source.domain.unit, source.columns[source.timestamp].name
    for unit in (Unit.SECOND, Unit.MILLISECOND, Unit.MICROSECOND):
        if tick * unit.value // Unit.SECOND.value in _PRESENT:
            if unit is declared:
                return None
            return (
                f"{column} of {source.name} has the value {tick}, {_shown_instant(tick, declared)} by its UNIT "
                f"{declared.name}, and {_shown_instant(tick, unit)} in {unit.name}: TIMESTAMP BY {column} UNIT "
                f"{unit.name} declares that"
            )
    return None


def _shown_instant(tick: int, unit: Unit) -> str:
    microseconds = tick * unit.value
    if microseconds < 253_402_300_800_000_000:
        return CALENDAR.show(microseconds)[:10]
    return f"the year {1970 + microseconds // 31_556_952_000_000}"


def _heartbeats(source: Source, batch: pa.RecordBatch, columns: Sequence[int]) -> Bools | None:
    """Return which records are heartbeats, None where the source has none."""
    if source.heartbeat is None:
        return None
    flags: Bools = pc.fill_null(batch.column(columns.index(source.heartbeat)), False).to_numpy(zero_copy_only=False)
    return flags


@loop
def _too_far_ahead(ts: Int64s, usable: Bools, beats: Bools, largest: int, beat: int, most: int) -> Bools:
    """Return which usable records lie more than `most` ticks beyond the largest timestamp, or the heartbeat, of what
    was accepted before them. Before the first element none does.

    Args:
        beats: which records are heartbeats.
        largest, beat: the largest timestamp and the heartbeat before the batch.
    """
    far = np.zeros(ts.shape[0], np.bool_)
    for i in range(ts.shape[0]):
        if not usable[i]:
            continue
        if largest > NOTHING and ts[i] > max(largest, beat) + most:
            far[i] = True
        elif beats[i]:
            beat = max(beat, ts[i])
        else:
            largest = max(largest, ts[i])
    return far


def _longest_jump(reached: Int64s, seen: SourceProgress) -> int:
    """Return the longest step of time by one record, from `seen` on; the first element makes none.

    Args:
        reached: the larger of the largest timestamp and the heartbeat, from the first element on.
    """
    if not len(reached):
        return 0
    step = int((reached[1:] - reached[:-1]).max()) if len(reached) > 1 else 0
    return step if seen.high is None else max(step, int(reached[0]) - max(seen.high, seen.beat))


def _elements(
    source: Source,
    batch: pa.RecordBatch,
    columns: Sequence[int],
    needed: Sequence[int],
    ts: Int64s,
    sign: Int64s | None,
    kept: Bools,
) -> Elements:
    chosen = tuple(batch.column(columns.index(c)) for c in needed)
    whole = Elements(chosen, ts, np.full(len(ts), END, np.int64), sign)
    return whole if kept.all() else whole.filter(kept)


def _ticks(
    source: Source, batch: pa.RecordBatch, columns: Sequence[int], now: int | Int64s | None
) -> tuple[Int64s, Bools]:
    """Return the timestamps of the rows, and which of them have one."""
    if source.timestamp is None:
        assert now is not None
        stamps: Int64s = np.broadcast_to(np.asarray(now, np.int64), batch.num_rows).copy()
        return stamps, np.ones(batch.num_rows, np.bool_)
    column = batch.column(columns.index(source.timestamp))
    if not column.null_count:
        return ticks(column), np.ones(len(column), np.bool_)
    return ticks(column), column.is_valid().to_numpy(zero_copy_only=False)


def ticks(column: pa.Array) -> Int64s:
    """Return a timestamp or integer column as int64 ticks; arbitrary where NULL."""
    if pa.types.is_int32(column.type) and not column.null_count:
        widened: Int64s = column.to_numpy(zero_copy_only=True).astype(np.int64)  # a call of a kernel takes longer
        return widened
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if not pa.types.is_int64(column.type):
        column = column.cast(pa.int64())
    if column.null_count:
        column = column.fill_null(0)
    values: Int64s = column.to_numpy(zero_copy_only=False)
    return values


def _signs(column: pa.Array) -> tuple[Int64s, Bools]:
    plus = pc.fill_null(pc.equal(column, "+"), False).to_numpy(zero_copy_only=False)
    minus = pc.fill_null(pc.equal(column, "-"), False).to_numpy(zero_copy_only=False)
    return np.where(minus, -1, 1).astype(np.int64), plus | minus


def malformed_periods(source: Source, batch: pa.RecordBatch | pa.Table, columns: Sequence[int]) -> dict[int, str]:
    """Return the reasons why rows of a source with VALID FROM are malformed, by position: without a begin, or
    with an empty period [semantics 4.5]. columns: the positions of the columns of `batch` in the declaration."""
    period = source.period
    if period is None or not batch.num_rows:
        return {}
    begin, absent = _bounds(batch.column(columns.index(period.begin)))
    end, endless = _bounds(batch.column(columns.index(period.end)))
    before_end = begin <= end if period.through else begin < end
    empty = ~absent & ((begin >= END) | ~(endless | before_end))
    reasons = dict.fromkeys(np.flatnonzero(absent).tolist(), NO_BEGIN)
    return reasons | dict.fromkeys(np.flatnonzero(empty).tolist(), EMPTY_PERIOD)


def _bounds(column: pa.Array | pa.ChunkedArray) -> tuple[Int64s, Bools]:
    """Return the bounds in ticks, none beyond END, and which of them are NULL."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    absent: Bools = array.is_null().to_numpy(zero_copy_only=False)
    days = pa.types.is_date32(array.type)
    whole = array.cast(pa.int32()) if days else array
    ticks: Int64s = whole.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if days:
        return np.clip(ticks, -(END // _DAY), END // _DAY + 1) * _DAY, absent
    return ticks, absent
