"""What PostgreSQL calls the columns of a SELECT that have no name of their own."""

from __future__ import annotations

from sqlglot import exp

from penstock.pgwire.catalog.translation.scopes import folded, type_word
from penstock.pgwire.values.wire_types import type_named, type_of_oid

_NAMES: dict[type[exp.Expr], str] = {
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.CurrentSchema: "current_schema",
    exp.CurrentCatalog: "current_catalog",
    exp.GroupConcat: "string_agg",
    exp.ArrayAgg: "array_agg",
    exp.Array: "array",
    exp.Substring: "substring",
    exp.Trim: "btrim",
    exp.Coalesce: "coalesce",
    exp.CurrentTimestamp: "current_timestamp",
    exp.Extract: "extract",
    exp.AtTimeZone: "timezone",
    exp.CurrentDate: "current_date",
    exp.Localtimestamp: "localtimestamp",
    exp.Interval: "interval",
    exp.StrPosition: "position",
    exp.Unnest: "unnest",
}


def column_name(node: exp.Expr) -> str:
    """Return the name of an expression without one of its own."""
    return _named(node)[0] or "?column?"


def _named(node: exp.Expr) -> tuple[str, bool]:
    """Return the name of an expression, empty for none; and whether it is weak: a cast around it replaces it."""
    while isinstance(node, exp.Paren | exp.Collate):
        node = node.this
    if isinstance(node, exp.Column):
        return folded(node.this), False
    if isinstance(node, exp.Dot):
        return _named(node.expression) if isinstance(node.expression, exp.Func) else (folded(node.expression), False)
    if isinstance(node, exp.Anonymous):
        return node.name.lower(), False
    if isinstance(node, exp.Cast):
        inner, is_weak = _named(node.this)
        return (inner, False) if inner and not is_weak else (_name_of_type(node.to), True)
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        last, is_weak = ("", True) if default is None else _named(default)
        return (last, False) if last and not is_weak else ("case", True)
    if isinstance(node, exp.Exists):
        return "exists", False
    if isinstance(node, exp.Subquery):
        select = node.this
        one = select.expressions[0] if isinstance(select, exp.Select) and select.expressions else None
        if one is None:
            return "", True
        return (folded(one.args["alias"]), False) if isinstance(one, exp.Alias) else (column_name(one), False)
    if isinstance(node, exp.Window | exp.Filter | exp.Bracket | exp.WithinGroup):
        return _named(node.this)
    return _NAMES.get(type(node), ""), isinstance(node, exp.Interval)


def _name_of_type(to: exp.Expr) -> str:
    """Return what PostgreSQL calls a cast of a value that has no name."""
    word = type_word(to)
    found = type_named(word)
    element = None if found is None else type_of_oid(found.element)
    return word.strip('"') if found is None else found.name if element is None else element.name
