"""Batches: the last ones as a relation, and the log of batches as a stream that continuous queries read.

The rows of the log are posts of the system itself (`posted_rows.py`): each is durable before its batch counts as
delivered, and has the number of the batch as its key, so that a batch which is repeated after a crash has one row.
While no query reads the log, nothing is written.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source, declared_sources
from penstock.control.engine import NextVersion
from penstock.control.entities.attributes import COUNT, MOMENT, REAL, Attribute, ControlRelation, Origin
from penstock.control.entities.queries import moment_of
from penstock.control.entities.system import SystemView
from penstock.control.posted_rows import PostedRows
from penstock.runtime.monitoring.figures import BatchFigures
from penstock.runtime.monitoring.stopwatch import PHASES
from penstock.types import TIMESTAMP


def _phase(name: str) -> Attribute[BatchFigures]:
    return Attribute(
        f"{name}_seconds",
        REAL,
        f"its part in the phase `{name}`",
        lambda row: row.phases.get(name),
        Origin.TASKS,
        "seconds",
    )


_ATTRIBUTES: tuple[Attribute[BatchFigures], ...] = (
    Attribute("number", COUNT, "its number", lambda row: row.number, Origin.RUN),
    Attribute("at", MOMENT, "when it ended", lambda row: moment_of(row.at), Origin.RUN),
    Attribute("seconds", REAL, "its duration", lambda row: row.seconds, Origin.RUN, "seconds"),
    Attribute("rows_in", COUNT, "records read", lambda row: sum(row.rows_in.values()), Origin.RUN, "rows"),
    Attribute("rows_out", COUNT, "rows of results", lambda row: sum(row.rows_out.values()), Origin.RUN, "rows"),
    Attribute("late", COUNT, "elements that came late", lambda row: row.late, Origin.RUN, "rows"),
    Attribute("malformed", COUNT, "records that could not be read", lambda row: row.malformed, Origin.RUN, "rows"),
    Attribute("failed", COUNT, "queries that failed in it", lambda row: len(row.failed), Origin.RUN, "queries"),
    Attribute(
        "lag",
        REAL,
        "by how much the query furthest behind the wall clock was behind it; NULL without time",
        lambda row: row.lag,
        Origin.RUN,
        "seconds",
    ),
    Attribute(
        "backlog_bytes",
        COUNT,
        "input that had been found and not read",
        lambda row: row.backlog_bytes,
        Origin.RUN,
        "bytes",
    ),
    Attribute("backlog_records", COUNT, "the same of topics", lambda row: row.backlog_records, Origin.RUN, "rows"),
    Attribute("state_rows", COUNT, "rows of state of all operators", lambda row: row.state_rows, Origin.TASKS, "rows"),
    Attribute(
        "state_bytes", COUNT, "bytes of state of all operators", lambda row: row.state_bytes, Origin.TASKS, "bytes"
    ),
    *map(_phase, PHASES),
)

BATCHES: ControlRelation[BatchFigures] = ControlRelation(
    "batches", "The last 1,000 batches of this process.", _ATTRIBUTES, lambda view: view.figures.run.batches
)


def is_logged(batch: BatchFigures, readers: Collection[str]) -> bool:
    """Return whether a batch is in the log of batches: something other than the log and its readers had work in it.
    Otherwise each row of the log would lead to the next one.

    Args:
        readers: the queries that read the log, by their names in the plan.
    """
    answered = any(query not in readers for query in batch.rows_out)
    return answered or bool(batch.failed) or any(source != BATCH_LOG.qualified for source in batch.rows_in)


def reads_log(query: Query) -> bool:
    """Return whether a query reads the log of batches."""
    return BATCH_LOG.qualified in declared_sources(query.root)


def _logged(view: SystemView) -> Iterable[BatchFigures]:
    bound = view.registry.bound.queries
    readers = {
        one.query.place
        for one in view.listed
        if (query := bound.get(one.stored.name.lower())) is not None and reads_log(query)
    }
    names = {name for name, place in view.figures.places.items() if place in readers}
    return [batch for batch in view.figures.run.batches if is_logged(batch, names)]


BATCH_LOG: ControlRelation[BatchFigures] = ControlRelation(
    "batch_log",
    "A stream that continuous queries read, with a row for each batch: an alert on the system is a query over it. Its"
    " rows are kept like posted ones, so that a restart loses none and repeats none. It begins with the first query"
    " that reads it. A batch in which nothing happened but that the log was read has no row. SELECT reads those of"
    " the last 1,000 batches.",
    _ATTRIBUTES,
    _logged,
    timestamp="at",
)


# --- the log, as it is written

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
