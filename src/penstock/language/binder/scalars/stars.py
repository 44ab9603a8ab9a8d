"""The columns of `*`, `alias.*` and COLUMNS('pattern'), with EXCEPT, REPLACE and RENAME (docs/language/queries.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import nearest
from penstock.expressions.coercion import cast_to
from penstock.expressions.nodes import Column, Expression
from penstock.language.binder.context import Context
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scope import Entry
from penstock.language.dialect import span_of
from penstock.language.queries import Item, Name, Star
from penstock.language.text import TextSpan


@dataclass(frozen=True)
class StarColumn:
    """A column of a star. column_spans: of the columns that it reads."""

    name: str
    expression: Expression
    span: TextSpan
    column_spans: list[tuple[Column, TextSpan]]


def star_columns(star: Star, binder: ExpressionBinder) -> list[StarColumn]:
    """Return the columns of a star. Raises BindingFailed after P0201, P0202 or P0205."""
    context = binder.context
    entries = binder.scope.star(star.qualifier, star.span, context)
    if star.pattern is not None:
        entries = _matching(entries, star, context)
    if star.is_plain:
        return [_column(entry, star, entry.name) for entry in entries]
    _check(star.excluded, entries, context)
    kept = [entry for entry in entries if not any(name.matches(entry.name) for name in star.excluded)]
    if not kept:
        context.fail("P0202", "EXCEPT leaves no column", star.span, "leave one of them out of the list")
    _check([_replaced(item) for item in star.replaced], kept, context)
    _check([one.column for one in star.renamed], kept, context)
    return [_item(entry, star, binder) for entry in kept]


def _item(entry: Entry, star: Star, binder: ExpressionBinder) -> StarColumn:
    name = next((one.name.text for one in star.renamed if one.column.matches(entry.name)), entry.name)
    written = next((item for item in star.replaced if _replaced(item).matches(entry.name)), None)
    if written is None:
        return _column(entry, star, name)
    binder = replace(binder, column_spans=[])
    (value,) = written.expressions
    bound = binder.bind(value)
    if pa.types.is_null(bound.type):
        bound = cast_to(bound, pa.string())
    return StarColumn(name, bound, span_of(value), binder.column_spans)


def _column(entry: Entry, star: Star, name: str) -> StarColumn:
    column = Column(entry.type, entry.index, entry.name)
    return StarColumn(name, column, star.span, [(column, star.span)])


def _replaced(item: Item) -> Name:
    assert item.alias is not None
    return item.alias


def _matching(entries: list[Entry], star: Star, context: Context) -> list[Entry]:
    """Return the columns in whose names the pattern of COLUMNS is found."""
    names = pa.array([entry.name for entry in entries], pa.string())
    try:
        found = pc.match_substring_regex(names, pattern=star.pattern or "").to_pylist()
    except pa.ArrowInvalid:
        context.fail("P0203", f"{star.pattern!r} is no regular expression", star.span)
    matching = [entry for entry, matches in zip(entries, found, strict=True) if matches]
    if not matching:
        hint = f"the columns are {', '.join(entry.name for entry in entries)}"
        context.fail("P0202", f"no column has a name in which {star.pattern!r} is found", star.span, hint)
    return matching


def _check(names: Sequence[Name], entries: Sequence[Entry], context: Context) -> None:
    """Fail with P0202 for a name that no column has, with P0205 for one that occurs twice."""
    for number, name in enumerate(names):
        if not any(name.matches(entry.name) for entry in entries):
            _unknown(name, entries, context)
        if any(name.key == other.key for other in names[:number]):
            context.fail("P0205", f"{name.text} occurs twice in the list", name.span, "leave one of them out")


def _unknown(name: Name, entries: Sequence[Entry], context: Context) -> NoReturn:
    context.fail("P0202", f"unknown column {name.text}", name.span, nearest(name.text, [e.name for e in entries]))
