"""Stamping: from records to stream elements. Timestamps become ticks, late and unusable records are separated.

An element is late when its timestamp is more than the slack below the largest seen before it, in arrival order
[semantics 1], or not above the heartbeat that the clock or a record before it has set: a record of HEARTBEAT BY is no
element. An element that fulfils a punctuation that came before it is punctuated; it counts as seen and as accepted all
the same. Elements and heartbeats are too far ahead when they are further beyond what has been seen than ADVANCE AT MOST
allows, and do not count as seen then. The progress before a batch is an argument, so the result does not depend on how
input was cut.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.heartbeats import Heartbeat, StreamRecord
from penstock.algebra.properties.punctuations import Punctuation, shown_punctuation
from penstock.compilation import loop
from penstock.errors import PenstockError
from penstock.physical.elements import Bools, Elements, Int64s
from penstock.physical.execution.progress import NOTHING, SourceProgress
from penstock.physical.synopses.promises.punctuations import Punctuations
from penstock.types import CALENDAR, END, MOST_TICKS, Unit, unit_of_present

NULL_KEY = "NULL in the primary key"
TOO_FAR_AHEAD = "too far ahead"
PUNCTUATED = "punctuated"
TOO_MANY = "too many punctuations"
#: How the reason begins why a text is no punctuation.
NO_PUNCTUATION = "no punctuation"
NO_BEGIN = "the period has no begin"
EMPTY_PERIOD = "the period is empty"
_DAY = 86_400_000_000


@dataclass(frozen=True)
class StampedRows:
    """The result of stamping a batch.

    `elements`: the accepted rows, with the columns at the requested positions; those that are punctuated are valid at
    no instant; `late`, `unusable`: positions in the batch of the others, and of punctuated ones; `reasons`: why, for
    each unusable one; `lag`: for each late one, the ticks by which it missed
    the largest timestamp seen; `progress`: the new progress; `jump`: the longest step of the largest timestamp by one
    element; `punctuations`: those among the records that are kept; `spoken`: what operators get of punctuations, None
    for nothing: a column of texts, each at the instant from which on no element fulfils it.
    """

    elements: Elements
    late: Int64s
    lag: Int64s
    unusable: Int64s
    reasons: tuple[str, ...]
    progress: SourceProgress
    jump: int
    punctuations: tuple[Punctuation, ...] = ()
    spoken: Elements | None = None


def read_columns(source: Source, needed: Sequence[int], named: Collection[int] = ()) -> tuple[int, ...]:
    """Return the declared columns to read: the needed ones, and those that stamping reads.

    Args:
        named: those that punctuations name, beside records of PUNCTUATED BY, which may name any.
    """
    if source.punctuated is not None:
        return tuple(range(len(source.columns)))
    period = () if source.period is None else (source.period.begin, source.period.end)
    own = (*source.time_columns, source.operation, source.heartbeat, *source.primary_key, *period)
    extra = {*named, *(c for c in own if c is not None)}
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
    spoken = _punctuations(source, batch, columns, seen)
    usable = usable & ~spoken.only
    reasons: dict[int, str] = {int(i): "no timestamp" for i in np.flatnonzero(~usable & ~spoken.only)}
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
        no_element = spoken.all if is_beat is None else spoken.all | is_beat
        malformed = {position: reason for position, reason in malformed.items() if not no_element[position]}
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
    accepted = usable & ~late
    kept = accepted
    if (punctuated := _punctuated(batch, columns, spoken, accepted)).any():
        reasons |= dict.fromkeys(np.flatnonzero(punctuated).tolist(), PUNCTUATED)
        kept = accepted & ~punctuated
    reasons |= spoken.reasons
    progress = SourceProgress(
        int(ts[kept].min()) if kept.any() else None,
        int(largest[-1]) if length and largest[-1] > NOTHING else seen.high,
        beat=recorded,
        recorded=recorded,
        punctuations=spoken.kept,
    )
    ends = np.where(punctuated, ts, END)
    chosen = tuple(batch.column(columns.index(c)) for c in needed)
    whole = Elements(chosen, ts, ends, sign)
    elements = whole if accepted.all() else whole.filter(accepted)
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
        tuple(one for _, one in spoken.news if not one.is_empty),
        _spoken_elements(spoken, largest, beat, seen),
    )


@dataclass(frozen=True)
class _Spoken:
    """The punctuations among the records of a batch.

    Args:
        all, only: which records are punctuations, and are so without being a heartbeat too.
        before: those that are kept before the batch; None for none.
        news: those of the batch, each with the number of records before it.
        kept: those that are kept after the batch; None for none.
        reasons: why others of these records are none, by position.
    """

    all: Bools
    only: Bools
    before: Punctuations | None
    news: Sequence[tuple[int, Punctuation]] = ()
    kept: Punctuations | None = None
    reasons: Mapping[int, str] = field(default_factory=dict)


def _punctuations(source: Source, batch: pa.RecordBatch, columns: Sequence[int], seen: SourceProgress) -> _Spoken:
    """Return the punctuations of PUNCTUATED BY among the records of a batch."""
    if source.punctuated is None:
        none = np.zeros(batch.num_rows, np.bool_)
        return _Spoken(none, none, seen.punctuations, kept=seen.punctuations)
    texts = batch.column(columns.index(source.punctuated))
    there: Bools = texts.is_valid().to_numpy(zero_copy_only=False)
    is_beat = _heartbeats(source, batch, columns)
    only = there if is_beat is None else there & ~is_beat
    kept = seen.punctuations
    news: list[tuple[int, Punctuation]] = []
    reasons: dict[int, str] = {}
    pending: list[Punctuation] = []
    for place in np.flatnonzero(there).tolist():
        try:
            one = _read_punctuation(texts[place].as_py(), source)
        except PenstockError as error:
            reasons[place] = f"{NO_PUNCTUATION}: {error.message}"
            continue
        most = (kept or Punctuations()).most
        if len(kept or ()) + sum(each.size for each in pending) + one.size > most:
            kept, pending = (kept or Punctuations()).added(pending), []
            if not kept.has_room(one):
                reasons[place] = TOO_MANY
                continue
        pending.append(one)
        news.append((place, one))
    if pending:
        kept = (kept or Punctuations()).added(pending)
    return _Spoken(there, only, seen.punctuations, news, kept, reasons)


def _read_punctuation(text: str, source: Source) -> Punctuation:
    # What parses is loaded where a record has one.
    from penstock.language.binder.statements.punctuations import read_punctuation

    return read_punctuation(text, source)


def _punctuated(batch: pa.RecordBatch, columns: Sequence[int], spoken: _Spoken, kept: Bools) -> Bools:
    """Return which of the elements `kept` fulfil a punctuation that came before them."""
    known = spoken.before or Punctuations()
    named = known.columns | {c for _, one in spoken.news for c in one.columns}
    if not named and not spoken.news:
        return np.zeros(batch.num_rows, np.bool_)
    places = np.flatnonzero(kept)
    chosen = {c: batch.column(columns.index(c)).filter(pa.array(kept)) for c in named}
    news = [(int(np.searchsorted(places, place)), one) for place, one in spoken.news]
    found = np.zeros(batch.num_rows, np.bool_)
    found[places] = known.fulfilled(chosen, len(places), news)
    return found


def _spoken_elements(spoken: _Spoken, largest: Int64s, beat: Int64s, seen: SourceProgress) -> Elements | None:
    """Return the punctuations of a batch, each at the largest timestamp before it, or behind the heartbeat where that
    is later; those before the first element with that.

    Args:
        largest, beat: at each record, the largest timestamp and the heartbeat.
    """
    news = [(place, one) for place, one in spoken.news if largest[place] > NOTHING]
    placed = [(max(int(largest[place]), int(beat[place]) + 1), one) for place, one in news]
    if seen.high is None and len(largest) and largest[-1] > NOTHING:
        tick = max(int(largest[-1]), int(beat[-1]) + 1)
        early = [one for place, one in spoken.news if largest[place] <= NOTHING]
        placed = [*((tick, one) for one in (*(spoken.before or ()), *early)), *placed]
    return spoken_elements(placed)


def spoken_elements(placed: Sequence[tuple[int, Punctuation]]) -> Elements | None:
    """Return punctuations as elements of operators; None for none. placed: each with the instant from which on no
    element fulfils it."""
    singles = [(tick, one.as_text()) for tick, each in placed if not each.is_empty for one in each.single()]
    if not singles:
        return None
    ticks, texts = zip(*singles, strict=True)
    return Elements((pa.array(texts, pa.string()),), np.array(ticks, np.int64), np.full(len(ticks), END, np.int64))


def spoken_after(record: StreamRecord, seen: SourceProgress) -> Elements | None:
    """Return what operators get of a punctuation that is no row and is kept; None for nothing. seen: before it."""
    if isinstance(record, Heartbeat) or seen.high is None:
        return None
    return spoken_elements([(max(seen.high, seen.beat + 1), record)])


def after_record(source: Source, record: StreamRecord, seen: SourceProgress) -> SourceProgress | str:
    """Return the progress of a source after a heartbeat or a punctuation that is no row; the reason where it is none:
    too far ahead, or one too many. seen: before it."""
    if isinstance(record, Punctuation):
        kept = seen.punctuations or Punctuations()
        return seen.merge(SourceProgress(punctuations=kept.added([record]))) if kept.has_room(record) else TOO_MANY
    if (
        source.ahead is not None
        and seen.high is not None
        and record.tick > max(seen.high, _heard(source, seen)) + source.ahead
    ):
        return TOO_FAR_AHEAD
    return seen.merge(SourceProgress(beat=record.tick, recorded=record.tick))


def shown_record(source: Source, record: StreamRecord) -> str:
    """Return a record that is no row as it was written, for dead letters."""
    if isinstance(record, Heartbeat):
        return f"ADVANCE TO {record.tick if source.domain is None else source.domain.show(record.tick)}"
    return f"PUNCTUATE WHERE {shown_punctuation(record, source.columns)}"


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
    unit = unit_of_present(tick)
    if unit is None or unit is declared:
        return None
    return (
        f"{column} of {source.name} has the value {tick}, {_shown_instant(tick, declared)} by its UNIT "
        f"{declared.name}, and {_shown_instant(tick, unit)} in {unit.name}: TIMESTAMP BY {column} UNIT "
        f"{unit.name} declares that"
    )


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


def _ticks(
    source: Source, batch: pa.RecordBatch, columns: Sequence[int], now: int | Int64s | None
) -> tuple[Int64s, Bools]:
    """Return the timestamps of the rows, and which of them have one."""
    column = source.timestamps(lambda position: batch.column(columns.index(position)), batch.num_rows)
    if column is None:
        assert now is not None
        stamps: Int64s = np.broadcast_to(np.asarray(now, np.int64), batch.num_rows).copy()
        return stamps, np.ones(batch.num_rows, np.bool_)
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
