"""EXPORT PLAN OF: the plan of a query as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.language.binder.context import Context
from penstock.language.binder.statements.names import query_named
from penstock.language.commands import ExportCommand
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.plans.document import exported
from penstock.language.printer import name_text
from penstock.language.queries import Name
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import AccessRole, Statement


@dataclass(frozen=True)
class ExportStatement(Statement):
    """EXPORT PLAN OF name."""

    KIND: ClassVar[str] = "EXPORT"
    ROLE: ClassVar[AccessRole] = AccessRole.READ
    name: Name


def _read(parser: ClauseGrammar, head: Head) -> ExportStatement:
    parser._need("PLAN", "OF")
    return ExportStatement(parser._name("the name of a query"))


def _bind(statement: ExportStatement, context: Context) -> ExportCommand:
    query = query_named(statement.name, context)
    span = statement.name.span
    return ExportCommand(query, context.guard(span, lambda: exported(query.root, context)), context.settings)


EXPORT = StatementKind(ExportStatement, ("EXPORT",), _read, lambda one: f"EXPORT PLAN OF {name_text(one.name)}", _bind)
