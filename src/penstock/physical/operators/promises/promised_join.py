"""Joins whose rows leave by promises: inner, outer and semi-joins, and marks (docs/promises.md).

Of a round, all look-ups see what stands at their own instants: a pair is made at the later of the instants at which its
rows enter, if neither has left before, nor its window ended. Closings take effect after their instants. A row that left
answers no look-up; what it gave stays until its own end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.promised import JoinResult
from penstock.expressions.evaluation.evaluate import mask
from penstock.figures.figure import FigureValues
from penstock.physical.elements import Bools, Elements, Int64s
from penstock.physical.kernels.compiled import argsort_time
from penstock.physical.kernels.compiling import compiled
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.joins.growth import account
from penstock.physical.operators.promises.closed_counts import promise_figures
from penstock.physical.operators.promises.follower import ClosingFollower
from penstock.physical.operators.promises.held_side import (
    ENTERED,
    MET,
    START,
    STATE,
    STOP,
    UNTIL,
    HeldSide,
    RowsOfSide,
    keyed_rows,
)
from penstock.physical.operators.promises.references import CountedStreams
from penstock.physical.plan.joins.promised import PromisedJoinSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.promises.held_rows import HashChains
from penstock.types import END

#: Look-ups of about this many rows are made at once.
_AT_ONCE = 1 << 15
#: What was known of a row that a pair ends: up to when it answers, or nothing.
_WAS_CLOSED, _WAS_OPEN = 1, 2


@dataclass
class _Pairs:
    """Rows of both sides with one key, at the instants at which they meet. rows: by side, numbers in `held`."""

    held: tuple[RowsOfSide, RowsOfSide]
    rows: tuple[Int64s, Int64s]
    instants: Int64s

    def __len__(self) -> int:
        return len(self.instants)

    def filter(self, keep: Bools) -> _Pairs:
        if keep.all():
            return self
        return _Pairs(self.held, (self.rows[0][keep], self.rows[1][keep]), self.instants[keep])

    def lane(self, side: int, lane: int) -> Int64s:
        return self.held[side].lane(lane, self.rows[side])


@compiled(reads="left right left_rows right_rows", counted=False)
def _answering(
    left: Int64s, right: Int64s, left_rows: Int64s, right_rows: Int64s, a: Int64s, b: Int64s, instants: Int64s
) -> int:
    """Find the pairs both of whose rows answer at the instant at which the later one enters; return their number.

    Args:
        left, right: the numbers of rows by (row, lane).
        left_rows, right_rows: pairs of rows.
        a, b, instants: receive the rows of the pairs that are found, and the instants.
    """
    count = 0
    for i in range(left_rows.shape[0]):
        x, y = left_rows[i], right_rows[i]
        if left[x, STATE] != ENTERED or right[y, STATE] != ENTERED:
            continue
        t = max(left[x, START], right[y, START])
        if t < left[x, STOP] and t < right[y, STOP] and t <= left[x, UNTIL] and t <= right[y, UNTIL]:
            a[count], b[count], instants[count] = x, y, t
            count += 1
    return count


@compiled(reads="order instants", counted=False)
def _meet_once(
    order: Int64s,
    rows: tuple[Int64s, Int64s],
    stored: tuple[Bools, Bools],
    instants: Int64s,
    lanes: tuple[Int64s, Int64s, Int64s, Int64s],
    once: tuple[bool, bool],
    made: Bools,
    ends: tuple[Int64s, Int64s],
) -> None:
    """Find which pairs are made, in the order of time. A row that leaves after its first pair answers until then.

    Args:
        rows: of pairs, by side; stored: whether they are stored.
        lanes: the numbers of rows by (row, lane): of the left side those that are fresh, those that are stored; of the
            right side the same.
        once: by side, whether rows leave after their first pair.
        made: receives which pairs are made.
        ends: by side, receives of the pairs that end their row sooner than it was known, _WAS_CLOSED, or _WAS_OPEN
            where no end was known.
    """
    for i in range(order.shape[0]):
        pair = order[i]
        t = instants[pair]
        made[pair] = True
        for side in range(2):
            numbers = lanes[2 * side + stored[side][pair]]
            made[pair] = made[pair] and t <= numbers[rows[side][pair], UNTIL]
        if not made[pair]:
            continue
        for side in range(2):
            row, numbers = rows[side][pair], lanes[2 * side + stored[side][pair]]
            if once[side] and t < numbers[row, UNTIL]:
                ends[side][pair] = _WAS_OPEN if numbers[row, UNTIL] == END else _WAS_CLOSED
                numbers[row, UNTIL] = t


class PromisedJoin(Operator):
    """State: the rows of both sides that are held; the promises that it follows."""

    def __init__(self, spec: PromisedJoinSpec) -> None:
        self._spec = spec
        self._follower = ClosingFollower(spec.closings, 2)
        followed = dict(zip(spec.closings, self._follower.promises, strict=True))
        references = [one.closing for side in spec.sides for one in side.leaving if one.is_reference]
        self._counted = CountedStreams(references)
        left, right = (
            HeldSide(side, followed, self._counted, number in spec.preserved) for number, side in enumerate(spec.sides)
        )
        self._sides = left, right
        #: By side, the slots of rows that found their first partner in this round.
        self._met: tuple[list[Int64s], list[Int64s]] = ([], [])

    def synopses(self) -> Mapping[str, Synopsis]:
        found = {
            f"{name}_{part}": synopsis
            for name, side in zip(("left", "right"), self._sides, strict=True)
            for part, synopsis in side.synopses().items()
        }
        return {**found, **self._follower.synopses(), **self._counted.synopses()}

    def figures(self) -> FigureValues:
        return promise_figures(self.synopses().values())

    def process(self, port: int, elements: Elements) -> list[Elements]:
        if port < 2:
            self._sides[port].process(elements)
            return []
        self._counted.process(port, elements)
        self._follower.process(port, elements)
        return []

    def advance(self, moment: Moment) -> list[Elements]:
        heartbeat = moment.heartbeat
        arrived = {number: side.arrive(heartbeat) for number, side in enumerate(self._sides)}
        self._follower.advance(heartbeat, arrived)
        self._counted.advance(heartbeat)
        for side in self._sides:
            side.begin(heartbeat)
        self._met = ([], [])
        result = [one for pairs in self._pairs() for one in self._joined(pairs)]
        for number in self._spec.preserved:
            result += self._alone(number)
        for side in self._sides:
            side.settle(heartbeat)
        return result

    # -- pairs

    def _pairs(self) -> Iterator[_Pairs]:
        """Yield the pairs that are made in this round."""
        once = [side.once for side in self._spec.sides]
        found = (pairs for pairs in map(_in_time, self._equal()) if len(pairs))
        return found if not any(once) else iter(self._first_pairs(list(found)))

    def _equal(self) -> Iterator[_Pairs]:
        """Yield the rows of both sides with one key of which at least one has entered in this round."""
        left, right = self._sides
        for rows, slots in self._look_ups(0):
            yield _Pairs((left.fresh, right.stored), (rows, slots), rows)
        for rows, slots in self._look_ups(1):
            yield _Pairs((left.stored, right.fresh), (slots, rows), rows)
        if not len(left.fresh) or not len(right.fresh):
            return
        built = 0 if len(left.keyed[0]) < len(right.keyed[0]) else 1
        (known, *prints), (mine, first, second) = self._sides[built].keyed, self._sides[1 - built].keyed
        chains = HashChains()
        chains.append(*prints)
        for start in range(0, len(mine), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            probe, found = chains.find(first[part], second[part])
            looked_up, others = mine[part][probe], known[found]
            both = (looked_up, others) if built else (others, looked_up)
            yield _Pairs((left.fresh, right.fresh), both, probe)

    def _look_ups(self, number: int) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield (rows of a side that have entered in this round, slots of the other side with their keys)."""
        other = self._sides[1 - number].table
        if not other.rows:
            return
        rows, first, second = self._sides[number].keyed
        for start in range(0, len(rows), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            probe, slots = other.meet(first[part], second[part])
            yield rows[part][probe], slots

    def _first_pairs(self, found: Sequence[_Pairs]) -> Iterator[_Pairs]:
        """Yield those of all pairs of the round that are made, where rows leave after their first one."""
        if not found:
            return
        instants = np.concatenate([pairs.instants for pairs in found])
        made = np.empty(len(instants), np.bool_)
        once = tuple(side.once for side in self._spec.sides)
        rows, stored = zip(*(self._of_side(number, found) for number in (0, 1)), strict=True)
        lanes = tuple(one.by_row for side in self._sides for one in (side.fresh, side.stored))
        ends = np.zeros(len(instants), np.int64), np.zeros(len(instants), np.int64)
        _meet_once(argsort_time(instants), rows, stored, instants, lanes, once, made, ends)
        for number, side in enumerate(self._sides):
            there = np.flatnonzero(ends[number])
            was_open = ends[number][there] == _WAS_OPEN
            side.closings.meet(stored[number][there], rows[number][there], was_open)
        start = 0
        for pairs in found:
            own = made[start : start + len(pairs)]
            start += len(pairs)
            pairs = pairs.filter(own)
            for number, side in enumerate(self._sides):
                if once[number] and pairs.held[number] is side.stored:
                    side.table.touch(pairs.rows[number])
                    side.touched.append(pairs.rows[number])
            yield pairs

    def _of_side(self, number: int, found: Sequence[_Pairs]) -> tuple[Int64s, Bools]:
        """Return the rows of pairs on one side, and whether they are stored."""
        stored = self._sides[number].stored
        rows = np.concatenate([pairs.rows[number] for pairs in found])
        return rows, np.concatenate([np.full(len(pairs), pairs.held[number] is stored) for pairs in found])

    # -- results

    def _joined(self, pairs: _Pairs) -> list[Elements]:
        """Return the joined rows of pairs, and note which rows have found a partner."""
        spec = self._spec
        if spec.residual is None and not spec.emits_pairs:
            self._note_met(pairs)
            return []
        columns = [
            column
            for held, rows, side in zip(pairs.held, pairs.rows, spec.sides, strict=True)
            for column in held.columns(rows)[: side.width]
        ]
        made = Elements(tuple(columns), pairs.instants, np.minimum(pairs.lane(0, STOP), pairs.lane(1, STOP)))
        if spec.residual is not None:
            keep = mask(spec.residual, made.columns, len(made))
            made, pairs = made.filter(keep), pairs.filter(keep)
        account(made)
        self._note_met(pairs)
        return [made] if len(made) and spec.emits_pairs else []

    def _note_met(self, pairs: _Pairs) -> None:
        for side in self._spec.preserved:
            held, rows = pairs.held[side], pairs.rows[side]
            if held is self._sides[side].stored:
                self._met[side].append(rows[held.lane(MET, rows) == END])
            held.put_lane(MET, rows, pairs.instants)

    def _alone(self, number: int) -> list[Elements]:
        """Return what is answered of the rows of a side that are answered for having partners or none."""
        side, spec = self._sides[number], self._spec
        slots = np.unique(np.concatenate([np.empty(0, np.int64), *self._met[number]]))
        every = np.arange(len(side.fresh))
        result = self._changes(number, side.fresh, every, True) + self._changes(number, side.stored, slots, False)
        unkeyed = ~keyed_rows(side.fresh.values, spec.sides[number].key, len(side.fresh))
        side.fresh.lanes[UNTIL, unkeyed] = side.fresh.lanes[START, unkeyed]
        if not spec.emits_pairs and not spec.sides[1 - number].once:
            # It is answered, and nothing depends on whether it is there.
            side.fresh.put_lane(UNTIL, every, side.fresh.lane(MET, every))
            side.stored.put_lane(UNTIL, slots, side.stored.lane(MET, slots))
            side.touched.append(slots)
        return result

    def _changes(self, number: int, held: RowsOfSide, rows: Int64s, entered: bool) -> list[Elements]:
        """Return what changes for rows that have entered in this round, or have found their first partner."""
        joined = self._spec.joined
        start, met, stop = (held.lane(lane, rows) for lane in (START, MET, STOP))
        found: list[Elements] = []
        without = met > start
        if joined is not JoinResult.SEMI:
            if entered:
                found.append(self._shown(number, held, rows[without], start[without], stop[without], False))
            ended = without & (met < END)
            gone = self._shown(number, held, rows[ended], met[ended], stop[ended], False)
            found.append(Elements(gone.columns, gone.ts, gone.exp, np.full(len(gone), -1, np.int64)))
        if joined in (JoinResult.SEMI, JoinResult.MARK):
            there = met < END
            found.append(self._shown(number, held, rows[there], met[there], stop[there], True))
        return [one for one in found if len(one)]

    def _shown(self, number: int, held: RowsOfSide, rows: Int64s, ts: Int64s, exp: Int64s, partner: bool) -> Elements:
        """Return rows of a side as they are answered with or without a partner."""
        spec = self._spec
        columns = held.columns(rows)[: spec.sides[number].width]
        if spec.joined is JoinResult.MARK:
            columns = [*columns, pa.repeat(pa.scalar(partner), len(rows))]
        elif spec.emits_pairs:
            other = spec.sides[1 - number]
            nulls = [pa.nulls(len(rows), kind) for kind in other.types[: other.width]]
            columns = [*columns, *nulls] if number == 0 else [*nulls, *columns]
        return Elements(tuple(columns), ts, exp)


def _in_time(pairs: _Pairs) -> _Pairs:
    """Return the pairs both of whose rows answer at the instant at which the later one enters."""
    a, b, instants = (np.empty(len(pairs.instants), np.int64) for _ in range(3))
    count = _answering(pairs.held[0].by_row, pairs.held[1].by_row, *pairs.rows, a, b, instants)
    return _Pairs(pairs.held, (a[:count], b[:count]), instants[:count])
