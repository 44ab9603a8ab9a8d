"""One-time queries at a server: what they read, and what they answer.

Rows posted to a relation are its content. Those posted to a stream are kept where it is retained; without Spark they
are read once, so a query over them is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.scans import RelationScan, Source, scanned_columns
from penstock.algebra.optimizer.rules.prune_columns import prune_columns
from penstock.connectors.sources import open_source
from penstock.control.entities.attributes import CONNECTOR
from penstock.control.entities.relations import BY_NAME
from penstock.control.entities.system import SystemView
from penstock.control.posted_rows import POSTED, PostedRows
from penstock.errors import Notice, PenstockError
from penstock.expressions.nodes import Call, Column, Literal
from penstock.language.commands import SelectOnce
from penstock.results.select import LiveAnswer
from penstock.results.source_rows import DeclaredRows, RowsInMemory, SourceRows
from penstock.runtime.local.one_time import sources_of
from penstock.tree import walk

#: The connector of a query's answers in a one-time query.
ANSWERS = "RESULTS"
#: Functions whose work does not grow with the values of their arguments, and rows that take milliseconds.
_COMPARISONS = frozenset({"AND", "OR", "NOT", "EQ", "NE", "LT", "LE", "GT", "GE", "IN", "IS_NULL"})
_LIGHT_ROWS = 50_000
#: Seconds for which idempotency keys of posted rows are kept.
RETENTION = 7 * 86400.0


@dataclass(frozen=True)
class SelectScope:
    """What one-time queries may read.

    Args:
        sources: by name in lower case, number and declaration of each.
        queries: by name in lower case, place and definition of each.
        control: the control relations that a query reads, by name in lower case.
    """

    sources: Mapping[str, tuple[int, Source]]
    queries: Mapping[str, tuple[int, Query]]
    control: Mapping[str, pa.Table] = field(default_factory=dict)

    def with_control(self, query: OneTimeQuery, view: Callable[[], SystemView]) -> SelectScope:
        """Return the scope with the control relations that a query reads, all of one moment. Columns that it does not
        read are NULL."""
        read = [name for name, source in sources_of(query).items() if source.connector == CONNECTOR]
        if not read:
            return self
        columns, moment = scanned_columns(prune_columns(query.root)), view()
        tables: dict[str, pa.Table] = {}
        for name in read:
            relation = BY_NAME[name]
            # Without its timestamp an element of a stream is none.
            needed = {relation.attributes[i].name for i in columns.get(name, ())} | {relation.timestamp}
            tables[name.lower()] = relation.table(moment, needed)
        return replace(self, control=tables)

    def is_control(self, query: OneTimeQuery) -> bool:
        """Return whether a query reads control relations alone."""
        return bool(self.control) and all(name.lower() in self.control for name in sources_of(query))

    def is_light(self, query: OneTimeQuery) -> bool:
        """Return whether a query only compares and picks columns of one control relation: then its work is bounded by
        the rows of that, and it needs no process that can be ended. A function such as REPEAT is not bounded so."""
        rows = sum(table.num_rows for table in self.control.values())
        nodes = list(walk(query.root)) if self.is_control(query) and rows <= _LIGHT_ROWS else []
        scans = sum(isinstance(node, RelationScan) for node in nodes)
        return scans == 1 and all(
            isinstance(node, RelationScan | Select | Project | Column | Literal)
            or (isinstance(node, Call) and node.function in _COMPARISONS)
            for node in nodes
        )


@dataclass(frozen=True)
class SelectedRows:
    """The answer of a one-time query.

    Args:
        tick: its instant; None where it has none.
        staleness: seconds since the batch was delivered as of which the answer is; None where it is of none.
        since: of streams that were read whole, the tick after which their elements are in the answer.
        notices: what is to be known of it.
    """

    table: pa.Table
    tick: int | None
    staleness: float | None = None
    since: Mapping[str, int] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()

    @staticmethod
    def of(live: LiveAnswer) -> SelectedRows:
        """Return the answer of a reader."""
        return SelectedRows(live.answer.table, live.answer.tick, live.staleness, live.since, live.notices)


@dataclass(frozen=True)
class PostedTable:
    """The rows of a relation that were posted, in a folder with one for each source. See the contract `SourceRows`."""

    source: Source
    root: Path
    number: int

    def table(self) -> pa.Table:
        return PostedRows(self.root, RETENTION).table(self.source, self.number)


def whole_inputs(command: SelectOnce, scope: SelectScope, posted: Path) -> dict[str, SourceRows]:
    """Return the rows of the inputs that a query reads as a whole, by name in lower case: static relations, and others
    that end. posted: the folder of posted rows."""
    inputs: dict[str, SourceRows] = {}
    for name, source in sources_of(command.query).items():
        key = name.lower()
        if key in scope.control:
            inputs[key] = RowsInMemory(scope.control[key])
            continue
        if source.connector == ANSWERS:
            continue
        if source.connector in POSTED and key in scope.sources:
            if not source.is_stream:
                inputs[key] = PostedTable(source, posted, scope.sources[key][0])
        elif open_source(source).bounded:
            inputs[key] = DeclaredRows(source)
    return inputs


def check_readable(command: SelectOnce, inputs: Mapping[str, SourceRows]) -> None:
    """Raise PenstockError for what a query reads that is not among `inputs`, answers of queries aside: P0711 for
    streams whose rows are not kept, P0622 for an input without an end."""
    for name, source in sources_of(command.query).items():
        if name.lower() in inputs or source.connector == ANSWERS:
            continue
        if source.connector in POSTED:
            hint = "subscribe to a query over it, or read a relation"
            raise PenstockError("P0711", f"the rows of stream {name} are not kept", hint=hint)
        hint = "subscribe to a query over it"
        raise PenstockError("P0622", f"{name} has no end, so its rows cannot be had all at once", hint=hint)
