"""Syntax trees of the statements that change or read a live system (docs/language.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from sqlglot import exp

from penstock.language.queries import NOWHERE, Mark, Name, QueryTree
from penstock.language.statements.clauses import AsOf, Connector, StartClause, WrittenOption
from penstock.language.statements.statement import AccessRole, Statement
from penstock.language.text import TextSpan


@dataclass(frozen=True)
class PauseAction:
    """PAUSE [WITH STATE]."""

    with_state: Mark | None = None


@dataclass(frozen=True)
class ResumeAction:
    """RESUME [START ...] [RESET]."""

    start: StartClause | None = None
    reset: Mark | None = None


@dataclass(frozen=True)
class SetAction:
    """SET (key value, ...)."""

    options: tuple[WrittenOption, ...]


@dataclass(frozen=True)
class RenameAction:
    """RENAME TO name."""

    name: Name


@dataclass(frozen=True)
class IntoAction:
    """INTO connector (...)."""

    into: Connector


@dataclass(frozen=True)
class AsAction:
    """AS query [START ...] [RESET]."""

    query: QueryTree
    start: StartClause | None = None
    reset: Mark | None = None


@dataclass(frozen=True)
class SwapAction:
    """SWAP WITH name."""

    name: Name


AlterAction: TypeAlias = PauseAction | ResumeAction | SetAction | RenameAction | IntoAction | AsAction | SwapAction


@dataclass(frozen=True)
class AlterQueryStatement(Statement):
    KIND: ClassVar[str] = "ALTER QUERY"
    name: Name
    action: AlterAction
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class AlterSourceStatement(Statement):
    """ALTER { STREAM | RELATION } name SET (key value, ...)."""

    kind: str
    name: Name
    options: tuple[WrittenOption, ...]
    span: TextSpan = field(default=NOWHERE, compare=False)

    @property
    def statement_kind(self) -> str:
        return f"ALTER {self.kind}"


@dataclass(frozen=True)
class AlterSystemStatement(Statement):
    """ALTER SYSTEM SET key = value."""

    KIND: ClassVar[str] = "ALTER SYSTEM"
    ROLE: ClassVar[AccessRole] = AccessRole.ADMIN
    name: Name
    value: str
    value_span: TextSpan = field(default=NOWHERE, compare=False)
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Assignment:
    """column = value, in an UPDATE."""

    column: Name
    value: exp.Expr
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class RowsConfirmed:
    """`CONFIRM n ROWS`: how many rows the statement is expected to change."""

    count: int
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class UpdateStatement(Statement):
    KIND: ClassVar[str] = "UPDATE"
    name: Name
    assignments: tuple[Assignment, ...]
    where: exp.Expr | None = None
    confirmed: RowsConfirmed | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class DeleteStatement(Statement):
    KIND: ClassVar[str] = "DELETE"
    name: Name
    where: exp.Expr | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class SubscribeStatement(Statement):
    """SUBSCRIBE TO { name | (query) } [WITH (SNAPSHOT, PROGRESS)] [AS OF instant] [UP TO instant]."""

    KIND: ClassVar[str] = "SUBSCRIBE"
    ROLE: ClassVar[AccessRole] = AccessRole.READ
    name: Name | None = None
    query: QueryTree | None = None
    snapshot: Mark | None = None
    progress: Mark | None = None
    as_of: AsOf | None = None
    up_to: AsOf | None = None
    span: TextSpan = field(default=NOWHERE, compare=False)
