"""A relation that never changes, emitted once into a stage."""

from __future__ import annotations

from penstock.physical.elements import Elements
from penstock.physical.operators.base.contract import Moment, Operator
from penstock.physical.operators.base.shard_rows import rows_of_shard
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
        mine = rows_of_shard(self._table, self._key, moment.shard, self._shards)
        return [mine] if len(mine) else []
