"""The runs of granules that a budget holds."""

from __future__ import annotations

import pyarrow as pa

from penstock.physical.elements import unnamed
from penstock.physical.synopses.contract import Chunks, Synopsis
from penstock.storage.documents import Document, integer


class HeldRuns(Synopsis):
    """The runs held: the ends of their first and last granule, the begin that is shown, and the columns of the value.
    types: of the value."""

    def __init__(self, types: tuple[pa.DataType, ...]) -> None:
        self.batch = unnamed([pa.array([], kind) for kind in (pa.int64(), pa.int64(), pa.int64(), *types)])
        self._id = 0
        self._written: pa.RecordBatch | None = None

    def snapshot(self) -> tuple[Document, Chunks]:
        if self._written is not self.batch:
            self._id += 1
            self._written = self.batch
        return {"id": self._id}, {self._id: self.batch}

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._id = integer(manifest, "id")
        self.batch = self._written = chunks[self._id]

    @property
    def rows(self) -> int:
        return int(self.batch.num_rows)

    @property
    def nbytes(self) -> int:
        return int(self.batch.nbytes)
