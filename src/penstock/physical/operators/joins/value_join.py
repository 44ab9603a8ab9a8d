"""Joins that store by value how many rows there were, in place of rows `[golab 2.2.1]`.

Both inputs lose nothing. Once the heartbeat has passed two rows of one value, every later element meets both or none
of them, at its own instant: one of them with the number of both is enough. A multiplicity is a sign, and signs of a
pair multiply. Where duplicates do not count, one of them is enough as it is; and where a row of the same value that
came no later has a value of the compared column that is no greater, it meets whatever the other meets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.physical.elements import Elements, Int64s, concat
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.joins.join import Join
from penstock.physical.plan.joins.specs import DecidingExtreme, ValueJoinSpec
from penstock.physical.synopses.join_indexes.hash_index import HashJoinIndex
from penstock.types import BEGIN

#: So many stored rows are not put together.
_FEW_ROWS = 16


class ValueJoin(Join):
    """State: by side the different values, and those that have come since these were put together last."""

    def __init__(self, spec: ValueJoinSpec) -> None:
        super().__init__(spec)
        self._once, self._extremes = spec.once, spec.extremes
        #: Beyond so many rows those of a side are put together.
        self._bearable = [_FEW_ROWS, _FEW_ROWS]

    def process(self, port: int, elements: Elements) -> list[Elements]:
        extreme = self._extremes[port]
        if extreme is not None and elements.columns[extreme.column].null_count:
            elements = elements.filter(elements.columns[extreme.column].is_valid().to_numpy(zero_copy_only=False))
        return super().process(port, self._put_together(port, elements, BEGIN))

    def advance(self, moment: Moment) -> list[Elements]:
        result = super().advance(moment)
        for port, side in enumerate(self._sides):
            held = side.held
            if held.rows > self._bearable[port] and isinstance(held, HashJoinIndex):
                held.replace(self._put_together(port, concat(held.parts), moment.heartbeat))
                self._bearable[port] = max(_FEW_ROWS, 2 * held.rows)
        return [_copies(one) for one in result]

    def _copies_of_row(self, port: int) -> float:
        held = self._sides[port].held
        if self._once or not held.rows or not isinstance(held, HashJoinIndex):
            return 1.0
        return float(sum(int(part.signs.sum()) for part in held.parts)) / held.rows

    def _put_together(self, port: int, elements: Elements, heartbeat: int) -> Elements:
        """Return the elements of a side that are needed, those up to `heartbeat` as if they came at one instant."""
        if len(elements) < 2:
            return elements
        ts = np.maximum(elements.ts, heartbeat)
        if self._once:
            return first_of_values(elements, ts, self._extremes[port])
        return counts_of_values(elements, ts)


def counts_of_values(elements: Elements, ts: Int64s) -> Elements:
    """Return one element for all that are equal and have one instant, with their number as its sign.

    Args:
        ts: the instants that count, in place of those of the elements.
    """
    first, second = fingerprints([*elements.columns, pa.array(ts)], len(elements))
    order = np.lexsort((second, first))
    begins = _begins((first[order], second[order]))
    signs = np.add.reduceat(elements.signs[order], begins)
    rows = order[begins]
    return Elements(tuple(c.take(pa.array(rows)) for c in elements.columns), ts[rows], elements.exp[rows], signs)


def first_of_values(elements: Elements, ts: Int64s, extreme: DecidingExtreme | None) -> Elements:
    """Return the elements that no other one makes superfluous: one of the same value, no later, that is no greater in
    the column `extreme`, which has no NULL, or no less.

    Args:
        ts: the instants that count, in place of those of the elements.
    """
    beside = [c for i, c in enumerate(elements.columns) if extreme is None or i != extreme.column]
    first, second = fingerprints(beside, len(elements))
    rank = np.zeros(len(elements), np.int64)
    if extreme is not None:
        rank = pc.rank(elements.columns[extreme.column], sort_keys="ascending", tiebreaker="dense").to_numpy()
        rank = rank.astype(np.int64) * (-1 if extreme.greatest else 1)
    order = np.lexsort((rank, ts, second, first))
    begins = _begins((first[order], second[order]))
    group = np.zeros(len(order), np.int64)
    group[begins[1:]] = 1
    # Ranks of a later group are less than those of all before it: one running minimum is that of every group.
    falling = rank[order] - np.cumsum(group) * (2 * len(order) + 1)
    lowest = np.minimum.accumulate(falling)
    needed = np.ones(len(order), np.bool_)
    needed[1:] = falling[1:] < lowest[:-1]
    rows = np.sort(order[needed])
    return Elements(tuple(c.take(pa.array(rows)) for c in elements.columns), ts[rows], elements.exp[rows])


def _begins(sorted_keys: Sequence[np.ndarray[tuple[int], np.dtype[np.uint64]]]) -> Int64s:
    """Return where rows of another key begin."""
    differs = np.ones(len(sorted_keys[0]), np.bool_)
    differs[1:] = np.logical_or.reduce([keys[1:] != keys[:-1] for keys in sorted_keys])
    return np.flatnonzero(differs)


def _copies(elements: Elements) -> Elements:
    """Return every element as often as its sign says."""
    if elements.sign is None:
        return elements
    rows = np.repeat(np.arange(len(elements)), elements.sign)
    return Elements(tuple(c.take(pa.array(rows)) for c in elements.columns), elements.ts[rows], elements.exp[rows])
