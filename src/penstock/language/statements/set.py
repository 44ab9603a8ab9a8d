"""SET: a setting of the session or the script."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from penstock.language.binder.context import Context
from penstock.language.commands import ChangeSetting
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import setting_text
from penstock.language.queries import NOWHERE, Name
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import AccessRole, Statement
from penstock.language.text import TextSpan


@dataclass(frozen=True)
class SetSetting(Statement):
    """SET name = value."""

    KIND: ClassVar[str] = "SET"
    ROLE: ClassVar[AccessRole] = AccessRole.READ
    name: Name
    value: str
    value_span: TextSpan = field(default=NOWHERE, compare=False)


def _read(parser: ClauseGrammar, head: Head) -> SetSetting:
    return SetSetting(*parser._setting())


def _bind(statement: SetSetting, context: Context) -> ChangeSetting:
    settings = context.with_setting(statement.name, statement.value, statement.value_span)
    return ChangeSetting(statement.name.text, statement.value, settings)


SET = StatementKind(SetSetting, ("SET",), _read, lambda one: f"SET {setting_text(one.name, one.value)}", _bind)
