"""One file of the result log: the rows of one batch, of all queries.

    magic, a section for each query with rows, the index, a trailer (checksum and length of the index, magic)

A section is an Arrow IPC stream that begins at a multiple of 64 bytes, so that its columns are read in place. The index
is JSON: the batch, when it was delivered, the sections by query id, and the heartbeats of all queries, also of those
without rows. A file is written under a hidden name and renamed when it is complete and synced.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.storage import NewFile, storage
from penstock.storage.arrow_streams import small_stream
from penstock.storage.seals import damaged

if TYPE_CHECKING:
    from typing_extensions import Buffer

_MAGIC = b"PNSTKRB1"
_TRAILER = struct.Struct("<II8s")
_ALIGNMENT = 64
#: Bytes up to which rows are put together in memory before they are written.
_SMALL = 2**18
_PREFIX, _SUFFIX = "batch-", ".results"
_TEMPORARY = ".new" + _SUFFIX


def batch_name(batch: int) -> str:
    """Return the name of the file of a batch."""
    return f"{_PREFIX}{batch:010d}{_SUFFIX}"


def batch_number(name: str) -> int | None:
    """Return the batch of a file of the log; None for another file."""
    number = name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    return int(number) if name == f"{_PREFIX}{number}{_SUFFIX}" and number.isdecimal() else None


def is_unfinished(name: str) -> bool:
    """Return whether a file was left by a writer that was interrupted."""
    return name == _TEMPORARY or (name.startswith(".") and name.endswith(".tmp"))


@dataclass(frozen=True)
class Section:
    """The rows of one query in a file.

    Args:
        start, length: in bytes.
        rows: their number.
        checksum: of the bytes.
        high: the largest tick of all rows of the query up to and with this batch.
    """

    start: int
    length: int
    rows: int
    checksum: int
    high: int

    @property
    def fields(self) -> list[int]:
        """Return what `Section` is made of."""
        return [self.start, self.length, self.rows, self.checksum, self.high]


class BatchFile:
    """A complete file, mapped into memory: it stays readable when it is replaced or removed. Raises PenstockError P0605
    where it is not what was written, and FileNotFoundError.

    Args:
        delivered: when the batch was delivered, in microseconds since 1970.
        sections: by query id.
        heartbeats: by query id, in ticks.
    """

    def __init__(self, folder: Path, batch: int) -> None:
        self.batch = batch
        self._path = folder / batch_name(batch)
        self._content = storage().map(self._path)
        self._checked: set[str] = set()
        try:
            index = json.loads(self._index())
            if index["batch"] != batch:
                raise ValueError(f"it holds batch {index['batch']}")
            self.delivered: int = index["delivered"]
            self.sections = {id_: Section(*fields) for id_, fields in index["sections"].items()}
            self.heartbeats: dict[str, int] = {id_: tick for tick, ids in index["heartbeats"] for id_ in ids}
        except (ValueError, KeyError, TypeError, struct.error) as error:
            raise damaged(self._path, error) from error

    @property
    def size(self) -> int:
        return int(self._content.size)

    def _index(self) -> bytes:
        content = memoryview(self._content)
        checksum, length, magic = _TRAILER.unpack(content[-_TRAILER.size :])
        if magic != _MAGIC or bytes(content[: len(_MAGIC)]) != _MAGIC or length > len(content):
            raise ValueError("it is not complete")
        index = bytes(content[-_TRAILER.size - length : -_TRAILER.size])
        if zlib.crc32(index) != checksum:
            raise ValueError("its index does not match its checksum")
        return index

    def raw(self, id_: str) -> memoryview:
        """Return the bytes of a section."""
        section = self.sections[id_]
        content = memoryview(self._content)[section.start : section.start + section.length]
        if id_ not in self._checked:
            if zlib.crc32(content) != section.checksum:
                raise damaged(self._path, ValueError(f"the rows of {id_} do not match their checksum"))
            self._checked.add(id_)
        return content

    def rows(self, id_: str) -> pa.Table:
        """Return the rows of a query, which share the memory of the file; it must have some."""
        return pa.ipc.open_stream(pa.py_buffer(self.raw(id_))).read_all()


class BatchWriter:
    """Writes a file of the log. Raises OSError."""

    def __init__(self, folder: Path, batch: int) -> None:
        self.batch = batch
        self._folder = folder
        self._temporary = folder / _TEMPORARY
        storage().remove(self._temporary)
        self._file = storage().create(self._temporary)
        self._file.write(_MAGIC)
        self.sections: dict[str, Section] = {}

    def add(self, id_: str, pieces: Iterable[pa.Table], high: int) -> None:
        """Write the rows of a query, which are in the order of time. high: the largest tick of its earlier rows."""
        rest = iter(pieces)
        first = next(rest)
        second = next(rest, None)
        if second is None and first.nbytes < _SMALL:
            self._add_small(id_, first, high)
            return
        start = self._align()
        out = _Checked(self._file)
        rows = 0
        with pa.ipc.new_stream(pa.PythonFile(out, "w"), first.schema) as writer:
            for piece in chain([first], [] if second is None else [second], rest):
                if piece.num_rows:
                    rows += piece.num_rows
                    high = max(high, _last_tick(piece))
                    writer.write_table(piece)
        self._set(id_, Section(start, out.length, rows, out.checksum, high))

    def _add_small(self, id_: str, rows: pa.Table, high: int) -> None:
        """Do the same with one write; most answers are a few rows."""
        content = _stream(rows)
        position = self._file.tell()
        padding = -position % _ALIGNMENT
        self._file.write(bytes(padding) + content)
        high = max(high, _last_tick(rows)) if rows.num_rows else high
        self._set(id_, Section(position + padding, len(content), rows.num_rows, zlib.crc32(content), high))

    def copy(self, other: BatchFile, id_: str) -> None:
        """Write a section of another file."""
        start = self._align()
        section = other.sections[id_]
        self._file.write(other.raw(id_))
        self._set(id_, Section(start, section.length, section.rows, section.checksum, section.high))

    def _set(self, id_: str, section: Section) -> None:
        self.sections.pop(id_, None)
        if section.rows:
            self.sections[id_] = section

    def _align(self) -> int:
        self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
        return self._file.tell()

    def finish(self, delivered: int, heartbeats: Mapping[str, int]) -> None:
        """Complete the file under its name."""
        by_tick: dict[int, list[str]] = {}
        for id_, tick in heartbeats.items():
            by_tick.setdefault(tick, []).append(id_)
        index = json.dumps(
            {
                "batch": self.batch,
                "delivered": delivered,
                "sections": {i: s.fields for i, s in self.sections.items()},
                "heartbeats": list(by_tick.items()),
            }
        ).encode()
        self._file.write(index)
        self._file.write(_TRAILER.pack(zlib.crc32(index), len(index), _MAGIC))
        self._file.sync()
        self._file.close()
        storage().rename(self._temporary, self._folder / batch_name(self.batch))
        storage().sync(self._folder)

    def discard(self) -> None:
        """Remove what has been written."""
        self._file.close()
        with suppress(OSError):
            storage().remove(self._temporary)


def _last_tick(rows: pa.Table) -> int:
    """Return the tick of the last row."""
    last = rows.column(0)[rows.num_rows - 1]
    return int(last.value if isinstance(last, pa.TimestampScalar) else last.as_py())


def _stream(rows: pa.Table) -> bytes:
    """Return rows as an Arrow stream."""
    batches = rows.to_batches() if rows.num_rows else []
    if len(batches) == 1 and (small := small_stream(batches[0])) is not None:
        return small
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(out.getvalue().to_pybytes())


class _Checked(io.RawIOBase):
    """Forwards the bytes of a section, and computes their checksum."""

    def __init__(self, file: NewFile) -> None:
        super().__init__()
        self._file = file
        self.length = self.checksum = 0

    def writable(self) -> bool:
        return True

    def write(self, content: Buffer) -> int:
        data = memoryview(content)
        self._file.write(data)
        self.length += data.nbytes
        self.checksum = zlib.crc32(data, self.checksum)
        return data.nbytes


def complete_files(folder: Path, batches: Iterable[int]) -> Iterator[BatchFile]:
    """Yield the files of these batches. Raises PenstockError P0605."""
    for batch in batches:
        try:
            yield BatchFile(folder, batch)
        except OSError as error:
            raise damaged(folder / batch_name(batch), error) from error
