"""The expressions of a plan: text that is parsed and bound as one of a statement, over the columns of an input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from sqlglot import exp

from penstock.errors import PenstockError, nearest
from penstock.expressions.nodes import AggregateCall, Expression
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scalars.unsupported import refusals
from penstock.language.binder.scope import Entry, Role, Scope
from penstock.language.grammar.fragments import parse_expression
from penstock.language.plan_form import Part, PlanError, fault
from penstock.language.plans.scalar_text import column_names
from penstock.language.text import SourceText
from penstock.types import Schema

T = TypeVar("T")


@dataclass(frozen=True)
class NamedColumns:
    """The columns of an input, by the names that a plan has for them."""

    schema: Schema
    names: tuple[str, ...]

    @staticmethod
    def of(schema: Schema) -> NamedColumns:
        return NamedColumns(schema, column_names(schema))

    def position(self, part: Part) -> int:
        """Return the position of a column. Raises PenstockError P0202."""
        name = part.text()
        if name not in self.names:
            raise fault(part.pointer, f"unknown column {name}", "P0202", nearest(name, self.names))
        return self.names.index(name)

    def positions(self, part: Part) -> tuple[int, ...]:
        """Return the positions of columns, each of which occurs once. Raises PenstockError P0202 and P0206."""
        found: list[int] = []
        for item in part.items():
            position = self.position(item)
            if position in found:
                raise fault(item.pointer, f"column {item.text()} occurs twice", "P0206")
            found.append(position)
        return tuple(found)

    def scope(self, times: Sequence[int] = ()) -> Scope:
        """Return the columns as names in expressions. times: the timestamps of the rows, in their order."""
        order = [*times, *(i for i in range(len(self.schema)) if i not in times)]
        return Scope(
            tuple(
                Entry(
                    i,
                    self.names[i],
                    self.schema[i].type,
                    str(i),
                    role=Role.TIMESTAMP if i in times else Role.RELATION,
                )
                for i in order
            )
        )


@dataclass(frozen=True)
class ScalarReader:
    """Binds expressions. context: of the statement that has the plan."""

    context: Context

    def value(self, part: Part, columns: NamedColumns) -> Expression:
        """Return a scalar expression. Raises PenstockError with the code of the mistake."""
        return self._bound(
            part, lambda node, context: ExpressionBinder(columns.scope(), context, "an operator of a plan").bind(node)
        )

    def condition(self, part: Part, columns: NamedColumns) -> Expression:
        """Return a BOOLEAN expression. Raises as `value` does."""
        return self._bound(
            part,
            lambda node, context: ExpressionBinder(columns.scope(), context, "an operator of a plan").predicate(
                node, "a condition"
            ),
        )

    def aggregate(self, part: Part, columns: NamedColumns, times: Sequence[int]) -> AggregateCall:
        """Return the call of an aggregate. times: the timestamps by which FIRST and LAST order rows."""

        def bind(node: exp.Expr, context: Context) -> AggregateCall:
            bound = ExpressionBinder(columns.scope(times), context, None).bind(node)
            if not isinstance(bound, AggregateCall):
                raise fault(part.pointer, "this is no call of an aggregate", "P0304")
            return bound

        return self._bound(part, bind)

    def _bound(self, part: Part, bind: Callable[[exp.Expr, Context], T]) -> T:
        source = SourceText(part.text())
        # A plan has the zones of its expressions in their text.
        settings = self.context.settings.with_value("time_zone", "UTC")
        context = Context(source, self.context.catalog, settings, failed=self.context.failed)
        try:
            node = parse_expression(source)
            for error, span in refusals(node):
                context.note(error, span)
            if not context.errors:
                return bind(node, context)
        except BindingFailed:
            if not context.errors and context.silenced:
                self.context.fail_silently()
        except PenstockError as error:
            context.errors.append(error)
        raise _placed(part, context.errors)


def _placed(part: Part, errors: Sequence[PenstockError]) -> PenstockError:
    """Return the first error of an expression, with its place in the plan."""
    if not errors:
        return fault(part.pointer, "this expression cannot be bound", "P0901")
    error = errors[0]
    if isinstance(error, PlanError):
        return error
    column = "" if error.position is None else f" (column {error.position.column} of it)"
    return fault(part.pointer, f"{error.message}{column}", error.code, error.hint)


def is_absent(type_: pa.DataType) -> bool:
    """Return whether a type is that of a bare NULL."""
    return bool(pa.types.is_null(type_))
