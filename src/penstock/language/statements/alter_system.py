"""ALTER SYSTEM: a setting of the whole system."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from penstock.language.binder.context import Context
from penstock.language.commands import AlterSystem
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import setting_text
from penstock.language.queries import NOWHERE, Name
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import AccessRole, Statement
from penstock.language.text import TextSpan
from penstock.settings import FIXED


@dataclass(frozen=True)
class AlterSystemStatement(Statement):
    """ALTER SYSTEM SET key = value."""

    KIND: ClassVar[str] = "ALTER SYSTEM"
    ROLE: ClassVar[AccessRole] = AccessRole.ADMIN
    name: Name
    value: str
    value_span: TextSpan = field(default=NOWHERE, compare=False)


def _read(parser: ClauseGrammar, head: Head) -> AlterSystemStatement:
    parser._need("SET")
    return AlterSystemStatement(*parser._setting())


def _text(statement: AlterSystemStatement) -> str:
    return f"ALTER SYSTEM SET {setting_text(statement.name, statement.value)}"


def _bind(statement: AlterSystemStatement, context: Context) -> AlterSystem:
    name, value = statement.name.text, statement.value
    if name.lower().startswith(FIXED):
        hint = "give it to penstock serve with --set"
        context.fail("P0104", f"setting {name} cannot change while a server runs", statement.name.span, hint)
    context.with_setting(statement.name, value, statement.value_span)
    return AlterSystem(name.lower(), value)


ALTER_SYSTEM = StatementKind(AlterSystemStatement, ("ALTER SYSTEM",), _read, _text, _bind, lambda one: "ALTER SYSTEM")
