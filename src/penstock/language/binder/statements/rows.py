"""Bind the conditions and values of UPDATE and DELETE."""

from __future__ import annotations

from sqlglot import exp

from penstock.algebra.nodes.scans import Source
from penstock.expressions.nodes import Expression
from penstock.language.binder.context import Context
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scope import Entry, Scope
from penstock.language.binder.statements.names import source_named
from penstock.language.queries import Name

#: Connectors of sources into which statements write rows.
WRITABLE = ("MEMORY", "HTTP")


def changeable_relation(name: Name, context: Context) -> Source:
    """Return the relation whose rows are changed. Raises BindingFailed after P0201, P0208 or P0209."""
    relation = source_named(name, "RELATION", context, rows=True)
    if relation.connector not in WRITABLE:
        hint = "its rows come from there; a relation FROM MEMORY () or FROM HTTP () can be changed"
        context.fail("P0208", f"{relation.name} is declared FROM {relation.connector}", name.span, hint)
    if relation.is_static:
        hint = "declare it with SYSTEM TIME, or TIMESTAMP BY"
        context.fail("P0209", f"{relation.name} never changes: it has no timestamps", name.span, hint)
    return relation


def bind_condition(where: exp.Expr | None, relation: Source, context: Context) -> Expression | None:
    return None if where is None else row_binder(relation, context).predicate(where, "WHERE")


def row_binder(relation: Source, context: Context) -> ExpressionBinder:
    entries = tuple(Entry(i, f.name, f.type, relation.name) for i, f in enumerate(relation.columns))
    return ExpressionBinder(Scope(entries), context, "a change of rows")
