"""Write the elements that one ingest task accepts of a retained stream, while they are read.

Each batch goes from its Arrow buffers to the file, without being encoded into memory first, and is released then. Large
batches are written by a thread, beside the work of the task, and at most `_WAITING` of them wait for it, so what a task
retains takes the memory of these (measured in docs/decisions/retained-streams.md).

Contract: `finish` returns when all is written and the file has its name, an index of its content (`retained_log.py`).
An attempt that fails leaves nothing, one that is killed a temporary file, which the next start removes.
"""

from __future__ import annotations

import io
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.physical.elements import Elements
from penstock.runtime.spark.checkpoint.folder import unwritable
from penstock.runtime.spark.retention.file_checksum import FileChecksum
from penstock.runtime.spark.retention.retained_log import TS, RetainedFile
from penstock.storage import NewFile, storage
from penstock.storage.local import TEMPORARY

if TYPE_CHECKING:
    from typing_extensions import Buffer

#: Writes of fewer bytes are gathered: an Arrow stream has several small ones for each batch.
_SMALL = 2**16
#: Bytes of a batch from which on a thread writes it: for fewer, handing them over would take longer than the writing.
_LARGE = 2**20
#: Maximum number of batches that wait for the thread, the one that it writes included.
_WAITING = 2
#: Bytes that are written, and of which the checksum is computed then, while they are in the caches of the processor.
#: Not the other way round: the system copies bytes that are in no cache yet faster than the loop of the checksum reads
#: them.
_PIECE = 2**18


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
        self._thread: ThreadPoolExecutor | None = None
        #: What the thread has to do, oldest first.
        self._waiting: deque[Future[None]] = deque()

    def add(self, elements: Elements) -> None:
        """Write elements with the retained columns. Raises PenstockError P0601, for those before too."""
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
            stream = self._stream
            self._do(lambda: stream.write_batch(batch), batch.nbytes >= _LARGE)
        except OSError as error:
            raise unwritable(self._place, error) from error

    def _do(self, work: Callable[[], None], large: bool) -> None:
        """Have the thread do some work after what it was given before; without a thread, small work is done here."""
        if self._thread is None and not large:
            work()
            return
        self._thread = self._thread or ThreadPoolExecutor(1, "penstock-retained")
        while len(self._waiting) >= _WAITING:
            self._waiting.popleft().result()
        self._waiting.append(self._thread.submit(work))

    def _wait(self) -> None:
        """Wait until the thread has done all, and end it."""
        while self._waiting:
            self._waiting.popleft().result()
        if self._thread is not None:
            self._thread.shutdown()

    def finish(self, round_: int, task: int) -> None:
        """Give the file its name; nothing where nothing was added. Raises PenstockError P0601."""
        if self._file is None or self._stream is None:
            return
        try:
            self._wait()
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
        if self._thread is not None:
            # After an error; what has not been begun is not written.
            self._thread.shutdown(cancel_futures=True)
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
        for first in range(0, content.nbytes, _PIECE):
            piece = content[first : first + _PIECE]
            self._file.write(piece)
            self._checksum.add(piece)

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
