"""Sinks by the name a query gives (`INTO FILES (...)`). A new one is a file here and a line below."""

from __future__ import annotations

from penstock.algebra.query import Query
from penstock.connectors.contract import Sink
from penstock.connectors.sinks.console import ConsoleSink
from penstock.connectors.sinks.files import FilesSink
from penstock.connectors.sinks.kafka import KafkaSink
from penstock.connectors.sinks.memory import MemorySink
from penstock.errors import PenstockError, nearest

SINKS: dict[str, type[Sink]] = {
    "FILES": FilesSink,
    "CONSOLE": ConsoleSink,
    "KAFKA": KafkaSink,
    "MEMORY": MemorySink,
}


def open_sink(query: Query) -> Sink:
    """The sink of a query, not opened yet. Raises PenstockError P0208 for an unknown connector or option."""
    sink = SINKS.get(query.sink.connector.upper())
    if sink is None:
        message = f"query {query.name}: unknown connector {query.sink.connector}"
        raise PenstockError("P0208", message, hint=nearest(query.sink.connector, SINKS))
    return sink(query)


__all__ = ["SINKS", "open_sink"]
