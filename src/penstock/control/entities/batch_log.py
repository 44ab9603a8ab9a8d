"""The log of batches, which continuous queries read as the stream `penstock.batch_log`.

Its rows are posts of the system itself (`posted_rows.py`): each is durable before its batch counts as delivered, and
has the number of the batch as its key, so that a batch which is repeated after a crash has one row. While no query
reads the log, nothing is written.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.control.engine import NextVersion
from penstock.control.entities.batches import BATCH_LOG, is_logged, reads_log
from penstock.control.posted_rows import PostedRows
from penstock.runtime.monitoring.figures import BatchFigures
from penstock.types import TIMESTAMP

#: Its number as a source; those of declarations begin with 1.
LOG_ID = 0
LOG_NAME = BATCH_LOG.qualified


class BatchLogWriter:
    """Keeps the rows of the log while queries read it. Used by the threads of the control and of the engine."""

    def __init__(self, posted: PostedRows) -> None:
        self._posted = posted
        self._declared = BATCH_LOG.declared.source
        self._lock = threading.Lock()
        #: The places of the queries that read it; None while it is not kept.
        self._readers: frozenset[int] | None = None
        #: The timestamp of the last row.
        self._last = 0

    @contextmanager
    def during_change(self, version: NextVersion, heartbeats: Mapping[str, int]) -> Iterator[None]:
        """Keep the log from the first batch of a version on that reads it, and remove it after one that does not.

        Args:
            heartbeats: by name of a source, up to which tick its elements are complete.
        """
        before = self._readers
        if LOG_ID in version.sources:
            readers = (p for p, one in version.queries.items() if one.query is not None and reads_log(one.query))
            with self._lock:
                # A clock that was set back must not make rows late.
                self._last = max(self._last, heartbeats.get(LOG_NAME, 0) + 1)
                self._readers = frozenset(readers)
        try:
            yield
        except BaseException:
            with self._lock:
                self._readers = before
            raise
        if LOG_ID not in version.sources:
            with self._lock:
                self._readers = None
                self._posted.drop(LOG_ID)

    def note(self, batch: BatchFigures, places: Mapping[str, int]) -> bool:
        """Write the row of a batch; return whether it has one.

        Args:
            places: of queries, by their names in the plan.

        Raises:
            PenstockError: P0601.
        """
        with self._lock:
            if self._readers is None:
                return False
            readers = {name for name, place in places.items() if place in self._readers}
            if not is_logged(batch, readers):
                return False
            self._last = max(self._last + 1, int(batch.at * 1e6))
            stamped = replace(batch, at=self._last / 1e6)
            values = {one.name: pa.array([one.read(stamped)], one.type) for one in BATCH_LOG.attributes}
            # As a number of seconds it may be rounded.
            values[BATCH_LOG.timestamp] = pa.array([self._last], pa.int64()).cast(TIMESTAMP)
            row = pa.table(values, schema=BATCH_LOG.schema)
            self._posted.post(self._declared, LOG_ID, row, f"batch {batch.number}", same=True)
            return True


def log_source(posted: PostedRows) -> Source:
    """Return the log as the engine reads it."""
    return posted.kept(BATCH_LOG.declared.source, LOG_ID)
