"""The budget of an operator that knows the open stretch, or session, of every value: it admits arrivals, and selects
the values that are dropped. The operator forgets these; rows of what has ended stay as they were emitted."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.shed import ENTRY_BYTES, NO_BUDGET, StretchBudget, bucket_budgets
from penstock.arrays import Records
from penstock.errors import PenstockError
from penstock.events import log_event, logger_of
from penstock.expressions.draws import draws
from penstock.expressions.sampling.inclusion import SIDE, packed
from penstock.expressions.value_sizes import value_bytes
from penstock.figures import (
    COVERAGE_AT_LEAST,
    EXACT,
    EXTRANEOUS,
    LOST_TICKS_LIVE,
    SHED_ARRIVED,
    SHED_BUDGET,
    SHED_BY_CPU,
    SHED_HELD,
    SHED_LIVE,
    SHED_TUPLES,
    SHED_WEIGHT,
    VANISHED,
)
from penstock.figures.figure import FigureValues
from penstock.physical.decisions import Decided, Decisions
from penstock.physical.elements import Bools, Int64s
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.shedding.accuracy import AccuracyEstimate, estimate_by_hash
from penstock.shedding.hashing import FallingThresholds, chances
from penstock.shedding.layout import NEVER
from penstock.shedding.ledger import Ledger, drop_rows
from penstock.shedding.runs import GranuleBudgets
from penstock.shedding.whole import (
    ALIVE,
    COUNT,
    FIRST,
    KILL_AT,
    KILL_BEGIN,
    KILL_COUNT,
    KILL_END,
    KILL_SLOT,
    KILL_WEIGHT,
    LANES,
    LAST,
    LISTED,
    RANK,
    WEIGHT,
    StretchArrivals,
    WholeStretches,
)
from penstock.storage.documents import Document, nested
from penstock.types import END

LOG = logger_of("shedding")
#: The lane of a table, under `compact 'false'`, with the number of elements that have come of a stretch.
_COUNT = 3


@dataclass
class AccuracyFloor:
    """What a query asks of its accuracy.

    Args:
        at_least: millionths below which it warns, or fails, 0 for nothing; every: ticks between two judgements.
        hint: of the error.
        is_low: whether the last judgement was below.
    """

    query: str
    at_least: int
    every: int
    fails: bool
    hint: str
    is_low: bool = False

    def hold(self, judged: AccuracyEstimate) -> None:
        """Raise P0633, or log, where accuracy falls below."""
        if judged.accuracy is None or judged.low is None or judged.high is None:
            return
        was_low, self.is_low = self.is_low, judged.accuracy < self.at_least / 1e6
        if not self.is_low or was_low:
            return
        message = (
            f"accuracy of {self.query} is {judged.accuracy:.2f} ({judged.low:.2f} to {judged.high:.2f}), below"
            f" accuracy_at_least {self.at_least / 1e6:g}"
        )
        if self.fails:
            raise PenstockError("P0633", message, hint=self.hint)
        log_event(LOG, logging.WARNING, "inaccurate", message, query=self.query)


@dataclass(frozen=True)
class Admitted:
    """What arrivals did. kept: of each whether its value is; dropped: the slots of values to forget; at: the instant of
    each; met: the threshold that each arrival met."""

    kept: Bools
    dropped: Int64s
    at: Int64s
    met: Int64s


class WholeBudget:
    """The figures of a budget of which whole values are dropped, in one shard.

    Args:
        machine: what decides, by bucket.
    """

    def __init__(self, spec: StretchBudget, machine: WholeStretches | GranuleBudgets) -> None:
        self._spec, self._machine = spec, machine
        self._ledger = Ledger(END)
        self._arrived = self._shed = self._by_cpu = 0
        self._keep_below = int(NEVER)
        hint = "more memory, or on_inaccuracy 'warn'"
        self._floor = AccuracyFloor(spec.query, spec.at_least, spec.every, spec.fails, hint)
        #: The instant at which accuracy is to be judged next.
        self._unjudged: int | None = None

    @property
    def has_floor(self) -> bool:
        """Return whether accuracy is judged."""
        return self._floor.at_least > 0

    def estimate(self, ranks: Int64s, rows: Int64s) -> AccuracyEstimate:
        """Estimate the accuracy from the hashes of the values in an answer, and the rows of each.

        Nothing is known of a part of the budget that refuses values and has none.
        """
        machine = self._machine
        buckets = machine.bucket_of(ranks)
        shares = np.minimum(1.0, np.array(machine.thresholds, np.float64) / 2.0**63)
        if (np.bincount(buckets, minlength=len(shares))[shares < 1] == 0).any():
            return AccuracyEstimate(None, None, None, len(ranks))
        return estimate_by_hash(rows.astype(np.float64), shares[buckets])

    def judge(self, ranks: Int64s, rows: Int64s, clock: int) -> None:
        """Judge the accuracy at `clock`, of an answer as in `estimate`."""
        self._ledger.pass_to(clock)
        if self._ledger.live:
            self._floor.hold(self.estimate(ranks, rows))

    def falling_thresholds(self) -> FallingThresholds:
        """Return how thresholds fall in a round, which is noted from now on."""
        self._machine.falling = self._machine.falling or FallingThresholds(self._spec.buckets)
        return self._machine.falling

    def follow(self, decided: Decisions) -> None:
        """Take what the run has decided, before the arrivals of a round. It shows from the next one on."""
        if self._machine.falling is not None:
            self._machine.falling.begin(self._machine.thresholds)
        keep_below = decided.least(Decided.KEEP_BELOW)
        if self._spec.cpu and keep_below is not None:
            self._keep_below = min(self._keep_below, keep_below)
        if self._spec.shares_limit:
            part = decided.least(Decided.STATE_BUDGET)
            self._machine.budgets = bucket_budgets(NO_BUDGET if part is None else part, self._spec.buckets)

    def weights(self, values: Sequence[pa.Array], count: int) -> Int64s:
        """Return what an entry of each value counts in the budget."""
        if not self._spec.in_bytes:
            return np.ones(count, np.int64)
        return ENTRY_BYTES + value_bytes(values, count)

    @property
    def keep_below(self) -> int:
        """Return the threshold that the run has decided, NEVER for none."""
        return self._keep_below

    def note(self, arrived: int, rows: Records, ranks: Int64s, reached: int) -> None:
        """Count arrivals up to a tick, and what was dropped or refused: with the hash of each."""
        self._arrived += arrived
        self._shed += len(rows)
        self._by_cpu += int((ranks >= self._keep_below).sum())
        self._ledger.add(rows, reached)

    def pass_to(self, heartbeat: int) -> None:
        """Forget what is no longer missing."""
        self._ledger.pass_to(heartbeat)

    def figures_of(self, held: int, covered: int, heartbeat: int, estimate: AccuracyEstimate) -> FigureValues:
        """Return the figures of shedding, where entries of weight `held` cover so many ticks."""
        lost = self._ledger.lost(heartbeat) if self._ledger.live else 0
        return {
            **(estimate.figures() if self._ledger.live else {}),
            SHED_HELD: held,
            SHED_BUDGET: self._spec.budget if self._spec.budget < NO_BUDGET else 0,
            SHED_ARRIVED: self._arrived,
            SHED_TUPLES: self._shed,
            SHED_BY_CPU: self._by_cpu,
            SHED_LIVE: self._ledger.live,
            SHED_WEIGHT: self._missing(held),
            LOST_TICKS_LIVE: lost,
            EXTRANEOUS: 0,
            VANISHED: self._machine.dropped,
            EXACT: int(self._ledger.live == 0),
            COVERAGE_AT_LEAST: round(covered / (covered + lost), 6) if lost else 1.0,
        }

    def _missing(self, held: int) -> int:
        """Return about what the values that are refused would count: hashes of values are spread evenly."""
        thresholds = self._machine.thresholds
        share = sum(min(1.0, threshold / 2.0**63) for threshold in thresholds) / len(thresholds)
        return round(held * (1 - share) / max(share, 2.0**-32))

    def marks(self) -> Document:
        return {
            "thresholds": [int(threshold) for threshold in self._machine.thresholds],
            "counts": [self._arrived, self._shed, self._by_cpu, self._machine.dropped],
            "ledger": self._ledger.as_json(),
            "budgets": list(self._machine.budgets),
            "keep": int(self._keep_below),
            "low": self._floor.is_low,
            "unjudged": self._unjudged,
        }

    def restore_marks(self, marks: Document) -> None:
        kept: Any = marks
        self._machine.thresholds, self._machine.budgets = list(kept["thresholds"]), list(kept["budgets"])
        self._arrived, self._shed, self._by_cpu, self._machine.dropped = kept["counts"]
        self._ledger, self._keep_below = Ledger.from_json(kept["ledger"]), kept["keep"]
        self._floor.is_low, self._unjudged = kept["low"], kept["unjudged"]


class BudgetOfStretches(WholeBudget):
    """The budget of one operator in one shard.

    Args:
        table: its values, with lanes: whether the stretch goes on, its begin, its end, and under `compact 'false'` how
            many elements of it have come.
        ends: whether what was dropped is missing only until its end, else for ever.
        emits_open: whether a stretch is emitted while it is open, so that it covers the part that has passed.
    """

    def __init__(
        self, spec: StretchBudget, table: KeyedTable, at_most: int = 0, ends: bool = False, emits_open: bool = False
    ) -> None:
        machine = WholeStretches(bucket_budgets(spec.budget, spec.buckets), at_most, not spec.compact)
        super().__init__(spec, machine)
        self._machine: WholeStretches = machine
        self._ledger.grows = ends
        self._table, self._ends, self._emits_open = table, ends, emits_open

    def admit(
        self,
        values: Sequence[pa.Array],
        slots: Int64s,
        stamps: Int64s,
        begins: Int64s,
        reaches: Int64s,
        limits: Int64s,
    ) -> Admitted:
        """Take arrivals; the operator puts those that are kept into its stretches, and then forgets the stretches of
        the values dropped.

        Args:
            values: the columns of the value of each; slots: its slot in the table.
            limits: what ends there or before has been closed before the instant of each.
        """
        ranks, weights = ranks_of(values, len(slots)), self.weights(values, len(slots))
        lanes = self._lanes()
        live = np.flatnonzero(lanes[ALIVE])
        known = self._table.key_columns(live)
        lanes[RANK, live] = ranks_of(known, len(live))
        lanes[WEIGHT, live] = self.weights(known, len(live)) * lanes[COUNT, live]
        arrivals = StretchArrivals(slots, ranks, stamps, begins, reaches, weights, limits)
        admitted = self._judged(arrivals, lanes) if self.has_floor else self._taken(arrivals, lanes)
        if not self._spec.compact:
            self._table.integers[_COUNT, : self._table.count] = lanes[COUNT]
        return admitted

    def _judged(self, arrivals: StretchArrivals, lanes: Int64s) -> Admitted:
        """Take arrivals, and judge the accuracy at the instants that pass."""
        stamps, kept = arrivals.stamps, np.empty(len(arrivals.slots), np.bool_)
        dropped, at = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        met = np.empty(len(stamps), np.int64)
        order = np.argsort(stamps, kind="stable")
        periods = stamps[order] // self._floor.every
        for start, stop in pairwise([0, *(np.flatnonzero(np.diff(periods)) + 1).tolist(), len(order)]):
            if start == stop:
                continue
            self._judge_before(int(periods[start]) * self._floor.every, lanes)
            one = self._taken(arrivals.chosen(order[start:stop]), lanes)
            kept[order[start:stop]], met[order[start:stop]] = one.kept, one.met
            dropped.append(one.dropped)
            at.append(one.at)
            self._unjudged = (int(periods[start]) + 1) * self._floor.every - 1
        return Admitted(kept, np.concatenate(dropped), np.concatenate(at), met)

    def _taken(self, arrivals: StretchArrivals, lanes: Int64s) -> Admitted:
        lanes[LISTED] = 0
        entered, kills, thresholds = self._machine.admit(lanes, arrivals, self._keep_below)
        self._note(arrivals, entered, kills, lanes)
        dropped, at = (np.ascontiguousarray(kills[:, k]) for k in (KILL_SLOT, KILL_AT))
        return Admitted(entered == 1, dropped, at, thresholds[0])

    def told_below(self, slots: Int64s, closes: Int64s, followed: Int64s, met: Int64s) -> Int64s:
        """Return the thresholds at which stretches are emitted.

        Args:
            slots: their values in the table; closes: the instant at which each is closed.
            followed: when the arrival came that begins the next one of the value, END for none; met: the threshold that
                it met. Within the instant at which a stretch is closed no drop behind it takes it any more.
        """
        ranks = ranks_of(self._table.key_columns(slots), len(slots))
        later = self.falling_thresholds().met(self._machine.bucket_of(ranks), closes)
        return np.where(followed <= closes, met, later)

    def records(self, slots: Int64s, told_below: Int64s) -> pa.Array:
        """Return the inclusion records of stretches, from the thresholds at which they are emitted."""
        return records_of(ranks_of(self._table.key_columns(slots), len(slots)), told_below)

    def judge_until(self, heartbeat: int) -> None:
        """Judge the accuracy, once all elements up to `heartbeat` have come, and before stretches are closed."""
        if self._unjudged is not None and self._unjudged <= heartbeat:
            lanes = self._lanes()
            live = np.flatnonzero(lanes[ALIVE])
            lanes[RANK, live] = ranks_of(self._table.key_columns(live), len(live))
            self._judge_before(heartbeat + 1, lanes)

    def _judge_before(self, reached: int, lanes: Int64s) -> None:
        """Judge at the end of the last period that had arrivals, once that is before `reached`."""
        if self._unjudged is not None and self._unjudged < reached:
            clock, self._unjudged = self._unjudged, None
            goes_on = np.flatnonzero((lanes[ALIVE] != 0) & (lanes[LAST] > clock))
            self.judge(np.ascontiguousarray(lanes[RANK, goes_on]), np.ones(len(goes_on), np.int64), clock)

    def _lanes(self) -> Int64s:
        lanes = np.zeros((LANES, self._table.count), np.int64)
        lanes[(ALIVE, FIRST, LAST), :] = self._table.integers[:3, : self._table.count]
        lanes[COUNT] = 1 if self._spec.compact else self._table.integers[_COUNT, : self._table.count]
        return lanes

    def _note(self, arrivals: StretchArrivals, entered: Int64s, kills: Int64s, lanes: Int64s) -> None:
        refused = np.flatnonzero(entered == 2)
        # Of the elements of a stretch that are dropped the first one stands for its period.
        others = np.repeat(np.arange(len(kills)), kills[:, KILL_COUNT] - 1)
        begins = np.concatenate([arrivals.begins[refused], kills[:, KILL_BEGIN], kills[others, KILL_BEGIN]])
        ends = np.concatenate([arrivals.reaches[refused], kills[:, KILL_END], kills[others, KILL_END]])
        weights = kills[:, KILL_WEIGHT] // kills[:, KILL_COUNT]
        rows = drop_rows(
            np.concatenate([arrivals.stamps[refused], kills[:, KILL_AT], kills[others, KILL_AT]]),
            begins,
            np.append(ends[: len(ends) - len(others)], kills[others, KILL_BEGIN]),
            np.minimum(ends, END - 1) + 1 if self._ends else np.full(len(ends), END, np.int64),
            np.concatenate([arrivals.weights[refused], weights, weights[others]]),
        )
        slots = np.append(kills[:, KILL_SLOT], kills[others, KILL_SLOT])
        ranks = np.append(arrivals.ranks[refused], lanes[RANK, slots])
        if len(entered):
            self.note(len(entered), rows, ranks, int(arrivals.stamps.max()))

    def figures(self, heartbeat: int) -> FigureValues:
        """Return the figures of shedding; those of what goes on, since nothing else is held."""
        if not self._arrived:
            return {}
        lanes = self._lanes()
        live = np.flatnonzero(lanes[ALIVE])
        known = self._table.key_columns(live)
        held = int((self.weights(known, len(live)) * lanes[COUNT, live]).sum())
        goes_on = lanes[LAST, live] > heartbeat
        ranks = ranks_of(known, len(live))[goes_on]
        ends = np.where(lanes[LAST, live] < END, lanes[LAST, live], heartbeat + 1)
        if self._emits_open:
            ends = np.minimum(ends, heartbeat + 1)
        covered = sum(np.maximum(ends - lanes[FIRST, live], 0).tolist())
        estimate = self.estimate(ranks, np.ones(len(ranks), np.int64))
        return self.figures_of(held, covered, heartbeat, estimate)


class MayHaveBudget(Operator):
    """An operator of stretches that may have a budget of them, which its marks and figures include."""

    _budget: BudgetOfStretches | None = None
    #: The last heartbeat.
    _reached = 0

    def figures(self) -> FigureValues:
        found = super().figures()
        return found if self._budget is None else {**found, **self._budget.figures(self._reached)}

    def marks(self) -> Document:
        return super().marks() if self._budget is None else {**super().marks(), "budget": self._budget.marks()}

    def restore_marks(self, marks: Document) -> None:
        super().restore_marks(marks)
        if self._budget is not None:
            self._budget.restore_marks(nested(marks, "budget"))

    def _follow(self, moment: Moment) -> None:
        """Take what the run has decided, before the elements of a round."""
        if self._budget is not None:
            self._budget.follow(moment.decided)
            self._reached = moment.heartbeat

    def _judge(self, moment: Moment) -> None:
        """Judge the accuracy, behind the elements of a round and before what they close."""
        if self._budget is not None:
            self._budget.judge_until(moment.heartbeat)


def stretch_lanes(budget: StretchBudget | None) -> int:
    """Return the number of lanes of the table of a `BudgetOfStretches`."""
    return _COUNT if budget is None or budget.compact else _COUNT + 1


class DropsValues(Operator):
    """An operator that drops values by their hashes, by buckets."""

    @abstractmethod
    def falling_thresholds(self) -> FallingThresholds:
        """Return how thresholds fall in a round, which is noted from now on."""


def records_of(ranks: Int64s, thresholds: Int64s) -> pa.Array:
    """Return the inclusion records of values that are kept below thresholds."""
    sides = np.zeros(len(ranks), SIDE)
    sides["pi"], sides["cluster"] = chances(thresholds), ranks
    return packed(sides)


def ranks_of(values: Sequence[pa.Array], count: int) -> Int64s:
    """Return a hash of 63 bits of every value."""
    return (draws(0, "", np.zeros(count, np.int64), values) >> np.uint64(1)).astype(np.int64)
