"""GROUP BY, DISTINCT and CLOSED whose values are closed by promises of streams (docs/promises.md).

All rows of one value of CLUSTERED BY must be in one shard: rows lie by columns that all of these promises have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce

from penstock.algebra import Aggregate, Algebra
from penstock.algebra.nodes.promised import ClosedRows, ClosingGroups, follows_from_entering
from penstock.algebra.properties.promises import Clustered, PassedPromise, Unique
from penstock.errors import PenstockError
from penstock.figures import VALUES_OUT_OF_RANGE
from penstock.physical.plan.plan import Edge, Exchange
from penstock.physical.plan.promises.groups import (
    ClosedRowsSpec,
    ClosingAggregateSpec,
    ClosingUserAggregateSpec,
    ValueClosing,
)
from penstock.physical.plan.rowwise import UnionSpec
from penstock.physical.planning.lowering.aggregate_input import lower_lanes
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower
from penstock.physical.planning.lowering.closings import ThinInputs
from penstock.physical.planning.lowering.user_aggregates import has_user_aggregates, user_parts, user_rows
from penstock.physical.planning.lowering.watched import outside_ranges, watched, watched_widths


@lower.register
def _closing_groups(node: ClosingGroups, builder: Builder) -> Lowered:
    _check(node.closing, node.input)
    # A DISTINCT is a grouping by all columns without aggregates.
    groups = Aggregate(node.input, node.group, node.aggregates, node.names)
    if has_user_aggregates(groups):
        return _user_aggregates(node, groups, builder)
    outside = outside_ranges(node.aggregates)
    child, columns = _placed_input(node, builder)
    if outside is not None:
        child = watched(child, node.input, {VALUES_OUT_OF_RANGE: outside}, builder)
    lanes = lower_lanes(groups, builder, child=child)
    thin = ThinInputs([node.input], 1, builder)
    closings = _closings(node, columns, thin)
    spec = ClosingAggregateSpec(lanes.plan, True, lanes.types, closings=closings, final=node.final)
    step = builder.add(spec, [lanes.edge, *thin.edges], lanes.stage, node)
    return watched_widths(Lowered(step, lanes.stage, lanes.partitions), node, groups, builder)


def _user_aggregates(node: ClosingGroups, groups: Aggregate, builder: Builder) -> Lowered:
    parts, keys = user_parts(groups), len(node.group)
    base = builder.lower(replace(node, aggregates=parts.calls, names=parts.names, final=False))
    child, columns = _placed_input(node, builder)
    rows = user_rows(groups, parts, child, builder)
    edge, stage, _ = builder.keyed(rows, tuple(range(keys)))
    assert stage == base.stage, "both parts of a group lie alike"
    thin = ThinInputs([node.input], 2, builder)
    spec = ClosingUserAggregateSpec(
        keys,
        parts.user_calls,
        parts.order,
        node.schema.types,
        fifo=True,
        strict=False,
        key_types=node.schema.types[:keys],
        closings=_closings(node, columns, thin),
        final=node.final,
    )
    step = builder.add(spec, [Edge(base.step), edge, *thin.edges], stage, node)
    return replace(base, step=step)


def _placed_input(node: ClosingGroups, builder: Builder) -> tuple[Lowered, tuple[int, ...] | None]:
    """Return the input of groups, and the columns by which it lies for CLUSTERED BY; None where that is left to the
    groups."""
    child, columns = builder.lower(node.input), _lying(node.closing)
    if columns is None:
        return child, None
    child = _placed(child, columns, node.input, builder)
    return child, _by(child, columns)


def _closings(node: ClosingGroups, lying: tuple[int, ...] | None, thin: ThinInputs) -> tuple[ValueClosing, ...]:
    places = {column: place for place, column in reversed(list(enumerate(node.group)))}
    found = (_closing(one, lying, thin) for one in node.closing)
    return tuple(replace(one, columns=tuple(places[c] for c in one.columns)) for one in found)


@lower.register
def _closed_rows(node: ClosedRows, builder: Builder) -> Lowered:
    used = [one for condition in node.closing for one in condition]
    _check(used, node.input)
    child, columns = builder.lower(node.input), _lying(used)
    if columns is None:
        edge, stage, partitions = builder.ordered(child)
        child = Lowered(builder.add(UnionSpec(), [edge], stage, node.input), stage, partitions, child.colocated)
    else:
        child = _placed(child, columns, node.input, builder)
        columns = _by(child, columns)
    thin = ThinInputs([node.input], 1, builder)
    conditions = tuple(tuple(_closing(one, columns, thin) for one in condition) for condition in node.closing)
    spec = ClosedRowsSpec(conditions, node.schema.types)
    step = builder.add(spec, [Edge(child.step), *thin.edges], child.stage, node)
    return Lowered(step, child.stage, child.partitions, child.colocated)


def _check(closing: Iterable[PassedPromise], node: Algebra) -> None:
    """Raise P0901 for rows of which another closing counts than the next one after they enter."""
    if not follows_from_entering(closing, node):
        message = "CLUSTERED BY above a CLOSED of several conditions is not supported yet"
        raise PenstockError("P0901", message, hint="write CLOSED once, or leave the promise out of the declaration")


def _lying(closings: Iterable[PassedPromise]) -> tuple[int, ...] | None:
    """Return the columns that all CLUSTERED BY have, none for all rows in one shard; None where there is no
    CLUSTERED BY."""
    columns = [one.columns for one in closings if isinstance(one.promise, Clustered)]
    if not columns:
        return None
    common = reduce(frozenset[int].intersection, map(frozenset, columns))
    return tuple(c for c in columns[0] if c in common)


def _placed(child: Lowered, columns: tuple[int, ...], node: Algebra, builder: Builder) -> Lowered:
    """Return rows that lie by some of `columns`."""
    if child.stage > 0 and any(set(p) <= set(columns) for p in child.partitions or ()):
        return child
    edge = Edge(child.step, Exchange(columns))
    step = builder.add(UnionSpec(), [edge], child.stage + 1, node)
    return Lowered(step, child.stage + 1, frozenset({columns}))


def _by(child: Lowered, columns: tuple[int, ...]) -> tuple[int, ...]:
    """Return the columns by which rows lie that are `_placed`."""
    return min(p for p in child.partitions or () if set(p) <= set(columns))


def _closing(one: PassedPromise, lying: tuple[int, ...] | None, thin: ThinInputs) -> ValueClosing:
    if isinstance(one.promise, Unique):
        return ValueClosing(one.columns, None, thin.text(one))
    clustered = isinstance(one.promise, Clustered)
    places = tuple(one.columns.index(c) for c in lying or ()) if clustered else ()
    closing = thin.closing(one, places)
    return ValueClosing(one.columns, closing, closing.text)
