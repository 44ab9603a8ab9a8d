"""Write the elements that one ingest task accepts of a retained stream, while they are read.

Each batch goes from its Arrow buffers to the file, without being encoded into memory first, and is released then: what
a task retains takes no memory, and is copied while it is still in the caches (measured in docs/decisions/live.md).

Contract: the file has its name when it is complete, which tells what is in it (`retained_log.py`); an attempt that
fails leaves nothing, one that is killed a temporary file, which the next start removes.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.physical.elements import Elements
from penstock.runtime.spark.checkpoint.folder import unwritable
from penstock.runtime.spark.retained.file_checksum import FileChecksum
from penstock.runtime.spark.retained.retained_log import TS, RetainedFile
from penstock.storage import NewFile, storage
from penstock.storage.local import TEMPORARY

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: Writes of fewer bytes are gathered: an Arrow stream has several small ones for each batch.
_SMALL = 2**16


class RetainedWriter:
    """One file. A context manager: what has not been finished is removed.

    Args:
        place: the folder of the stream.
        columns: the positions in its declaration of the columns that are retained.
        timestamp: the position of its timestamp column; None for SYSTEM TIME.
        durable: whether the elements have to survive a loss of power, since the source cannot be read again.
    """

    def __init__(self, place: Path, columns: Sequence[int], timestamp: int | None, durable: bool) -> None:
        self.columns = tuple(columns)
        self._place = place
        self._durable = durable
        self._path = place / f"{TEMPORARY[0]}task.{secrets.token_hex(6)}{TEMPORARY[1]}"
        # The timestamps are written beside columns that do not include them.
        self._adds_ts = timestamp not in self.columns
        self._names = [f"c{position}" for position in self.columns] + [TS] * self._adds_ts
        self._file: _CheckedFile | None = None
        self._stream: pa.RecordBatchStreamWriter | None = None
        self._low, self._high = 0, 0

    def add(self, elements: Elements) -> None:
        """Write elements with the retained columns. Raises PenstockError P0601."""
        if not len(elements):
            return
        columns = [*elements.columns, pa.array(elements.ts)] if self._adds_ts else list(elements.columns)
        batch = pa.RecordBatch.from_arrays(columns, names=self._names)
        low, high = int(elements.ts.min()), int(elements.ts.max())
        if self._stream is not None:
            low, high = min(low, self._low), max(high, self._high)
        self._low, self._high = low, high
        try:
            if self._stream is None:
                if not storage().exists(self._place):
                    storage().make_folder(self._place, durable=self._durable)
                self._file = _CheckedFile(storage().create(self._path))
                self._stream = pa.ipc.new_stream(self._file, batch.schema)
            self._stream.write_batch(batch)
        except OSError as error:
            raise unwritable(self._place, error) from error

    def finish(self, round_: int, task: int) -> None:
        """Give the file its name; nothing where nothing was added. Raises PenstockError P0601."""
        if self._file is None or self._stream is None:
            return
        try:
            self._stream.close()
            checksum = self._file.complete(self._durable)
            name = RetainedFile(round_, task, self._low, self._high, checksum).name
            storage().rename(self._path, self._place / name)
            if self._durable:
                storage().sync(self._place)
        except OSError as error:
            raise unwritable(self._place, error) from error
        self._file = None

    def __enter__(self) -> RetainedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.discard()
            storage().remove(self._path)


class _CheckedFile(io.RawIOBase):
    """A new file that computes the checksum of what is written to it."""

    def __init__(self, file: NewFile) -> None:
        super().__init__()
        self._file = file
        self._gathered = bytearray()
        self._checksum = FileChecksum()

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer) -> int:
        content = memoryview(data).cast("B")
        if content.nbytes >= _SMALL:
            self._write_gathered()
            self._write(content)
            return content.nbytes
        self._gathered += content
        if len(self._gathered) >= _SMALL:
            self._write_gathered()
        return content.nbytes

    def _write_gathered(self) -> None:
        gathered, self._gathered = self._gathered, bytearray()
        self._write(memoryview(gathered))

    def _write(self, content: memoryview) -> None:
        self._checksum.add(content)
        self._file.write(content)

    def complete(self, durable: bool) -> str:
        """Close the file and return the checksum of its bytes. durable: they survive a loss of power then."""
        self._write_gathered()
        if durable:
            self._file.sync()
        self._file.close()
        return self._checksum.text

    def discard(self) -> None:
        """Close the file as it is."""
        self._file.close()
