"""What the language has of one kind of statement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.language.binder.context import Context
from penstock.language.commands import Command
from penstock.language.grammar.declarations import DeclarationGrammar
from penstock.language.statements import Statement
from penstock.language.text import TextSpan

T = TypeVar("T", bound=Statement)


def _nothing(statement: Statement) -> str | None:
    return None


@dataclass(frozen=True)
class StatementKind(Generic[T]):
    """A kind of statement, with all that is done with one.

    Args:
        tree: its class, which says what replies call it and which role it needs.
        begins: its first word; one of several.
        read: reads what is behind that word; gets the place where the statement begins.
        text: prints it.
        bind: returns the command that it is; reports what is wrong with it.
        of_a_server: returns what it is called in the error of a script that runs without a server, where it needs one.
    """

    tree: type[T]
    begins: tuple[str, ...]
    read: Callable[[DeclarationGrammar, TextSpan], T]
    text: Callable[[T], str]
    bind: Callable[[T, Context], Command]
    of_a_server: Callable[[T], str | None] = _nothing
