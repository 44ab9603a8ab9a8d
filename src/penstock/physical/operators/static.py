"""A relation that never changes, emitted once into a stage."""

from __future__ import annotations

import numpy as np

from penstock.physical.elements import Elements
from penstock.physical.kernels.compiled import cut_by_shard
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.storage.documents import Document, flag


class Static(Operator):
    """Emit, in the first round, the shard's part of the relation. key: the columns by which its rows are partitioned
    over shards; without any, all are in the first one."""

    def __init__(self, key: tuple[int, ...], table: Elements, shards: int) -> None:
        self._key = key
        self._table = table
        self._shards = shards
        self._emitted = False

    def marks(self) -> Document:
        return {"given": self._emitted}

    def restore_marks(self, marks: Document) -> None:
        self._emitted = flag(marks, "given")

    def advance(self, moment: Moment) -> list[Elements]:
        if self._emitted:
            return []
        self._emitted = True
        if not self._key:
            return [self._table] if moment.shard == 0 and len(self._table) else []
        first, _ = fingerprints([self._table.columns[i] for i in self._key], len(self._table))
        order, bounds = cut_by_shard(first, self._shards)
        mine = order[bounds[moment.shard] : bounds[moment.shard + 1]]
        return [self._table.take(np.asarray(mine))] if len(mine) else []
