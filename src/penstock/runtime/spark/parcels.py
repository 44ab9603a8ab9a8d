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
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import pyarrow as pa

from penstock.connectors.seals import damaged
from penstock.physical.elements import Elements
from penstock.runtime.spark.folder import unwritable
from penstock.runtime.spark.packets import Packet, read_elements

#: Elements of this many bytes and more: smaller blobs cost less as they are than a file and a mapping.
LARGE = 256 * 2**10
#: What a blob that names a parcel begins with. No stream of Arrow does.
_MARK = b"{"
_ALIGNED = 64
#: Of the kinds of packets that carry elements.
_ELEMENTS = ("port:", "answer:")


class Parcels:
    """The parcels that one attempt of a task makes, all in one file."""

    def __init__(self, root: str, batch: int) -> None:
        self._path = place(root, batch) / f"{uuid.uuid4().hex}.arrow"
        self._file: BinaryIO | None = None
        self._end = 0

    def __enter__(self) -> Parcels:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def lightened(self, packets: Iterable[Packet]) -> Iterator[Packet]:
        """The same packets, elements of many bytes left in the file. Raises PenstockError P0601 where the disk takes no
        more."""
        for packet in packets:
            large = len(packet.blob) >= LARGE and packet.kind.startswith(_ELEMENTS)
            yield replace(packet, blob=self._put(packet.blob)) if large else packet

    def _put(self, blob: bytes | pa.Buffer) -> bytes:
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("wb", buffering=0)
            start = self._end + -self._end % _ALIGNED
            self._file.seek(start)
            rest = memoryview(blob)
            while len(rest):  # the system takes at most 2 GiB at once
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise unwritable(self._path, error) from error
        self._end = start + len(blob)
        return json.dumps({"file": str(self._path), "start": start, "length": len(blob)}).encode()


def unpacked(blob: bytes | pa.Buffer) -> list[Elements]:
    """The elements of a packet, wherever they lie. Raises PenstockError P0605 where the parcel is not there."""
    if bytes(blob[:1]) != _MARK:
        return read_elements(blob)
    told = json.loads(bytes(blob))
    path = Path(told["file"])
    try:
        with pa.memory_map(str(path)) as mapped:
            mapped.seek(told["start"])
            return read_elements(mapped.read_buffer(told["length"]))
    except (OSError, pa.ArrowInvalid) as error:
        raise damaged(path, error) from error


def place(root: str, batch: int) -> Path:
    return Path(root) / "parcels" / f"{batch:09d}"


def forget(root: str, batch: int) -> None:
    """The answers of `batch` are with the sinks."""
    shutil.rmtree(place(root, batch), ignore_errors=True)


def forget_all(root: str) -> None:
    """What runs that were killed have left."""
    shutil.rmtree(Path(root) / "parcels", ignore_errors=True)
