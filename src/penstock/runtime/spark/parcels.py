"""Large blobs of packets, in files beside Spark's shuffle.

A blob that goes through Spark is copied to the JVM, into a shuffle file or a result, into the JVM again and out to
Python, and an answer of some gigabytes does not fit the JVM's heap. What is large is therefore left in a file of the
job's folder, `parcels/<batch>/<attempt>`, and the packet says where: the reader maps it.

Contract: a parcel is whole before the packet that names it leaves its task, and is named by that attempt alone, so an
attempt that failed is never read. The folder of a batch goes when the sinks have its answers; a batch that is run again
makes its parcels again.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from penstock.connectors.seals import damaged
from penstock.physical.elements import Elements, decode
from penstock.runtime.spark.folder import unwritable
from penstock.runtime.spark.packets import Packet, as_elements, read_elements

#: Elements of this many bytes and more: smaller blobs cost less as they are than a file and a mapping.
LARGE = 256 * 2**10
#: What a blob that names a parcel begins with. No stream of Arrow does.
MARK = b"{"
_ALIGNED = 64
#: Of the kinds of packets that carry elements.
_ELEMENTS = ("port:", "answer:")


class Parcels:
    """The parcels that one attempt of a task makes, all in one file."""

    def __init__(self, root: str, batch: int) -> None:
        self._path = place(root, batch) / f"{uuid.uuid4().hex}.arrow"
        self._file: pa.OSFile | None = None

    def __enter__(self) -> Parcels:
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
        """The same packets, elements of many bytes left in the file. Raises PenstockError P0601 where the disk takes no
        more."""
        for packet in packets:
            large = len(packet.blob) >= LARGE and packet.kind.startswith(_ELEMENTS)
            # What names parcels is small in any case, and no elements.
            apart = large and bytes(packet.blob[:1]) != MARK
            yield replace(packet, blob=self._put(packet.blob)) if apart else packet

    def write(self, batches: Sequence[pa.RecordBatch]) -> tuple[int, int]:
        """Leave record batches of one schema in the file, from where they lie; returns where they begin, and how many
        bytes they are. Raises PenstockError P0601."""
        return self._placed(lambda file: _stream(file, batches))

    def _put(self, blob: bytes | pa.Buffer) -> bytes:
        start, length = self._placed(lambda file: file.write(blob))
        return json.dumps({"file": self.path, "start": start, "length": length}).encode()

    def _placed(self, write: Callable[[pa.OSFile], object]) -> tuple[int, int]:
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = pa.OSFile(self.path, "wb")
            start = self._file.tell()
            if over := start % _ALIGNED:
                self._file.write(bytes(_ALIGNED - over))
                start += _ALIGNED - over
            write(self._file)
            return start, self._file.tell() - start
        except OSError as error:
            raise unwritable(self._path, error) from error


def _stream(file: pa.OSFile, batches: Sequence[pa.RecordBatch]) -> None:
    with pa.ipc.new_stream(file, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def unpacked(blob: bytes | pa.Buffer) -> list[Elements]:
    """The elements of a packet, wherever they lie. Raises PenstockError P0605 where the parcel is not there."""
    if bytes(blob[:1]) != MARK:
        return read_elements(blob)
    told = json.loads(bytes(blob))
    return as_elements(mapped(told["file"], told["start"], told["length"]))


def mapped(path: str, start: int, length: int) -> list[pa.RecordBatch]:
    """What was written there, sharing the file's memory. Raises PenstockError P0605 where it is not there."""
    try:
        with pa.memory_map(path) as file:
            file.seek(start)
            return decode(file.read_buffer(length))
    except (OSError, pa.ArrowInvalid) as error:
        raise damaged(Path(path), error) from error


def place(root: str, batch: int) -> Path:
    return Path(root) / "parcels" / f"{batch:09d}"


def forget(root: str, batch: int) -> None:
    """The answers of `batch` are with the sinks."""
    shutil.rmtree(place(root, batch), ignore_errors=True)


def forget_all(root: str) -> None:
    """What runs that were killed have left."""
    shutil.rmtree(Path(root) / "parcels", ignore_errors=True)
