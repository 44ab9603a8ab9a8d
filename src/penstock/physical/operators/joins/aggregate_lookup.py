"""The aggregate look-up join: rows that live for one instant look up the groups of an aggregate
(`algebra/nodes/aggregate_lookup.py`).

Both are one operator, so the aggregate emits no changes: its rows are computed only for the instants and groups that
are looked up. If all aggregates are sums, changes and look-ups are processed in one pass in time order
(`physical/operators/aggregates/point_lookup.py`); other aggregates compute the history of their groups, in which each
look-up finds the last change before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.expressions.evaluation.evaluate import evaluate_all, mask
from penstock.physical.elements import Elements, Int64s, concat_arrays, int64s
from penstock.physical.kernels.compiled import argsort_code_time, argsort_time, distinct_slots, in_time
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.aggregates.aggregate import Aggregation
from penstock.physical.operators.aggregates.groups.finalize import finish
from penstock.physical.operators.aggregates.point_lookup import AccumulatorChanges, changes, follow
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.operators.joins.join import keyed
from penstock.physical.plan.joins.specs import AggregateLookupSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.tables.keyed_table import SlotAssignment

#: Look-ups per batch: their results stay in cache until they are turned into columns.
_AT_ONCE = 1 << 16


class AggregateLookup(Aggregation):
    """State: that of the aggregate, and the probing rows ahead of the heartbeat."""

    def __init__(self, spec: AggregateLookupSpec) -> None:
        super().__init__(spec)
        self._spec = spec
        self._asking = ReorderBuffer()
        self._none = np.empty(0, np.int64)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "probing": self._asking.queue}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        (self._early if port else self._asking).add(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        probing = self._asking.until(moment.heartbeat)
        rows_and_columns = self._found(probing, self._early.until(moment.heartbeat), moment.heartbeat)
        result = [] if probing is None else _joined(self._spec, probing, *rows_and_columns)
        self._shrink()
        return result

    def _found(
        self, probing: Elements | None, arrived: Elements | None, heartbeat: int
    ) -> tuple[Int64s, list[pa.Array]]:
        """Apply the rows that arrived; return the rows of `probing` whose group has a row at their instant, and the
        columns of that group row."""
        events = self._events(arrived, heartbeat)
        slots = np.empty(0, np.int64) if probing is None else self._slots_of(probing)
        groups = distinct_slots(slots[slots >= 0], self._groups.count)
        before, was_live = self._rows(groups), self._groups.integers[0, groups] > 0
        if events is not None and len(events.slots):
            course = self._course(events)
            live = np.concatenate([course.live, was_live])
            results = [concat_arrays([r, b]) for r, b in zip(course.results, before, strict=True)]
            known, times = course.slots, course.times
        else:
            live, results = was_live, before
            known, times = np.empty(0, np.int64), np.empty(0, np.int64)
        if probing is None:
            return slots, []
        rows = np.flatnonzero(slots >= 0)
        change = _last_change(known, times, slots[rows], probing.ts[rows])
        change = np.where(change >= 0, change, len(known) + np.searchsorted(groups, slots[rows]))
        alive = live[change]
        rows, chosen = rows[alive], pa.array(change[alive])
        return rows, [*self._keys_at(probing, rows, slots), *(r.take(chosen) for r in results)]

    def _slots_of(self, probing: Elements) -> Int64s:
        """Return the slot of the group that each row looks up; -1 where there is none."""
        key = [probing.columns[c] for c in self._spec.key]
        slots = self._groups.find(*fingerprints(key, len(probing)))
        if any(column.null_count for column in key):
            # NULL is a group, but equal to nothing.
            slots[~keyed(probing, self._spec.key)] = -1
        return slots

    def _keys_at(self, probing: Elements, rows: Int64s, slots: Int64s) -> list[pa.Array]:
        """Return the group columns found by `rows`."""
        if all(_equal_values_identical(probing.columns[c].type) for c in self._spec.key):
            return [_taken(probing.columns[c], rows) for c in self._spec.key]
        return self._groups.key_columns(slots[rows])


class SumsLookup(AggregateLookup):
    """An `AggregateLookup` whose aggregates are all sums."""

    def _found(
        self, probing: Elements | None, arrived: Elements | None, heartbeat: int
    ) -> tuple[Int64s, list[pa.Array]]:
        placed = None if arrived is None else self._groups.place(arrived.columns[: self._keys], len(arrived))
        batch = self._changes(arrived, placed, self._live.pop_until(heartbeat))
        if arrived is not None and placed is not None:
            self._keep(arrived, placed, heartbeat)
        if probing is None:
            slots = self._none
        elif arrived is not None and placed is not None and self._probe_own_group(probing, arrived):
            slots = placed.slots
        else:
            slots = self._slots_of(probing)
        rows, columns = self._results_found(batch, heartbeat, self._none if probing is None else probing.ts, slots)
        self._groups.touch(distinct_slots(batch.slots[batch.slots >= 0], self._groups.count))
        return (rows, []) if probing is None else (rows, [*self._keys_at(probing, rows, slots), *columns])

    def _results_found(
        self, batch: AccumulatorChanges, heartbeat: int, instants: Int64s, slots: Int64s
    ) -> tuple[Int64s, list[pa.Array]]:
        """Apply the changes; return the look-ups that find a row, and their results."""
        order, state, plan = argsort_time(instants), self._groups.by_slot, self._plan
        additions, (removals, removal_count) = batch.additions(), batch.removals(heartbeat)
        progress = np.zeros(2, np.int64)
        rows: list[Int64s] = []
        parts: list[list[pa.Array]] = []
        # The last batch has no look-ups: it applies the changes that follow all of them.
        for start in range(0, len(order) + _AT_ONCE, _AT_ONCE):
            lookups = order[start : start + _AT_ONCE]
            integers = np.empty((plan.integers, len(lookups)), np.int64)
            floats = np.zeros((plan.floats, len(lookups)))
            follow(
                additions,
                removals,
                removal_count,
                batch.old,
                batch.ts,
                batch.exp,
                batch.slots,
                batch.ones,
                batch.lanes,
                batch.integers,
                batch.floats,
                progress,
                lookups,
                instants,
                slots,
                state.integers,
                state.floats,
                self._double_sums,
                integers,
                floats,
            )
            live = integers[0] > 0
            if not live.all():
                lookups, integers, floats = lookups[live], integers[:, live], floats[:, live]
            rows.append(lookups)
            parts.append(finish(plan, integers, floats, {}))
        chosen = np.concatenate(rows)
        columns = [concat_arrays(list(pieces)) for pieces in zip(*parts, strict=True)]
        if in_time(chosen):
            return chosen, columns
        back = pa.array(np.argsort(chosen))
        return np.sort(chosen), [c.take(back) for c in columns]

    def _probe_own_group(self, probing: Elements, arrived: Elements) -> bool:
        """Return whether each row looks up the group that it belongs to."""
        keys = [probing.columns[c] for c in self._spec.key]
        return all(
            probed is stored and not probed.null_count for probed, stored in zip(keys, arrived.columns, strict=False)
        )

    def _changes(
        self, arrived: Elements | None, placed: SlotAssignment | None, expired: Sequence[pa.RecordBatch]
    ) -> AccumulatorChanges:
        """Return the expired rows, then the rows that arrived, as one batch of changes."""
        parts = [batch.columns[3:] for batch in expired]
        slots = [self._groups.find(*(int64s(b.column(i)).view(np.uint64) for i in (1, 2))) for b in expired]
        ends = [int64s(batch.column(0)) for batch in expired]
        old = sum(map(len, ends))
        if arrived is not None and placed is not None:
            parts.append(list(arrived.columns[self._keys :]))
            slots.append(placed.slots)
            ends.append(arrived.exp)
        ts = self._none if arrived is None else arrived.ts
        return changes(_joint(slots), ts, _joint(ends), old, parts, self._plan.integers, self._double_sums)


def make_probe(spec: AggregateLookupSpec) -> AggregateLookup:
    return SumsLookup(spec) if not spec.plan.valued else AggregateLookup(spec)


def _joint(arrays: list[Int64s]) -> Int64s:
    return arrays[0] if len(arrays) == 1 else np.concatenate([np.empty(0, np.int64), *arrays])


def _equal_values_identical(type_: pa.DataType) -> bool:
    """Return whether values of the type that are equal are the same: not -0.0 and 0.0."""
    return not (pa.types.is_floating(type_) or pa.types.is_nested(type_))


def _taken(column: pa.Array, rows: Int64s) -> pa.Array:
    """`column` at `rows`, which are in order and different."""
    return column if len(rows) == len(column) else column.take(pa.array(rows))


def _last_change(slots: Int64s, times: Int64s, lookup_slots: Int64s, instants: Int64s) -> Int64s:
    """Return, for each look-up, the last change of its group up to its instant; -1 where there is none."""
    size = len(slots)
    groups = np.concatenate([slots, lookup_slots])
    # A change precedes a look-up of the same instant.
    order = argsort_code_time(groups, np.concatenate([times, instants]))
    last = np.maximum.accumulate(np.where(order < size, np.arange(len(order)), -1))
    change = np.where(last >= 0, order[last], -1)
    change[(change >= 0) & (groups[change] != groups[order])] = -1
    changes_found = np.empty(len(order), np.int64)
    changes_found[order] = change
    return changes_found[size:]


def _joined(spec: AggregateLookupSpec, probing: Elements, rows: Int64s, results: list[pa.Array]) -> list[Elements]:
    """Return the probing rows `rows`, each joined with its row of `results`."""
    for step in spec.between:
        if isinstance(step, tuple):
            results = evaluate_all(step, results, len(rows))
        else:
            rows, results = _kept(mask(step, results, len(rows)), rows, results)
    if spec.residual is not None:
        mine = [_taken(c, rows) for c in probing.columns]
        pair = [*mine, *results] if spec.left else [*results, *mine]
        rows, results = _kept(mask(spec.residual, pair, len(rows)), rows, results)
    if len(rows) == len(probing):
        output = probing
    elif spec.outer:
        output = probing
        positions = np.full(len(probing), -1, np.int64)
        positions[rows] = np.arange(len(rows))
        chosen = pa.array(positions, mask=positions < 0)
        results = [c.take(chosen) for c in results]
    else:
        output = probing.take(rows)
    if not len(output):
        return []
    columns = [*output.columns, *results] if spec.left else [*results, *output.columns]
    return [output.with_columns(columns)]


def _kept(
    kept: np.ndarray[tuple[int], np.dtype[np.bool_]], rows: Int64s, results: list[pa.Array]
) -> tuple[Int64s, list[pa.Array]]:
    if kept.all():
        return rows, results
    chosen = pa.array(np.flatnonzero(kept))
    return rows[kept], [c.take(chosen) for c in results]
