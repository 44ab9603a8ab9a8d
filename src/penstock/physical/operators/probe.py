"""A join of rows that live for one instant with the groups of an aggregate, which they look up (`algebra/probes.py`).

Both are one operator, so the aggregate tells nobody of its changes: what its rows are is computed for the instants and
groups that are asked about, and for no others. Where sums are all there is, changes and questions are gone through
once, in the order of time (`aggregation/looked_up.py`); other aggregates make the course of their groups, in which the
questions find their place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.expressions.evaluate import evaluate_all, mask
from penstock.physical.aggregation.looked_up import Changes, changes, follow
from penstock.physical.elements import Elements, Int64s, concat_arrays, int64s
from penstock.physical.fingerprints import fingerprints
from penstock.physical.finish import finish
from penstock.physical.kernels import argsort_code_time, argsort_time, distinct_slots, in_time
from penstock.physical.operators.aggregate import Aggregation
from penstock.physical.operators.contract import Moment
from penstock.physical.operators.join import keyed
from penstock.physical.operators.pending import Early
from penstock.physical.probe_plan import ProbeSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.slots import Placed

#: Questions at a time: what is noted for them stays in cache until it has become columns.
_AT_ONCE = 1 << 16


class Probe(Aggregation):
    """State: that of the aggregate, and the rows that ask ahead of the heartbeat."""

    def __init__(self, spec: ProbeSpec) -> None:
        super().__init__(spec)
        self._spec = spec
        self._asking = Early()
        self._none = np.empty(0, np.int64)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "asking": self._asking.queue}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        (self._early if port else self._asking).add(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        asking = self._asking.until(moment.heartbeat)
        found = self._found(asking, self._early.until(moment.heartbeat), moment.heartbeat)
        result = [] if asking is None else _joined(self._spec, asking, *found)
        self._shrink()
        return result

    def _found(
        self, asking: Elements | None, arrived: Elements | None, heartbeat: int
    ) -> tuple[Int64s, list[pa.Array]]:  # fmt: skip
        """Take in what arrived. The rows of `asking` whose group has a row at their instant, and that row."""
        events = self._events(arrived, heartbeat)
        slots = np.empty(0, np.int64) if asking is None else self._slots_of(asking)
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
        if asking is None:
            return slots, []
        rows = np.flatnonzero(slots >= 0)
        place = _last_change(known, times, slots[rows], asking.ts[rows])
        place = np.where(place >= 0, place, len(known) + np.searchsorted(groups, slots[rows]))
        alive = live[place]
        rows, chosen = rows[alive], pa.array(place[alive])
        return rows, [*self._keys_at(asking, rows, slots), *(r.take(chosen) for r in results)]

    def _slots_of(self, asking: Elements) -> Int64s:
        """The group that each row asks about; -1 where there is none."""
        key = [asking.columns[c] for c in self._spec.key]
        slots = self._groups.find(*fingerprints(key, len(asking)))
        if any(column.null_count for column in key):
            # NULL is a group, but equal to nothing.
            slots[~keyed(asking, self._spec.key)] = -1
        return slots

    def _keys_at(self, asking: Elements, rows: Int64s, slots: Int64s) -> list[pa.Array]:
        """The group columns of what `rows` have found."""
        if all(_one_of_a_kind(asking.columns[c].type) for c in self._spec.key):
            return [_taken(asking.columns[c], rows) for c in self._spec.key]
        return self._groups.key_columns(slots[rows])


class SumsProbe(Probe):
    """As `Probe`, of sums alone."""

    def _found(
        self, asking: Elements | None, arrived: Elements | None, heartbeat: int
    ) -> tuple[Int64s, list[pa.Array]]:  # fmt: skip
        placed = None if arrived is None else self._groups.place(arrived.columns[: self._keys], len(arrived))
        found = self._changes(arrived, placed, self._live.pop_until(heartbeat))
        if arrived is not None and placed is not None:
            self._keep(arrived, placed, heartbeat)
        if asking is None:
            slots = self._none
        elif arrived is not None and placed is not None and self._ask_of_themselves(asking, arrived):
            slots = placed.slots
        else:
            slots = self._slots_of(asking)
        rows, columns = self._answers(found, heartbeat, self._none if asking is None else asking.ts, slots)
        self._groups.touch(distinct_slots(found.slots[found.slots >= 0], self._groups.count))
        return (rows, []) if asking is None else (rows, [*self._keys_at(asking, rows, slots), *columns])

    def _answers(
        self, found: Changes, heartbeat: int, instants: Int64s, slots: Int64s
    ) -> tuple[Int64s, list[pa.Array]]:  # fmt: skip
        """Carry out the changes. Which questions find a row, and the results that they find."""
        order, groups, plan = argsort_time(instants), self._groups, self._plan
        coming, (going, goings) = found.coming(), found.going(heartbeat)
        place = np.zeros(2, np.int64)
        rows: list[Int64s] = []
        parts: list[list[pa.Array]] = []
        # The last stretch has no questions: what is left of the changes follows all of them.
        for start in range(0, len(order) + _AT_ONCE, _AT_ONCE):
            asked = order[start : start + _AT_ONCE]
            integers = np.empty((plan.integers, len(asked)), np.int64)
            floats = np.empty((plan.floats, len(asked)), np.float64)
            follow(
                coming, going, goings, found.old, found.ts, found.exp, found.slots, found.ones, found.lanes,
                found.integers, found.floats, found.rests, place, asked, instants, slots, groups.integers,
                groups.floats, self._guards, integers, floats,
            )  # fmt: skip
            live = integers[0] > 0
            if not live.all():
                asked, integers, floats = asked[live], integers[:, live], floats[:, live]
            rows.append(asked)
            parts.append(finish(plan, integers, floats, {}))
        chosen = np.concatenate(rows)
        columns = [concat_arrays(list(pieces)) for pieces in zip(*parts, strict=True)]
        if in_time(chosen):
            return chosen, columns
        back = pa.array(np.argsort(chosen))
        return np.sort(chosen), [c.take(back) for c in columns]

    def _ask_of_themselves(self, asking: Elements, arrived: Elements) -> bool:
        """Whether each row asks about the group that it comes to."""
        keys = [asking.columns[c] for c in self._spec.key]
        return all(one is other and not one.null_count for one, other in zip(keys, arrived.columns, strict=False))

    def _changes(self, arrived: Elements | None, placed: Placed | None, expired: Sequence[pa.RecordBatch]) -> Changes:
        """What has expired, then what has arrived."""
        parts = [batch.columns[3:] for batch in expired]
        slots = [self._groups.find(*(int64s(b.column(i)).view(np.uint64) for i in (1, 2))) for b in expired]
        ends = [int64s(batch.column(0)) for batch in expired]
        old = sum(map(len, ends))
        if arrived is not None and placed is not None:
            parts.append(list(arrived.columns[self._keys :]))
            slots.append(placed.slots)
            ends.append(arrived.exp)
        ts = self._none if arrived is None else arrived.ts
        return changes(_joint(slots), ts, _joint(ends), old, parts, self._plan.integers, self._plan.floats // 2)


def make_probe(spec: ProbeSpec) -> Probe:
    return SumsProbe(spec) if not spec.plan.valued else Probe(spec)


def _joint(arrays: list[Int64s]) -> Int64s:
    return arrays[0] if len(arrays) == 1 else np.concatenate([np.empty(0, np.int64), *arrays])


def _one_of_a_kind(type_: pa.DataType) -> bool:
    """Whether values of the type that are equal are the same: not -0.0 and 0.0."""
    return not (pa.types.is_floating(type_) or pa.types.is_nested(type_))


def _taken(column: pa.Array, rows: Int64s) -> pa.Array:
    """`column` at `rows`, which are in order and different."""
    return column if len(rows) == len(column) else column.take(pa.array(rows))


def _last_change(slots: Int64s, times: Int64s, asked: Int64s, instants: Int64s) -> Int64s:
    """For each question the last change of its group up to its instant, -1 where there was none."""
    size = len(slots)
    groups = np.concatenate([slots, asked])
    # A change comes before a question of the same instant.
    order = argsort_code_time(groups, np.concatenate([times, instants]))
    last = np.maximum.accumulate(np.where(order < size, np.arange(len(order)), -1))
    change = np.where(last >= 0, order[last], -1)
    change[(change >= 0) & (groups[change] != groups[order])] = -1
    found = np.empty(len(order), np.int64)
    found[order] = change
    return found[size:]


def _joined(spec: ProbeSpec, asking: Elements, rows: Int64s, found: list[pa.Array]) -> list[Elements]:
    """The rows that ask with what they have found: `rows` of them, `found` beside each."""
    for step in spec.between:
        if isinstance(step, tuple):
            found = evaluate_all(step, found, len(rows))
        else:
            rows, found = _kept(mask(step, found, len(rows)), rows, found)
    if spec.residual is not None:
        mine = [_taken(c, rows) for c in asking.columns]
        pair = [*mine, *found] if spec.left else [*found, *mine]
        rows, found = _kept(mask(spec.residual, pair, len(rows)), rows, found)
    if len(rows) == len(asking):
        one = asking
    elif spec.outer:
        one = asking
        place = np.full(len(asking), -1, np.int64)
        place[rows] = np.arange(len(rows))
        chosen = pa.array(place, mask=place < 0)
        found = [c.take(chosen) for c in found]
    else:
        one = asking.take(rows)
    if not len(one):
        return []
    columns = [*one.columns, *found] if spec.left else [*found, *one.columns]
    return [one.with_columns(columns)]


def _kept(
    kept: np.ndarray[tuple[int], np.dtype[np.bool_]], rows: Int64s, found: list[pa.Array]
) -> tuple[Int64s, list[pa.Array]]:
    if kept.all():
        return rows, found
    chosen = pa.array(np.flatnonzero(kept))
    return rows[kept], [c.take(chosen) for c in found]
