"""BEGIN, COMMIT and ROLLBACK."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from penstock.language.binder.context import Context
from penstock.language.commands import BeginTransaction, Command, CommitTransaction, RollbackTransaction
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.statement import AccessRole, Statement

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

    @property
    def statement_kind(self) -> str:
        return self.word


def _read(parser: ClauseGrammar, head: Head) -> TransactionStatement:
    return TransactionStatement(head.word)


def _bind(statement: TransactionStatement, context: Context) -> Command:
    return _COMMANDS[statement.word]()


TRANSACTION = StatementKind(
    TransactionStatement, tuple(_COMMANDS), _read, lambda one: one.word, _bind, lambda one: "a transaction"
)
