"""Materialized elements: state that is read as a whole in every round."""

from __future__ import annotations

from typing import ClassVar

from penstock.physical.elements import Elements
from penstock.physical.synopses.contract import Chunks, StoredTimes, Synopsis
from penstock.storage.documents import Document, integer


class MaterializedElements(Synopsis):
    """Elements in one chunk, which is replaced when they change."""

    TIMES: ClassVar[StoredTimes | None] = StoredTimes("ts", "ts")

    def __init__(self) -> None:
        self.elements: Elements | None = None
        self._version = 0

    def replace(self, elements: Elements) -> None:
        self.elements = elements
        self._version += 1

    @property
    def rows(self) -> int:
        return 0 if self.elements is None else len(self.elements)

    @property
    def nbytes(self) -> int:
        return 0 if self.elements is None else self.elements.nbytes

    def snapshot(self) -> tuple[Document, Chunks]:
        chunks = {} if self.elements is None else {self._version: self.elements.to_batch()}
        return {"version": self._version}, chunks

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._version = integer(manifest, "version")
        if self._version in chunks:
            self.elements = Elements.from_batch(chunks[self._version])
