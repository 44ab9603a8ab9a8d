"""Syntax trees of statements: one frozen tree per statement, as `queries.py` has them for queries (docs/language.md).

A field that the binder does not know is rejected by `unsupported.py`, whose tables list the known ones: a new field
here or in `queries.py` is rejected until it is listed there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from sqlglot import exp

from penstock.language.queries import NOWHERE, Duration, Mark, Name, QueryTree
from penstock.language.text import SourceText, TextSpan
from penstock.types import Unit


@dataclass(frozen=True)
class TypeText:
    """A type as it is written."""

    text: str
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class ColumnDefinition:
    name: Name
    type: str
    type_span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class WrittenOption:
    key: Name
    value: str
    value_span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Connector:
    name: Name
    options: tuple[WrittenOption, ...] = ()
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class TimestampBy:
    column: Name
    unit: Unit | None = None
    unit_span: TextSpan = field(default=NOWHERE, compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class ErrorPolicy:
    """ON ERROR { DEAD LETTER | FAIL | SKIP }."""

    policy: str
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class CreateSource:
    """CREATE STREAM or CREATE RELATION."""

    name: Name
    is_stream: bool
    columns: tuple[ColumnDefinition, ...]
    connector: Connector
    timestamp: TimestampBy | None = None
    system_time: Mark | None = None
    operation: Name | None = None
    slack: Duration | None = None
    ahead: Duration | None = None
    idle: Duration | None = None
    on_error: ErrorPolicy | None = None
    primary_key: tuple[Name, ...] = ()
    non_retroactive: Mark | None = None
    ahead_span: TextSpan = field(default=NOWHERE, compare=False)
    idle_span: TextSpan = field(default=NOWHERE, compare=False)
    key_span: TextSpan = field(default=NOWHERE, compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class CreateView:
    name: Name
    columns: tuple[Name, ...]
    query: QueryTree
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class CreateQuery:
    name: Name
    query: QueryTree
    into: Connector | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class AsOf:
    """AS OF: the tick, or the timestamp in ISO form, at which a one-time query is answered."""

    at: int | str
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class OneTimeSelect:
    """A query as a statement of its own: it is answered once, at one instant."""

    query: QueryTree
    as_of: AsOf | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class CreateFunction:
    """CREATE FUNCTION or CREATE AGGREGATE. body: `module:attr`; parameters: None if the statement has none."""

    kind: str
    name: Name
    body: str
    parameters: tuple[TypeText, ...] | None = None
    returns: TypeText | None = None
    volatile: Mark | None = None
    body_span: TextSpan = field(default=NOWHERE, compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Insert:
    name: Name
    rows: tuple[tuple[exp.Expr, ...], ...]
    row_spans: tuple[TextSpan, ...] = field(default=(), compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class SetSetting:
    name: Name
    value: str
    value_span: TextSpan = field(default=NOWHERE, compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class ExplainStatement:
    query: QueryTree
    analyze: Mark | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class ShowStatement:
    """kind: STREAMS, RELATIONS, VIEWS, QUERIES, FUNCTIONS or AGGREGATES."""

    kind: str
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class DropStatement:
    """kind: STREAM, RELATION, VIEW, QUERY, FUNCTION or AGGREGATE."""

    kind: str
    name: Name
    span: TextSpan = field(default=NOWHERE, compare=False)


Statement: TypeAlias = (
    CreateSource
    | CreateView
    | CreateQuery
    | OneTimeSelect
    | CreateFunction
    | Insert
    | SetSetting
    | ExplainStatement
    | ShowStatement
    | DropStatement
)


@dataclass(frozen=True)
class Script:
    """A parsed script: its statements in order."""

    source: SourceText
    statements: tuple[Statement, ...]
