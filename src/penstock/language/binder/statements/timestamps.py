"""TIMESTAMP BY an expression: the timestamp of a record follows from its columns alone."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from penstock.expressions.nodes import Expression, columns_of
from penstock.expressions.user import UserCall
from penstock.language.binder.context import Context
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scope import Entry, Scope
from penstock.language.dialect import span_of
from penstock.tree import walk
from penstock.types import UNKNOWN_TYPE, Schema, TimeDomain

_CLAUSE = "TIMESTAMP BY"


@dataclass(frozen=True)
class RecordTime:
    """What stamps the records of a source: the column at a position, a computed value, or neither."""

    domain: TimeDomain | None = None
    column: int | None = None
    computed: Expression | None = None

    @property
    def columns(self) -> frozenset[int]:
        if self.computed is not None:
            return columns_of(self.computed)
        return frozenset() if self.column is None else frozenset((self.column,))


def bind_timestamp(value: exp.Expr, name: str, columns: Schema, context: Context) -> Expression:
    """Return the bound value, of any type.

    Args:
        name: of the source.
        columns: those that it declares.

    Raises:
        BindingFailed: after P0209, the value reads no column, or calls a function of a user, which may have other
            values for equal records; and as for any expression.
    """
    entries = tuple(Entry(i, f.name, f.type, name) for i, f in enumerate(columns))
    bound = ExpressionBinder(Scope(entries), context, _CLAUSE).bind(value)
    if any(columns[position].type == UNKNOWN_TYPE for position in columns_of(bound)):
        context.fail_silently()
    span = span_of(value)
    users = [node.function.name for node in walk(bound) if isinstance(node, UserCall)]
    if users:
        hint = (
            "the timestamp follows from the record by functions of the language, such as TO_TIMESTAMP(c, 'HH:mm yyyy')"
        )
        context.fail("P0209", f"{_CLAUSE} does not call functions of users, such as {users[0]}", span, hint)
    if not columns_of(bound):
        hint = "SYSTEM TIME stamps elements as they arrive"
        context.fail("P0209", f"{_CLAUSE} needs a column, this has one value for all records", span, hint)
    return bound
