"""Bags of values by group: how often each value is live in each group and, if needed, in which order.

Contract: `pairs` assigns every (group, value) a slot; integer lane 0 is its count, which operators change in place. A
group is a slot of the table of groups; a bag renumbers its groups when that table drops slots. The table is durable;
the linked structures (`ordered_bags.py`) are rebuilt from it after a restore.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrays import UInt64s
from penstock.compilation import loop
from penstock.expressions.nodes import KeyDirection
from penstock.physical.elements import Int64s
from penstock.physical.kernels import trees
from penstock.physical.kernels.extremes import from_order_keys
from penstock.physical.kernels.fingerprints import _mix, fingerprints
from penstock.physical.kernels.key_order import Bytes, is_wide, sort_keys
from penstock.physical.synopses.contract import Chunks
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.storage.documents import Document

S = TypeVar("S", bound=np.generic)
#: Up to so many values those of ended groups stay.
_FEWEST_VALUES = 64


@loop
def _with_group(group_first: UInt64s, group_second: UInt64s, slots: Int64s, first: UInt64s, second: UInt64s) -> None:
    """Turn the fingerprints of values into those of (group, value), in place."""
    for i in range(slots.shape[0]):
        slot = slots[i]
        first[i] = _mix(first[i] * np.uint64(31) + group_first[slot])
        second[i] = _mix((second[i] ^ group_first[slot]) + group_second[slot] * np.uint64(7) + np.uint64(1))


@loop
def _name_groups(
    found: Int64s, groups: Int64s, before: int, group_first: UInt64s, group_second: UInt64s, integers: Int64s
) -> None:
    """Write the fingerprint of the group of each slot from `before` on."""
    for i in range(found.shape[0]):
        if found[i] >= before:
            integers[1, found[i]] = np.int64(group_first[groups[i]])
            integers[2, found[i]] = np.int64(group_second[groups[i]])


class ValueBag(KeyedTable):
    """Integer lanes: count, the fingerprint of the group, whether the value was live when it was last checked."""

    def __init__(self, groups: KeyedTable, type_: pa.DataType) -> None:
        super().__init__(4, 0, [type_])
        self._groups = groups
        #: How many values were left when those of ended groups were dropped last.
        self._left = 0

    def forget(self) -> Int64s:
        """Drop the values of groups that are dead, of which none has been removed, once there are as many values again
        as were left before: a group costs as much to drop as it has values. Return the slots dropped."""
        if self.rows <= 2 * self._left + _FEWEST_VALUES:
            return np.empty(0, np.int64)
        live = self.live()
        groups = self._groups.find(*(self.integers[i, live].view(np.uint64) for i in (1, 2)))
        gone: Int64s = live[(groups < 0) | (self._groups.integers[0, groups] == 0)]
        self.integers[0, gone] = 0
        self.touch(gone)
        self._left = self.rows
        return gone

    def pairs(self, slots: Int64s, column: pa.Array) -> Int64s:
        """Return the slot of each (group in `slots`, value in `column`); -1 where the value is NULL."""
        if column.null_count:
            known = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
            result = np.full(len(slots), -1, np.int64)
            if len(known):
                result[known] = self.pairs(slots[known], column.take(pa.array(known)))
            return result
        first, second = fingerprints([column], len(slots))
        group_first, group_second = self._groups.keys
        _with_group(group_first, group_second, slots, first, second)
        before = self.count
        found = self.slots(first, second, [column])
        if self.count > before:
            _name_groups(found, slots, before, group_first, group_second, self.integers)
        return found


@dataclass(frozen=True)
class Questions:
    """The questions evaluated on every tree: one of trees.LEAST ... trees.COUNTS each, with its three constants
    (`OrderedFunction.parameters`)."""

    asked: Int64s
    parameters: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """The results for an array of groups, as `trees.follow` returns them."""

    found: Int64s
    between: npt.NDArray[np.float64]
    members: Int64s
    counts: Int64s


class LinkedBag(ValueBag):
    """A bag whose values are nodes of a structure per group, which evaluates `questions`. A value's node has the number
    slot + 1. The structures are not durable, but rebuilt from the table."""

    def __init__(
        self, groups: KeyedTable, type_: pa.DataType, questions: Questions, directions: tuple[KeyDirection, ...] = ()
    ) -> None:
        """Create an empty bag. directions: of the first fields of its values, which are structs then."""
        super().__init__(groups, type_)
        self._wide = is_wide(type_)
        self._directions = directions
        self._questions = questions
        self._nodes = np.zeros((1, trees.WIDTH), np.int64)
        self._spans = np.zeros((1, 2), np.int64)
        self._data: Bytes = np.empty(64, np.uint8)
        self._used = 0
        #: By group: the root of its structure.
        self._roots = self._no_roots(16)
        #: Slots below this have a node.
        self._made = 0
        self._stale = True
        groups.followers.append(self._groups_moved)

    def _no_roots(self, size: int) -> Int64s:
        return np.zeros(size, np.int64)

    @abstractmethod
    def _plant(self, groups: Int64s, slots: Int64s) -> None:
        """Insert the live values in `slots` into the structures of their groups."""

    @abstractmethod
    def _uproot(self, groups: Int64s) -> None:
        """Remove the structures of `groups`."""

    @abstractmethod
    def ask(self, groups: Int64s) -> Found:
        """Return the current results for `groups`."""

    @abstractmethod
    def follow(
        self, slots: Int64s, times: Int64s, order: Int64s, pairs: Int64s, weights: Int64s, outputs: int
    ) -> Found:
        """Apply events, sorted by `order`; return the results after each of the `outputs` (group, time)."""

    def values(self, slots: Int64s) -> pa.Array:
        """Return the values at `slots`; NULL where a slot is -1."""
        if self._wide:
            return self.key_columns(slots)[0]
        return from_order_keys(self._nodes[slots + 1, trees.KEY], slots >= 0, self._types[0])

    def forget(self) -> Int64s:
        gone = super().forget()
        self._stale |= bool(len(gone))
        return gone

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        super().restore(manifest, chunks)
        self._stale = True

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._made * 8 * (trees.WIDTH + 2) + self._used

    def _room(self, rows: int) -> tuple[Int64s, npt.NDArray[np.float64]]:
        questions = len(self._questions.asked)
        return np.empty((questions, rows, 2), np.int64), np.empty((questions, rows), np.float64)

    # -- nodes -------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Create missing nodes, and insert the live values that are not in a structure yet."""
        if self._stale:
            self._made, self._used = 0, 0
            self._roots = self._no_roots(len(self._roots))
        self._grow_roots()
        self._add_nodes()
        if self._stale:
            self._stale = False
            live = self.live()
            first, second = (self.integers[i, live].view(np.uint64) for i in (1, 2))
            groups = self._groups.find(first, second)
            there = groups >= 0
            if not there.all():
                # Their groups ended with rows in them (`forget`).
                self.integers[0, live[~there]] = 0
                self.touch(live[~there])
            self._grow_roots()
            self._plant(groups[there], live[there])

    def _grow_roots(self) -> None:
        if len(self._roots) < self._groups.count:
            grown = self._no_roots(max(2 * len(self._roots), self._groups.count))
            grown[: len(self._roots)] = self._roots
            self._roots = grown

    def _add_nodes(self) -> None:
        fresh = np.arange(self._made, self.count)
        if not len(fresh):
            return
        if len(self._nodes) <= self.count:
            size = max(2 * len(self._nodes), self.count + 1)
            self._nodes = _longer(self._nodes, size)
            self._spans = _longer(self._spans, size)
        keys = sort_keys(self.last_keys(self._made)[0], self._directions)
        rows = slice(self._made + 1, self.count + 1)
        self._nodes[rows] = 0
        self._nodes[rows, trees.PARENT] = -1
        self._nodes[rows, trees.KEY] = keys.keys
        self._nodes[rows, trees.PRIORITY] = self.fingerprints(fresh)[1].view(np.int64)
        if keys.wide:
            ends = np.cumsum(keys.lengths)
            total = int(ends[-1])
            if self._used + total > len(self._data):
                self._data = np.resize(self._data, 2 * (self._used + total))
            _copy(keys.starts, keys.lengths, keys.data, self._data, self._used)
            self._spans[rows, 0] = self._used + ends - keys.lengths
            self._spans[rows, 1] = keys.lengths
            self._used += total
        self._made = self.count

    def _groups_moved(self, kept: Int64s) -> None:
        """Renumber groups after the table of groups has kept only the groups `kept`, in this order."""
        if self._stale:
            return
        self._grow_roots()
        gone = np.ones(len(self._roots), np.bool_)
        gone[kept] = False
        self._uproot(np.flatnonzero(gone))
        roots = self._no_roots(len(self._roots))
        roots[: len(kept)] = self._roots[kept]
        self._roots = roots

    def _keep(self, slots: Int64s) -> None:
        super()._keep(slots)
        self._stale = True


def _longer(rows: npt.NDArray[S], size: int) -> npt.NDArray[S]:
    grown = np.zeros((size, rows.shape[1]), rows.dtype)
    grown[: len(rows)] = rows
    return grown


@loop
def _copy(starts: Int64s, lengths: Int64s, source: Bytes, target: Bytes, at: int) -> None:
    for i in range(starts.shape[0]):
        for k in range(lengths[i]):
            target[at + k] = source[starts[i] + k]
        at += lengths[i]
