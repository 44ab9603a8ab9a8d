"""The contract of synopses, by which the executor makes them durable without knowing their class.

A synopsis is a set of immutable *chunks* (record batches named by a number that is never reused) and a small
*manifest* (plain JSON). After a batch, new chunks are written and dropped chunks are removed; nothing else is
written. Restoring the manifest and the chunks gives the same synopsis.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import pyarrow as pa

from penstock.storage.documents import Document

Chunks = Mapping[int, pa.RecordBatch]


class StoredTimes(NamedTuple):
    """Which times of its rows a synopsis shows: `ts`, when they arrived, or `due`, when they arrive or expire. column:
    the column of its chunks that holds them."""

    kind: str
    column: int | str


class StateExtent(NamedTuple):
    """Of what a synopsis holds: in how many chunks, and between which of the times that it shows (`TIMES`)."""

    chunks: int
    oldest: int
    newest: int


def extent_of(spans: Sequence[tuple[int, int]]) -> StateExtent | None:
    """Return the extent of chunks, each with its least and its largest time; None for no chunks."""
    if not spans:
        return None
    return StateExtent(len(spans), min(low for low, _ in spans), max(high for _, high in spans))


class Synopsis(ABC):
    """State of one operator in one shard. FORMAT: version of its manifest and chunks; a class that changes what it
    writes must increment it, so that a checkpoint of another version is refused and never misread. TIMES: the times
    that its chunks show, None for none."""

    FORMAT: ClassVar[int] = 1
    TIMES: ClassVar[StoredTimes | None] = None

    @classmethod
    def first_live(cls, manifest: Document, chunk: int) -> int:
        """Return the number of rows at the start of a chunk that are dead already."""
        return 0

    @abstractmethod
    def snapshot(self) -> tuple[Document, Chunks]:
        """Return (manifest, all live chunks). Chunks that were in the previous snapshot under the same id are
        unchanged."""

    @abstractmethod
    def restore(self, manifest: Document, chunks: Chunks) -> None:
        """Restore the content of a snapshot. Called on an empty, new synopsis only."""

    @property
    @abstractmethod
    def rows(self) -> int:
        """Return the number of rows in the state."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """The number of bytes in the state."""

    @property
    def extent(self) -> StateExtent | None:
        """Return how far what it holds reaches, where that is known without looking at every row; None else, and for
        one that holds nothing."""
        return None
