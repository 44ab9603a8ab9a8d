"""The name of a query in FROM: its definition, or its answer as a live system keeps it."""

from __future__ import annotations

from penstock.algebra import Algebra, RelationScan, Source, StreamScan
from penstock.algebra.nodes.query import Query
from penstock.language.binder.context import Context, QueryNames
from penstock.language.queries import Name
from penstock.types import Field, Schema

#: The connector of an answer that is read.
ANSWERS = "RESULTS"


def bind_query_name(query: Query, name: Name, context: Context) -> Algebra:
    """Return what the name of a declared query stands for. Fails with P0201 where it may not stand."""
    if context.query_names is QueryNames.REFUSED:
        message = f"{query.name} is a query, and continuous queries read streams, relations and views"
        hint = f"CREATE VIEW with its definition, and read that; a one-time SELECT can read {query.name}"
        context.fail("P0201", message, name.span, hint)
    if context.query_names is QueryNames.DEFINITION:
        return query.root
    # What follows the columns of the query is not read by name.
    read = tuple(range(len(query.selected_columns)))
    return (StreamScan if query.root.is_stream else RelationScan)(answer_source(query), read)


def answer_source(query: Query) -> Source:
    """Return the declaration of the answer: of a stream with its timestamps as the first column, of a relation with
    those of its rows as the last one."""
    columns = tuple(Field(name, type_) for name, type_ in query.selected_columns)
    domain = query.root.domain
    if query.root.is_stream:
        return Source(query.name, True, Schema(columns), ANSWERS, timestamp=0, domain=domain)
    stamp = () if domain is None else (Field("ts of the answer", domain.type()),)
    timestamp = None if domain is None else len(columns)
    return Source(query.name, False, Schema((*columns, *stamp)), ANSWERS, timestamp=timestamp, domain=domain)
