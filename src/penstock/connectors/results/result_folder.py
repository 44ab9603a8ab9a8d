"""The reading side of a result log: which batches there are, of what, and since when rows are gone.

All readers and the writer of one folder in this process share one `ResultFolder`. The writer announces its batches;
where no writer is in this process, the folder is listed again from time to time. Files are mapped, and the last ones
stay so: many readers of one batch cost one reading.

    batch-<number>.results      the rows of a batch (`batch_file.py`)
    queries/<id>.json           what is known of a query: name, columns, options
    content/<id>.arrow          the content of a relation (`penstock.results.content`)
    removed.json                by query, the last batch whose rows are gone
"""

from __future__ import annotations

import base64
import json
import threading
import time
import uuid
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from weakref import WeakValueDictionary

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.connectors.results.batch_file import BatchFile, batch_name, batch_number
from penstock.errors import PenstockError, nearest
from penstock.storage import storage
from penstock.storage.seals import damaged, sealed, unsealed
from penstock.types import TimeDomain, Unit

#: Files that stay mapped.
_MAPPED = 64
#: Minimum seconds between two listings of a folder whose writer is another process.
_LIST_EVERY = 0.1
_REMOVED = "removed.json"

_FOLDERS: WeakValueDictionary[Path, ResultFolder]
_REGISTRY = threading.Lock()


@dataclass(frozen=True)
class RemovedRows:
    """The end of the rows of a query that are gone: they went up to `row` of `batch`, and up to the tick `high`; None
    where that was not noted."""

    batch: int
    row: int
    high: int | None = None


@dataclass(frozen=True)
class ResultRecord:
    """What a folder knows of a query.

    Args:
        id: never that of another query.
        columns: the serialized Arrow schema of its result, in base64.
        unit, calendar: its time domain.
        retain: seconds for which its rows are kept at most.
        max_bytes: bytes of its rows, and of its content, that are kept at most.
        whole: whether the log holds the answer from its beginning.
    """

    id: str
    name: str
    is_stream: bool
    columns: str
    unit: str
    calendar: bool
    retain: float
    max_bytes: int
    whole: bool

    @staticmethod
    def of(id_: str, query: Query, retain: float, max_bytes: int, whole: bool) -> ResultRecord:
        """Return the record of a query."""
        columns = base64.b64encode(query.output_schema.serialize().to_pybytes()).decode()
        domain = query.domain
        return ResultRecord(
            id_, query.name, query.root.is_stream, columns, domain.unit.name, domain.calendar, retain, max_bytes, whole
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows in the log."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.columns)))

    @property
    def domain(self) -> TimeDomain:
        return TimeDomain(Unit[self.unit], self.calendar)

    def write(self, folder: Path) -> None:
        """Write the record, durably. Raises OSError."""
        storage().write(_record_path(folder, self.id), self._content)

    def is_in(self, folder: Path) -> bool:
        """Return whether the record has been written."""
        path = _record_path(folder, self.id)
        return storage().exists(path) and storage().read(path) == self._content

    @property
    def _content(self) -> bytes:
        return sealed(json.dumps(asdict(self), indent=1), self.id)


def _record_path(folder: Path, id_: str) -> Path:
    return folder / "queries" / f"{id_}.json"


def content_path(folder: Path, id_: str) -> Path:
    """Return the file of the content of a relation."""
    return folder / "content" / f"{id_}.arrow"


class _FileReading:
    """A file that a reader reads, for which others wait. file: None until it has been read, and where that failed."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.file: BatchFile | None = None


class ResultFolder:
    """The result log in one folder, for all its readers in this process."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        #: Called before rows are removed, with the last batch of each query whose rows go. They must not raise.
        self.guards: list[Callable[[Mapping[str, int]], None]] = []
        #: Called after the records of queries were removed, with their ids. They must not raise.
        self.on_forgotten: list[Callable[[Collection[str]], None]] = []
        self._changed = threading.Condition()
        self._listeners: list[Callable[[], None]] = []
        self._batches: list[int] = []
        self._removed: dict[str, RemovedRows] = {}
        self._mapped: OrderedDict[int, BatchFile] = OrderedDict()
        self._reading: dict[int, _FileReading] = {}
        self._records: dict[str, ResultRecord] = {}
        self._announced = False
        self._listed = float("-inf")
        self.version = 0
        self.reload()

    @staticmethod
    def at(folder: Path) -> ResultFolder:
        """Return the object of a folder."""
        place = folder.absolute()
        with _REGISTRY:
            known = _FOLDERS.get(place)
            if known is None:
                known = _FOLDERS[place] = ResultFolder(place)
            return known

    # -- what there is -----------------------------------------------------------------------------------------

    def reload(self, announced: bool = False) -> None:
        """Look again what there is. announced: whether a writer in this process announces its batches from now on."""
        removed = self._read_removed()
        names = storage().list(self.path)
        with self._changed:
            self._batches = sorted(b for name in names if (b := batch_number(name)) is not None)
            self._removed = removed
            self._announced = announced
            self._listed = time.monotonic()
            if announced:
                self._mapped.clear()
                self._reading.clear()
                self._records.clear()
            self._wake()

    def refresh(self) -> None:
        """Look again where no writer announces, unless that has just been done."""
        if self._announced or time.monotonic() - self._listed < _LIST_EVERY:
            return
        before = self._batches[-1:]
        removed, names = self._read_removed(), storage().list(self.path)
        with self._changed:
            self._batches = sorted(b for name in names if (b := batch_number(name)) is not None)
            self._removed = removed
            self._listed = time.monotonic()
            if self._batches[-1:] != before:
                self._wake()

    def batches(self, first: int = 0) -> list[int]:
        """Return the batches from `first` on."""
        with self._changed:
            return self._batches[bisect_left(self._batches, first) :]

    @property
    def last(self) -> int:
        """The last batch, -1 without one."""
        with self._changed:
            return self._batches[-1] if self._batches else -1

    def removed(self, id_: str) -> RemovedRows:
        """Return which rows of a query are gone."""
        return self._removed.get(id_, RemovedRows(-1, 0))

    def all_removed(self) -> dict[str, RemovedRows]:
        """Return which rows are gone, of all queries."""
        return dict(self._removed)

    def file(self, batch: int) -> BatchFile | None:
        """Return the file of a batch; None where there is none any more. Of several readers one reads it and the others
        wait for it; where it fails, the next one tries again. Raises PenstockError P0605."""
        while True:
            with self._changed:
                found = self._mapped.get(batch)
                if found is not None:
                    self._mapped.move_to_end(batch)
                    return found
                reading = self._reading.get(batch)
                if reading is None:
                    own = self._reading[batch] = _FileReading()
                    break
            reading.ended.wait()
            # That there is no file is not taken over: it may have come meanwhile.
            if reading.file is not None:
                return reading.file
        try:
            own.file = BatchFile(self.path, batch)
        except FileNotFoundError:
            return None
        finally:
            with self._changed:
                # Where the file changed meanwhile, the next reader has to read it again.
                if self._reading.get(batch) is own:
                    del self._reading[batch]
                    if own.file is not None:
                        self._mapped[batch] = own.file
                        if len(self._mapped) > _MAPPED:
                            self._mapped.popitem(last=False)
            own.ended.set()
        return own.file

    def _changed_file(self, batch: int) -> None:
        """Let later readers read the file of a batch again."""
        self._mapped.pop(batch, None)
        self._reading.pop(batch, None)

    def set_aside(self, table: pa.Table) -> pa.Table:
        """Return the same table in a file that lasts as long as the table: it waits on disk, not in memory. Where it
        cannot be written it stays in memory."""
        place = self.path / f".{uuid.uuid4().hex}.tmp"
        try:
            with storage().create(place) as file, pa.ipc.new_stream(file, table.schema) as writer:
                writer.write_table(table)
            return pa.ipc.open_stream(storage().map(place)).read_all()
        except OSError:
            return table
        finally:
            # What cannot be removed goes with the next start.
            with suppress(OSError):
                storage().remove(place)

    def record(self, id_: str) -> ResultRecord:
        """Return what is known of a query. Raises PenstockError P0201 for an unknown one."""
        known = self._records.get(id_)
        if known is None:
            path = _record_path(self.path, id_)
            try:
                known = ResultRecord(**json.loads(unsealed(storage().read(path), id_)))
            except FileNotFoundError:
                raise PenstockError("P0201", f"no query has the results {id_}", hint=nearest(id_, self.ids())) from None
            except (OSError, ValueError, TypeError) as error:
                raise damaged(path, error) from error
            self._records[id_] = known
        return known

    def ids(self) -> list[str]:
        """Return the ids of all queries."""
        names = storage().list(self.path / "queries")
        return [name.removesuffix(".json") for name in names if name.endswith(".json") and not name.startswith(".")]

    # -- what changes ------------------------------------------------------------------------------------------

    def published(self, batch: int) -> None:
        """Announce a batch that is complete."""
        with self._changed:
            place = bisect_left(self._batches, batch)
            if self._batches[place : place + 1] != [batch]:
                self._batches.insert(place, batch)
            self._changed_file(batch)
            self._wake()

    def recorded(self, record: ResultRecord) -> None:
        """Announce the record of a query."""
        self._records[record.id] = record

    def forget(self, ids: Collection[str]) -> None:
        """Remove what is known of queries that have ended and whose rows are gone. Raises OSError.

        The record goes after the content, so that a crash leaves nothing that no record names; what stands in
        `removed.json` then is left out when it is written next.
        """
        for id_ in ids:
            for path in (content_path(self.path, id_), _record_path(self.path, id_)):
                if storage().exists(path):
                    storage().remove(path)
            self._records.pop(id_, None)
        if self._removed.keys() & set(ids):
            self.remove_before({id_: rows for id_, rows in self._removed.items() if id_ not in ids})
        for listener in list(self.on_forgotten):
            listener(ids)

    def remove_before(self, removed: Mapping[str, RemovedRows]) -> None:
        """Note durably that rows are gone, before they are removed. Raises OSError."""
        text = json.dumps({id_: [rows.batch, rows.row, rows.high] for id_, rows in removed.items()})
        storage().write(self.path / _REMOVED, sealed(text, _REMOVED))
        with self._changed:
            self._removed = dict(removed)

    def replaced(self, batch: int) -> None:
        """Announce that a file has another content."""
        with self._changed:
            self._changed_file(batch)
            self.version += 1

    def remove(self, batch: int) -> None:
        """Remove a file. Raises OSError."""
        storage().remove(self.path / batch_name(batch))
        with self._changed:
            place = bisect_left(self._batches, batch)
            if self._batches[place : place + 1] == [batch]:
                del self._batches[place]
            self._changed_file(batch)
            self.version += 1

    def _read_removed(self) -> dict[str, RemovedRows]:
        path = self.path / _REMOVED
        try:
            found = json.loads(unsealed(storage().read(path), _REMOVED))
            return {id_: RemovedRows(*place) for id_, place in found.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError) as error:
            raise damaged(path, error) from error

    # -- waiting -----------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self.version += 1
        self._changed.notify_all()
        for listener in self._listeners:
            listener()

    def wake(self) -> None:
        """End the waiting of all readers, which look again."""
        with self._changed:
            self._wake()

    def wait(self, version: int, timeout: float | None) -> bool:
        """Wait until something changed since `version`; return whether it did within `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._changed:
                left = None if deadline is None else deadline - time.monotonic()
                if self.version != version:
                    return True
                if left is not None and left <= 0:
                    return False
                pause = left if self._announced else min(_LIST_EVERY, _LIST_EVERY if left is None else left)
                self._changed.wait(pause)
            self.refresh()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` at every change, in the thread of the writer; return what ends that."""
        with self._changed:
            self._listeners.append(listener)

        def end() -> None:
            with self._changed:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return end


_FOLDERS = WeakValueDictionary()
