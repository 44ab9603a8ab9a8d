"""Skylines: the least value of each group, where the expiration of every row is known.

A row matters only until a row arrives that is no greater and expires no earlier: that one *dominates* it. The remaining
rows of a group, in the order of expiration, have ascending values; the first is the least. In a window whose rows
expire in order of arrival this is the monotone queue: each row is inserted and removed once. A row that expires in
another order is inserted by walking past the rows that expire later.

Contract: the skyline of a set of rows does not depend on the order in which they are inserted. So the durable state is
a log of the rows that were in a skyline at some snapshot, and a restore inserts them again; rows that have expired
since are recognised by their expiration.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.arrays import UInt64s
from penstock.compilation import loop
from penstock.physical.elements import Bools, Int64s, int64s
from penstock.physical.kernels.compiling import compiled
from penstock.physical.synopses.contract import Chunks, StoredTimes, Synopsis
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.storage.documents import Document, integer, integers

#: Columns of a node. STATE: 0 free, 1 not in the log yet, 2 in the log.
_KEY, _END, _BEFORE, _AFTER, _STATE, _FIRST, _SECOND, _ = range(8)
_HEAD, _TAIL = 0, 1
#: Nodes are moved together where there are this many times as many as rows, and at least so many.
_SPARSE, _MANY_NODES = 3, 1 << 10


@loop
def _drop(nodes: Int64s, tips: Int64s, group: int, n: int, free: Int64s, room: int) -> int:
    """Remove the node from its group's skyline. Return the new number of free nodes."""
    before, after = nodes[n, _BEFORE], nodes[n, _AFTER]
    if before:
        nodes[before, _AFTER] = after
    else:
        tips[group, _HEAD] = after
    if after:
        nodes[after, _BEFORE] = before
    else:
        tips[group, _TAIL] = before
    nodes[n, _STATE] = 0
    free[room] = n
    return room + 1


@loop
def _put(
    nodes: Int64s, tips: Int64s, group: int, key: int, end: int, first: int, second: int, free: Int64s, room: int
) -> tuple[int, int]:
    """Insert a row unless it is dominated; remove the rows it dominates. Return (its node or 0, number of free
    nodes)."""
    after, before = 0, tips[group, _TAIL]
    while before and nodes[before, _END] > end:
        after, before = before, nodes[before, _BEFORE]
    if after and nodes[after, _KEY] <= key:
        return 0, room
    if before and nodes[before, _END] == end and nodes[before, _KEY] <= key:
        return 0, room
    while before and nodes[before, _KEY] >= key:
        gone, before = before, nodes[before, _BEFORE]
        room = _drop(nodes, tips, group, gone, free, room)
    room -= 1
    n = free[room]
    nodes[n, _KEY], nodes[n, _END], nodes[n, _STATE] = key, end, 1
    nodes[n, _BEFORE], nodes[n, _AFTER] = before, after
    nodes[n, _FIRST], nodes[n, _SECOND] = first, second
    if before:
        nodes[before, _AFTER] = n
    else:
        tips[group, _HEAD] = n
    if after:
        nodes[after, _BEFORE] = n
    else:
        tips[group, _TAIL] = n
    return n, room


@compiled(reads="slots times rows signs ends order keys valid group_first group_second")
def _follow(
    slots: Int64s,
    times: Int64s,
    rows: Int64s,
    signs: Int64s,
    ends: Int64s,
    order: Int64s,
    keys: Int64s,
    valid: Bools,
    group_first: UInt64s,
    group_second: UInt64s,
    nodes: Int64s,
    tips: Int64s,
    free: Int64s,
    room: int,
    fresh: Int64s,
    news: int,
    found: Int64s,
    there: Bools,
) -> tuple[int, int]:
    """Events order[0], ... sorted by (group, time); the row rows[e] comes where signs[e] > 0. Answers go to found[k],
    there[k] after the k-th (group, time). Return (number of free nodes, number of fresh ones)."""
    n, i, k = order.shape[0], 0, 0
    while i < n:
        group, time = slots[order[i]], times[order[i]]
        while i < n and slots[order[i]] == group and times[order[i]] == time:
            event = order[i]
            row = rows[event]
            if signs[event] > 0 and valid[row]:
                first, second = np.int64(group_first[group]), np.int64(group_second[group])
                node, room = _put(nodes, tips, group, keys[row], ends[row], first, second, free, room)
                if node:
                    fresh[news] = node
                    news += 1
            i += 1
        while tips[group, _HEAD] and nodes[tips[group, _HEAD], _END] <= time:
            room = _drop(nodes, tips, group, tips[group, _HEAD], free, room)
        head = tips[group, _HEAD]
        there[k] = head > 0
        found[k] = nodes[head, _KEY]
        k += 1
    return room, news


@compiled(reads="groups", counted=False)
def _forget(groups: Int64s, nodes: Int64s, tips: Int64s, free: Int64s, room: int) -> int:
    """Remove all nodes of groups. Return the new number of free nodes."""
    for i in range(groups.shape[0]):
        while tips[groups[i], _HEAD]:
            room = _drop(nodes, tips, groups[i], tips[groups[i], _HEAD], free, room)
    return room


@loop
def _moved_together(nodes: Int64s, tips: Int64s, small: Int64s, numbers: Int64s) -> None:
    """Copy the nodes with a row to `small`, from place 1 on, and their new places to `numbers`; change `tips`."""
    count = 1
    for n in range(1, nodes.shape[0]):
        if nodes[n, _STATE]:
            numbers[n] = count
            small[count] = nodes[n]
            count += 1
    for n in range(1, count):
        small[n, _BEFORE], small[n, _AFTER] = numbers[small[n, _BEFORE]], numbers[small[n, _AFTER]]
    for group in range(tips.shape[0]):
        tips[group, _HEAD], tips[group, _TAIL] = numbers[tips[group, _HEAD]], numbers[tips[group, _TAIL]]


class Skyline(Synopsis):
    """The least key of each group (a slot of `groups`)."""

    TIMES: ClassVar[StoredTimes | None] = StoredTimes("due", "end")

    def __init__(self, groups: KeyedTable) -> None:
        self._groups = groups
        self._clear()
        self._log: dict[int, pa.RecordBatch] = {}
        self._next_id = 0
        #: The last instant of any event: rows with an expiration up to it have expired.
        self._time = np.iinfo(np.int64).min
        self._stale = False
        groups.followers.append(self._groups_moved)

    def _clear(self) -> None:
        self._nodes = np.zeros((1, 8), np.int64)
        self._tips = np.zeros((16, 2), np.int64)
        self._free = np.empty(0, np.int64)
        self._room = 0
        self._fresh = np.empty(0, np.int64)
        self._news = 0

    def now(self, groups: Int64s) -> tuple[Int64s, Bools]:
        """Return (least key, whether there is one) of `groups` at present."""
        self._refresh()
        heads = self._tips[groups, _HEAD]
        return self._nodes[heads, _KEY], heads > 0

    def due(self, until: int) -> tuple[Int64s, Int64s]:
        """Return the (group, instant) up to `until` at which a row expires, by scanning all rows; each once or more."""
        self._refresh()
        nodes = self._nodes
        rows = np.flatnonzero((nodes[:, _STATE] > 0) & (nodes[:, _END] <= until))
        first, second = (np.ascontiguousarray(nodes[rows, i]).view(np.uint64) for i in (_FIRST, _SECOND))
        return self._groups.find(first, second), nodes[rows, _END]

    def follow(
        self,
        slots: Int64s,
        times: Int64s,
        rows: Int64s,
        signs: Int64s,
        ends: Int64s,
        order: Int64s,
        keys: Int64s,
        valid: Bools,
        outputs: int,
    ) -> tuple[Int64s, Bools]:
        """Apply events; return the results of `now` after each of the `outputs` (group, time). keys, valid, ends: by
        row."""
        self._refresh()
        found, there = np.empty(outputs, np.int64), np.empty(outputs, np.bool_)
        self._reserve(len(keys))
        first, second = self._groups.keys
        self._room, self._news = _follow(
            slots,
            times,
            rows,
            signs,
            ends,
            order,
            keys,
            valid,
            first,
            second,
            self._nodes,
            self._tips,
            self._free,
            self._room,
            self._fresh,
            self._news,
            found,
            there,
        )
        self._time = max(self._time, int(times.max()))
        return found, there

    def forget(self, groups: Int64s) -> None:
        """Drop the rows of groups that have ended with rows in them."""
        if len(groups):
            self._refresh()
            self._room = int(_forget(groups, self._nodes, self._tips, self._free, self._room))

    def shrink(self) -> None:
        """Give up nodes that a round with many rows took, where few of these remain."""
        rows, size = self.rows, len(self._nodes)
        if self._stale or size <= max(_MANY_NODES, _SPARSE * rows):
            return
        nodes, numbers = np.zeros((max(16, 2 * rows), 8), np.int64), np.zeros(size, np.int64)
        _moved_together(self._nodes, self._tips, nodes, numbers)
        # A fresh node that was freed since becomes node 0, which is always free.
        self._fresh = numbers[self._fresh[: self._news]]
        self._nodes, self._free = nodes, np.arange(len(nodes) - 1, 0, -1)
        self._room = len(nodes) - 1 - rows

    # -- the synopsis ------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        self._refresh()
        return len(self._nodes) - 1 - self._room

    @property
    def nbytes(self) -> int:
        return int(self._nodes.nbytes + self._tips.nbytes)

    def snapshot(self) -> tuple[Document, Chunks]:
        self._refresh()
        fresh = np.unique(self._fresh[: self._news])
        fresh = fresh[self._nodes[fresh, _STATE] == 1]
        logged = sum(batch.num_rows for batch in self._log.values())
        if logged + len(fresh) > 2 * self.rows + 64:
            self._log = {}
            fresh = np.flatnonzero(self._nodes[:, _STATE])
        if len(fresh):
            self._next_id += 1
            arrays = [pa.array(self._nodes[fresh, column]) for column in (_FIRST, _SECOND, _END, _KEY)]
            self._log[self._next_id] = pa.RecordBatch.from_arrays(arrays, names=["first", "second", "end", "key"])
            self._nodes[fresh, _STATE] = 2
        self._fresh, self._news = np.empty(0, np.int64), 0
        return {"next": self._next_id, "time": int(self._time), "log": list(self._log)}, dict(self._log)

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._next_id = integer(manifest, "next")
        self._time = integer(manifest, "time")
        self._log = {i: chunks[i] for i in integers(manifest, "log")}
        self._stale = True

    def _refresh(self) -> None:
        """After a restore, insert the logged rows again that have not expired and whose groups are live."""
        if self._stale:
            self._stale = False
            self._clear()
            parts = [[int64s(column) for column in batch.columns] for batch in self._log.values()]
            if parts:
                first, second, end, key = (np.concatenate(columns) for columns in zip(*parts, strict=True))
                slots = self._groups.find(first.view(np.uint64), second.view(np.uint64))
                known = (slots >= 0) & (end > self._time) & (self._groups.integers[0, slots] != 0)
                self._feed(slots[known], end[known], key[known])
        if len(self._tips) < self._groups.count:
            grown = np.zeros((max(2 * len(self._tips), self._groups.count), 2), np.int64)
            grown[: len(self._tips)] = self._tips
            self._tips = grown

    def _feed(self, slots: Int64s, ends: Int64s, keys: Int64s) -> None:
        size = len(slots)
        if not size:
            return
        times = np.full(size, self._time)
        order = np.argsort(slots, kind="stable")
        every, ones = np.arange(size), np.ones(size, np.int64)
        self.follow(slots, times, every, ones, ends, order, keys, np.ones(size, np.bool_), size)
        self._nodes[self._nodes[:, _STATE] == 1, _STATE] = 2
        self._fresh, self._news = np.empty(0, np.int64), 0

    def _reserve(self, more: int) -> None:
        """Allocate `more` nodes."""
        if self._room < more:
            size = len(self._nodes)
            grown = max(2 * size, size + more)
            nodes = np.zeros((grown, 8), np.int64)
            nodes[:size] = self._nodes
            free = np.empty(grown, np.int64)
            free[: self._room] = self._free[: self._room]
            free[self._room : self._room + grown - size] = np.arange(size, grown)
            self._nodes, self._free, self._room = nodes, free, self._room + grown - size
        if self._news + more > len(self._fresh):
            fresh = np.empty(2 * (self._news + more), np.int64)
            fresh[: self._news] = self._fresh[: self._news]
            self._fresh = fresh

    def _groups_moved(self, kept: Int64s) -> None:
        if self._stale:
            return
        # Dropped groups are empty: they have no rows in a skyline.
        tips = np.zeros_like(self._tips)
        inside = kept[kept < len(self._tips)]
        tips[: len(inside)] = self._tips[inside]
        self._tips = tips
