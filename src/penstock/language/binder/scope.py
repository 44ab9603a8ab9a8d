"""Resolution of column names in one clause of a query."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import pyarrow as pa

from penstock.errors import nearest
from penstock.expressions.nodes import Column, Expression, OuterColumn
from penstock.language.binder.context import Context
from penstock.language.elsewhere import NAMES
from penstock.language.queries import Name, StreamOperator
from penstock.language.text import TextSpan
from penstock.types import UNKNOWN_TYPE, TimeDomain, Unit


class Role(enum.Enum):
    """The role of a column in its source."""

    RELATION = "a column of a relation"
    ELEMENT = "a column of a stream"
    TIMESTAMP = "the timestamp of a stream's elements"


@dataclass(frozen=True)
class PeriodBound:
    """What the bounds of a period are: their type as they are shown, and what a tick is, None where any fits. open:
    whether the end of a period may come later than its row, which shows none until then; of_row: whether it is that of
    one row, of a source that is not coalesced."""

    type: pa.DataType
    domain: TimeDomain | None
    open: bool = False
    of_row: bool = False


@dataclass(frozen=True)
class Entry:
    """A visible column: its position in the row, and the alias of its source.

    Args:
        merged: the right-hand column of a USING join: visible by its qualified name only.
        depth: number of enclosing queries between.
        lost: no column, but a placeholder for all those of a source that could not be bound, whose names are unknown.
        beside: of a source beside a query in FROM without LATERAL; used only where nothing else has the name.
        bound: it is the begin or the end of the period of its source, which no name refers to; None for a column.
        closes: as `bound`, of periods that CLOSED takes: those of a coalesced source, and those that have ended.
        withheld: a column of the source that it is not coalesced on, so that it cannot be read.
    """

    index: int
    name: str
    type: pa.DataType
    qualifier: str | None = None
    merged: bool = False
    depth: int = 0
    lost: bool = False
    beside: bool = False
    role: Role = Role.RELATION
    bound: PeriodBound | None = None
    withheld: bool = False
    closes: bool = False

    @property
    def named(self) -> bool:
        """Return whether a name can refer to it."""
        return not (self.lost or self.withheld) and self.bound is None

    def column(self) -> Expression:
        if self.depth:
            return OuterColumn(self.type, self.index, self.name, self.depth)
        return Column(self.type, self.index, self.name)


#: The hint for a column in a SELECT without FROM.
NO_FROM = "this SELECT has no FROM, and so no columns"


@dataclass(frozen=True)
class Scope:
    """The visible columns, in the order of `*`. enclosing: those of the enclosing queries, the innermost first, which a
    subquery may read; outer: those around a WITH, which it may not; without_from: the query has no FROM.
    """

    entries: tuple[Entry, ...]
    outer: tuple[Entry, ...] = ()
    enclosing: tuple[tuple[Entry, ...], ...] = ()
    without_from: bool = False

    def shifted(self, by: int) -> tuple[Entry, ...]:
        return tuple(replace(e, index=e.index + by) for e in self.entries)

    def qualifiers(self) -> list[str]:
        return list(dict.fromkeys(e.qualifier for e in self.entries if e.qualifier is not None))

    def star(self, qualifier: Name | None, span: TextSpan, context: Context) -> list[Entry]:
        """Return the columns of `*` or `qualifier.*`. Fails with P0201 for an unknown qualifier."""
        if qualifier is None:
            if any(e.lost for e in self.entries):
                context.fail_silently()
            if self.without_from:
                context.fail("P0202", "* needs columns", span, NO_FROM)
            return _known([e for e in self.entries if e.named and not e.merged], context)
        matching = [e for e in self.entries if e.qualifier is not None and qualifier.matches(e.qualifier)]
        if any(e.lost for e in matching):
            context.fail_silently()
        if not matching:
            self._unknown_qualifier(qualifier, context)
        return _known([e for e in matching if e.named], context)

    def bounds(self) -> list[Entry]:
        """Return the bounds of the periods of all sources, the nearest first; those of one source in a row."""
        around = [replace(e, depth=depth) for depth, level in enumerate(self.enclosing, 1) for e in level]
        return [e for e in (*self.entries, *around) if e.bound is not None]

    def tick_of(self, type_: pa.DataType, domain: TimeDomain | None) -> int:
        """Return the microseconds of a tick of periods: of integers in the unit of the query."""
        if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
            return 1
        known = [domain, *(e.bound.domain for e in self.bounds() if e.bound is not None)]
        return next((d.unit.value for d in known if d is not None and not d.calendar), Unit.SECOND.value)

    def all_qualifiers(self) -> list[str]:
        """Return the names of the sources of this query and of those around it."""
        return list(dict.fromkeys(e.qualifier for level in self._levels() for e in level if e.qualifier is not None))

    def resolve(self, name: Name, qualifier: Name | None, context: Context) -> Entry:
        """Return the one column to which the name refers. Fails with P0201, P0202 or P0205."""
        matching = _matching(self.entries, name, qualifier)
        if not matching and not (qualifier is not None and any(qualifier.matches(q) for q in self.qualifiers())):
            matching = self._around(name, qualifier)
        if len(matching) != 1:
            self._refuse(matching, name, qualifier, context)
        return _known(matching, context)[0]

    def _around(self, name: Name, qualifier: Name | None) -> list[Entry]:
        """Return the matches in the innermost enclosing query that has the name; else those of a source beside."""
        for beside in (False, True):
            for depth, entries in enumerate(self.enclosing, 1):
                matching = _matching([e for e in entries if e.beside is beside], name, qualifier)
                if matching:
                    return [replace(e, depth=depth) for e in matching]
        return []

    def _refuse(self, matching: list[Entry], name: Name, qualifier: Name | None, context: Context) -> NoReturn:
        span = qualifier.span.to(name.span) if qualifier else name.span
        if self.may_be_lost(qualifier):
            context.fail_silently()
        if matching:
            owners = [f"{e.qualifier}.{e.name}" for e in matching if e.qualifier]
            hint = "say " + " or ".join(owners) if len(set(owners)) > 1 else "give the columns different names with AS"
            context.fail("P0205", f"{name.text} is ambiguous: it may be several columns", span, hint)
        if _matching(self.outer, name, qualifier):
            hint = "a query in WITH does not read enclosing rows; write it in FROM, or join it on the condition"
            context.fail("P0312", f"{name.text} cannot be read in this query", span, hint)
        if qualifier is not None and not any(_owns(entries, qualifier) for entries in self._levels()):
            self._unknown_qualifier(qualifier, context)
        kept_back = [e for e in self.entries if e.withheld and name.matches(e.name)]
        if kept_back and (qualifier is None or qualifier.matches(kept_back[0].qualifier or "")):
            source = kept_back[0].qualifier
            listed = ", ".join((*(e.name for e in self.entries if e.named and e.qualifier == source), name.text))
            message = f"{name.text} is not among the columns that {source} is coalesced on"
            context.fail("P0372", message, span, f"add it: ({listed})")
        level = next((es for es in self._levels() if qualifier is None or _owns(es, qualifier)), self.entries)
        known = [e.name for e in level if e.named and (qualifier is None or qualifier.matches(e.qualifier or ""))]
        shown = f"{qualifier.text}.{name.text}" if qualifier else name.text
        operator = qualifier is None and name.text.upper() in StreamOperator.__members__
        period = name.key in ("valid", "valid_from", "valid_to")
        elsewhere = NAMES.get(name.key.upper()) if qualifier is None or period else None
        if qualifier is None and any(name.matches(source) for source in self.all_qualifiers()):
            elsewhere = f"{shown} is a source: {shown}.column is a column of it, VALID({shown}) its period"
        unnamed = next((n for n in known if n.lower().endswith(f"({name.key})")), None)
        if elsewhere is None and unnamed is not None:
            elsewhere = f"the query in FROM has {unnamed}: give it a name there, {unnamed} AS {name.text}"
        if elsewhere is None and self.without_from and not any(self._levels()):
            elsewhere = NO_FROM
        suggestion = f"put items in parentheses: {shown}(a, b)" if operator else elsewhere or nearest(name.text, known)
        if suggestion is None and not known:
            suggestion = (
                "leave the column out of the list for its default, NULL"
                if name.key == "default"
                else f"a text stands in quotes: '{name.text}'"
            )
        context.fail("P0202", f"unknown column {shown}", name.span, suggestion)

    def knows(self, name: Name) -> bool:
        """Return whether the name is or may be known here, including names that may not be read here."""
        every = (*self._levels(), self.outer)
        return self.may_be_lost(None) or any(_matching(entries, name, None) for entries in every)

    def can_resolve(self, name: Name) -> bool:
        return bool(_matching(self.entries, name, None))

    def _unknown_qualifier(self, qualifier: Name, context: Context) -> NoReturn:
        qualifiers = dict.fromkeys(
            e.qualifier for entries in self._levels() for e in entries if e.qualifier is not None
        )
        hint = nearest(qualifier.text, qualifiers)
        if any(_matching(entries, qualifier, None) for entries in self._levels()):
            hint = f"{qualifier.text} is a column, and no source: it has no parts"
        if qualifier.text.lower() == "session_window":
            hint = "behind GROUP BY session_window(at, '5 minutes') write session_window.start and session_window.end"
        context.fail("P0201", f"{qualifier.text} is not a source of this query", qualifier.span, hint)

    def _levels(self) -> tuple[tuple[Entry, ...], ...]:
        return (self.entries, *self.enclosing)

    def may_be_lost(self, qualifier: Name | None) -> bool:
        """Return whether the name may belong to a source that failed, which has been reported."""
        return any(
            e.lost and (qualifier is None or (e.qualifier is not None and qualifier.matches(e.qualifier)))
            for entries in (*self._levels(), self.outer)
            for e in entries
        )


def _matching(entries: Sequence[Entry], name: Name, qualifier: Name | None) -> list[Entry]:
    return [
        e
        for e in entries
        if e.named
        and name.matches(e.name)
        and (not e.merged if qualifier is None else e.qualifier is not None and qualifier.matches(e.qualifier))
    ]


def _known(entries: list[Entry], context: Context) -> list[Entry]:
    """Return `entries`; fails without a message where the type of one is unknown, which has been reported."""
    if any(e.type == UNKNOWN_TYPE for e in entries):
        context.fail_silently()
    return entries


def _owns(entries: Sequence[Entry], qualifier: Name) -> bool:
    return any(e.qualifier is not None and qualifier.matches(e.qualifier) for e in entries)


def lost(qualifier: str | None) -> Entry:
    """Return the placeholder for the columns of a source that could not be bound."""
    return Entry(0, "", pa.null(), qualifier, lost=True)
