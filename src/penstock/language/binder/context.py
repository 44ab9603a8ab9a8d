"""The context of binding one statement, and how several errors of one statement are collected.

`fail` records an error and raises `BindingFailed`; a caller that can continue without the failed part calls `attempt`,
which turns BindingFailed into None. A `BindingFailed` that reaches the end of the statement means: errors are recorded,
nothing is declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NoReturn, TypeVar

from penstock.errors import PenstockError, Position, ScriptWarning
from penstock.language.catalog import Catalog
from penstock.language.queries import Name
from penstock.language.text import SourceText, TextSpan
from penstock.settings import Settings
from penstock.time_zones import known_zone

A = TypeVar("A")
T = TypeVar("T")


class QueryNames(Enum):
    """What the name of a declared query stands for in FROM."""

    #: Its definition, as the name of a view does.
    DEFINITION = "definition"
    #: Its answer as a live system keeps it: a relation or stream that is read (`answers.py`).
    ANSWER = "answer"
    #: Nothing: continuous queries of a live system read streams, relations and views.
    REFUSED = "refused"


class BindingFailed(Exception):
    """Something could not be bound; its errors are recorded already."""


@dataclass
class Context:
    """The context of one statement.

    Args:
        failed: names (lower case) whose declaration failed; what uses them fails without a message.
        later: names that later statements declare, with their lines, the next one last.
        references: view -> the names it reads, for every view of the script.
        view, view_kind: the view being declared, and its kind.
        silenced: something failed without a message, because what it uses failed before.
        noted: positions and messages of the errors.
        query_names: what the names of queries stand for.
        uncoalesced: as that of a query, of the sources bound so far.
    """

    source: SourceText
    catalog: Catalog
    settings: Settings
    errors: list[PenstockError] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    later: Mapping[str, Sequence[int]] = field(default_factory=dict)
    references: Mapping[str, frozenset[str]] = field(default_factory=dict)
    view: str | None = None
    view_kind: str = "view"
    silenced: bool = False
    warnings: list[ScriptWarning] = field(default_factory=list)
    noted: set[tuple[Position | None, str]] = field(default_factory=set)
    query_names: QueryNames = QueryNames.DEFINITION
    uncoalesced: list[str] = field(default_factory=list)

    @property
    def read_uncoalesced(self) -> tuple[str, ...]:
        """Return each of `uncoalesced` once, in order."""
        return tuple(dict.fromkeys(self.uncoalesced))

    @cached_property
    def zone(self) -> str | None:
        """The zone that the session has set; None where it is UTC."""
        name = str(self.settings["time_zone"])
        return None if known_zone(name).is_utc else name

    @property
    def is_live(self) -> bool:
        """Return whether the statement is one of a live system, whose answers have notices."""
        return self.query_names is QueryNames.REFUSED

    def warn(self, message: str, span: TextSpan, hint: str | None = None) -> None:
        """Record a warning about a probable mistake; one message per position."""
        warning = ScriptWarning(message, self.source.position(span), hint)
        if warning not in self.warnings:
            self.warnings.append(warning)

    def note(self, error: PenstockError, span: TextSpan) -> None:
        """Record `error`, at `span` unless it has a position; one message per position."""
        error.at(self.source.position(span))
        if (error.position, error.message) not in self.noted:
            self.noted.add((error.position, error.message))
            self.errors.append(error)

    def fail(self, code: str, message: str, span: TextSpan, hint: str | None = None) -> NoReturn:
        self.note(PenstockError(code, message, hint=hint), span)
        raise BindingFailed

    def check_bound(self, name: Name) -> None:
        """Fail for what is declared and cannot be bound by this program."""
        one = self.catalog.unbound.get(name.key)
        if one is not None:
            self.fail("P0201", f"{name.text} cannot be bound: {one.reason}", name.span, one.hint)

    def fail_silently(self) -> NoReturn:
        """Fail without a message: what this uses failed already, with its own errors."""
        self.silenced = True
        raise BindingFailed

    def guard(self, span: TextSpan, build: Callable[[], T]) -> T:
        """Return `build()`; a PenstockError that it raises is recorded at `span`."""
        try:
            return build()
        except PenstockError as error:
            self.note(error, span)
            raise BindingFailed from None

    def with_setting(self, name: Name, value: str, value_span: TextSpan) -> Settings:
        """Return the settings with another value of one; an error is recorded where the name or the value stands."""
        known = {key for key, _ in Settings()}
        span = value_span if name.text.lower() in known else name.span
        return self.guard(span, lambda: self.settings.with_value(name.text, value))

    def attempt(self, build: Callable[[], T]) -> T | None:
        try:
            return build()
        except BindingFailed:
            return None

    def each(self, build: Callable[[A], T], parts: Iterable[A]) -> list[T]:
        """Return `build` of every part; when some fail, all are tried before failing."""
        results: list[T] = []
        refused = False
        for part in parts:
            try:
                results.append(build(part))
            except BindingFailed:
                refused = True
        if refused:
            raise BindingFailed
        return results

    def depends_on_itself(self, name: str) -> bool:
        """Return whether the view being declared reads `name`, which in turn reads the view."""
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
