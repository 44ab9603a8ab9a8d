"""A sink of a relation query that does not keep its changes where the run can read them again.

A relation whose result continues after a pause emits the net difference to what its sink has. Results in the run's own
log are read there; of every other sink the changes are also written to a log of the same form, `emitted/` in the
checkpoint, with the same bounds. It costs the bytes of the changes and, in a batch with such changes, two syncs for all
these queries together.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.connectors.contract import Sink
from penstock.connectors.results.result_folder import ResultRecord
from penstock.connectors.results.result_log import ResultLog
from penstock.connectors.sinks import open_sink
from penstock.errors import PenstockError
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.storage import storage

#: Changes of a batch that are recorded: one more than a content can follow, which is then given up.
_MOST = 100_001
#: Bounds of what is recorded of each query, as the defaults of RESULTS: seconds after delivery, and bytes.
_RETAIN, _MAX_BYTES = 86_400.0, 2**30

#: Held while rows are added to a log: sinks may write beside each other.
_ADDING = threading.Lock()


def opened_sinks(queries: Sequence[Query], folder: Folder, standing: bool) -> dict[str, Sink]:
    """Return a sink for each of some queries of a run. standing: queries may be paused and continue."""
    sinks = {query.name: open_sink(query) for query in queries}
    if not standing:
        return sinks
    return {
        query.name: RecordedSink(sinks[query.name], folder) if is_recorded(query) else sinks[query.name]
        for query in queries
    }


def is_recorded(query: Query) -> bool:
    """Return whether the changes of a query are recorded beside its sink."""
    return not query.root.is_stream and query.sink.connector != "RESULTS"


class RecordedSink(Sink):
    """Writes into another sink, and records what it has written.

    Args:
        sink: the other one.
        folder: of the run.
    """

    def __init__(self, sink: Sink, folder: Folder) -> None:
        super().__init__(sink.query)
        self.inner = sink
        self.beside, self.leaves_parts, self.writes_empty = sink.beside, sink.leaves_parts, sink.writes_empty
        self._folder = folder
        self._id = ""

    @property
    def place(self) -> str:
        return self.inner.place

    def missing(self, batches: Sequence[int]) -> Mapping[str, int]:
        return self.inner.missing(batches)

    def open(self, resume: bool, overwrite: bool) -> None:
        assert self.own_place is not None, "a standing run keeps results"
        self.inner.run, self.inner.own_place = self.run, self.own_place
        if self.refuse != self.fail_of:
            self.inner.refuse = self.refuse
        self.inner.open(resume, overwrite)
        self._id = self.own_place.id
        place = self._folder.emitted
        try:
            log = ResultLog.join(place, self.own_place.limit)
            whole = not resume or (_is_known(log, self._id) and log.reading.record(self._id).whole)
            log.register(ResultRecord.of(self._id, self.query, _RETAIN, _MAX_BYTES, whole))
        except OSError as error:
            raise self._not_recorded(error) from error
        self.log = log

    def set_bounds(self, query: Query) -> None:
        super().set_bounds(query)
        self.inner.set_bounds(query)

    def write(self, batch: int, table: pa.Table) -> None:
        self.write_pieces(batch, iter([table]))

    def write_pieces(self, batch: int, pieces: Iterator[pa.Table]) -> None:
        written: list[pa.Table] = []
        self.inner.write_pieces(batch, _noted(pieces, written))
        self._record(batch, written)

    def record(self, batch: int, table: pa.Table) -> None:
        """Record an answer that the other sink gets later. Raises PenstockError P0502."""
        self._record(batch, [table.slice(0, _MOST)])

    def _record(self, batch: int, tables: Sequence[pa.Table]) -> None:
        log = self.log
        assert isinstance(log, ResultLog), "it is open"
        schema = self.query.output_schema
        typed = [table if table.schema.equals(schema) else table.cast(schema) for table in tables if table.num_rows]
        try:
            if typed:
                with _ADDING:
                    log.add(batch, self._id, typed)
        except (OSError, pa.ArrowException) as error:
            raise self._not_recorded(error) from error

    def withdraw(self) -> None:
        self.inner.withdraw()

    def close(self) -> None:
        if isinstance(self.log, ResultLog):
            self.log.close(self._id)
            self.log = None
        self.inner.close()

    def _not_recorded(self, error: Exception) -> PenstockError:
        reason = getattr(error, "strerror", None) or str(error)
        return PenstockError(
            "P0502",
            f"query {self.query.name}: its changes cannot be recorded in {self._folder.emitted}: {reason}",
            cause=error,
            hint="free space on that disk, or allow writing there",
        )


def _is_known(log: ResultLog, id_: str) -> bool:
    return storage().exists(log.reading.path / "queries" / f"{id_}.json")


def _noted(pieces: Iterator[pa.Table], written: list[pa.Table]) -> Iterator[pa.Table]:
    """Yield `pieces`, and add their rows to `written`, as many as are recorded."""
    left = _MOST
    for piece in pieces:
        if left:
            written.append(piece.slice(0, left))
            left -= written[-1].num_rows
        yield piece
