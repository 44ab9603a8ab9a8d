"""Statements in a file each: the tree, the grammar, the text and the binding of one, and here the registry of all.

A statement is added by a file and its line in `KINDS`. Those that share their grammar with others, such as CREATE, are
in `statements/`, `grammar/` and `binder/statements/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.language.statement_kinds.cancel import CANCEL
from penstock.language.statement_kinds.describe import DESCRIBE
from penstock.language.statement_kinds.export import EXPORT
from penstock.language.statement_kinds.kind import StatementKind
from penstock.language.statement_kinds.show import SHOW
from penstock.language.statement_kinds.transactions import TRANSACTION
from penstock.language.statements import Statement
from penstock.language.statements.text import shared_text

KINDS: tuple[StatementKind[Any], ...] = (
    CANCEL,
    DESCRIBE,
    EXPORT,
    SHOW,
    TRANSACTION,
)

#: The same by first word, and by class of the tree.
BY_WORD: Mapping[str, StatementKind[Any]] = {word: kind for kind in KINDS for word in kind.begins}
BY_TREE: Mapping[type[Statement], StatementKind[Any]] = {kind.tree: kind for kind in KINDS}


def print_statement(statement: Statement) -> str:
    """Return the text of one statement, without its semicolon."""
    kind = BY_TREE.get(type(statement))
    return shared_text(statement) if kind is None else kind.text(statement)
