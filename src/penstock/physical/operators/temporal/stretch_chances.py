"""Inclusion records of rows under a budget of which whole values go: each is replaced when the threshold of its bucket
falls.

Contract: at every instant a row has the record of the thresholds once all of that instant has come. The operator that
drops values is in the same stage and shard, has advanced before, and has noted how its thresholds fell in the round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from penstock.expressions.evaluation.evaluate import evaluate_all
from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.kernels.compiled import distinct_slots
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer, ReorderingOperator
from penstock.physical.operators.streams.changes import net
from penstock.physical.operators.temporal.stretch_budget import DropsValues, ranks_of, records_of
from penstock.physical.plan.temporal.stretch_chances import StretchChancesSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.shedding.hashing import Fall, FallingThresholds, bucket_of
from penstock.shedding.layout import NEVER
from penstock.storage.documents import Document, integers
from penstock.types import END

#: The lanes of a row: how often it is there, the hash of its value.
_COPIES, _RANK = range(2)


class StretchChances(ReorderingOperator):
    """State: the rows with the lanes above, and the thresholds that they have been emitted with."""

    def __init__(self, spec: StretchChancesSpec) -> None:
        super().__init__(ReorderBuffer())
        self._spec = spec
        self._rows = KeyedTable(2, 0, spec.types)
        self._thresholds = np.full(spec.buckets, NEVER)
        self._falling: FallingThresholds | None = None

    def attach(self, inputs: Sequence[Operator]) -> None:
        (budget,) = inputs
        assert isinstance(budget, DropsValues)
        self._falling = budget.falling_thresholds()

    def detach(self) -> None:
        self._falling = None

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "rows": self._rows}

    def marks(self) -> Document:
        return {"thresholds": self._thresholds.tolist()}

    def restore_marks(self, marks: Document) -> None:
        self._thresholds = np.array(integers(marks, "thresholds"), np.int64)

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if port == 0 and len(elements):
            never = np.full(len(elements), END)
            self._early.add(Elements(elements.columns, elements.ts, never, elements.signs))
            ends = elements.exp < END
            if ends.any():
                # A row that ends by itself may have another record by then.
                ended = elements.filter(ends)
                self._early.add(Elements(ended.columns, ended.exp, never[ends], -ended.signs))
        return []

    def advance(self, moment: Moment) -> Iterable[Elements]:
        expressions = self._spec.columns
        if expressions is None:
            return self._follow(moment)
        # What differs in the record may be equal in what is computed.
        made = [e.with_columns(evaluate_all(expressions, e.columns, len(e))) for e in self._follow(moment) if len(e)]
        return [net(concat(made))] if made else []

    def _follow(self, moment: Moment) -> Iterator[Elements]:
        arrived = self._early.until(moment.heartbeat)
        # What comes and goes at one instant has never been there.
        changes = None if arrived is None else net(arrived)
        if changes is not None:
            changes = changes.take(np.argsort(changes.ts, kind="stable"))
        done = 0
        for at, falls in self._falls():
            if changes is not None:
                # The rows that are there before, and those of the instant that go.
                stop = int(np.searchsorted(changes.ts, at))
                yield from self._passed(changes.slice(done, stop))
                last = int(np.searchsorted(changes.ts, at, side="right"))
                own = changes.slice(stop, last)
                yield from self._passed(own.filter(own.signs < 0))
                yield from self._replaced(at, falls)
                yield from self._passed(own.filter(own.signs > 0))
                done = last
            else:
                yield from self._replaced(at, falls)
        if changes is not None:
            yield from self._passed(changes.slice(done, len(changes)))
        self._rows.shrink()

    def _falls(self) -> list[tuple[int, list[Fall]]]:
        """Return how thresholds have fallen since the last round, by instant."""
        found: dict[int, list[Fall]] = {}
        for fall in [] if self._falling is None else sorted(self._falling.falls):
            found.setdefault(fall.at, []).append(fall)
        return list(found.items())

    def _passed(self, changes: Elements) -> list[Elements]:
        """Return changes of rows with the records of now, and keep them."""
        if not len(changes):
            return []
        slots = self._rows.place(changes.columns, len(changes)).slots
        lanes = self._rows.integers
        ranks = ranks_of([changes.columns[i] for i in self._spec.value], len(changes))
        np.add.at(lanes[_COPIES], slots, changes.signs)
        lanes[_RANK, slots] = ranks
        self._rows.touch(distinct_slots(slots, self._rows.count))
        return [changes.with_columns((*changes.columns, records_of(ranks, self._met(ranks))))]

    def _met(self, ranks: Int64s) -> Int64s:
        met: Int64s = self._thresholds[bucket_of(ranks, self._spec.buckets)]
        return met

    def _replaced(self, at: int, falls: Sequence[Fall]) -> list[Elements]:
        """Return the changes of the rows whose thresholds fall at an instant, and follow them."""
        after = self._thresholds.copy()
        for fall in falls:
            after[fall.bucket] = min(after[fall.bucket], fall.threshold)
        fallen = after < self._thresholds
        slots = self._rows.live()
        ranks = self._rows.integers[_RANK, slots]
        changed = fallen[bucket_of(ranks, self._spec.buckets)]
        slots, ranks = slots[changed], ranks[changed]
        before = self._met(ranks)
        self._thresholds = after
        if not len(slots):
            return []
        columns, copies = self._rows.key_columns(slots), self._rows.integers[_COPIES, slots]
        times, never = np.full(len(slots), at), np.full(len(slots), END)
        old, new = (records_of(ranks, thresholds) for thresholds in (before, self._met(ranks)))
        return [
            Elements((*columns, old), times, never, -copies),
            Elements((*columns, new), times, never, copies),
        ]
