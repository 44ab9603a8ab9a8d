"""The draws of rows for SAMPLE(n ROWS): each row's own, copies of a row too (`expressions/draws.py`)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.expressions.draws import row_draws
from penstock.physical.elements import Elements, Int64s
from penstock.physical.kernels.compiled import argsort_code_time, group_codes, with_time
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer, ReorderingOperator
from penstock.physical.operators.sets.tuple_counts import CountedOperator
from penstock.physical.plan.windows import RowDrawsSpec
from penstock.types import END


def make_row_draws(spec: RowDrawsSpec) -> CountedRowDraws | PaneRowDraws:
    return CountedRowDraws(spec) if spec.counted else PaneRowDraws(spec)


class PaneRowDraws(ReorderingOperator):
    """Elements that the heartbeat has reached, each with its draw. State: elements ahead of the heartbeat, as those of
    a pane come in one round then."""

    def __init__(self, spec: RowDrawsSpec) -> None:
        super().__init__(ReorderBuffer())
        self._spec = spec

    def advance(self, moment: Moment) -> list[Elements]:
        arrived = self._early.until(moment.heartbeat)
        if arrived is None:
            return []
        if arrived.sign is not None:
            arrived = arrived.take(np.repeat(np.arange(len(arrived)), arrived.sign))
            arrived = Elements(arrived.columns, arrived.ts, arrived.exp)
        columns, size = arrived.columns, len(arrived)
        first, second = fingerprints(columns, size)
        first, second = with_time(first, second, arrived.ts)
        codes, _ = group_codes(*with_time(first, second, arrived.exp))
        drawn = row_draws(self._spec.seed, self._spec.name, arrived.ts, arrived.exp, columns, _numbers(codes))
        return [arrived.with_columns([*columns, pa.array(drawn)])]


def _numbers(codes: Int64s) -> Int64s:
    """Return the number of each row among those with its code, from 0."""
    order = np.argsort(codes, kind="stable")
    places = np.arange(len(codes))
    begins = np.concatenate([[True], codes[order][1:] != codes[order][:-1]])
    numbers = np.empty(len(codes), np.int64)
    numbers[order] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return numbers


class CountedRowDraws(CountedOperator):
    """Live rows with numbers from 0 to their count. State: the count of every row."""

    def __init__(self, spec: RowDrawsSpec) -> None:
        super().__init__(spec.types, 1)
        self._spec = spec

    def advance(self, moment: Moment) -> list[Elements]:
        events = self._counted.events(moment.heartbeat)
        if events is None:
            return []
        tuples = self._counted.tuples
        # Steps at one instant are one: rows that come and go at once do not renumber others.
        order = argsort_code_time(events.slots, events.times)
        slots, times = events.slots[order], events.times[order]
        begins = np.flatnonzero(np.concatenate([[True], (slots[1:] != slots[:-1]) | (times[1:] != times[:-1])]))
        slots, times, steps = slots[begins], times[begins], np.add.reduceat(events.weights[order], begins)
        counts = tuples.integers[0]
        after = np.cumsum(steps)
        firsts = np.flatnonzero(np.concatenate([[True], slots[1:] != slots[:-1]]))
        lengths = np.diff(np.append(firsts, len(slots)))
        after += np.repeat(counts[slots[firsts]] - np.concatenate([[0], after])[firsts], lengths)
        before = after - steps
        counts[slots[firsts]] = after[firsts + lengths - 1]
        tuples.touch(slots[firsts])
        many = np.abs(steps)
        of = np.repeat(np.arange(len(steps)), many)
        numbers = np.minimum(before, after)[of] + np.arange(len(of)) - np.repeat(np.cumsum(many) - many, many)
        columns = tuple(tuples.key_columns(slots[of]))
        none = np.zeros(len(of), np.int64)
        drawn = pa.array(row_draws(self._spec.seed, self._spec.name, none, none, columns, numbers))
        ends = np.full(len(of), END, np.int64)
        made = Elements((*columns, drawn), times[of], ends, np.sign(steps)[of])
        tuples.shrink()
        return [made] if len(of) else []
