"""Sources by the name a declaration gives (`FROM FILES (...)`). A new one is a file here and a line below."""

from __future__ import annotations

from penstock.algebra.scans import Source
from penstock.connectors.contract import SourceConnector
from penstock.connectors.sources.files import FilesSource
from penstock.connectors.sources.kafka import KafkaSource
from penstock.connectors.sources.memory import SpooledSource
from penstock.errors import PenstockError, nearest

SOURCES: dict[str, type[SourceConnector]] = {
    "FILES": FilesSource,
    "MEMORY": SpooledSource,
    "DATAFRAME": SpooledSource,
    "KAFKA": KafkaSource,
}


def open_source(source: Source) -> SourceConnector:
    """The connector of a declaration. Raises PenstockError P0208 for an unknown connector or option."""
    connector = SOURCES.get(source.connector.upper())
    if connector is None:
        message = f"source {source.name}: unknown connector {source.connector}"
        raise PenstockError("P0208", message, hint=nearest(source.connector, SOURCES))
    return connector(source)


__all__ = ["SOURCES", "open_source"]
