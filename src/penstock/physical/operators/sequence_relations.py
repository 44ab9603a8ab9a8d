"""A query in the sequence model that reads relations with updates beside its streams (LANGUAGE 6).

A relation is at an instant what it is at the instant's timestamp. So an update makes no instant: it waits for the first
one with its timestamp or a later one, and to the inner plan it comes there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.physical.elements import Elements, Int64s, round_up
from penstock.physical.operators import Tables
from penstock.physical.operators.contract import Moment
from penstock.physical.operators.pending import Early
from penstock.physical.operators.sequence import Line
from penstock.physical.sequence_plan import WAITING, SequenceSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.types import END


class LineWithRelations(Line):
    """State: that of the line, and the updates that no instant has seen yet."""

    def __init__(self, spec: SequenceSpec, tables: Tables) -> None:
        super().__init__(spec, tables)
        self._updates = [Early() for _ in spec.relations]

    def synopses(self) -> Mapping[str, Synopsis]:
        waiting = {f"updates{number}": early.queue for number, early in enumerate(self._updates)}
        return {**super().synopses(), **waiting}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        streams = len(self._spec.types)
        if port < streams:
            return super().process(port, elements)
        self._updates[port - streams].add(elements)
        if self._spec.periods and not self._spec.all_instants and len(elements):
            # At the boundary behind an update something may change.
            ticks = np.unique(elements.ts)
            ahead = np.unique(np.concatenate([round_up(ticks, *period) for period in self._spec.periods]))
            self._boundaries.add(Elements((), ahead, np.full(len(ahead), END)))
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        for early in self._updates:
            early.hold()
        return super().advance(moment)

    def _given(
        self, streams: Sequence[Elements | None], arrived: Sequence[Int64s], ticks: Int64s, order: Int64s
    ) -> dict[str, Elements]:
        first, line = self._count + 1, ticks[order]
        given = super()._given(streams, arrived, ticks, order)
        for name, early in zip(self._spec.relations, self._updates, strict=True):
            found = early.until(int(line[-1]))
            if found is not None:
                given[name] = Elements(found.columns, first + np.searchsorted(line, found.ts), found.exp, found.sign)
        # What has come into its windows asks no relation any more.
        given[WAITING] = Elements((), np.array([self._still_asked() - 1]), np.array([END]))
        return given
