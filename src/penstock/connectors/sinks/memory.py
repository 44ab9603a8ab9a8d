"""MEMORY: results in this process, by query name, for Python callers and tests."""

from __future__ import annotations

import threading

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.connectors.contract import Sink
from penstock.connectors.options import Options
from penstock.errors import PenstockError, nearest

_RESULTS: dict[str, tuple[pa.Schema, dict[int, pa.Table]]] = {}
_LOCK = threading.Lock()


class MemorySink(Sink):
    """Keep batches in memory. A result of the same name is replaced, because it is not stored beyond this process."""

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        Options(f"INTO MEMORY of {query.name}", query.sink.options).only(self.OPTIONS)
        self._batches: dict[int, pa.Table] = {}

    @property
    def place(self) -> str:
        return f"memory, as {self.query.name}"

    def open(self, resume: bool, overwrite: bool) -> None:
        with _LOCK:
            if not resume or self.query.name not in _RESULTS:
                _RESULTS[self.query.name] = (self.query.output_schema, {})
            self._batches = _RESULTS[self.query.name][1]

    def write(self, batch: int, table: pa.Table) -> None:
        with _LOCK:
            self._batches[batch] = table

    def result(self) -> pa.Table:
        """Return all rows this sink has received so far, regardless of other runs under the same name."""
        with _LOCK:
            return _joined(self.query.output_schema, self._batches)


def collected(name: str) -> pa.Table:
    """Return all rows that query `name` has written so far, batch after batch.

    Raises:
        PenstockError: P0201, the name is unknown.
    """
    with _LOCK:
        if name not in _RESULTS:
            raise PenstockError("P0201", f"no query {name} has written INTO MEMORY", hint=nearest(name, _RESULTS))
        return _joined(*_RESULTS[name])


def _joined(schema: pa.Schema, batches: dict[int, pa.Table]) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *(batches[batch].cast(schema) for batch in sorted(batches))])


def forget(name: str) -> None:
    """Drop the result of `name`."""
    with _LOCK:
        _RESULTS.pop(name, None)
