"""CLOSED(c, ..) in WHERE and HAVING: rows, or groups, whose value is closed by promises (docs/promises.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn

from sqlglot import exp

from penstock.algebra import Algebra
from penstock.algebra.nodes.promised import ClosedRows, closes_values
from penstock.algebra.optimizer.rules.constraints.groups import final_groups
from penstock.algebra.properties.promises import Promises, Unique
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import as_name
from penstock.expressions.nodes import Column, Expression, conjuncts
from penstock.language.binder.context import Context
from penstock.language.binder.inputs.inputs import FromInput, Inputs
from penstock.language.binder.inputs.promised import Equalities
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scalars.periods import anded, closed_columns
from penstock.language.dialect import span_of

_MONOTONIC = "sources stand without a window, and lose no row"


def closed_inputs(
    where: exp.Expr | None, inputs: Inputs, condition: Expression | None, binder: ExpressionBinder, context: Context
) -> Inputs:
    """Return the inputs of FROM behind the CLOSED(c, ..) of WHERE. Raises BindingFailed after P0373.

    Args:
        condition: the rest of WHERE, whose equalities compare columns of several inputs.
    """
    closed = [part for part in anded(where) if closed_columns(part) is not None]
    if not closed:
        return inputs
    own = () if condition is None else conjuncts(condition)
    equalities = Equalities([part for whole in (*inputs.conditions, *own) for part in conjuncts(whole)])
    closings: dict[int, list[Promises]] = {}
    for part in closed:
        if any(member.node.pattern is not Pattern.MONOTONIC for member in inputs.members):
            context.fail("P0373", "CLOSED over rows that may expire or be retracted", span_of(part), _MONOTONIC)
        columns = [_column(node, binder, context) for node in closed_columns(part) or ()]
        found = False
        start = 0
        for i, member in enumerate(inputs.members):
            width = len(member.node.schema)
            own_columns = [_same_in(range(start, start + width), column, equalities) for column in columns]
            start += width
            if None in own_columns:
                continue
            places = frozenset(c - start + width for c in own_columns if c is not None)
            closings.setdefault(i, []).append(_closing(member, places, part, context))
            found = True
        if not found:
            context.fail("P0373", "no source has all of these columns", span_of(part), "name columns of one source")
    members = tuple(
        replace(member, node=ClosedRows(member.node, tuple(closings[i]))) if i in closings else member
        for i, member in enumerate(inputs.members)
    )
    return replace(inputs, members=members)


def _column(node: exp.Expr, binder: ExpressionBinder, context: Context) -> int:
    bound = binder.bind(node)
    if not isinstance(bound, Column):
        context.fail("P0373", "CLOSED takes columns", span_of(node), "as in WHERE CLOSED(o.id)")
    return bound.index


def _same_in(columns: range, column: int, equalities: Equalities) -> int | None:
    """Return the one of `columns` that equals a column of FROM."""
    if column in columns:
        return column
    root = equalities.root(column)
    return next((one for one in columns if equalities.root(one) == root), None)


def _closing(member: FromInput, columns: frozenset[int], part: exp.Expr, context: Context) -> Promises:
    node = member.node
    if not node.enters_with_elements:
        message = "CLOSED over rows that enter with no element of a stream"
        context.fail("P0373", message, span_of(part), "a stream, a selection or a join of these stand there")
    closing = (one for one in node.promises if closes_values(one) or isinstance(one.promise, Unique))
    usable = (one.within(columns) for one in closing if one.slide is None)
    found = tuple(one for one in usable if one is not None)
    if not found:
        _refuse(node, sorted(columns), part, context)
    return found


def _refuse(node: Algebra, columns: Sequence[int], part: exp.Expr, context: Context) -> NoReturn:
    names = ", ".join(as_name(node.schema[c].name) for c in columns)
    where = " and ".join(node.source_names) or "this source"
    message = f"no promise of {where} closes ({names}), so CLOSED would never hold"
    context.fail("P0373", message, span_of(part), f"declare it, as in CLUSTERED BY ({names}) WITHIN 3 ROWS")


def closed_groups(
    having: exp.Expr | None, node: Algebra, column: Callable[[Expression], int | None], binder: ExpressionBinder
) -> Algebra:
    """Return the groups `node` behind the CLOSED(c, ..) of HAVING: each once, when it is closed. Raises BindingFailed
    after P0373.

    Args:
        column: returns the column of the groups that a grouping expression became, None for another expression.
    """
    context = binder.context
    for part in anded(having):
        nodes = closed_columns(part)
        if nodes is None:
            continue
        places = [column(binder.bind(one)) for one in nodes]
        columns = frozenset(place for place in places if place is not None)
        if None in places:
            context.fail("P0373", "CLOSED takes group columns", span_of(part), "as in GROUP BY id HAVING CLOSED(id)")
        final = final_groups(node, columns)
        if final is None:
            below = node.inputs[0]
            if below.pattern is not Pattern.MONOTONIC:
                context.fail("P0373", "CLOSED over rows that may expire or be retracted", span_of(part), _MONOTONIC)
            _refuse(node, sorted(columns), part, context)
        node = final
    return node
