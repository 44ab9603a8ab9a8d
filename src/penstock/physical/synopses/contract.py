"""The contract of synopses, by which the executor makes them durable without knowing their class.

A synopsis is a set of immutable *chunks* (record batches named by a number that is never reused) and a small
*manifest* (plain JSON). After a batch, new chunks are written and dropped chunks are removed; nothing else is
written. Restoring the manifest and the chunks gives the same synopsis.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, NamedTuple

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.storage.documents import Document

Chunks = Mapping[int, pa.RecordBatch]


@dataclass(frozen=True)
class StoredSynopsis:
    """What a stage writes of one synopsis.

    Args:
        manifest: of the synopsis itself.
        chunks: numbers of its live chunks.
        kind: name of its class.
        format: version of its manifest and chunks.
        rows: number of rows in it.
    """

    manifest: Document
    chunks: Sequence[int]
    kind: str
    format: int
    rows: int


@dataclass(frozen=True)
class SynopsisSnapshot:
    """A synopsis at one moment, with the chunks themselves; the other fields are those of `StoredSynopsis`."""

    manifest: Document
    chunks: Chunks
    kind: str
    format: int
    rows: int

    def stored(self) -> StoredSynopsis:
        """Return what is written of it beside its chunks."""
        return StoredSynopsis(self.manifest, list(self.chunks), self.kind, self.format, self.rows)


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

    #: Of state that ends by promises: by promise, how many of its rows it has closed since the start of the process.
    closed: Mapping[str, int] = MappingProxyType({})

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

    def whole(self) -> SynopsisSnapshot:
        """Return the snapshot with what a restore of it checks."""
        manifest, chunks = self.snapshot()
        return SynopsisSnapshot(manifest, chunks, type(self).__name__, self.FORMAT, self.rows)

    def restore_checked(
        self, name: str, stored: StoredSynopsis | SynopsisSnapshot, chunk: Callable[[int], pa.RecordBatch]
    ) -> None:
        """Restore what was stored.

        Args:
            name: of the synopsis, for messages.
            chunk: returns the chunk of a number.

        Raises:
            PenstockError: P0605 for a state of another class or format, and for one that cannot be read.
        """
        kind, format_ = type(self).__name__, self.FORMAT
        if (stored.kind, stored.format) != (kind, format_):
            raise PenstockError(
                "P0605",
                f"the state {name} was written as {stored.kind} of format {stored.format}, "
                f"this version reads {kind} of format {format_}",
                hint="continue with the version that wrote it, or start a new run with a new --checkpoint",
            )
        try:
            self.restore(stored.manifest, {number: chunk(number) for number in stored.chunks})
        except (KeyError, ValueError, TypeError, pa.ArrowException) as error:
            raise PenstockError(
                "P0605",
                f"the state {name} cannot be read back: {error}",
                cause=error,
                hint="restore the checkpoint from a copy, or start afresh with a new --checkpoint",
            ) from error

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
