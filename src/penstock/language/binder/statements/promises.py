"""Bind what a stream promises: its columns, the parent of a reference, k, and a name (docs/promises.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.promised_state import shown_within
from penstock.algebra.properties.promises import (
    Clustered,
    ForeignKey,
    Ordered,
    Promise,
    PromiseMode,
    Unique,
    Within,
)
from penstock.errors import PenstockError, as_name, counted
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.statements.names import an, column_named, source_named
from penstock.language.catalog import Catalog
from penstock.language.clauses import PromiseClause, PromiseKind
from penstock.language.queries import Count, Name
from penstock.types import LONGEST_TICKS, UNKNOWN_TYPE, TimeDomain, type_name

_MOST_ROWS = 2**60
_SOME_COLUMNS = "a promise that is CHECKED beside RETAIN of some columns is not supported yet"
_SOME_COLUMNS_HINT = "which rows were rejected is known of whole rows: retain all columns"
_ENDINGS = {
    PromiseKind.UNIQUE: "unique",
    PromiseKind.FOREIGN_KEY: "reference",
    PromiseKind.CLUSTERED: "clustered",
    PromiseKind.ORDERED: "ordered",
}


def bind_promises(clauses: Sequence[PromiseClause], source: Source, context: Context) -> tuple[Promise, ...]:
    """Return the promises of a stream, those that `source` has and then those of `clauses`. Raises BindingFailed with
    the errors recorded.
    """
    bound: dict[int, Promise] = {}
    failed = False
    # UNIQUE first: a reference of the stream to itself may rest on it, wherever it stands.
    for i, clause in sorted(enumerate(clauses), key=lambda one: one[1].kind is not PromiseKind.UNIQUE):
        known = replace(source, promises=(*source.promises, *bound.values()))
        promise = context.attempt(lambda: _bind(clause, known, context))  # noqa: B023
        failed = failed or promise is None
        if promise is not None:
            bound[i] = promise
    names = {promise.name.lower() for promise in source.promises}
    for clause in clauses:
        if clause.name is not None and clause.name.key in names:
            message = f"{source.name} has two constraints {clause.name.text}"
            context.note(PenstockError("P0382", message, hint="choose another name"), clause.name.span)
            failed = True
        names |= set() if clause.name is None else {clause.name.key}
    if failed:
        raise BindingFailed
    found = list(source.promises)
    if source.retain_columns:
        for clause in (clause for clause in clauses if clause.mode is PromiseMode.CHECKED):
            context.fail("P0901", _SOME_COLUMNS, clause.span, _SOME_COLUMNS_HINT)
    for i, clause in enumerate(clauses):
        name = _free_name(clause, names) if clause.name is None else clause.name.text
        names.add(name.lower())
        found.append(replace(bound[i], name=name, mode=clause.mode or PromiseMode.ASSERTED))
    return tuple(found)


def _free_name(clause: PromiseClause, taken: set[str]) -> str:
    """Return a name for a promise without one, such as `orderid_clustered`."""
    name = "_".join([*(column.key for column in clause.columns), _ENDINGS[clause.kind]])
    number, found = 2, name
    while found.lower() in taken:
        number, found = number + 1, f"{name}_{number}"
    return found


def _bind(clause: PromiseClause, source: Source, context: Context) -> Promise:
    _distinct(clause.columns, context)
    columns = tuple(context.each(lambda name: column_named(name, source.columns, context), clause.columns))
    if any(source.columns[i].type == UNKNOWN_TYPE for i in columns):
        context.fail_silently()
    within = _within(clause, source.domain, context)
    if clause.kind is PromiseKind.UNIQUE:
        _warn_of_nulls(columns, source, clause, context)
        return Unique(columns)
    if clause.kind is PromiseKind.CLUSTERED:
        return Clustered(columns, within)
    if clause.kind is PromiseKind.ORDERED:
        return _ordered(clause, columns, within, context)
    return _reference(clause, columns, within, source, context)


def _distinct(names: Sequence[Name], context: Context) -> None:
    seen: set[str] = set()
    for name in names:
        if name.key in seen:
            context.fail("P0380", f"column {name.text} occurs twice in one promise", name.span, "leave one of them out")
        seen.add(name.key)


def _within(clause: PromiseClause, domain: TimeDomain | None, context: Context) -> Within:
    written = clause.within
    if written is None or domain is None:
        return Within()
    hint = "k is 0 where the data keep the promise exactly; leave WITHIN out"
    if isinstance(written, Count):
        if written.value < 0:
            context.fail("P0380", "WITHIN takes no negative number of rows", written.span, hint)
        if written.value >= _MOST_ROWS:
            context.fail("P0380", "this exceeds the number of rows of any stream", written.span)
        return Within(written.value)
    ticks = context.guard(written.span, lambda: domain.ticks(written.interval))
    if ticks < 0:
        context.fail("P0380", "WITHIN takes no negative length of time", written.span, hint)
    if ticks >= LONGEST_TICKS:
        context.fail("P0380", "this exceeds the range of time", written.span)
    return Within(None, ticks)


def _warn_of_nulls(columns: tuple[int, ...], source: Source, clause: PromiseClause, context: Context) -> None:
    """Warn of columns that may be NULL: of all but the timestamp."""
    may_be = [source.columns[i].name for i in columns if i != source.timestamp]
    if may_be:
        verb = "may be NULL, and such rows" if len(may_be) == 1 else "may be NULL; rows with a NULL"
        message = f"UNIQUE: {', '.join(may_be)} {verb} end no state"
        context.warn(message, clause.span, "the promise holds of rows without NULL")


def _ordered(clause: PromiseClause, columns: tuple[int, ...], within: Within, context: Context) -> Promise:
    if len(columns) != 1:
        context.fail("P0380", "ORDERED BY takes one column", clause.columns[1].span, "declare one promise for each")
    return Ordered(columns, clause.descending is not None, within)


def _reference(
    clause: PromiseClause, columns: tuple[int, ...], within: Within, source: Source, context: Context
) -> Promise:
    assert clause.parent is not None, "the grammar reads it"
    if clause.mode is PromiseMode.CHECKED:
        hint = "a LEFT JOIN with the parent shows the rows that have none"
        context.fail("P0380", "a FOREIGN KEY cannot be CHECKED", clause.span, hint)
    parent = _parent(clause.parent, source, context)
    theirs = _parent_columns(clause, parent, context)
    if len(theirs) != len(columns):
        message = f"{counted(len(columns), 'column')} cannot refer to {counted(len(theirs), 'column')}"
        context.fail("P0380", message, clause.span, f"name as many columns of {parent.name}")
    for name, mine, other in zip(clause.columns, columns, theirs, strict=True):
        one, two = source.columns[mine].type, parent.columns[other].type
        if one != two and not (pa.types.is_integer(one) and pa.types.is_integer(two)):
            message = f"{name.text} is {type_name(one)}, {parent.columns[other].name} of {parent.name} {type_name(two)}"
            context.fail("P0380", message, name.span, "declare both with one type")
    if not any(isinstance(one, Unique) and set(one.columns) == set(theirs) for one in parent.promises):
        names = ", ".join(as_name(parent.columns[i].name) for i in theirs)
        message = f"no rule uses this reference: {parent.name} does not promise UNIQUE ({names})"
        context.warn(message, clause.span, f"declare {parent.name} with UNIQUE ({names})")
    return ForeignKey(columns, parent.name, theirs, within)


def _parent(name: Name, source: Source, context: Context) -> Source:
    if name.matches(source.name):
        return source
    kind = context.catalog.kind(name.key)
    if kind not in (None, "STREAM"):
        context.fail("P0380", f"{name.text} is {an(kind)}; the parent is a stream", name.span)
    return source_named(name, "STREAM", context)


def _parent_columns(clause: PromiseClause, parent: Source, context: Context) -> tuple[int, ...]:
    if clause.parent_columns:
        _distinct(clause.parent_columns, context)
        return tuple(context.each(lambda name: column_named(name, parent.columns, context), clause.parent_columns))
    unique = [promise for promise in parent.promises if isinstance(promise, Unique)]
    if len(unique) != 1:
        how_many = "promises no UNIQUE" if not unique else f"promises {len(unique)} UNIQUE"
        message = f"{parent.name} {how_many}, so the columns that this refers to are not known"
        assert clause.parent is not None, "the grammar reads it"
        context.fail(
            "P0380", message, clause.parent.span, f"name them: REFERENCES {as_name(parent.name)} (column, ...)"
        )
    return unique[0].columns


def promise_line(source: Source, promise: Promise, catalog: Catalog) -> str:
    """Return the statement that adds a promise to its stream."""
    names = ", ".join(as_name(source.columns[i].name) for i in promise.columns)
    text = f"{promise.WORDS} ({names})"
    if isinstance(promise, ForeignKey):
        parent = catalog.sources[promise.parent.lower()]
        theirs = ", ".join(as_name(parent.columns[i].name) for i in promise.parent_columns)
        text += f" REFERENCES {as_name(promise.parent)} ({theirs})"
    if isinstance(promise, Ordered) and promise.descending:
        text += " DESC"
    if isinstance(promise, ForeignKey | Clustered | Ordered):
        text += f" WITHIN {shown_within(promise.within, source.domain)}"
    add = f"ADD CONSTRAINT {as_name(promise.name)}"
    return f"ALTER STREAM {as_name(source.name)} {add} {text} {promise.mode.value}"


def drop_line(source: Source, constraint: str) -> str:
    """Return the statement that drops a promise of its stream."""
    return f"ALTER STREAM {as_name(source.name)} DROP CONSTRAINT {as_name(constraint)}"
