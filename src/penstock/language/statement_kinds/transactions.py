"""BEGIN, COMMIT and ROLLBACK."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from penstock.language.binder.context import Context
from penstock.language.commands import BeginTransaction, Command, CommitTransaction, RollbackTransaction
from penstock.language.grammar.declarations import DeclarationGrammar
from penstock.language.queries import NOWHERE
from penstock.language.statement_kinds.kind import StatementKind
from penstock.language.statements import AccessRole, Statement
from penstock.language.text import TextSpan

_COMMANDS: Mapping[str, Callable[[], Command]] = {
    "BEGIN": BeginTransaction,
    "COMMIT": CommitTransaction,
    "ROLLBACK": RollbackTransaction,
}


@dataclass(frozen=True)
class TransactionStatement(Statement):
    """word: BEGIN, COMMIT or ROLLBACK."""

    ROLE: ClassVar[AccessRole] = AccessRole.READ
    word: str
    span: TextSpan = field(default=NOWHERE, compare=False)

    @property
    def statement_kind(self) -> str:
        return self.word


def _read(parser: DeclarationGrammar, start: TextSpan) -> TransactionStatement:
    return TransactionStatement(parser._prev.text.upper(), parser._since(start))


def _bind(statement: TransactionStatement, context: Context) -> Command:
    return _COMMANDS[statement.word]()


TRANSACTION = StatementKind(
    TransactionStatement, tuple(_COMMANDS), _read, lambda one: one.word, _bind, lambda one: "a transaction"
)
