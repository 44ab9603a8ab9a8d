"""Short ways to write results and to read them, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.algebra.nodes.scans import RelationScan, Source, StreamScan
from penstock.connectors.contract import ResultPlace
from penstock.connectors.results.result_log import ResultLog
from penstock.connectors.sinks import open_sink
from penstock.connectors.sinks.results import ResultsSink
from penstock.results.reader import ResultRows, Subscription
from penstock.runtime.spark.output.batch_logs import commit_logs
from penstock.types import Field, Schema, TimeDomain, Unit

SECONDS = TimeDomain(Unit.SECOND, False)
LIMIT = 2**30


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def stream(name: str, items: pa.Schema, **options: str) -> Query:
    """A query whose answer is a stream of `items`."""
    source = Source("s", True, _columns(items), "MEMORY", (), 0, SECONDS)
    return Query(name, StreamScan(source, tuple(range(len(items)))), SinkSpec("RESULTS", tuple(options.items())))


def relation(name: str, items: pa.Schema, **options: str) -> Query:
    """A query whose answer is a relation of `items`."""
    source = Source("r", False, _columns(items), "MEMORY", (), 0, SECONDS, operation=0)
    return Query(name, RelationScan(source, tuple(range(len(items)))), SinkSpec("RESULTS", tuple(options.items())))


def _columns(items: pa.Schema) -> Schema:
    return Schema(tuple(Field(f.name, f.type) for f in items))


ITEMS = pa.schema([("k", pa.string()), ("x", pa.int64())])


def changes(query: Query, *rows: tuple[object, ...]) -> pa.Table:
    """Rows of a result: (ts, op, items) of a relation, (ts, items) of a stream."""
    columns = list(zip(*rows, strict=True)) or [()] * len(query.output_schema)
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, query.output_schema, strict=True)], schema=query.output_schema
    )


class Log:
    """A run that writes results. joins: it adds its queries to the one before."""

    def __init__(
        self, folder: Path, *queries: Query, resume: bool = False, limit: int = LIMIT, joins: bool = False
    ) -> None:
        self.folder = folder
        if not joins:
            ResultLog.start(folder)
        self.sinks: dict[str, ResultsSink] = {}
        for query in queries:
            sink = open_sink(query)
            assert isinstance(sink, ResultsSink)
            sink.own_place = ResultPlace(folder, f"{query.name}-1", limit)
            sink.open(resume, False)
            self.sinks[query.name] = sink

    def write(self, batch: int, answers: Mapping[str, pa.Table], heartbeats: Mapping[str, int] | int) -> None:
        """Deliver a batch."""
        for name, table in answers.items():
            self.sinks[name].write(batch, table)
        beats = dict.fromkeys(self.sinks, heartbeats) if isinstance(heartbeats, int) else heartbeats
        commit_logs(self.sinks, batch, beats)

    def close(self) -> None:
        for sink in self.sinks.values():
            sink.close()


def all_of(subscription: Subscription) -> list[ResultRows]:
    """What can be delivered now."""
    found = []
    while (delivery := subscription.poll()) is not None:
        found.append(delivery)
    return found


def rows_in(deliveries: Sequence[ResultRows]) -> list[tuple[object, ...]]:
    """The rows of deliveries."""
    return [tuple(row.values()) for delivery in deliveries for row in delivery.rows.to_pylist()]
