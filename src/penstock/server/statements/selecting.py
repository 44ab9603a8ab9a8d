"""What a one-time query at a server reads.

Rows posted to a relation without a timestamp are its content. What is kept of streams, and of relations that change in
time, the engine knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.scans import RelationScan, Source, scanned_columns
from penstock.algebra.optimizer.rules.prune_columns import prune_columns
from penstock.connectors.sources import open_source
from penstock.control.engine import SelectScope
from penstock.control.entities.attributes import CONNECTOR
from penstock.control.entities.relations import BY_NAME
from penstock.control.entities.system import SystemView
from penstock.control.live.control import Control
from penstock.control.posted_rows import POSTED, PostedRows
from penstock.expressions.nodes import Call, Column, Literal
from penstock.language.binder.from_.answers import ANSWERS, answer_source
from penstock.results.source_rows import DeclaredRows, RowsInMemory, SourceRows, check_declared
from penstock.runtime.local.one_time import sources_of
from penstock.tree import walk

#: Functions whose work does not grow with the values of their arguments, and rows that take milliseconds.
_COMPARISONS = frozenset({"AND", "OR", "NOT", "EQ", "NE", "LT", "LE", "GT", "GE", "IN", "IS_NULL"})
_LIGHT_ROWS = 50_000
#: Seconds for which idempotency keys of posted rows are kept.
RETENTION = 7 * 86400.0


@dataclass(frozen=True)
class PostedTable:
    """The rows of a relation that were posted, in a folder with one for each source. See the contract `SourceRows`."""

    source: Source
    root: Path
    number: int

    def table(self) -> pa.Table:
        return PostedRows(self.root, RETENTION).table(self.source, self.number)


def select_scope(query: OneTimeQuery, control: Control, view: Callable[[], SystemView]) -> SelectScope:
    """Return what a query reads beside what the engine keeps of its sources: control relations, static relations,
    others that end, and answers of queries.

    Args:
        view: what control relations are read from, all of one moment.

    Raises:
        PenstockError: P0721 where something has got another declaration since the query was bound.
    """
    tables = _control_tables(query, view)
    whole: dict[str, SourceRows] = {key: RowsInMemory(table) for key, table in tables.items()}
    stored, bound = {one.name.lower(): one for one in list(control.stored.values())}, control.catalog
    queries: dict[str, tuple[int, Query]] = {}
    for name, source in sources_of(query).items():
        key = name.lower()
        one, declared = stored.get(key), bound.sources.get(key)
        if one is not None and one.query is not None and key in bound.queries:
            queries[key] = one.query.place, bound.queries[key]
            declared = answer_source(bound.queries[key])
        if one is not None and declared is not None:
            check_declared(source, declared)
        if key in tables or source.connector == ANSWERS:
            continue
        if source.connector in POSTED and one is not None and key in bound.sources:
            if not source.is_stream:
                whole[key] = PostedTable(source, control.posted_root, one.id)
        elif open_source(source).bounded:
            whole[key] = DeclaredRows(source)
    is_control = bool(tables) and len(tables) == len(sources_of(query))
    return SelectScope(queries, whole, is_control, is_control and _is_light(query, tables))


def _control_tables(query: OneTimeQuery, view: Callable[[], SystemView]) -> dict[str, pa.Table]:
    """Return the control relations that a query reads, by name in lower case. Columns that it does not read are
    NULL."""
    read = [name for name, source in sources_of(query).items() if source.connector == CONNECTOR]
    if not read:
        return {}
    columns, moment = scanned_columns(prune_columns(query.root)), view()
    tables: dict[str, pa.Table] = {}
    for name in read:
        relation = BY_NAME[name]
        # Without its timestamp an element of a stream is none.
        needed = {relation.attributes[i].name for i in columns.get(name, ())} | {relation.timestamp}
        tables[name.lower()] = relation.table(moment, needed)
    return tables


def _is_light(query: OneTimeQuery, tables: Mapping[str, pa.Table]) -> bool:
    """Return whether a query of control relations only compares and picks columns of one of them: then its work is
    bounded by the rows of that. A function such as REPEAT is not bounded so."""
    rows = sum(table.num_rows for table in tables.values())
    nodes = list(walk(query.root)) if rows <= _LIGHT_ROWS else []
    scans = sum(isinstance(node, RelationScan) for node in nodes)
    return scans == 1 and all(
        isinstance(node, RelationScan | Select | Project | Column | Literal)
        or (isinstance(node, Call) and node.function in _COMPARISONS)
        for node in nodes
    )
