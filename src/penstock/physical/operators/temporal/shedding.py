"""Load shedding below coalescing [tls III]: passes on what enters, and retracts what a budget pushes out.

Contract: after every arrival at most the budget is held, and what is dropped depends on the elements alone, whatever
the rounds, shards and restarts. Elements of an instant are taken in the order of (begin, hash of the value, end,
expiration); what expires at an instant leaves before the arrivals of it. A drop is a negative tuple at the timestamp of
the arrival that caused it, so a tuple dropped at the instant of its own arrival never enters.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.shed import ENTRY_BYTES, NO_BUDGET, bucket_budgets
from penstock.arrays import Records, joined
from penstock.expressions.value_sizes import value_bytes
from penstock.figures import WITHOUT_PERIOD
from penstock.figures.figure import FigureValues
from penstock.physical.decisions import WHOLE, Decided, Decisions
from penstock.physical.elements import Elements, Int64s, int64s
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer, ReorderingOperator
from penstock.physical.operators.temporal.stretch_budget import AccuracyFloor, DropsValues, ranks_of
from penstock.physical.plan.temporal.shedding import ShedSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.tables.held_tuples import HeldTuples
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.shedding.accuracy import AccuracyEstimate
from penstock.shedding.contract import Shedding
from penstock.shedding.hashing import FallingThresholds, bucket_of
from penstock.shedding.ledger import Ledger
from penstock.shedding.policies import POLICIES, DropUnit
from penstock.shedding.record import SheddingRecord
from penstock.shedding.shedder import ArrivingTuples, Shedder, SheddingOutcome
from penstock.storage.documents import Document
from penstock.types import BEGIN, END


class Shed(ReorderingOperator, DropsValues):
    """State: the tuples held, with the values of them in slots, and elements ahead of the heartbeat."""

    def __init__(self, spec: ShedSpec) -> None:
        super().__init__(ReorderBuffer())
        self._spec = spec
        made = Shedding(POLICIES[spec.policy], spec.least, spec.ordered, spec.compact, seed=0, sample=spec.sample / 1e6)
        self._shedders = [Shedder(made, budget) for budget in bucket_budgets(spec.budget, spec.buckets)]
        # Its one lane: the number of entries of the value.
        self._values = KeyedTable(1, 0, spec.types[:-2])
        self._values.followers.append(self._renumbered)
        self._held = HeldTuples(self._shedders, self._values.key_columns)
        self._record = SheddingRecord(END, spec.least)
        self._without_period = 0
        #: Values of at least this rank are shed, since the run has decided so.
        self._keep_below = WHOLE
        hint = "more memory, another policy, or on_inaccuracy 'warn'"
        self._floor = AccuracyFloor(spec.query, spec.at_least, spec.every, spec.fails, hint)
        #: The instant at which accuracy is to be judged next.
        self._unjudged: int | None = None
        #: How thresholds fall, if anything reads it.
        self._falling: FallingThresholds | None = None

    def falling_thresholds(self) -> FallingThresholds:
        self._falling = self._falling or FallingThresholds(len(self._shedders))
        return self._falling

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "held": self._held}

    def _renumbered(self, slots: Int64s) -> None:
        for shedder in self._shedders:
            shedder.renumber(slots)

    def advance(self, moment: Moment) -> list[Elements]:
        self._held.take(lambda columns, rows: self._values.place(columns, rows).slots)
        if self._falling is not None:
            self._falling.begin([shedder.refuses_from for shedder in self._shedders])
        self._follow_decisions(moment.decided)
        arrived = self._early.until(moment.heartbeat)
        result: list[Elements] = []
        if arrived is not None:
            result = self._follow(*self._in_order(arrived))
            self._held.changed = True
            self._forget()
        self._judge_before(moment.heartbeat + 1)
        if BEGIN < moment.heartbeat < END:
            # What has left covers nothing any more: the figures are those of the heartbeat.
            self._pass_to(moment.heartbeat)
        return [one for one in result if len(one)]

    def _window_clock(self, tick: int) -> int:
        """Return the time on the clock of the window: what expires by then has left at `tick`."""
        return tick

    def _window_clocks(self, arrived: Elements) -> Int64s:
        """Return the same for the instant at which each of some elements arrives."""
        return arrived.ts

    def _pass_to(self, tick: int) -> None:
        clock = self._window_clock(tick)
        self._record.pass_to(tick, clock)
        for shedder in self._shedders:
            shedder.expire(clock)

    def _follow_decisions(self, decided: Decisions) -> None:
        """Take what the run has decided. It shows from the next arrival on, which is that of the drops."""
        keep_below = decided.least(Decided.KEEP_BELOW)
        if self._spec.cpu and keep_below is not None:
            self._keep_below = min(self._keep_below, keep_below)
        if self._spec.shares_limit:
            part = decided.least(Decided.STATE_BUDGET)
            budget = NO_BUDGET if part is None else part
            for shedder, one in zip(self._shedders, bucket_budgets(budget, self._spec.buckets), strict=True):
                shedder.set_budget(one)

    def _follow(self, arrived: Elements, ranks: Int64s) -> list[Elements]:
        """Take elements, with a hash of the value of each, and judge the accuracy at the instants that have passed."""
        if not self._spec.at_least or not self._spec.sample:
            result = self._arrive(arrived, ranks) if len(arrived) else []
            self._record.judge(self._shedders)
            return result
        result = []
        periods = arrived.ts // self._spec.every
        bounds = np.flatnonzero(np.diff(periods)) + 1
        for start, stop in pairwise([0, *bounds.tolist(), len(arrived)]):
            if start < stop:
                self._judge_before(int(periods[start]) * self._spec.every)
                result += self._arrive(arrived.slice(start, stop), ranks[start:stop])
                self._unjudged = (int(periods[start]) + 1) * self._spec.every - 1
        return result

    def _judge_before(self, reached: int) -> None:
        """Judge at the end of the last period that had arrivals, once that is before `reached`."""
        if self._unjudged is not None and self._unjudged < reached:
            clock, self._unjudged = self._unjudged, None
            self._judge(clock)

    def _judge(self, clock: int) -> None:
        """Raise P0633, or log, where accuracy falls below what the query asks for."""
        self._pass_to(clock)
        judged = self._record.judge(self._shedders)
        if self._record.ledger.live:
            self._floor.hold(judged)

    def figures(self) -> FigureValues:
        if not self._record.arrived:
            return {}
        return {**self._record.figures(self._shedders), WITHOUT_PERIOD: self._without_period}

    def marks(self) -> Document:
        judged, record = self._record.judged, self._record
        return {
            "ledger": record.ledger.as_json(),
            "counts": [record.arrived, record.shed, record.clock, record.shed_by_cpu],
            "without": self._without_period,
            "low": self._floor.is_low,
            "unjudged": self._unjudged,
            "judged": [judged.accuracy, judged.low, judged.high, judged.values],
        }

    def restore_marks(self, marks: Document) -> None:
        record: Any = self._record
        kept: Any = marks
        record.ledger = Ledger.from_json(kept["ledger"])
        record.arrived, record.shed, record.clock, record.shed_by_cpu = kept["counts"]
        record.judged = AccuracyEstimate(*kept["judged"])
        self._without_period, self._floor.is_low, self._unjudged = kept["without"], kept["low"], kept["unjudged"]

    def _with_ranks(self, elements: Elements) -> tuple[Elements, Int64s]:
        """Return the elements that have a period, and a hash of the value of each."""
        begin, end = elements.columns[-2:]
        there = np.asarray(begin.is_valid()) & np.asarray(end.is_valid())
        elements = elements.filter(there)
        count = len(begin)
        elements = elements.filter(int64s(elements.columns[-2]) < int64s(elements.columns[-1]))
        self._without_period += count - len(elements)
        return elements, ranks_of(elements.columns[:-2], len(elements))

    def _in_order(self, elements: Elements) -> tuple[Elements, Int64s]:
        """Return the elements that have a period, one by one, in the order in which they are taken, and a hash of the
        value of each."""
        if elements.sign is not None:
            elements = elements.take(np.repeat(np.arange(len(elements)), elements.sign))
        elements, ranks = self._with_ranks(elements)
        keys = (elements.exp, int64s(elements.columns[-1]), ranks, int64s(elements.columns[-2]), elements.ts)
        order = np.lexsort(keys)
        return Elements(elements.columns, elements.ts, elements.exp).take(order), ranks[order]

    def _arrive(self, arrived: Elements, ranks: Int64s) -> list[Elements]:
        count, values = len(arrived), arrived.columns[:-2]
        slots = self._values.place(values, count).slots
        weights = np.ones(count, np.int64)
        if self._spec.in_bytes:
            weights = ENTRY_BYTES + value_bytes(values, count)
        begins, ends = (int64s(column) for column in arrived.columns[-2:])
        every = ArrivingTuples(
            slots, ranks, begins, ends, arrived.ts, self._window_clocks(arrived), arrived.exp, weights
        )
        if self._spec.buckets == 1:
            return self._take(0, every, np.arange(count), arrived)
        buckets = bucket_of(ranks, self._spec.buckets)
        result: list[Elements] = []
        for number in np.unique(buckets).tolist():
            rows = np.flatnonzero(buckets == number)
            result += self._take(number, every.chosen(rows), rows, arrived)
        return result

    def _take(self, bucket: int, arriving: ArrivingTuples, rows: Int64s, arrived: Elements) -> list[Elements]:
        """Return what a bucket passes on of `arriving`, which are `rows` of `arrived`, and what it retracts."""
        shedder = self._shedders[bucket]
        first, stamp = shedder.arrived, int(arriving.stamps[0])
        refused = shedder.refuse(self._keep_below, int(arriving.clocks[0]), stamp)
        outcome = shedder.arrive(arriving)
        if self._falling is not None:
            self._note_falls(self._falling, bucket, stamp, outcome.drops)
        by_cpu = len(refused) + int(((outcome.entered == 2) & (arriving.ranks >= self._keep_below)).sum())
        drops = joined([refused, outcome.drops]) if len(refused) else outcome.drops
        self._record.note(arriving, SheddingOutcome(outcome.entered, drops), by_cpu)
        entered = outcome.entered == 1
        own = drops["number"] - first
        fresh = own >= 0
        # What is dropped at the instant of its arrival never enters.
        at_once = np.zeros(len(drops), np.bool_)
        at_once[fresh] = arriving.stamps[own[fresh]] == drops["at"][fresh]
        entered[own[at_once]] = False
        return [self._entering(arrived.take(rows[entered])), self._retractions(bucket, drops.compress(~at_once))]

    def _note_falls(self, falling: FallingThresholds, bucket: int, first: int, drops: Records) -> None:
        """Note a decided threshold, which is followed at the first arrival, and those that drops of values leave."""
        falling.note(bucket, np.array([first]), np.array([self._keep_below]))
        if self._shedders[bucket].shedding.policy.unit == DropUnit.VALUE:
            dropped = self._values.key_columns(np.ascontiguousarray(drops["slot"]))
            falling.note(bucket, drops["at"], ranks_of(dropped, len(drops)))

    def _entering(self, elements: Elements) -> Elements:
        """Return elements with the lives that they have when they enter."""
        return elements

    def _retractions(self, bucket: int, drops: Records) -> Elements:
        values = self._values.key_columns(np.ascontiguousarray(drops["slot"]))
        begins, ends, at, expires = (np.ascontiguousarray(drops[name]) for name in ("begin", "end", "at", "expires"))
        return Elements((*values, pa.array(begins), pa.array(ends)), at, expires, np.full(len(drops), -1, np.int64))

    def _forget(self) -> None:
        """Forget values of which nothing is held."""
        count = self._values.count
        live = sum((shedder.live(count) for shedder in self._shedders), np.zeros(count, np.int64))
        changed = np.flatnonzero(self._values.integers[0, :count] != live)
        self._values.integers[0, changed] = live[changed]
        self._values.touch(changed)
        self._values.shrink()
