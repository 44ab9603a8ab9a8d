"""Large blobs of packets, in files beside Spark's shuffle.

A blob that goes through Spark is copied to the JVM, into a shuffle file or a result, into the JVM again and out to
Python, and an answer of some gigabytes does not fit the JVM's heap. Large blobs are therefore written to a file of the
job's folder, `parcels/<batch>/<attempt>`, and the packet holds the location: the reader maps it.

Contract: a spilled blob is complete before the packet that names it leaves its task, and only that attempt names it, so
a failed attempt is never read. The folder of a batch is removed when the sinks have its answers; a batch that is
repeated writes its files again.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from penstock.physical.elements import Elements, decode
from penstock.runtime.spark.checkpoint.folder import unwritable
from penstock.runtime.spark.worker.packets import FewOfMany, Packet, Signal, as_elements, read_elements
from penstock.storage import NewFile, storage
from penstock.storage.seals import damaged

#: Blobs of elements from this size on, in bytes, are spilled: smaller ones cost less inline than a file and a mapping.
LARGE = 256 * 2**10
#: How a blob that names a spill file begins. No Arrow stream begins so.
MARK = b"{"
_ALIGNMENT = 64


@dataclass(frozen=True)
class SpilledBlob:
    """Where a blob lies that was spilled as a whole. start, length: in bytes."""

    file: str
    start: int
    length: int

    def encode(self) -> bytes:
        """Return the blob of the packet that names it."""
        return json.dumps(asdict(self)).encode()

    def read(self) -> list[pa.RecordBatch]:
        """Return the batches of the blob. Raises PenstockError P0605 where the spill file is missing."""
        return mapped(self.file, self.start, self.length)


class SpillFiles:
    """The spilled blobs of one attempt of a task, all in one file."""

    def __init__(self, root: str, batch: int) -> None:
        self._path = batch_folder(root, batch) / f"{uuid.uuid4().hex}.arrow"
        self._file: NewFile | None = None

    def __enter__(self) -> SpillFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def path(self) -> str:
        return str(self._path)

    def lightened(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        """Yield the same packets, with large blobs of elements in the file. Raises PenstockError P0601 where the disk
        is full.
        """
        for packet in packets:
            # Packets of many queries are bounded, and the driver reads them at once.
            large = len(packet.blob) >= LARGE and not isinstance(packet.kind, (Signal, FewOfMany))
            # A blob that names spill files is small and holds no elements itself.
            spilled = large and bytes(packet.blob[:1]) != MARK
            yield replace(packet, blob=self._put(packet.blob)) if spilled else packet

    def write(self, batches: Sequence[pa.RecordBatch]) -> tuple[int, int]:
        """Write record batches of one schema to the file without copying them first; return their offset and length in
        bytes. Raises PenstockError P0601.
        """
        return self._write_aligned(lambda file: _stream(file, batches))

    def _put(self, blob: bytes | pa.Buffer) -> bytes:
        start, length = self._write_aligned(lambda file: file.write(memoryview(blob)))
        return SpilledBlob(self.path, start, length).encode()

    def _write_aligned(self, write: Callable[[NewFile], object]) -> tuple[int, int]:
        try:
            if self._file is None:
                self._file = storage().create(self._path)
            start = self._file.tell()
            if excess := start % _ALIGNMENT:
                self._file.write(bytes(_ALIGNMENT - excess))
                start += _ALIGNMENT - excess
            write(self._file)
            return start, self._file.tell() - start
        except OSError as error:
            raise unwritable(self._path, error) from error


def _stream(file: NewFile, batches: Sequence[pa.RecordBatch]) -> None:
    with pa.ipc.new_stream(file, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def unpacked(blob: bytes | pa.Buffer) -> list[Elements]:
    """Return the elements of a packet, inline or spilled. Raises PenstockError P0605 where the spill file
    is missing.
    """
    if bytes(blob[:1]) != MARK:
        return read_elements(blob)
    return as_elements(SpilledBlob(**json.loads(bytes(blob))).read())


def mapped(path: str, start: int, length: int) -> list[pa.RecordBatch]:
    """Return the batches written there, sharing the file's memory. Raises PenstockError P0605 where they
    are missing.
    """
    try:
        return decode(storage().map(Path(path)).slice(start, length))
    except (OSError, pa.ArrowInvalid) as error:
        raise damaged(Path(path), error) from error


def batch_folder(root: str, batch: int) -> Path:
    return Path(root) / "parcels" / f"{batch:09d}"


def forget(root: str, batch: int) -> None:
    """Remove the spill files of `batch`, whose answers the sinks have."""
    storage().remove_tree(batch_folder(root, batch))


def forget_all(root: str) -> None:
    """Remove the spill files of runs that were killed."""
    storage().remove_tree(Path(root) / "parcels")
