"""Batches: the last ones as a relation, and the log of batches as a stream that continuous queries read."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import declared_sources
from penstock.control.entities.attributes import COUNT, MOMENT, REAL, Attribute, ControlRelation, Origin
from penstock.control.entities.queries import moment_of
from penstock.control.entities.system import SystemView
from penstock.runtime.monitoring.figures import BatchFigures
from penstock.runtime.monitoring.stopwatch import PHASES


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
