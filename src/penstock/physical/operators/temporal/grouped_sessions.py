"""Aggregates of sessions without their elements.

Elements of a batch whose gaps join them are a piece of one session, whatever comes between them later: coalescing the
coalesced parts is coalescing the whole. So the accumulators of a piece are added up before rows are exchanged, and of a
session that goes on there is one row. A piece counts from its first tick on: what its later elements add cannot end a
session that began before. Where sessions are bounded (AT MOST), whether two elements share one depends on where it
begins; then only elements of one tick are a piece.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools
from penstock.expressions.aggregates.accumulators.contract import Float64s
from penstock.expressions.aggregates.accumulators.expansions import add_row
from penstock.expressions.aggregates.contract import ArgumentState
from penstock.figures.figure import FigureValues
from penstock.physical.elements import Elements, Int64s, int64s
from penstock.physical.kernels.compiled import argsort_code_time, argsort_time, distinct_slots, group_codes, in_time
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.extremes import from_order_keys, order_keys
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.aggregates.accumulators import added_up, all_lanes, to_lanes
from penstock.physical.operators.aggregates.groups.finalize import finish
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer, ReorderingOperator
from penstock.physical.operators.temporal.left_out import LeftOut, open_periods
from penstock.physical.operators.temporal.pieces import cut_pieces
from penstock.physical.operators.temporal.sessions import lasting, reached
from penstock.physical.operators.temporal.stretch_budget import BudgetOfStretches, MayHaveBudget
from penstock.physical.plan.temporal.grouped_sessions import GroupedSessionsSpec, SessionPiecesSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_index import ExpirationIndex
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.types import BEGIN, END

#: The first lanes of a partition: whether a session goes on, its first tick, its end so far. Behind them those of the
#: aggregates, and for each extreme whether there is one, and its key.
_ALIVE, _FIRST, _END, _LANES = range(4)


class SessionPieces(Operator):
    def __init__(self, spec: SessionPiecesSpec) -> None:
        self._spec = spec
        self._left_out = LeftOut()

    def figures(self) -> FigureValues:
        return self._left_out.figures()

    def process(self, port: int, elements: Elements) -> list[Elements]:
        elements = self._left_out.without_period(elements, lasting(elements))
        if not len(elements):
            return []
        plan, ts, reach = self._spec.plan, elements.ts, reached(elements)
        (rows,) = to_lanes(plan, elements)
        codes, heads = group_codes(*fingerprints(rows.columns[: len(plan.group)], len(rows)))
        order = np.arange(len(ts)) if in_time(ts) else argsort_time(ts)
        pieces, firsts, ends = (np.empty(len(ts), np.int64) for _ in range(3))
        latest = np.full(len(heads), -1, np.int64)
        count = int(cut_pieces(codes, order, ts, reach, self._spec.same_tick, latest, pieces, firsts, ends))
        added = added_up(plan, rows, pieces, firsts[:count])
        if count == len(ts):
            # Nothing was added up: the rows are as they came, and so are their ends.
            return [rows.with_columns((*rows.columns, pa.array(reach)))]
        return [added.with_columns((*added.columns, pa.array(ends[:count])))]


@compiled(reads="slots order ts reach integers floats sums keys there", counted=False)
def _extend(
    slots: Int64s,
    order: Int64s,
    ts: Int64s,
    reach: Int64s,
    integers: Int64s,
    floats: Float64s,
    sums: Int64s,
    keys: Int64s,
    there: Bools,
    at_most: int,
    state: Int64s,
    state_floats: Float64s,
    ended: Int64s,
    ended_floats: Float64s,
    ended_slots: Int64s,
) -> int:
    """Add pieces, in order of (slot, first tick), to the sessions of their slots; return how many sessions another one
    follows.

    Args:
        integers, floats: by (piece, lane).
        sums: as `AggregateLayout.double_sums`.
        keys, there: by (extreme, piece), where less goes before, and whether there is one.
        at_most: 0 for sessions of any length.
        state, state_floats: by (slot, lane).
        ended, ended_floats, ended_slots: the lanes and slots of the sessions that another one follows.
    """
    count, width = 0, integers.shape[1]
    for k in range(order.shape[0]):
        i = order[k]
        slot = slots[i]
        goes_on = state[slot, 0] != 0
        if not goes_on or ts[i] > state[slot, 2] or (at_most > 0 and ts[i] >= state[slot, 1] + at_most):
            if goes_on:
                ended_slots[count] = slot
                for lane in range(state.shape[1]):
                    ended[count, lane] = state[slot, lane]
                for lane in range(state_floats.shape[1]):
                    ended_floats[count, lane] = state_floats[slot, lane]
                count += 1
            for lane in range(state.shape[1]):
                state[slot, lane] = 0
            for lane in range(state_floats.shape[1]):
                state_floats[slot, lane] = 0.0
            state[slot, 0], state[slot, 1], state[slot, 2] = 1, ts[i], ts[i]
        end = max(state[slot, 2], reach[i])
        if at_most > 0:
            end = min(end, state[slot, 1] + at_most)
        state[slot, 2] = end
        for lane in range(width):
            state[slot, 3 + lane] += integers[i, lane]
        for s in range(sums.shape[0]):
            add_row(state_floats, slot, sums[s, 1], sums[s, 2], floats, i, 1.0)
        for e in range(keys.shape[0]):
            at = 3 + width + 2 * e
            if there[e, i] and (state[slot, at] == 0 or keys[e, i] < state[slot, at + 1]):
                state[slot, at], state[slot, at + 1] = 1, keys[e, i]
    return count


class GroupedSessions(MayHaveBudget, ReorderingOperator):
    """State: per partition the lanes above; the pieces ahead of the heartbeat."""

    def __init__(self, spec: GroupedSessionsSpec) -> None:
        super().__init__(ReorderBuffer())
        self._spec, plan = spec, spec.plan
        lanes = _LANES + plan.integers + 2 * len(plan.extremes)
        self._sessions = KeyedTable(lanes, plan.floats, spec.types[: spec.partition])
        self._ends = ExpirationIndex(self._sessions, _END)
        if spec.budget is not None:
            self._budget = BudgetOfStretches(spec.budget, self._sessions, spec.at_most or 0, ends=True)
        self._sums = np.array(plan.double_sums, np.int64).reshape(-1, 3)
        # Keys of greatest values are turned round, so that the least key is the extreme.
        self._flips = [0 if plan.arguments[a].kind is ArgumentState.LEAST else -1 for a in plan.extremes]

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"sessions": self._sessions, **super().synopses()}

    def figures(self) -> FigureValues:
        return {**super().figures(), **open_periods(self._sessions, _ALIVE)}

    def advance(self, moment: Moment) -> list[Elements]:
        self._follow(moment)
        arrived = self._early.until(moment.heartbeat)
        result = [] if arrived is None else self._arrive(arrived)
        self._judge(moment)
        result += self._close(moment.heartbeat)
        self._sessions.shrink()
        if self._budget is not None and BEGIN < moment.heartbeat < END:
            self._budget.pass_to(moment.heartbeat)
        return result

    def _arrive(self, arrived: Elements) -> list[Elements]:
        """Return the sessions that are followed by another."""
        plan, keys = self._spec.plan, self._spec.partition
        dropped = np.empty(0, np.int64)
        if self._budget is not None:
            arrived, dropped = self._admitted(arrived, self._budget)
        columns, reach = arrived.columns[:-1], int64s(arrived.columns[-1])
        placed = self._sessions.place(columns[:keys], len(arrived))
        at = keys + plan.values_at - len(plan.group)
        integers, floats = all_lanes(plan, columns[keys:at], columns[at:])
        extremes = np.empty((len(self._flips), len(arrived)), np.int64)
        there = np.empty(extremes.shape, np.bool_)
        for e, (flip, column) in enumerate(zip(self._flips, columns[at:], strict=True)):
            extremes[e], there[e] = order_keys(column) ^ flip, column.is_valid().to_numpy(zero_copy_only=False)
        lanes = self._sessions.by_slot
        fresh = placed.unique[lanes.integers[placed.unique, _ALIVE] == 0]
        # A session is followed at most as often as a partition has pieces beside its first, or beside that before.
        most = len(arrived) - len(fresh)
        ended, ended_slots = np.empty((most, lanes.integers.shape[1]), np.int64), np.empty(most, np.int64)
        ended_floats = np.empty((most, lanes.floats.shape[1]))
        order = argsort_code_time(placed.slots, arrived.ts)
        count = _extend(
            placed.slots,
            order,
            arrived.ts,
            reach,
            integers,
            floats,
            self._sums,
            extremes,
            there,
            self._spec.at_most or 0,
            lanes.integers,
            lanes.floats,
            ended,
            ended_floats,
            ended_slots,
        )
        self._sessions.touch(placed.unique)
        self._ends.put(fresh)
        if len(dropped):
            self._sessions.integers[_ALIVE, dropped] = 0
            self._sessions.touch(distinct_slots(dropped, self._sessions.count))
        return self._session_rows(ended_slots[:count], ended[:count].T, ended_floats[:count].T)

    def _admitted(self, arrived: Elements, budget: BudgetOfStretches) -> tuple[Elements, Int64s]:
        """Return the pieces of partitions that the budget keeps, and the slots of those to forget behind them."""
        values = arrived.columns[: self._spec.partition]
        slots = self._sessions.place(values, len(arrived)).slots
        reach = int64s(arrived.columns[-1])
        admitted = budget.admit(values, slots, arrived.ts, arrived.ts, reach, arrived.ts - 1)
        return arrived.filter(admitted.kept), admitted.dropped

    def _close(self, heartbeat: int) -> list[Elements]:
        """Return the sessions that end up to `heartbeat`."""
        slots = self._ends.until(heartbeat)
        if self._budget is not None:
            slots = slots[self._sessions.integers[_ALIVE, slots] != 0]
        if not len(slots):
            return []
        integers, floats = self._sessions.integers[:, slots].copy(), self._sessions.floats[:, slots].copy()
        self._sessions.integers[_ALIVE, slots] = 0
        self._sessions.touch(distinct_slots(slots, self._sessions.count))
        return self._session_rows(slots, integers, floats)

    def _session_rows(self, slots: Int64s, integers: Int64s, floats: Float64s) -> list[Elements]:
        """Return sessions by their lanes, each for the instant of its end."""
        if not len(slots):
            return []
        spec, plan = self._spec, self._spec.plan
        end = np.ascontiguousarray(integers[_END])
        known = [*self._sessions.key_columns(slots), pa.array(np.ascontiguousarray(integers[_FIRST])), pa.array(end)]
        lanes, values = integers[_LANES : _LANES + plan.integers], list[pa.Array]()
        for e, (argument, flip) in enumerate(zip(plan.extremes, self._flips, strict=True)):
            there, key = integers[_LANES + plan.integers + 2 * e :][:2]
            values.append(from_order_keys(key ^ flip, there != 0, plan.arguments[argument].type))
        columns = [known[i] for i in spec.group]
        if spec.finished:
            by_argument = dict(zip(plan.extremes, values, strict=True))
            others = {i: by_argument[a] for i, a in enumerate(plan.sources) if a is not None and a in by_argument}
            columns += finish(plan, lanes, floats, others)
        else:
            kept, doubles = plan.carried
            columns += [pa.array(np.ascontiguousarray(part)) for part in (*lanes[list(kept)], *floats[list(doubles)])]
            columns += values
        return [Elements(tuple(columns), end, end + 1)]
