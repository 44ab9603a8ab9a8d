"""Coalescing of granules under SLIDE and a budget of runs (`shedding/runs.py`).

Contract: what is shown is coalescing of the granules held, at every boundary. All runs are in one shard, and
every snapshot after a change writes all of them: what a budget holds is small, and most of it changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.shed import bucket_budgets
from penstock.figures.figure import FigureValues
from penstock.physical.elements import Elements, Int64s, concat_arrays, int64s, unnamed
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer, ReorderingOperator
from penstock.physical.operators.temporal.stretch_budget import DropsValues, WholeBudget, ranks_of
from penstock.physical.plan.temporal.granules import BudgetedRunsSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.tables.held_runs import HeldRuns
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.shedding.hashing import FallingThresholds
from penstock.shedding.ledger import drop_rows
from penstock.shedding.runs import RUN, GranuleArrivals, GranuleBudgets, GranuleOutcome
from penstock.storage.documents import Document, integer, nested
from penstock.types import BEGIN, END


class BudgetedRuns(ReorderingOperator, DropsValues):
    """State: the runs held, and elements ahead of the heartbeat."""

    def __init__(self, spec: BudgetedRunsSpec) -> None:
        super().__init__(ReorderBuffer())
        self._slide, self._length, self._types = spec.slide, spec.length, spec.types[:-2]
        budget = spec.budget
        self._least = budget.least
        self._machine = GranuleBudgets(
            bucket_budgets(budget.budget, budget.buckets), spec.slide, spec.length, budget.least
        )
        self._budget = WholeBudget(budget, self._machine)
        self._runs = HeldRuns(self._types)
        self._reached = BEGIN

    def falling_thresholds(self) -> FallingThresholds:
        return self._budget.falling_thresholds()

    def synopses(self) -> Mapping[str, Synopsis]:
        return {**super().synopses(), "runs": self._runs}

    def figures(self) -> FigureValues:
        batch = self._runs.batch
        held = int(self._budget.weights(batch.columns[3:], batch.num_rows).sum())
        covered = sum((int64s(batch.column(1)) - int64s(batch.column(2))).tolist())
        return self._budget.figures_of(held, covered, self._reached, self._budget.estimate(*self._rows_by_value()))

    def _rows_by_value(self) -> tuple[Int64s, Int64s]:
        """Return the hashes of the values that have runs which pass LENGTH >= constant, and how many each has."""
        batch = self._runs.batch
        passes = int64s(batch.column(1)) - int64s(batch.column(2)) >= self._least
        return np.unique(ranks_of(batch.columns[3:], batch.num_rows)[passes], return_counts=True)

    def marks(self) -> Document:
        return {"budget": self._budget.marks(), "reached": self._reached}

    def restore_marks(self, marks: Document) -> None:
        self._budget.restore_marks(nested(marks, "budget"))
        self._reached = integer(marks, "reached")

    def advance(self, moment: Moment) -> list[Elements]:
        self._budget.follow(moment.decided)
        arrived = self._early.until(moment.heartbeat)
        result = []
        if arrived is not None or self._runs.rows:
            result = self._follow_judging(arrived, moment.heartbeat)
        if BEGIN < moment.heartbeat < END:
            self._reached = moment.heartbeat
            self._budget.pass_to(moment.heartbeat)
        return result

    def _follow_judging(self, arrived: Elements | None, heartbeat: int) -> list[Elements]:
        """Take granules, and judge the accuracy at the boundaries at which some came."""
        if arrived is None or not self._budget.has_floor:
            return self._follow(arrived, heartbeat)
        result = []
        arrived = arrived.take(np.argsort(arrived.ts, kind="stable"))
        for start, stop in pairwise([0, *(np.flatnonzero(np.diff(arrived.ts)) + 1).tolist(), len(arrived)]):
            boundary = int(arrived.ts[start])
            result += self._follow(arrived.slice(start, stop), boundary)
            self._budget.judge(*self._rows_by_value(), boundary)
        return result + self._follow(None, heartbeat)

    def _follow(self, arrived: Elements | None, heartbeat: int) -> list[Elements]:
        """Take granules, and return what changes of the stretches shown."""
        batch = self._runs.batch
        columns, stamps = batch.columns[3:], np.empty(0, np.int64)
        if arrived is not None:
            # What leaves follows from what came.
            arrived = arrived.filter(arrived.signs > 0)
            columns = [concat_arrays([*pair]) for pair in zip(columns, arrived.columns[:-2], strict=True)]
            stamps = arrived.ts
        held, count = batch.num_rows, batch.num_rows + len(stamps)
        values = KeyedTable(1, 0, self._types)
        slots = values.place(columns, count).slots
        keys = values.key_columns(np.arange(values.count))
        ranks, weights = ranks_of(keys, values.count), self._budget.weights(keys, values.count)
        runs = np.zeros(held, RUN)
        runs["slot"], runs["rank"], runs["weight"] = slots[:held], ranks[slots[:held]], weights[slots[:held]]
        runs["first"], runs["last"], runs["shown"] = (int64s(batch.column(i)) for i in range(3))
        arrivals = self._in_order(slots[held:], stamps, ranks, weights)
        # A run that is shown for ever is no more than one whose last change has come.
        until = min(heartbeat, END - 1)
        outcome = self._machine.admit(runs, arrivals, values.count, self._budget.keep_below, until)
        self._note(arrivals, outcome)
        left = outcome.runs
        numbers = [pa.array(np.ascontiguousarray(left[name])) for name in ("first", "last", "shown")]
        self._runs.batch = unnamed([*numbers, *values.key_columns(np.ascontiguousarray(left["slot"]))])
        changes = outcome.changes
        if not len(changes):
            return []
        slot, at, begin, end, sign = (
            np.ascontiguousarray(changes[name]) for name in ("slot", "at", "begin", "end", "sign")
        )
        shown = (*values.key_columns(slot), pa.array(begin), pa.array(end))
        return [Elements(shown, at, np.full(len(changes), END, np.int64), sign)]

    @staticmethod
    def _in_order(slots: Int64s, stamps: Int64s, ranks: Int64s, weights: Int64s) -> GranuleArrivals:
        """Return every granule of a value once, in the order of (boundary, hash)."""
        order = np.lexsort((slots, ranks[slots], stamps))
        slots, stamps = slots[order], stamps[order]
        fresh = np.ones(len(slots), np.bool_)
        fresh[1:] = (slots[1:] != slots[:-1]) | (stamps[1:] != stamps[:-1])
        slots, stamps = slots[fresh], stamps[fresh]
        return GranuleArrivals(slots, ranks[slots], stamps, weights[slots])

    def _note(self, arrivals: GranuleArrivals, outcome: GranuleOutcome) -> None:
        if not len(arrivals.slots):
            return
        refused, kills = np.flatnonzero(outcome.entered == 2), outcome.kills
        stamps = arrivals.stamps[refused]
        ends = np.append(stamps, kills["end"])
        rows = drop_rows(
            np.append(stamps, kills["at"]),
            np.append(stamps - self._slide, kills["begin"]),
            ends,
            np.minimum(ends, END - self._length) + self._length,
            np.append(arrivals.weights[refused], kills["weight"]),
        )
        ranks = np.append(arrivals.ranks[refused], kills["rank"])
        self._budget.note(len(arrivals.slots), rows, ranks, int(arrivals.stamps[-1]))
