"""CANCEL: end a statement that runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sqlglot.tokenizer_core import TokenType

from penstock.language.binder.context import Context
from penstock.language.commands import Cancel
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.printer import string_text
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import AccessRole, Statement


@dataclass(frozen=True)
class CancelStatement(Statement):
    """CANCEL id."""

    KIND: ClassVar[str] = "CANCEL"
    # One of another token needs more.
    ROLE: ClassVar[AccessRole] = AccessRole.READ
    id: str


def _read(parser: ClauseGrammar, head: Head) -> CancelStatement:
    if not parser._is_name() and parser._curr.token_type not in (TokenType.STRING, TokenType.NUMBER):
        parser._fail("the id of a statement, as SHOW STATEMENTS lists it")
    parser._advance()
    return CancelStatement(parser._prev.text)


def _bind(statement: CancelStatement, context: Context) -> Cancel:
    return Cancel(statement.id)


CANCEL = StatementKind(
    CancelStatement, ("CANCEL",), _read, lambda one: f"CANCEL {string_text(one.id)}", _bind, lambda one: "CANCEL"
)
