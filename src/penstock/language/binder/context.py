"""What binding one statement needs at hand, and how several errors of one statement are collected.

`fail` notes an error and raises `Refused`; whoever can go on without the failed part calls `attempt`, which turns
Refused into None. A `Refused` that reaches the statement's end means: errors are noted, nothing is to be declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from penstock.errors import PenstockError
from penstock.language.catalog import Catalog
from penstock.language.text import SourceText, Span
from penstock.settings import Settings

A = TypeVar("A")
T = TypeVar("T")


class Refused(Exception):
    """Something could not be bound; its errors are noted already."""


@dataclass
class Context:
    """failed: names (lower case) whose declaration failed, so that what uses them fails without a word; later: names
    that a later statement declares, with the line; references: view -> what it reads, for every view of the script;
    view, view_kind: the one being declared, and what it is; silenced: something failed without a word, for what it
    uses failed before."""

    source: SourceText
    catalog: Catalog
    settings: Settings
    errors: list[PenstockError] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    later: Mapping[str, int] = field(default_factory=dict)
    references: Mapping[str, frozenset[str]] = field(default_factory=dict)
    view: str | None = None
    view_kind: str = "view"
    silenced: bool = False

    def note(self, error: PenstockError, span: Span) -> None:
        """Keep `error`, at `span` unless it has a place; one message per place."""
        error.at(self.source.position(span))
        if not any(e.position == error.position and e.message == error.message for e in self.errors):
            self.errors.append(error)

    def fail(self, code: str, message: str, span: Span, hint: str | None = None) -> NoReturn:
        self.note(PenstockError(code, message, hint=hint), span)
        raise Refused

    def fail_silently(self) -> NoReturn:
        """What this uses failed already, with its own errors."""
        self.silenced = True
        raise Refused

    def guard(self, span: Span, build: Callable[[], T]) -> T:
        """`build()`; a PenstockError of it is noted at `span`."""
        try:
            return build()
        except PenstockError as error:
            self.note(error, span)
            raise Refused from None

    def attempt(self, build: Callable[[], T]) -> T | None:
        try:
            return build()
        except Refused:
            return None

    def each(self, build: Callable[[A], T], parts: Iterable[A]) -> list[T]:
        """`build` of every part; when some fail, all are tried first."""
        found: list[T] = []
        refused = False
        for part in parts:
            try:
                found.append(build(part))
            except Refused:
                refused = True
        if refused:
            raise Refused
        return found

    def depends_on_itself(self, name: str) -> bool:
        """Whether the view being declared reads `name`, which reads it back."""
        seen: set[str] = set()
        todo = [name]
        while todo and self.view is not None:
            reached = todo.pop()
            if reached == self.view:
                return True
            if reached not in seen:
                seen.add(reached)
                todo.extend(self.references.get(reached, ()))
        return False
