"""GROUP BY with user-defined aggregates: the built-in part as usual, and another operator for the user-defined ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.algebra import Aggregate, Pattern
from penstock.expressions.aggregates import count_rows
from penstock.expressions.calls.text import to_sql
from penstock.expressions.nodes import AggregateCall, Column, Expression
from penstock.expressions.user import UserAggregateCall
from penstock.physical.plan.plan import Edge
from penstock.physical.plan.rowwise import ProjectSpec
from penstock.physical.plan.state.time_endings import time_endings
from penstock.physical.plan.user_aggregates import UserAggregateSpec, UserCallSpec, UserState
from penstock.physical.planning.lowering.builder import Builder, Lowered, moved_partitions


def has_user_aggregates(node: Aggregate) -> bool:
    return any(isinstance(call, UserAggregateCall) for call in node.aggregates)


@dataclass(frozen=True)
class UserParts:
    """A grouping with user-defined aggregates in its two parts.

    Args:
        calls, names: of the built-in part, COUNT(*) among them, last, by which groups are identified.
        columns: of the rows of the other part: those of the group, then the arguments.
    """

    calls: tuple[AggregateCall, ...]
    names: tuple[str, ...]
    user_calls: tuple[UserCallSpec, ...]
    columns: tuple[Expression, ...]
    order: tuple[tuple[bool, int], ...]


def user_parts(node: Aggregate) -> UserParts:
    mine = [c for c in node.aggregates if isinstance(c, UserAggregateCall)]
    built_in = [
        (c, n) for c, n in zip(node.aggregates, node.names, strict=True) if not isinstance(c, UserAggregateCall)
    ]
    arguments: list[Expression] = []
    specs = tuple(_call(c, arguments, node.input.pattern) for c in mine)
    keys = tuple(Column(node.input.schema[i].type, i, node.input.schema[i].name) for i in node.group)
    calls, names = (*(c for c, _ in built_in), count_rows()), (*(n for _, n in built_in), "rows")
    return UserParts(calls, names, specs, (*keys, *arguments), _order(node))


def user_rows(node: Aggregate, parts: UserParts, child: Lowered, builder: Builder) -> Lowered:
    """Return the rows of the user's part, of those of the input."""
    names = [to_sql(e, node.input.schema.names) for e in parts.columns]
    types = [e.type for e in parts.columns]
    values = builder.add(ProjectSpec(parts.columns), [Edge(child.step)], child.stage, node.input, types, names)
    positions = {column: i for i, column in reversed(list(enumerate(node.group)))}
    return Lowered(values, child.stage, moved_partitions(child.partitions, positions))


def lower_user_aggregates(node: Aggregate, builder: Builder) -> Lowered:
    """Join the rows of the built-in aggregates with the user's arguments, by group."""
    parts = user_parts(node)
    base = builder.lower(replace(node, aggregates=parts.calls, names=parts.names))
    lowered = user_rows(node, parts, builder.lower(node.input), builder)
    edge, stage, _ = builder.keyed(lowered, tuple(range(len(node.group))))
    assert stage == base.stage, "both parts of a group lie alike"
    spec = UserAggregateSpec(
        len(node.group),
        parts.user_calls,
        parts.order,
        node.schema.types,
        node.input.pattern <= Pattern.WEAKEST,
        node.input.pattern is Pattern.STRICT,
        time_endings(node),
    )
    step = builder.add(spec, [Edge(base.step), edge], stage, node)
    return replace(base, step=step)


def _call(call: UserAggregateCall, arguments: list[Expression], pattern: Pattern) -> UserCallSpec:
    def place(expression: Expression) -> int:
        if expression not in arguments:
            arguments.append(expression)
        return arguments.index(expression)

    inputs = tuple(place(a) for a in call.arguments)
    only = None if call.filter is None else place(call.filter)
    return UserCallSpec(call.definition, inputs, only, call.distinct, _state(call, pattern))


def _state(call: UserAggregateCall, pattern: Pattern) -> UserState:
    if call.distinct:
        return UserState.LIVE
    if call.definition.expires:
        return UserState.EXPIRING
    if pattern is Pattern.MONOTONIC or (call.definition.merges and pattern is not Pattern.STRICT):
        return UserState.PARTIAL
    return UserState.LIVE


def _order(node: Aggregate) -> tuple[tuple[bool, int], ...]:
    """Return the origin of each column of the whole row."""
    width = len(node.group)
    order: list[tuple[bool, int]] = [(False, i) for i in range(width)]
    counts = [width, 0]
    for call in node.aggregates:
        kind = isinstance(call, UserAggregateCall)
        order.append((kind, counts[kind]))
        counts[kind] += 1
    return tuple(order)
