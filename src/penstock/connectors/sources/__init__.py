"""Sources by their name in a declaration (`FROM FILES (...)`). A new one is a file here and a line below.

A connector is loaded when it is named, so that its libraries cost nothing otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import ParsedRecords, SourceConnector, Split, Target
from penstock.connectors.loading import load
from penstock.connectors.options import OptionTable
from penstock.errors import PenstockError, nearest
from penstock.expressions.nodes import Expression

SOURCES: dict[str, str] = {
    "FILES": "sources.files:FilesSource",
    "MEMORY": "sources.memory:SpooledSource",
    "DATAFRAME": "sources.memory:SpooledSource",
    "HTTP": "sources.posted:PostedSource",
    "DELTA": "sources.delta:DeltaSource",
    "POSTGRES": "sources.postgres:PostgresSource",
    "KAFKA": "sources.kafka:KafkaSource",
    "POSTED": "sources.posted_files:PostedFilesSource",
}
#: Connectors that no script names: a session or a server makes them.
_INTERNAL = {"DATAFRAME", "POSTED"}


def source_names() -> tuple[str, ...]:
    """Return the sources that a script may name."""
    return tuple(name for name in SOURCES if name not in _INTERNAL)


def source_options(name: str) -> OptionTable | None:
    """Return the options of the source that a script calls `name`, in upper case; None where there is none."""
    return load(SOURCES[name]).OPTIONS if name in source_names() else None


def implied_format(path: str) -> str | None:
    """Return the format of files that a path's suffix implies; None where it implies none."""
    format_: str | None = load("formats:format_of")(path)
    return format_


def open_source(source: Source, predicate: Expression | None = None) -> SourceConnector:
    """Return the connector of a declaration.

    Args:
        source: the declaration.
        predicate: rows for which it is not true may be skipped, by connectors that support `SkippedRecords`.

    Raises:
        PenstockError: P0208, the connector or an option is unknown.
    """
    class_path = SOURCES.get(source.connector.upper())
    if class_path is None:
        message = f"source {source.name}: unknown connector {source.connector}"
        raise PenstockError("P0208", message, hint=nearest(source.connector, SOURCES))
    connector: SourceConnector = load(class_path)(source)
    connector.predicate = predicate
    return connector


def read_split(connector: SourceConnector, split: Split, columns: tuple[int, ...]) -> Iterator[ParsedRecords]:
    """Yield what a split has, as `SourceConnector.read`, or the heartbeat or punctuation that it is."""
    record = split.record
    if record is None:
        yield from connector.read(split, columns)
        return
    chosen = [connector.source.columns[c] for c in columns]
    schema = pa.schema([pa.field(one.name, one.type) for one in chosen])
    yield ParsedRecords(pa.RecordBatch.from_pylist([], schema=schema), record=record)


def reads(source: Source, target: Target) -> bool | None:
    """Return whether a declaration reads the location of a result; see `SourceConnector.reads`."""
    class_path = SOURCES.get(source.connector.upper())
    if class_path is None:
        return None
    source_class: type[SourceConnector] = load(class_path)
    return source_class.reads(source, target)


def is_rereadable(source: Source) -> bool:
    """Return whether the data of a declaration can be read again at any later time."""
    connector: type[SourceConnector] = load(SOURCES[source.connector.upper()])
    return connector.rereadable or (connector.keeps_relations and not source.is_stream)


def check_files(source: Source) -> None:
    """Check a declared source as a start does, as far as that needs files of this machine only.

    Raises:
        PenstockError: P0401, P0402 or P0404, it cannot be read; P0202 or P0208, its options do not fit.
    """
    if source.connector in SOURCES:
        connector = open_source(source)
        if connector.in_local_files:
            connector.check()


__all__ = [
    "SOURCES",
    "check_files",
    "implied_format",
    "is_rereadable",
    "open_source",
    "read_split",
    "source_names",
    "source_options",
]
