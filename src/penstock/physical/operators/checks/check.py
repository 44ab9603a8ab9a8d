"""CHECKED: which rows of a stream break what it promises.

A row breaks a promise if its value was closed at an earlier instant (docs/promises.md). All values that were ever
closed are remembered, so the state grows with them. What a check or a punctuation rejects counts all the same: in N,
and as the last row of its value. Verdicts follow from the accepted elements alone, so several checks of a stream do not
need each other: what several reject is a dead letter of the first that was declared (`first_checks.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.algebra.properties.promises import Ordered
from penstock.arrays import Bools
from penstock.compilation import loop
from penstock.expressions.values.shown import shown_row
from penstock.physical.elements import Elements, Int64s, concat_arrays, int64s
from penstock.physical.kernels.compiled import argsort_time, in_time
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.base.contract import Moment, Operator, Rejection
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.operators.base.shard_rows import rows_of_shard
from penstock.physical.operators.checks.counted_instants import CountedInstants
from penstock.physical.operators.checks.first_checks import bits
from penstock.physical.operators.checks.instant_counts import promised, ranks
from penstock.physical.plan.inputs import CheckSpec
from penstock.physical.plan.spec import RecordedRejections
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.physical.synopses.tables.materialized import MaterializedElements
from penstock.storage.documents import Document, integer
from penstock.types import BEGIN, END

#: Below every difference: each row of UNIQUE closes its value for further rows.
_AT_ONCE = -(2**62)
#: Lanes of a value: whether it has come, the instant of its last row or N there, and whether it was closed.
_CAME, _LAST, _CLOSED = 0, 1, 2


@loop
def _judge(slots: Int64s, before: Int64s, upto: Int64s, within: int, lanes: Int64s, breaks: Bools) -> None:
    """Judge rows in order of time, all of an instant behind each other.

    Args:
        slots: of their values.
        before, upto: of each row, N before and at its instant, or the instant itself.
        within: k.
        lanes: by (slot, lane).
        breaks: receives which rows break the promise.
    """
    for i in range(slots.shape[0]):
        slot = slots[i]
        if lanes[slot, _CAME] != 0 and before[i] - lanes[slot, _LAST] > within:
            lanes[slot, _CLOSED] = 1
        lanes[slot, _CAME] = 1
        lanes[slot, _LAST] = upto[i]
        breaks[i] = lanes[slot, _CLOSED] != 0


class PromiseCheck(Operator, ABC):
    """Emits the rows that break a promise. State: rows and counts ahead of the heartbeat, and N."""

    def __init__(self, spec: CheckSpec) -> None:
        self._spec = spec
        self._early = ReorderBuffer()
        self._counted = CountedInstants()
        self._rejected: list[Rejection] = []

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue, "counts": self._counted.early.queue}

    def marks(self) -> Document:
        return {"count": self._counted.total} if self._counted.total else {}

    def restore_marks(self, marks: Document) -> None:
        self._counted.total = integer(marks, "count")

    def process(self, port: int, elements: Elements) -> list[Elements]:
        (self._counted.early if port else self._early).add(elements)
        return []

    def rejections(self) -> list[Rejection]:
        rejected, self._rejected = self._rejected, []
        return rejected

    def advance(self, moment: Moment) -> list[Elements]:
        counts = self._counted.advance(moment.heartbeat)
        rows = self._early.until(moment.heartbeat)
        if rows is not None and not in_time(rows.ts):
            rows = rows.take(argsort_time(rows.ts))
        breaks = self._breaks(rows, counts, moment.heartbeat)
        if rows is None:
            return []
        # What a punctuation rejects is a dead letter of that.
        breaks = breaks & (rows.exp > rows.ts)
        if not breaks.any():
            return []
        broken = rows.filter(breaks)
        batch = pa.RecordBatch.from_arrays(list(broken.columns), list(self._spec.names))
        reason = f"constraint {self._spec.check.name}"
        halves = fingerprints([bits(column) for column in broken.columns], len(broken))
        elements = (f"{first:016x}{second:016x}" for first, second in zip(*(h.tolist() for h in halves), strict=True))
        self._rejected += [
            Rejection(self._spec.source, int(ts), shown_row(batch, i), reason, element, self._spec.check.order)
            for i, (ts, element) in enumerate(zip(broken.ts, elements, strict=True))
        ]
        return [broken]

    @abstractmethod
    def _breaks(self, rows: Elements | None, counts: Elements | None, heartbeat: int) -> Bools:
        """Return which rows break the promise. They are in order of time, of one instant in that of arrival."""

    @property
    def _ticks(self) -> int | None:
        """Return k where it is a length of time."""
        within = self._spec.within
        return None if within is None else within.ticks

    @property
    def _rows(self) -> int:
        """Return k where it is a number of rows."""
        within = self._spec.within
        return 0 if within is None or within.rows is None else within.rows


class ValueCheck(PromiseCheck):
    """UNIQUE and CLUSTERED BY. State: every value that came, with its last row."""

    def __init__(self, spec: CheckSpec) -> None:
        super().__init__(spec)
        self._values = KeyedTable(3, 0)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "values": self._values}

    def _breaks(self, rows: Elements | None, counts: Elements | None, heartbeat: int) -> Bools:
        if rows is None:
            return np.empty(0, np.bool_)
        breaks = np.zeros(len(rows), np.bool_)
        columns = [rows.columns[i] for i in self._spec.check.promise.columns]
        whole = np.flatnonzero(promised(columns))
        if not len(whole):
            return breaks
        first, second = fingerprints(columns, len(rows))
        slots = self._values.slots(first[whole], second[whole])
        ts, within = rows.ts[whole], _AT_ONCE
        before = upto = ts
        if self._ticks is not None:
            within = self._ticks
        elif self._spec.within is not None:
            before, upto, within = self._counted.before(ts), self._counted.upto(ts), self._rows
        broken = np.zeros(len(whole), np.bool_)
        _judge(slots, before, upto, within, self._values.by_slot.integers, broken)
        self._values.touch(np.unique(slots))
        breaks[whole] = broken
        return breaks


class OrderCheck(PromiseCheck):
    """ORDERED BY. State: of the elements that are not yet k old, the values that are greater than all before them; of
    the others the greatest."""

    def __init__(self, spec: CheckSpec) -> None:
        super().__init__(spec)
        self._greatest = MaterializedElements()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "greatest": self._greatest}

    def _breaks(self, rows: Elements | None, counts: Elements | None, heartbeat: int) -> Bools:
        if counts is None:
            return np.zeros(0 if rows is None else len(rows), np.bool_)
        promise, known = self._spec.check.promise, self._greatest.elements
        assert isinstance(promise, Ordered), "the spec has another operator"
        column = promise.columns[0]
        came = counts.take(argsort_time(counts.ts))
        # An element of the state has its value and N at its instant.
        parts = [came.columns[1]] + ([] if rows is None else [rows.columns[column]])
        values = concat_arrays(([] if known is None else [known.columns[0]]) + parts)
        found = ranks(values, promise.descending)
        kept = 0 if known is None else len(known)
        size = kept + len(came)
        ticks, totals = came.ts, self._counted.upto(came.ts)
        if known is not None:
            ticks = np.concatenate([known.ts, ticks])
            totals = np.concatenate([int64s(known.columns[1]), totals])
        by_time = self._ticks is not None
        places = ticks if by_time else totals
        greatest = np.maximum.accumulate(found[:size])
        breaks = np.zeros(len(found) - size, np.bool_)
        if rows is not None:
            bound = self._reach(places, rows.ts, by_time)
            mine = found[size:]
            there = (bound >= 0) & (mine >= 0)
            breaks[there] = mine[there] < greatest[bound[there]]
        self._keep(values, ticks, totals, places, greatest, found[:size], heartbeat)
        return breaks

    def _reach(self, places: Int64s, ts: Int64s, by_time: bool) -> Int64s:
        """Return the last place whose bound holds for rows at instants, -1 for none."""
        if by_time:
            assert self._ticks is not None, "k is a length of time"
            return np.searchsorted(places, ts - self._ticks, side="left") - 1
        return np.searchsorted(places, self._counted.before(ts) - self._rows, side="right") - 1

    def _keep(
        self,
        values: pa.Array,
        ticks: Int64s,
        totals: Int64s,
        places: Int64s,
        greatest: Int64s,
        found: Int64s,
        heartbeat: int,
    ) -> None:
        """Keep what bounds rows behind the heartbeat: each value above those before it, and of those that bound all
        rows to come only the greatest."""
        rises = np.flatnonzero(found > np.concatenate([[-1], greatest[:-1]]))
        if self._ticks is None:
            settled = np.searchsorted(places[rises], self._counted.total - self._rows, side="right") - 1
        else:
            settled = np.searchsorted(places[rises], heartbeat + 1 - self._ticks, side="left") - 1
        rises = rises[max(0, int(settled)) :]
        columns = (values.take(pa.array(rises)), pa.array(totals[rises]))
        self._greatest.replace(Elements(columns, ticks[rises], np.full(len(rises), END, np.int64)))


class RecordedCheck(Operator):
    """Emits the rows that a check rejected when it judged them, and judges nothing. It has no state: rows that it emits
    again, with a tick that has been reached before, meet none."""

    def __init__(self, recorded: RecordedRejections, key: tuple[int, ...], shards: int) -> None:
        self._recorded = recorded
        self._key = key
        self._shards = shards
        self._reached = BEGIN - 1

    def advance(self, moment: Moment) -> list[Elements]:
        rows = self._recorded(self._reached, moment.heartbeat)
        self._reached = moment.heartbeat
        if rows is None:
            return []
        mine = rows_of_shard(rows, self._key, moment.shard, self._shards)
        return [mine] if len(mine) else []


def make_check(spec: CheckSpec, shards: int) -> Operator:
    """Return the operator that checks a promise."""
    promise = spec.check.promise
    is_order = isinstance(promise, Ordered)
    if spec.recorded is not None:
        return RecordedCheck(spec.recorded, () if is_order else promise.columns, shards)
    return OrderCheck(spec) if is_order else ValueCheck(spec)
