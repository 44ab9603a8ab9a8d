"""The tuples held under the budgets of a query, as they are written: entries with their values, in one chunk.

Every snapshot after a change writes all of it: what a budget holds is small, and most of it changes. The
heaps and stretches are not written; they follow from the entries (`shedding/shedder.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Int64s, concat_arrays, int64s, unnamed
from penstock.physical.synopses.contract import Chunks, Synopsis
from penstock.shedding.shedder import SAVED_COLUMNS, SAVED_SLOT, SavedTuples, Shedder
from penstock.storage.documents import Document, integer, integers

_ENTRY, _SAMPLE = 0, 1


class HeldTuples(Synopsis):
    """What the shedders of all buckets hold. values: returns the columns of the values in slots.

    A chunk has a row per entry: bucket, kind, the `SAVED_COLUMNS` of the entry, then the columns of the value.
    """

    def __init__(self, shedders: Sequence[Shedder], values: Callable[[Int64s], Sequence[pa.Array]]) -> None:
        self._shedders = shedders
        self._values = values
        self._chunk: pa.RecordBatch | None = None
        self._id = 0
        self.changed = False
        #: What was restored, until the operator takes it.
        self.restored: tuple[Document, pa.RecordBatch | None] | None = None

    def snapshot(self) -> tuple[Document, Chunks]:
        if self.restored is not None:
            # The shedders are empty until the operator takes it.
            manifest, chunk = self.restored
            return manifest, {} if chunk is None else {self._id: chunk}
        if self.changed or self._chunk is None:
            self._id += 1
            self._chunk = self._written()
            self.changed = False
        numbers = {f"bucket{k}": shedder.saved().numbers.tolist() for k, shedder in enumerate(self._shedders)}
        return {"id": self._id, **numbers}, {self._id: self._chunk}

    def _written(self) -> pa.RecordBatch:
        parts: list[pa.RecordBatch] = []
        for number, shedder in enumerate(self._shedders):
            saved = shedder.saved()
            for kind, rows in ((_ENTRY, saved.entries), (_SAMPLE, saved.sample)):
                head = np.full((len(rows), 2), (number, kind), np.int64)
                lanes = [pa.array(np.ascontiguousarray(lane)) for lane in np.hstack([head, rows]).T]
                parts.append(unnamed([*lanes, *self._values(rows[:, SAVED_SLOT])]))
        arrays = [concat_arrays([part.column(i) for part in parts]) for i in range(parts[0].num_columns)]
        return unnamed(arrays)

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._id = integer(manifest, "id")
        self._chunk = chunks.get(self._id)
        self.restored = (manifest, self._chunk)

    def take(self, place: Callable[[Sequence[pa.Array], int], Int64s]) -> None:
        """Give the shedders what was restored. place: returns the slots of values."""
        if self.restored is None:
            return
        manifest, chunk = self.restored
        self.restored = None
        if chunk is None:
            return
        lanes = np.column_stack([int64s(chunk.column(i)) for i in range(2 + SAVED_COLUMNS)])
        lanes[:, 2 + SAVED_SLOT] = place(chunk.columns[2 + SAVED_COLUMNS :], chunk.num_rows)
        for number, shedder in enumerate(self._shedders):
            own = lanes[lanes[:, 0] == number]
            entries, sample = (np.ascontiguousarray(own[own[:, 1] == kind][:, 2:]) for kind in (_ENTRY, _SAMPLE))
            numbers = np.array(integers(manifest, f"bucket{number}"), np.int64)
            shedder.restore(SavedTuples(entries, sample, numbers))

    @property
    def rows(self) -> int:
        if self.restored is not None:
            chunk = self.restored[1]
            return 0 if chunk is None else int(np.count_nonzero(int64s(chunk.column(1)) == _ENTRY))
        return sum(shedder.entries for shedder in self._shedders)

    @property
    def nbytes(self) -> int:
        return sum(shedder.nbytes for shedder in self._shedders)
