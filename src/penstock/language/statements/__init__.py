"""Statements in a file each: the tree, the grammar, the text and the binding of one, and here the registry of all.

A statement is added by a file and its line in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.language.clauses import Existence, WrittenOption
from penstock.language.grammar.clauses import ClauseGrammar, meant
from penstock.language.statements.advance import ADVANCE, AdvanceStatement
from penstock.language.statements.alter_query import ALTER_QUERY, AlterQueryStatement
from penstock.language.statements.alter_source import ALTER_SOURCE, AlterSourceStatement
from penstock.language.statements.alter_system import ALTER_SYSTEM, AlterSystemStatement
from penstock.language.statements.cancel import CANCEL, CancelStatement
from penstock.language.statements.create_function import CREATE_FUNCTION, CreateFunction
from penstock.language.statements.create_query import CREATE_QUERY, CreateQuery
from penstock.language.statements.create_source import CREATE_SOURCE, CreateSource
from penstock.language.statements.create_summary import CREATE_SUMMARY, CreateSummary
from penstock.language.statements.create_view import CREATE_VIEW, CreateView
from penstock.language.statements.creation import Creation, read_head
from penstock.language.statements.delete import DELETE, DeleteStatement
from penstock.language.statements.describe import DESCRIBE
from penstock.language.statements.drop import DROP, DropStatement
from penstock.language.statements.explain import EXPLAIN, ExplainStatement
from penstock.language.statements.export import EXPORT
from penstock.language.statements.insert import INSERT, Insert
from penstock.language.statements.kind import Head, StatementKind
from penstock.language.statements.punctuate import PUNCTUATE, PunctuateStatement
from penstock.language.statements.select import SELECT, OneTimeSelect
from penstock.language.statements.set import SET, SetSetting
from penstock.language.statements.show import SHOW
from penstock.language.statements.statement import AccessRole, Statement
from penstock.language.statements.subscribe import SUBSCRIBE, SubscribeStatement
from penstock.language.statements.transactions import TRANSACTION, TransactionStatement
from penstock.language.statements.update import UPDATE, UpdateStatement

__all__ = [
    "AccessRole", "AdvanceStatement", "AlterQueryStatement", "AlterSourceStatement", "AlterSystemStatement",
    "CancelStatement", "CreateFunction", "CreateQuery", "CreateSource", "CreateSummary", "CreateView", "Creation",
    "DeleteStatement", "DropStatement", "Existence", "ExplainStatement", "Insert", "OneTimeSelect",
    "PunctuateStatement", "SetSetting", "Statement", "SubscribeStatement", "TransactionStatement", "UpdateStatement",
    "WrittenOption",
]  # fmt: skip

#: Words that an error lists stand in this order.
KINDS: tuple[StatementKind[Any], ...] = (
    CREATE_SOURCE,
    CREATE_VIEW,
    CREATE_QUERY,
    CREATE_SUMMARY,
    CREATE_FUNCTION,
    INSERT,
    ADVANCE,
    PUNCTUATE,
    SET,
    EXPLAIN,
    DROP,
    ALTER_QUERY,
    ALTER_SOURCE,
    ALTER_SYSTEM,
    UPDATE,
    DELETE,
    SUBSCRIBE,
    CANCEL,
    DESCRIBE,
    EXPORT,
    SHOW,
    TRANSACTION,
    SELECT,
)

BY_TREE: Mapping[type[Statement], StatementKind[Any]] = {kind.tree: kind for kind in KINDS}
#: By first word, then by second, which is empty where there is one alone.
_BY_WORDS: dict[str, dict[str, StatementKind[Any]]] = {}
for _kind in KINDS:
    for _first, _, _second in (words.partition(" ") for words in _kind.begins):
        _BY_WORDS.setdefault(_first, {})[_second] = _kind


def kind_of(statement: Statement) -> StatementKind[Any]:
    """Return what the language has of a statement."""
    return BY_TREE[type(statement)]


def is_first_word(word: str) -> bool:
    """Return whether a statement other than a query begins with a word."""
    return word.upper() in _BY_WORDS


def read_statement(parser: ClauseGrammar) -> Statement:
    """Parse one statement, without its semicolon."""
    start, first = parser._here(), parser._take_any(*_BY_WORDS)
    if first is None:
        if not parser._query_ahead():
            parser._fail("a statement", hint=meant(parser._curr.text, (*_BY_WORDS, "SELECT")))
        kind, head = SELECT, Head("SELECT")
    elif "" in (kinds := _BY_WORDS[first]):
        kind, head = kinds[""], Head(first)
    else:
        words = tuple(kinds)
        head = read_head(parser, words) if first == "CREATE" else Head(parser._one_of(words))
        kind = kinds[head.word]
    return replace(kind.read(parser, head), span=parser._since(start))


def print_statement(statement: Statement) -> str:
    """Return the text of one statement, without its semicolon."""
    return kind_of(statement).text(statement)
