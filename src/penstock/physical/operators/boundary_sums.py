"""RSTREAM of aggregates over windows that hardly overlap, at their boundaries (LANGUAGE 4.3, 6).

Where a row is seen at few boundaries it is counted at each of them, and what stands at a boundary is computed from its
panes (`aggregation/at_once.py`): nothing expires, no group and no value of a DISTINCT is carried on from boundary to
boundary, and a boundary that is told leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from penstock.physical.aggregation.at_once import told
from penstock.physical.elements import Elements, round_up
from penstock.physical.operators.contract import Moment, Operator
from penstock.physical.operators.pending import Early
from penstock.physical.pane_plan import BoundarySumsSpec
from penstock.physical.synopses.contract import Synopsis


class BoundarySums(Operator):
    """State: the panes of boundaries ahead of the heartbeat, each at its boundary."""

    def __init__(self, spec: BoundarySumsSpec) -> None:
        self._plan, self._slide, self._align, self._timed = spec.plan, spec.slide, spec.align, spec.timed
        self._early = Early()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        for panes in self._at_boundaries(elements):
            self._early.add(panes)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        due = self._early.parts_until(moment.heartbeat)
        if self._timed:
            # What holds since the beginning of time was due at boundaries at which nobody asked.
            due = [part.filter(part.ts >= moment.start) for part in due] if moment.start is not None else []
        due = [part for part in due if len(part)]
        return told(self._plan, due) if due else []

    def _at_boundaries(self, panes: Elements) -> Iterator[Elements]:
        """Every pane once for each boundary at which it is seen; for each time a stretch in the order of `panes`."""
        at = round_up(panes.ts, self._slide, self._align)
        seen = Elements(panes.columns, at, panes.exp)
        while len(seen := seen.filter(seen.ts < seen.exp)):
            yield seen
            seen = Elements(seen.columns, seen.ts + self._slide, seen.exp)
