"""Names of items that later items of a select list read (docs/language/queries.md).

A name stands for the expression of its item, where FROM has no column of that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from penstock.language.binder.scalars.binder import name_of
from penstock.language.binder.scope import Scope
from penstock.language.dialect import is_period_text
from penstock.language.queries import Item, Star


def earlier_items(items: Sequence[Item], scope: Scope) -> list[dict[str, exp.Expr]]:
    """Return for each item the expressions that the names before it stand for, by name in lower case. They read
    columns alone. A name that several items have stands for none."""
    found: list[dict[str, exp.Expr]] = []
    known: dict[str, exp.Expr] = {}
    several: set[str] = set()
    for item in items:
        found.append(dict(known))
        if item.alias is None or isinstance(item.value, Star) or is_period_text(item.value):
            continue
        key = item.alias.key
        if key in known or key in several:
            several.add(key)
            known.pop(key, None)
        else:
            known[key] = in_full(item.value, known, scope)
    return found


def in_full(node: exp.Expr, earlier: Mapping[str, exp.Expr], scope: Scope) -> exp.Expr:
    """Return `node` with the expressions of earlier items in the places of their names."""

    def read(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column) or part.args.get("table") is not None:
            return part
        name = name_of(part.this)
        named = None if scope.can_resolve(name) else earlier.get(name.key)
        if named is None:
            return part
        whole = exp.Paren(this=named.copy())
        whole.meta.update(named.meta)
        return whole

    return node.transform(read) if earlier else node
