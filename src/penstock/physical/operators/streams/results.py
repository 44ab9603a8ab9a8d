"""Results counted one by one: the input of WSTREAM windows and of RESTORE ([semantics 4.3], `[golab 3.3.3, 3.3.4]`).

`IndividualResults` makes a stream of all insertions; `RestoredInsertions` emits insertions at boundaries. `Rounded`
gives results the validity that they have under SLIDE;
`ShortLives` selects those without a slide boundary in their validity, which SLIDE loses. `ShortChanges` finds them
among the changes of a relation whose expirations are not known at insertion; the oldest of equal tuples is deleted
first.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from penstock.compilation import loop
from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.kernels.compiled import argsort_code_time, group_codes, sum_by_code, with_time
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.kernels.ticks import round_up
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.operators.streams.changes import from_start
from penstock.physical.plan.streams import (
    IndividualResultsSpec,
    RestoredInsertionsSpec,
    RoundedSpec,
    ShortChangesSpec,
    ShortLivesSpec,
)
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import BEGIN, END


class IndividualResults(Operator):
    """State: the elements valid from the beginning of time, until the first instant is known."""

    def __init__(self, spec: IndividualResultsSpec) -> None:
        self._first = ReorderBuffer()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"first": self._first.queue}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        coming = elements.filter(elements.signs > 0)
        always = coming.ts <= BEGIN
        self._first.add(coming.filter(always))
        return _insertions(coming.filter(~always))

    def advance(self, moment: Moment) -> list[Elements]:
        if moment.start is None:
            self._first.hold()
            return []
        early = self._first.until(BEGIN)
        return _insertions(from_start(early, moment.start)) if early is not None else []


def _insertions(elements: Elements) -> list[Elements]:
    if not len(elements):
        return []
    return [Elements(elements.columns, elements.ts, np.full(len(elements), END, np.int64), elements.sign)]


class Rounded(Operator):
    """Round the validity of a result as SLIDE does: from the first boundary in its validity to the first one after
    it."""

    def __init__(self, spec: RoundedSpec) -> None:
        self._spec = spec

    def process(self, port: int, elements: Elements) -> list[Elements]:
        ts, exp = (_round_up(ticks, self._spec) for ticks in (elements.ts, elements.exp))
        result = Elements(elements.columns, ts, exp, elements.sign).filter(ts < exp)
        return [result] if len(result) else []


def _round_up(ticks: Int64s, spec: RoundedSpec) -> Int64s:
    """Round `ticks` up to slide boundaries; the beginning and the end of time count as boundaries."""
    within = (ticks > BEGIN) & (ticks < END)
    return np.where(within, round_up(ticks, spec.slide, spec.align), ticks)


class RestoredInsertions(Operator):
    """State: the insertions that wait for their boundary, and what arrived ahead of the heartbeat."""

    def __init__(self, spec: RestoredInsertionsSpec) -> None:
        self._spec = spec
        self._early = ReorderBuffer()
        self._fresh = (ReorderBuffer(), ReorderBuffer())

    def synopses(self) -> Mapping[str, Synopsis]:
        early = {f"early{port}": fresh.queue for port, fresh in enumerate(self._fresh)}
        return {"waiting": self._early.queue, **early}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._fresh[port].add(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        inserted, reported = (fresh.until(moment.heartbeat) for fresh in self._fresh)
        between = None
        if reported is not None:
            between = reported.filter(round_up(reported.ts, self._spec.slide, self._spec.align) != reported.ts)
        if inserted is not None:
            left = inserted if between is None or not len(between) else _without(inserted, between)
            ticks = round_up(left.ts, self._spec.slide, self._spec.align)
            self._early.add(Elements(left.columns, ticks, np.full(len(left), END, np.int64), left.sign))
        due = self._early.until(moment.heartbeat)
        return [part for part in (between, due) if part is not None and len(part)]


def _without(inserted: Elements, removed: Elements) -> Elements:
    """Return the bag `inserted` less the bag `removed`, tick by tick."""
    both = concat([inserted, removed])
    signs = np.concatenate([inserted.signs, -removed.signs])
    codes, heads = group_codes(*with_time(*fingerprints(both.columns, len(both)), both.ts))
    count = sum_by_code(codes, signs, len(heads))
    left = np.flatnonzero(count > 0)
    rows = both.take(heads[left])
    return Elements(rows.columns, rows.ts, rows.exp, count[left])


class ShortLives(Operator):
    """State: the short-lived results, until the next boundary."""

    def __init__(self, spec: ShortLivesSpec) -> None:
        self._spec = spec
        self._early = ReorderBuffer()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        behind = round_up(elements.ts, self._spec.slide, self._spec.align)
        short = np.flatnonzero((elements.exp <= behind) & (elements.ts > BEGIN))
        chosen = elements.take(short)
        self._early.add(Elements(chosen.columns, behind[short], np.full(len(short), END, np.int64), chosen.sign))
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        due = self._early.until(moment.heartbeat)
        return [due] if due is not None else []


@loop
def _follow(
    slots: Int64s,
    behind: Int64s,
    signs: Int64s,
    order: Int64s,
    count: Int64s,
    base: Int64s,
    period: Int64s,
    deleted: Int64s,
    short: Int64s,
) -> None:
    """Apply netted changes, sorted by (slot, time), to the counts; short[e] becomes the number of copies deleted
    by event e that were inserted after the last boundary. behind: the boundary at or after each event."""
    for j in range(order.shape[0]):
        e = order[j]
        slot = slots[e]
        if period[slot] != behind[e]:
            period[slot] = behind[e]
            base[slot] = count[slot]
            deleted[slot] = 0
        count[slot] += signs[e]
        short[e] = 0
        if signs[e] < 0:
            before = max(0, deleted[slot] - base[slot])
            deleted[slot] -= signs[e]
            short[e] = max(0, deleted[slot] - base[slot]) - before


class ShortChanges(Operator):
    """State: per tuple, integer lanes [copies, copies at the last boundary, the next boundary, copies deleted since the
    last one]; and the short-lived results, until the next boundary. A tuple without copies may be removed: then all
    copies of the last boundary are deleted, and any further one is short-lived."""

    def __init__(self, spec: ShortChangesSpec) -> None:
        self._spec = spec
        self._tuples = KeyedTable(4, 0, spec.types)
        self._fresh: list[Elements] = []
        self._early = ReorderBuffer()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"tuples": self._tuples, "early": self._early.queue}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._fresh.append(elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        if self._fresh:
            self._take(concat(self._fresh))
            self._fresh = []
        due = self._early.until(moment.heartbeat)
        return [due] if due is not None else []

    def _take(self, events: Elements) -> None:
        placed = self._tuples.place(events.columns, len(events))
        behind = round_up(events.ts, self._spec.slide, self._spec.align)
        short = np.empty(len(events), np.int64)
        order = argsort_code_time(placed.slots, events.ts)
        _follow(placed.slots, behind, events.signs, order, *self._tuples.integers, short)
        self._tuples.touch(placed.unique)
        self._tuples.shrink()
        lost = np.flatnonzero(short)
        taken = events.take(lost)
        self._early.add(Elements(taken.columns, behind[lost], np.full(len(lost), END, np.int64), short[lost]))
