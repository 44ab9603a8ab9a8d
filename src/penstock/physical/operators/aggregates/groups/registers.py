"""The registers of HyperLogLog: by group and register the greatest rank of its live cells, and what follows from it.

An inner aggregation by (group, register) computes MAX(rank) with the synopses of MAX: a skyline where the expiration of
every cell is known on arrival, else a heap of counted ranks. Each change of a maximum changes the lanes of its group,
which are sums over registers, so that the outer aggregation need not look at registers to compute an estimate.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.expressions.aggregates.contract import ArgumentState
from penstock.expressions.sketches.hyperloglog import RANK_BITS, RANK_MASK, rank_sums
from penstock.physical.elements import Int64s, int64s
from penstock.physical.kernels import trees
from penstock.physical.kernels.compiled import argsort_code_time
from penstock.physical.operators.aggregates.groups.events import GroupEvents, join
from penstock.physical.plan.state.aggregate_layout import AggregateLayout
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.tables.bags import Questions, ValueBag
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.physical.synopses.tables.ordered_bags import ExtremeBag
from penstock.physical.synopses.tables.skyline import Skyline


class RegisterMaxima:
    """The registers of one argument. column: of its cells among the values of lane rows; known_ends: whether the
    expiration of every cell is known when it arrives."""

    def __init__(self, plan: AggregateLayout, argument: int, column: int, groups: KeyedTable) -> None:
        self.column = column
        self.known_ends = plan.arguments[argument].kind is ArgumentState.REGISTERS
        #: Whether images are made of the registers: then each change names the cell that goes and the one that comes.
        self.pictured = argument in plan.pictured
        self._has_sums = bool(plan.arguments[argument].accumulators)
        self._plan = plan
        self._first_lane = plan.arguments[argument].integers + 1
        self._count_lane = plan.arguments[argument].integers
        self._groups = groups
        self._places = ValueBag(groups, pa.int64())
        self._skyline = Skyline(self._places) if self.known_ends else None
        greatest = Questions(np.array([trees.GREATEST], np.int64), np.zeros((1, 3)))
        self._ranks = None if self.known_ends else ExtremeBag(self._places, pa.int64(), greatest)

    @property
    def synopses(self) -> dict[str, Synopsis]:
        """Return the synopses by a stable name."""
        maxima: Synopsis | None = self._skyline if self._skyline is not None else self._ranks
        assert maxima is not None
        return {f"registers{self.column}": self._places, f"ranks{self.column}": maxima}

    def shrink(self) -> None:
        if self._ranks is not None:
            self._ranks.shrink()
        if self._skyline is not None:
            self._skyline.shrink()
        self._places.shrink()

    def forget(self) -> None:
        """Drop the registers of groups that have ended with rows in them."""
        places = self._places.forget()
        if self._skyline is not None:
            self._skyline.forget(places)
        elif self._ranks is not None:
            self._ranks.forget()

    def changes(self, events: GroupEvents) -> GroupEvents:
        """Apply the cells of `events`; return events that change the lanes of the groups accordingly."""
        cells = events.of_events(events.values[self.column])
        chosen = np.flatnonzero(cells.is_valid().to_numpy(zero_copy_only=False))
        known = cells.take(pa.array(chosen)).to_numpy(zero_copy_only=False)
        places = self._places.pairs(events.slots[chosen], pa.array(known >> RANK_BITS))
        moments = self._maxima(events, chosen, places, known & RANK_MASK)
        places, times, ranks, before = moments
        moved = np.flatnonzero(ranks != before)
        places, times, ranks, before = places[moved], times[moved], ranks[moved], before[moved]
        deltas: list[Int64s] = []
        if self._has_sums:
            deltas = [now - then for now, then in zip(rank_sums(ranks), rank_sums(before), strict=True)]
        changes = self._events(places, times, deltas, events)
        if not self.pictured:
            return changes
        gone = replace(self._events(places, times, [], events), **self._cells(places, before, -1, changes))
        return join(self._plan, [gone, replace(changes, **self._cells(places, ranks, 1, changes))])

    def _cells(self, places: Int64s, ranks: Int64s, weight: int, changes: GroupEvents) -> dict[str, Any]:
        """Return the values and integer lanes of changes that count the cells with these ranks; there is none of rank
        0."""
        (registers,) = self._places.key_columns(places)
        cells = pa.array(int64s(registers) << RANK_BITS | ranks, mask=ranks == 0)
        values = tuple(cells if i == self.column else column for i, column in enumerate(changes.values))
        integers = changes.integers.copy() if weight > 0 else np.zeros_like(changes.integers)
        integers[:, self._count_lane] = weight
        return {"values": values, "integers": integers}

    def _maxima(
        self, events: GroupEvents, chosen: Int64s, places: Int64s, ranks: Int64s
    ) -> tuple[Int64s, Int64s, Int64s, Int64s]:
        """Return (place, time, greatest rank from then on, greatest rank until then) by place and time; 0 where there
        is no live cell."""
        times, signs = events.times[chosen], events.signs[chosen]
        if self._skyline is not None:
            ends = events.ends[events.rows[chosen]]
            if len(events.times):
                due_places, due = self._skyline.due(int(events.times.max()))
                places, times = np.concatenate([places, due_places]), np.concatenate([times, due])
                signs = np.concatenate([signs, np.full(len(due), -1, np.int64)])
                ranks = np.concatenate([ranks, np.zeros(len(due), np.int64)])
                ends = np.concatenate([ends, due])
        if not len(places):
            none = np.empty(0, np.int64)
            return none, none, none, none
        order = argsort_code_time(places, times)
        by_place, by_time = places[order], times[order]
        last = np.append((by_place[1:] != by_place[:-1]) | (by_time[1:] != by_time[:-1]), True)
        at, outputs = order[last], int(np.count_nonzero(last))
        lead = np.append(True, places[at][1:] != places[at][:-1])
        previous = self._now(places[at][lead])
        if self._skyline is not None:
            every, valid = np.arange(len(places)), np.ones(len(places), np.bool_)
            found, there = self._skyline.follow(places, times, every, signs, ends, order, ~ranks, valid, outputs)
            greatest = np.where(there, ~found, 0)
        else:
            assert self._ranks is not None
            pairs = self._ranks.pairs(places, pa.array(ranks))
            weights = events.weights(self._count_lane)[chosen]
            answers = self._ranks.follow(places, times, order, pairs, weights, outputs)
            greatest = _values(self._ranks, answers.found[0, :, 0])
        before = np.concatenate([[0], greatest[:-1]])
        before[lead] = previous
        last_of_place = np.append(lead[1:], True)
        touched = places[at][last_of_place]
        self._places.integers[0, touched] = greatest[last_of_place] > 0
        self._places.touch(touched)
        return places[at], times[at], greatest, before

    def _now(self, places: Int64s) -> Int64s:
        """Return the greatest rank at each of `places`, 0 where there is none."""
        if self._skyline is not None:
            keys, there = self._skyline.now(places)
            return np.where(there, ~keys, 0)
        assert self._ranks is not None
        return _values(self._ranks, self._ranks.ask(places).found[0, :, 0])

    def _events(self, places: Int64s, times: Int64s, deltas: list[Int64s], events: GroupEvents) -> GroupEvents:
        size = len(places)
        first, second = (self._places.integers[i, places].view(np.uint64) for i in (1, 2))
        slots = self._groups.find(np.ascontiguousarray(first), np.ascontiguousarray(second))
        integers = np.zeros((size, self._plan.integers), np.int64)
        for lane, delta in enumerate(deltas, self._first_lane):
            integers[:, lane] = delta
        floats = np.zeros((size, self._plan.floats), np.float64)
        values = tuple(pa.nulls(size, column.type) for column in events.values)
        return GroupEvents(slots, times, np.arange(size), np.ones(size, np.int64), integers, floats, values, times)


def _values(bag: ExtremeBag, found: Int64s) -> Int64s:
    ranks: Int64s = bag.values(found).fill_null(0).to_numpy(zero_copy_only=False)
    return ranks
