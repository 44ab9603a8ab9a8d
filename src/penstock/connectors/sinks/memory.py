"""MEMORY: results kept in this process, by query name, for Python callers and tests."""

from __future__ import annotations

import threading

import pyarrow as pa

from penstock.algebra.query import Query
from penstock.connectors.contract import Sink
from penstock.connectors.options import Options
from penstock.errors import PenstockError, nearest

_RESULTS: dict[str, tuple[pa.Schema, dict[int, pa.Table]]] = {}
_LOCK = threading.Lock()


class MemorySink(Sink):
    """A result of the same name is replaced: what lies in memory is no result that someone could lose by a new run."""

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        Options(f"INTO MEMORY of {query.name}", query.sink.options).only(())

    @property
    def place(self) -> str:
        return f"memory, as {self.query.name}"

    def open(self, resume: bool, overwrite: bool) -> None:
        with _LOCK:
            if not resume or self.query.name not in _RESULTS:
                _RESULTS[self.query.name] = (self.query.output_schema, {})

    def write(self, batch: int, table: pa.Table) -> None:
        with _LOCK:
            _RESULTS[self.query.name][1][batch] = table


def collected(name: str) -> pa.Table:
    """All that query `name` has written so far, batch after batch. Raises PenstockError P0201 for an unknown name."""
    with _LOCK:
        if name not in _RESULTS:
            raise PenstockError("P0201", f"no query {name} has written INTO MEMORY", hint=nearest(name, _RESULTS))
        schema, batches = _RESULTS[name]
        tables = [batches[batch] for batch in sorted(batches)]
    return pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in tables)])


def forget(name: str) -> None:
    """Drop what `name` has written."""
    with _LOCK:
        _RESULTS.pop(name, None)
