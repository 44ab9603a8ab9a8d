"""EXPORT PLAN OF: the plan of a query as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from penstock.language.binder.context import Context
from penstock.language.binder.statements.commands import query_named
from penstock.language.commands import ExportCommand
from penstock.language.grammar.declarations import DeclarationGrammar
from penstock.language.plans.document import exported
from penstock.language.printer import name_text
from penstock.language.queries import NOWHERE, Name
from penstock.language.statement_kinds.kind import StatementKind
from penstock.language.statements import AccessRole, Statement
from penstock.language.text import TextSpan


@dataclass(frozen=True)
class ExportStatement(Statement):
    """EXPORT PLAN OF name."""

    KIND: ClassVar[str] = "EXPORT"
    ROLE: ClassVar[AccessRole] = AccessRole.READ
    name: Name
    span: TextSpan = field(default=NOWHERE, compare=False)


def _read(parser: DeclarationGrammar, start: TextSpan) -> ExportStatement:
    parser._need("PLAN", "OF")
    return ExportStatement(parser._name("the name of a query"), parser._since(start))


def _bind(statement: ExportStatement, context: Context) -> ExportCommand:
    query = query_named(statement.name, context)
    span = statement.name.span
    return ExportCommand(query, context.guard(span, lambda: exported(query.root, context)), context.settings)


EXPORT = StatementKind(ExportStatement, ("EXPORT",), _read, lambda one: f"EXPORT PLAN OF {name_text(one.name)}", _bind)
