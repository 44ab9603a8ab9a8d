"""Syntax trees of the statements of scripts (docs/language.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from sqlglot import exp

from penstock.language.queries import NOWHERE, Collapse, Duration, Mark, Name, QueryTree, ValidClause
from penstock.language.statements.clauses import (
    AsOf,
    ColumnDefinition,
    Connector,
    ErrorPolicy,
    Existence,
    RetainClause,
    StartClause,
    TimestampBy,
    TypeText,
    WrittenOption,
)
from penstock.language.statements.statement import AccessRole, Statement
from penstock.language.text import TextSpan


@dataclass(frozen=True)
class CreateSource(Statement):
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
    retain: RetainClause | None = None
    primary_key: tuple[Name, ...] = ()
    non_retroactive: Mark | None = None
    valid: ValidClause | None = None
    existence: Existence | None = None
    ahead_span: TextSpan = field(default=NOWHERE, compare=False)
    idle_span: TextSpan = field(default=NOWHERE, compare=False)
    key_span: TextSpan = field(default=NOWHERE, compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)

    @property
    def statement_kind(self) -> str:
        return "CREATE STREAM" if self.is_stream else "CREATE RELATION"


@dataclass(frozen=True)
class CreateView(Statement):
    KIND: ClassVar[str] = "CREATE VIEW"
    name: Name
    columns: tuple[Name, ...]
    query: QueryTree
    existence: Existence | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class CreateQuery(Statement):
    KIND: ClassVar[str] = "CREATE QUERY"
    name: Name
    query: QueryTree
    into: Connector | None = None
    start: StartClause | None = None
    attributes: tuple[WrittenOption, ...] = ()
    existence: Existence | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class CreateSummary(Statement):
    """CREATE SUMMARY. method: COUNTSKETCH or EXACT, None where it is not written."""

    KIND: ClassVar[str] = "CREATE SUMMARY"
    name: Name
    stream: Name
    columns: tuple[Name, ...]
    granularity: Duration | None = None
    collapse: Collapse | None = None
    method: str | None = None
    options: tuple[WrittenOption, ...] = ()
    existence: Existence | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class OneTimeSelect(Statement):
    """A query as a statement of its own: it is answered once, at one instant."""

    KIND: ClassVar[str] = "SELECT"
    ROLE: ClassVar[AccessRole] = AccessRole.READ
    query: QueryTree
    as_of: AsOf | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class CreateFunction(Statement):
    """CREATE FUNCTION or CREATE AGGREGATE. body: `module:attr`; parameters: None if the statement has none."""

    ROLE: ClassVar[AccessRole] = AccessRole.ADMIN
    kind: str
    name: Name
    body: str
    parameters: tuple[TypeText, ...] | None = None
    returns: TypeText | None = None
    volatile: Mark | None = None
    existence: Existence | None = None
    body_span: TextSpan = field(default=NOWHERE, compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)

    @property
    def statement_kind(self) -> str:
        return f"CREATE {self.kind}"


@dataclass(frozen=True)
class Insert(Statement):
    """INSERT. columns: those of the values, all of them in their order if the statement names none."""

    KIND: ClassVar[str] = "INSERT"
    name: Name
    rows: tuple[tuple[exp.Expr, ...], ...]
    columns: tuple[Name, ...] = ()
    row_spans: tuple[TextSpan, ...] = field(default=(), compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class SetSetting(Statement):
    KIND: ClassVar[str] = "SET"
    ROLE: ClassVar[AccessRole] = AccessRole.READ
    name: Name
    value: str
    value_span: TextSpan = field(default=NOWHERE, compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class ExplainStatement(Statement):
    """EXPLAIN [ANALYZE | START | SHARING] { query | QUERY name }. query, name: one of them."""

    KIND: ClassVar[str] = "EXPLAIN"
    ROLE: ClassVar[AccessRole] = AccessRole.READ
    query: QueryTree | None = None
    analyze: Mark | None = None
    name: Name | None = None
    start: Mark | None = None
    sharing: Mark | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class DropStatement(Statement):
    """kind: STREAM, RELATION, VIEW, QUERY, SUMMARY, FUNCTION or AGGREGATE."""

    kind: str
    name: Name
    if_exists: Mark | None = None
    cascade: Mark | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)

    @property
    def statement_kind(self) -> str:
        return f"DROP {self.kind}"

    @property
    def role(self) -> AccessRole:
        return AccessRole.ADMIN if self.kind in ("FUNCTION", "AGGREGATE") else AccessRole.CONTROL
