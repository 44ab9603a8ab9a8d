"""What the language has of one kind of statement."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.language.binder.context import Context
from penstock.language.catalog import Catalog
from penstock.language.clauses import Existence
from penstock.language.commands import Command
from penstock.language.grammar.clauses import ClauseGrammar
from penstock.language.queries import Mark
from penstock.language.statements.statement import Statement
from penstock.language.text import TextSpan

T = TypeVar("T", bound=Statement)


@dataclass(frozen=True)
class Head:
    """What has been read of a statement where its own grammar begins.

    Args:
        word: the last word, such as SHOW, or VIEW of CREATE VIEW.
        existence, non_retroactive: of CREATE, where they stand before that word.
    """

    word: str
    existence: Existence | None = None
    non_retroactive: Mark | None = None


def _nothing(statement: Statement) -> str | None:
    return None


def _no_clauses(statement: Statement, live: bool, catalog: Catalog) -> Iterable[tuple[str, TextSpan]]:
    return ()


@dataclass(frozen=True)
class StatementKind(Generic[T]):
    """A kind of statement, with all that is done with one.

    Args:
        tree: its class, which has the name in replies and the role that it needs.
        begins: its first word or two, such as SHOW or CREATE VIEW; one of several.
        read: reads what is behind these words.
        text: prints it.
        bind: returns the command that it is; reports what is wrong with it.
        of_a_server: returns what it is called in the error of a script that runs without a server, where it needs one.
        clauses_of_a_server: returns what the error of such a script calls its clauses that need a server, with their
            places; gets whether the queries of the script may change while it runs, and the catalog before it.
    """

    tree: type[T]
    begins: tuple[str, ...]
    read: Callable[[ClauseGrammar, Head], T]
    text: Callable[[T], str]
    bind: Callable[[T, Context], Command]
    of_a_server: Callable[[T], str | None] = _nothing
    clauses_of_a_server: Callable[[T, bool, Catalog], Iterable[tuple[str, TextSpan]]] = _no_clauses
