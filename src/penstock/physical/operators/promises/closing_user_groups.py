"""User-defined aggregates of groups that end when the values of their columns are closed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.figures.figure import FigureValues
from penstock.physical.elements import Elements, Int64s, concat_arrays
from penstock.physical.kernels.fingerprints import UInt64s
from penstock.physical.operators.aggregates.user_defined.user_aggregate import UserAggregation
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.promises.closed_counts import promise_figures
from penstock.physical.operators.promises.open_groups import OpenGroups
from penstock.physical.plan.promises.groups import ClosingUserAggregateSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import END


class ClosingUserAggregation(UserAggregation):
    """State: as of the other groupings, of groups that are open, and their columns; what closes values."""

    def __init__(self, spec: ClosingUserAggregateSpec) -> None:
        super().__init__(spec)
        self._final, self._width = spec.final, spec.keys
        self._keys = KeyedTable(1, 0, spec.key_types)
        self._open = OpenGroups(spec.closings, self._keys)

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"keys": self._keys, **super().synopses(), **self._open.synopses()}

    def figures(self) -> FigureValues:
        return {**super().figures(), **promise_figures(self.synopses().values())}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if port > 1:
            self._open.process(port, elements)
            return []
        if self._final:
            # A group that is never closed is never emitted.
            elements = elements.filter(self._open.can_close(elements.columns[: self._width], len(elements)))
        return super().process(port, elements)

    def advance(self, moment: Moment) -> list[Elements]:
        self._open.begin(moment.heartbeat)
        changes = super().advance(moment)
        slots, instants = self._open.closed()
        first, second = (one.view(np.int64).tolist() for one in self._keys.fingerprints(slots))
        keys = list(zip(first, second, strict=True))
        if self._final:
            changes = self._last_rows(keys, instants)
        for key in keys:
            self._groups.remove(key)
        self._keys.integers[0, slots] = 0
        self._keys.touch(slots)
        self._open.end()
        self._keys.shrink()
        return changes

    def _fingerprints(self, rows: Elements) -> tuple[UInt64s, UInt64s]:
        placed = self._open.place(rows.columns[: self._width], rows.ts)
        self._keys.integers[0, placed.unique] = 1
        self._keys.touch(placed.unique)
        return placed.first, placed.second

    def _last_rows(self, keys: list[tuple[int, int]], instants: Int64s) -> list[Elements]:
        """Return the rows of groups as they were emitted last, from the instants of their closings on."""
        groups = [self._groups.get(key) for key in keys]
        rows: list[pa.RecordBatch | None] = [None if group is None else group.emitted for group in groups]
        there = [row for row in rows if row is not None]
        if not there:
            return []
        ts = instants[[row is not None for row in rows]]
        columns = [concat_arrays([row.column(i) for row in there]) for i in range(there[0].num_columns)]
        return [Elements(tuple(columns), ts, np.full(len(ts), END))]
