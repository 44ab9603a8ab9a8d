"""The feedback between joins: estimates of streams that the results of a join probe later `[pt 4]`.

The meaning is that of `algebra/nodes/preferences.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.algebra.nodes.preference_clause import Preference, PreferenceOrder
from penstock.algebra.nodes.preferences import SummaryAhead
from penstock.arrays import Float64s
from penstock.expressions.sketches.count_sketch import value_hashes
from penstock.physical.elements import Elements
from penstock.physical.operators.base.reorder_buffer import ArrivalOrderBuffer
from penstock.physical.operators.joins.join import keyed
from penstock.physical.operators.preferences.entries import products_of
from penstock.physical.synopses.summaries.declared import summary_of


class StreamAhead:
    """A stream that is joined later. arrival: whether its elements come in order of arrival."""

    def __init__(self, preference: Preference, ahead: SummaryAhead, arrival: bool) -> None:
        self._preference, self._ahead = preference, ahead
        self.early = ArrivalOrderBuffer(arrival)
        self.stream_summary = summary_of(ahead.summary)

    def add(self, elements: Elements) -> None:
        """Take elements of the stream. NULL is not summarised."""
        known = keyed(elements, self._ahead.summarised)
        self.early.add(elements if known.all() else elements.filter(known))

    def summarise(self, heartbeat: int) -> None:
        """Take elements up to the heartbeat into the summary, which is not asked."""
        counted = self.early.until(heartbeat)
        if counted is not None:
            columns = [counted.columns[c] for c in self._ahead.summarised]
            self.stream_summary.count_later(counted.ts, *value_hashes(self._preference.seed, columns, len(counted)))

    def multiply(self, makers: Sequence[Elements], products: Sequence[Float64s], heartbeat: int) -> list[Float64s]:
        """Return the priorities `products` of elements of both sides times those for what they find in the stream."""
        counted, ahead, seed = self.early.until(heartbeat), self._ahead, self._preference.seed
        parts = [] if counted is None else [(counted, ahead.summarised)]
        parts += [(one, tuple(pair[side] for pair in ahead.keys)) for side, one in enumerate(makers)]
        hashes, known = zip(
            *(value_hashes(seed, [one.columns[c] for c in columns], len(one)) for one, columns in parts), strict=True
        )
        first = 0 if counted is None else len(counted)
        ts = np.concatenate([one.ts for one, _ in parts])
        # Behind all elements of their instant.
        order = np.argsort(ts, kind="stable")
        zones = self.stream_summary.process(
            ts[order], np.concatenate(hashes)[order], np.concatenate(known)[order], order < first
        )
        events = order[zones.event] - first
        asking = sum(map(len, makers))
        estimates, sizes = np.zeros(asking, np.int64), np.zeros(asking, np.int64)
        np.add.at(estimates, events, zones.estimate)
        np.add.at(sizes, events, zones.elements)
        given = np.concatenate(products)
        if self._preference.order is PreferenceOrder.ASC:
            # Of what is not there, nothing is rare: NaN ranks last.
            given = np.where(estimates < 1, np.nan, given)
        found = products_of(self._preference, ahead.expressions, [], estimates, sizes, given)
        return np.split(found, [len(makers[0])])
