"""What reads results of a preference with their thresholds: rows with inclusion records, or the sums of an ESTIMATE.

The probability of a result grows while others are done (`algebra/nodes/preferences.py`). A row of the relation is then
replaced by one with another record. Sums over groups need no such rows: they change at the instant of a threshold, once
for each group, by what x/π has grown.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrays import Float64s, Int64s
from penstock.expressions.evaluation.evaluate import evaluate_all, mask
from penstock.expressions.sampling.inclusion import INCLUSION, SIDE, packed
from penstock.physical.elements import Elements
from penstock.physical.kernels.compiled import group_codes
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.aggregates.accumulators import to_lanes
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.preferences.chance_sums import (
    Added,
    ResultSums,
    ScaledLanes,
    ended_sums,
    summed_changes,
)
from penstock.physical.operators.preferences.parameters import queue_parameters
from penstock.physical.plan.preferences.records import RecordedRowsSpec, RecordedSpec, RecordedSumsSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.preferences.result_chances import ChanceChanges, ResultChances
from penstock.physical.synopses.preferences.result_messages import Thresholds, read_messages
from penstock.types import END

Number = TypeVar("Number", np.int64, np.float64)


class RecordedResults(Operator, ABC):
    """The common part. State: results that are alive and whose probability is below 1.

    Args:
        types: of what is kept of a result.
    """

    def __init__(self, spec: RecordedSpec, shards: int, types: Sequence[pa.DataType]) -> None:
        parameters = queue_parameters(spec.preference, shards, spec.summaries, spec.alone)
        self._chances = ResultChances(types, parameters)
        self._thresholds: list[Thresholds] = []

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"results": self._chances}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if len(elements):
            read = read_messages(elements)
            if isinstance(read, Thresholds):
                self._thresholds.append(read)
            else:
                kept, chosen = self._kept(read[0])
                new = read[1]
                self._chances.add(kept, new if chosen is None else type(new)(new[0][:, chosen], new[1][:, chosen]))
        return []

    def advance(self, moment: Moment) -> Iterator[Elements]:
        received, self._thresholds = self._thresholds, []
        for thresholds in received:
            for changes in self._chances.follow(thresholds):
                yield from self._changed(changes)
        yield from self._ended(moment.heartbeat)
        self._chances.expire(moment.heartbeat)

    @abstractmethod
    def _kept(self, results: Elements) -> tuple[Elements, Int64s | None]:
        """Return what is kept of results, and of which; None: of all."""

    @abstractmethod
    def _changed(self, changes: ChanceChanges) -> Iterator[Elements]:
        """Yield what changes of results make."""

    def _ended(self, heartbeat: int) -> Iterator[Elements]:
        """Yield what the ends of results up to the heartbeat make."""
        return iter(())


class RecordedRows(RecordedResults):
    """Emit the results with their inclusion records, and replace them where these change."""

    def __init__(self, spec: RecordedRowsSpec, shards: int) -> None:
        super().__init__(spec, shards, spec.types)

    def _kept(self, results: Elements) -> tuple[Elements, Int64s | None]:
        return results, None

    def _changed(self, changes: ChanceChanges) -> Iterator[Elements]:
        order = np.argsort(changes.rows, kind="stable")
        rows, at, met = changes.rows[order], changes.at[order], changes.met[order]
        known = self._chances.chances
        ratios = (met / self._chances.costs[rows]).tolist()
        # One by one: compiled loops over several values may give other bits.
        chances: Float64s = np.fromiter((-math.expm1(-ratio) for ratio in ratios), np.float64, len(ratios))
        first = np.diff(rows, prepend=-1) != 0
        before = np.where(first, known[rows], np.concatenate([[0.0], chances[:-1]]))
        known[rows] = chances
        changed = chances != before
        rows, at, chances, before = rows[changed], at[changed], chances[changed], before[changed]
        if not len(rows):
            return
        had = before > 0.0
        which = np.concatenate([rows[had], rows])
        sides = np.zeros(len(which), SIDE)
        sides["pi"], sides["cluster"] = np.concatenate([before[had], chances]), self._chances.draws[which]
        signs = np.concatenate([np.full(int(had.sum()), -1), np.ones(len(rows), np.int64)])
        found = self._chances.results.take(which)
        yield Elements((*found.columns, packed(sides)), np.concatenate([at[had], at]), found.exp, signs)


class RecordedSums(RecordedResults):
    """Emit accumulator rows: what the sums of each group change by, at every instant at which they do."""

    def __init__(self, spec: RecordedSumsSpec, shards: int) -> None:
        plan, scaled = spec.plan, spec.scaled
        doubles = [pa.float64()] * len(scaled)
        super().__init__(spec, shards, (*spec.lane_types, *doubles))
        self._keys, self._steps = len(plan.group), spec.steps
        self._width = len(spec.lane_types)
        self._scaled = scaled
        # x in place of x/π: what the accumulators of a result are whose probability is 1.
        arguments = list(plan.arguments)
        for place, value in scaled:
            arguments[place] = replace(arguments[place], expressions=(value,))
        self._plan = replace(plan, arguments=tuple(arguments))
        self._lanes = ScaledLanes.of(plan, [place for place, _ in scaled])
        #: The results as arrays, and of which elements these were made.
        self._sums: ResultSums | None = None
        self._read: Elements | None = None

    def _kept(self, results: Elements) -> tuple[Elements, Int64s | None]:
        chosen = np.arange(len(results))
        # No expression but x/π reads the record.
        rows = results.with_columns([*results.columns, pa.nulls(len(results), INCLUSION)])
        for step in self._steps:
            if isinstance(step, tuple):
                rows = rows.with_columns(evaluate_all(step, rows.columns, len(rows)))
            else:
                passed = np.flatnonzero(mask(step, rows.columns, len(rows)))
                chosen, rows = chosen[passed], rows.take(passed)
        (lanes,) = to_lanes(self._plan, rows)
        values = []
        for x in evaluate_all([value for _, value in self._scaled], rows.columns, len(rows)):
            values.append(x.fill_null(0.0) if x.null_count else x)
        return lanes.with_columns([*lanes.columns, *values]), chosen

    def _loaded(self) -> ResultSums:
        """Return the results as arrays."""
        results = self._chances.results
        if self._sums is None or self._read is not results:
            slots, heads = group_codes(*fingerprints(results.columns[: self._keys], len(results)))
            floats_at = self._keys + self._lanes.integers
            integers = [np.asarray(column) for column in results.columns[self._keys : floats_at]]
            floats = [np.asarray(column) for column in results.columns[floats_at : self._width]]
            values = [np.asarray(column) for column in results.columns[self._width :]]
            self._read, self._sums = (
                results,
                ResultSums(
                    slots,
                    heads,
                    _by_row(integers, np.int64, len(results)),
                    _by_row(floats, np.float64, len(results)),
                    _by_row(values, np.float64, len(results)),
                ),
            )
        return self._sums

    def _changed(self, changes: ChanceChanges) -> Iterator[Elements]:
        sums = self._loaded()
        added, done, at = summed_changes(changes, self._chances.costs, self._chances.chances, sums, self._lanes)
        yield from self._rows(sums, added)
        if len(done):
            # From now on they are as rows that were never sampled.
            rows = self._chances.results.take(done)
            yield Elements(rows.columns[: self._width], at, rows.exp)

    def _ended(self, heartbeat: int) -> Iterator[Elements]:
        ends, chances = self._chances.results.exp, self._chances.chances
        over = np.flatnonzero((ends <= heartbeat) & (chances > 0.0) & (chances < 1.0))
        if len(over):
            over = over[np.argsort(ends[over], kind="stable")]
            sums = self._loaded()
            yield from self._rows(sums, ended_sums(over, ends[over], chances, sums, self._lanes))

    def _rows(self, sums: ResultSums, added: Added) -> Iterator[Elements]:
        """Yield accumulator rows that are added at instants and stay."""
        if len(added.slots):
            keys = self._chances.results.take(sums.heads[added.slots]).columns[: self._keys]
            lanes = [pa.array(lane) for lane in (*added.integers, *added.floats)]
            yield Elements((*keys, *lanes), added.at, np.full(len(added.at), END))


def _by_row(columns: Sequence[npt.NDArray[Any]], kind: type[Number], count: int) -> npt.NDArray[Number]:
    """Return columns as a matrix by (row, column)."""
    found = np.empty((count, len(columns)), kind)
    for place, column in enumerate(columns):
        found[:, place] = column
    return found
