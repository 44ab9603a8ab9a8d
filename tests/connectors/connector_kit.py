"""Short ways to declare sources and queries and to read them, for the tests of this folder."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.algebra.nodes.scans import OnError, Source, StreamScan
from penstock.connectors.contract import Rejected, SourceConnector
from penstock.connectors.sources import open_source
from penstock.types import CALENDAR, TIMESTAMP, Field, Schema, TimeDomain, Unit, parse_type

SECONDS = TimeDomain(Unit.SECOND, False)

#: One column of every type, with what is awkward to write: NULLs, empty texts, quotes, line ends, extremes.
EVERY_TYPE = pa.table(
    {
        "at": pa.array([0, 1_356_998_400_000_000, 1_356_998_400_500_000, -1], TIMESTAMP),
        "yes": pa.array([True, None, False, True]),
        "tiny": pa.array([-128, None, 127, 0], pa.int8()),
        "small": pa.array([-(2**15), None, 2**15 - 1, 0], pa.int16()),
        "whole": pa.array([-(2**31), None, 2**31 - 1, 0], pa.int32()),
        "big": pa.array([-(2**63), None, 2**63 - 1, 0], pa.int64()),
        "single": pa.array([0.5, None, 1e30, -0.0], pa.float32()),
        "real": pa.array([0.1, None, float("inf"), 1e-300]),
        "money": pa.array([Decimal("-0.01"), None, Decimal("12345678.90"), Decimal("0.00")], pa.decimal128(10, 2)),
        "fine": pa.array([Decimal("0.0000000001"), None, Decimal("-7.5"), Decimal(0)], pa.decimal128(20, 10)),
        "word": pa.array(['a "b", c', None, "", "zwei\nZeilen\r\nÄ\t\\"]),
        "day": pa.array([dt.date(1969, 12, 31), None, dt.date(2013, 1, 1), dt.date(9999, 12, 31)]),
        "raw": pa.array([b"plain", None, b"", b'"x",\n'], pa.binary()),
    }
)


def schema_of(table: pa.Table) -> Schema:
    return Schema(tuple(Field(f.name, f.type) for f in table.schema))


def declare(
    path: Path | str,
    columns: str | Schema,
    timestamp: int | None = None,
    on_error: OnError = OnError.DEAD_LETTER,
    connector: str = "FILES",
    **options: str,
) -> Source:
    """A source over `path`; columns: `name TYPE, ...`."""
    if isinstance(columns, str):
        pairs = (text.split(None, 1) for text in columns.split(", "))
        columns = Schema(tuple(Field(name, parse_type(type_)) for name, type_ in pairs))
    given = (("path", str(path)), *options.items()) if connector == "FILES" else tuple(options.items())
    return Source("s", True, columns, connector, given, timestamp, CALENDAR, 0, on_error)


def read(source: Source | SourceConnector, columns: tuple[int, ...] | None = None) -> tuple[pa.Table, list[Rejected]]:
    """Everything a source gives now."""
    connector = open_source(source) if isinstance(source, Source) else source
    columns = tuple(range(len(connector.source.columns))) if columns is None else columns
    batches, rejected = [], []
    for path in connector.discover(frozenset()):
        for split in connector.splits(path):
            for parsed in connector.read(split, columns):
                batches.append(parsed.batch)
                rejected += parsed.rejected
    fields = [(connector.source.columns[c].name, connector.source.columns[c].type) for c in columns]
    return pa.Table.from_batches(batches, schema=pa.schema(fields)), rejected


def told(rejected: list[Rejected]) -> list[tuple[int | None, str, str]]:
    """(line, record, reason) of each."""
    return [(r.line, r.record, r.reason) for r in rejected]


def query_over(table: pa.Table, connector: str = "MEMORY", name: str = "q", **options: str) -> Query:
    """A query whose result has the columns of `table` behind `ts`."""
    source = Source("s", True, schema_of(table), "MEMORY", (), 0, CALENDAR)
    scan = StreamScan(source, tuple(range(table.num_columns)))
    return Query(name, scan, SinkSpec(connector, tuple(options.items())))


def with_ts(table: pa.Table) -> pa.Table:
    """`table` as a result: its rows at one second after another."""
    ticks = pa.array([i * 1_000_000 for i in range(table.num_rows)], pa.int64()).cast(TIMESTAMP)
    return table.add_column(0, "ts", ticks)
