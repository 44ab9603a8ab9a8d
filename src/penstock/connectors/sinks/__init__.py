"""Sinks by their name in a query (`INTO FILES (...)`). A new one is a file here and a line below; it is loaded when it
is named.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.connectors.contract import Sink, Target
from penstock.connectors.loading import load
from penstock.connectors.options import OptionTable
from penstock.errors import PenstockError, nearest

SINKS: dict[str, str] = {
    "FILES": "sinks.files:FilesSink",
    "CONSOLE": "sinks.console:ConsoleSink",
    "MEMORY": "sinks.memory:MemorySink",
    "RESULTS": "sinks.results:ResultsSink",
    "DELTA": "sinks.delta:DeltaSink",
    "POSTGRES": "sinks.postgres:PostgresSink",
    "KAFKA": "sinks.kafka:KafkaSink",
}


def sink_options(name: str) -> OptionTable | None:
    """Return the options of the sink called `name`, in upper case; None where there is none."""
    return load(SINKS[name]).OPTIONS if name in SINKS else None


def without_bounds(sink: SinkSpec) -> SinkSpec:
    """Return a sink without the options that only say how much of its result is kept: the result goes on when these
    change."""
    bounds = {option.name for option in sink_options(sink.connector) or () if option.is_bound}
    return replace(sink, options=tuple(pair for pair in sink.options if pair[0] not in bounds))


def open_sink(query: Query) -> Sink:
    """Return the sink of a query, not opened yet.

    Raises:
        PenstockError: P0208, the connector or an option is unknown.
    """
    class_path = SINKS.get(query.sink.connector.upper())
    if class_path is None:
        message = f"query {query.name}: unknown connector {query.sink.connector}"
        raise PenstockError("P0208", message, hint=nearest(query.sink.connector, SINKS))
    sink: Sink = load(class_path)(query)
    return sink


def target_of(query: Query) -> Target | None:
    """Return where the result of a query will be written; None where no other result can collide with it."""
    class_path = SINKS.get(query.sink.connector.upper())
    if class_path is None:
        return None
    sink_class: type[Sink] = load(class_path)
    return sink_class.target(query)


__all__ = ["SINKS", "open_sink", "sink_options", "target_of"]
