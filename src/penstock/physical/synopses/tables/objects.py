"""A table of keyed Python objects: the state of user-defined aggregates by group.

Keys are row fingerprints. Durability is a log of chunks, as of a `KeyedTable`: a snapshot writes one chunk with the
objects that changed since the last snapshot, as bytes; the newest chunk that contains a key is valid for it. When the
log has grown to twice the live objects, it is rewritten as one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator
from typing import Generic, TypeVar

import pyarrow as pa

from penstock.physical.synopses.contract import Chunks, Synopsis
from penstock.storage.documents import Document, integer, integers

T = TypeVar("T")
Key = tuple[int, int]


class ObjectTable(Synopsis, Generic[T]):
    """Objects by key. pack, unpack: convert an object to bytes and back; called when state is written and read."""

    def __init__(self, pack: Callable[[T], bytes], unpack: Callable[[bytes], T]) -> None:
        self._pack, self._unpack = pack, unpack
        self._objects: dict[Key, T] = {}
        self._touched: set[Key] = set()
        self._log: dict[int, pa.RecordBatch] = {}
        self._next_id = 0

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def put(self, key: Key, value: T) -> None:
        """Keep `value`, which may be changed in place before the next `put`."""
        self._objects[key] = value
        self._touched.add(key)

    def remove(self, key: Key) -> None:
        if self._objects.pop(key, None) is not None:
            self._touched.add(key)

    def items(self) -> ItemsView[Key, T]:
        return self._objects.items()

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    @property
    def rows(self) -> int:
        return len(self._objects)

    @property
    def nbytes(self) -> int:
        return sum(len(self._pack(value)) + 16 for value in self._objects.values())

    def snapshot(self) -> tuple[Document, Chunks]:
        logged = sum(batch.num_rows for batch in self._log.values())
        changed = self._touched
        if logged + len(changed) > 2 * len(self._objects) + 64:
            self._log, changed = {}, set(self._objects)
        if changed:
            self._next_id += 1
            self._log[self._next_id] = self._chunk(sorted(changed))
        self._touched = set()
        return {"next": self._next_id, "log": list(self._log)}, dict(self._log)

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._next_id = integer(manifest, "next")
        self._log = {i: chunks[i] for i in integers(manifest, "log")}
        packed: dict[Key, bytes | None] = {}
        for chunk in self._log.values():  # oldest first
            first, second, blobs = (column.to_pylist() for column in chunk.columns)
            packed |= {(a, b): blob for a, b, blob in zip(first, second, blobs, strict=True)}
        self._objects = {key: self._unpack(blob) for key, blob in packed.items() if blob is not None}

    def _chunk(self, keys: list[Key]) -> pa.RecordBatch:
        """Return the objects of `keys`; NULL for removed ones."""
        found = [self._objects.get(key) for key in keys]
        blobs = [None if value is None else self._pack(value) for value in found]
        arrays = [pa.array([k[i] for k in keys], pa.int64()) for i in (0, 1)] + [pa.array(blobs, pa.binary())]
        return pa.RecordBatch.from_arrays(arrays, names=["first", "second", "object"])
