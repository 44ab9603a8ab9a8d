"""What the inputs of an operator must be, as the binder has it of a statement. Each check names the operator by its
JSON pointer."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.algebra import (
    Algebra,
    Arrivals,
    AtInstants,
    FrequencyWindow,
    IndividualResults,
    RelationScan,
    RelationToStream,
    Select,
    Source,
    StreamToRelation,
)
from penstock.algebra.analysis.period_operators import period_operator
from penstock.algebra.nodes.base import common_domain, has_lives
from penstock.algebra.nodes.frequency import each_result, holds_internal, own_frequency_windows
from penstock.algebra.nodes.internal import own_operators, reaches_internal, what_forbids_internal
from penstock.algebra.nodes.results import not_to_be_kept
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import PenstockError, nearest
from penstock.language.binder.context import Context
from penstock.language.binder.from_.control_names import bind_control_name
from penstock.language.plan_form import Part, fault
from penstock.language.plans.scalar_binding import NamedColumns
from penstock.language.queries import CONTROL_SCHEMA, Name
from penstock.types import type_name

_NEVER = "its results never expire, and here they would have to"


def source_of(part: Part, is_stream: bool, context: Context) -> Source:
    """Return a declared stream or relation. Raises PenstockError P0201."""
    name = part.name()
    kind = "stream" if is_stream else "relation"
    if name.lower().startswith(f"{CONTROL_SCHEMA}."):
        source: Source | None = bind_control_name(Name(name.partition(".")[2], True, schema=CONTROL_SCHEMA), context)
    else:
        source = context.catalog.sources.get(name.lower())
    if source is None or source.name != name:
        if name.lower() in context.failed:
            context.fail_silently()
        known = [one.name for one in context.catalog.sources.values()]
        raise fault(part.pointer, f"unknown {kind} {name}", "P0201", nearest(name, known))
    if source.is_stream is not is_stream:
        raise fault(part.pointer, f"{name} is a {'stream' if source.is_stream else 'relation'}", "P0201")
    return source


def scanned(part: Part, source: Source) -> tuple[int, ...]:
    """Return the positions of the columns that a scan reads."""
    positions = NamedColumns.of(source.columns).positions(part)
    if not positions:
        raise fault(part.pointer, "a scan reads at least one column")
    if not (source.is_stream or source.is_static) and positions != tuple(range(len(source.columns))):
        message = f"{source.name} is updated: all its columns are read, in their order, since a row is deleted by them"
        raise fault(part.pointer, message, "P0341")
    return positions


def stream(node: Algebra, pointer: str) -> None:
    if not node.is_stream:
        raise fault(pointer, "the input is a relation, and a stream is needed", "P0301")


def relation(node: Algebra, pointer: str, code: str = "P0341") -> None:
    if node.is_stream:
        raise fault(pointer, "the input is a stream, and a relation is needed", code, "put a window between")


def window(node: Algebra, line: Sequence[Algebra] | None, pointer: str) -> None:
    """Check the input of a window over the time line of timestamps."""
    stream(node, pointer)
    if line is not None:
        message = "a query of the sequence model has windows of its own kind (FrequencyWindow) only"
        raise fault(pointer, message, "P0310")


def alike(nodes: Sequence[Algebra], pointer: str) -> None:
    """Check the members of a set operation: relations with columns of the same types, over one kind of time."""
    for node in nodes:
        relation(node, pointer)
    first = nodes[0].schema.types
    for number, node in enumerate(nodes):
        if node.schema.types != first:
            message = f"input {number} has columns ({_types(node)}), the first one ({_types(nodes[0])})"
            raise fault(pointer, message, "P0305", "project them to the same types")
    one_domain(nodes, pointer)


def _types(node: Algebra) -> str:
    return ", ".join(map(type_name, node.schema.types))


def joined(nodes: Sequence[Algebra], pointer: str) -> None:
    for node in nodes:
        relation(node, pointer)
    one_domain(nodes, pointer)


def same_type(left: pa.DataType, right: pa.DataType, pointer: str) -> None:
    if left != right:
        message = f"a {type_name(left)} is compared with a {type_name(right)}"
        raise fault(pointer, message, "P0203", "write it as a residual, or project them to one type")


def one_domain(nodes: Sequence[Algebra], pointer: str) -> None:
    try:
        common_domain(tuple(nodes))
    except PenstockError as error:
        raise fault(pointer, error.message, error.code, error.hint) from None


def without_internal(nodes: Sequence[Algebra], operator: str, pointer: str) -> None:
    if any(reaches_internal(node) for node in nodes):
        raise fault(pointer, f"{operator} over the results of an INTERNAL window: {_NEVER}", "P0310")


def without_periods(node: Algebra, clause: str, pointer: str) -> None:
    """Check that nothing under `clause` follows periods."""
    by_periods = period_operator(node)
    if by_periods is not None:
        raise fault(pointer, f"{by_periods} under {clause} has no meaning", "P0374")


def may_be_internal(node: Algebra, line: Sequence[Algebra] | None, pointer: str) -> None:
    """Check what INTERNAL windows stand below."""
    relation(node, pointer)
    if line is not None:
        raise fault(pointer, f"INTERNAL in a query of the sequence model: {_NEVER}", "P0310")
    forbidding = what_forbids_internal(node)
    if forbidding is not None:
        raise fault(pointer, f"INTERNAL under {type(forbidding).__name__}: {_NEVER}", "P0310")
    for operator in own_operators(node):
        if isinstance(operator, RelationScan) and operator.pattern is not Pattern.MONOTONIC:
            message = f"{operator.source.name} loses rows beside an INTERNAL window: {_NEVER}"
            raise fault(pointer, message, "P0310")


def individual(node: Algebra, line: Sequence[Algebra] | None, pointer: str) -> None:
    """Check the input of a stream of individual results."""
    relation(node, pointer, "P0307")
    if line is not None:
        if not isinstance(each_result(node), IndividualResults):
            raise fault(pointer, "these results have no lives of their own: take their ISTREAM", "P0318")
        return
    unfit = not_to_be_kept(node)
    if unfit is not None or not has_lives(node):
        what = "this relation" if unfit is None else type(unfit).__name__
        raise fault(pointer, f"the results of {what} have no lives of their own: take its ISTREAM", "P0318")


def on_the_line(node: Algebra, line: Sequence[Algebra] | None, pointer: str) -> None:
    """Check the input of a window of the sequence model."""
    below = node.input if isinstance(node, Select) else node
    if line is None or not isinstance(below, Arrivals):
        message = "a FrequencyWindow stands over Arrivals, or over a Select of them, in a query of the sequence model"
        raise fault(pointer, message)


def sequence(body: Algebra, streams: Sequence[Algebra], pointer: str) -> None:
    """Check a query in the sequence model."""
    for one in streams:
        stream(one, pointer)
    if len(set(streams)) != len(streams):
        raise fault(pointer, "two streams of the line are the same")
    one_domain(streams, pointer)
    if not isinstance(body, RelationToStream | AtInstants | IndividualResults):
        raise fault(pointer, "the body is no RelationToStream, AtInstants or IndividualResults", "P0341")
    below = body.input
    if holds_internal(below):
        raise fault(pointer, f"INTERNAL in a query of the sequence model: {_NEVER}", "P0310")
    without_periods(below, "FREQUENCY", pointer)
    for operator in own_operators(below):
        other = next((child for child in operator.inputs if child.is_stream), None)
        if other is not None and not isinstance(operator, FrequencyWindow):
            raise fault(pointer, f"{type(operator).__name__} stands over a stream that is not of the line", "P0310")
        if isinstance(operator, StreamToRelation) and not isinstance(operator, FrequencyWindow):
            raise fault(pointer, "the body has a window that is none of the sequence model", "P0310")
    read = {_place(one.input) for one in own_frequency_windows(below)}
    if read != set(range(len(streams))):
        raise fault(pointer, "the windows of the body do not read all streams of the line", "P0341")
    one_domain([*streams, *(one for one in own_operators(below) if isinstance(one, RelationScan))], pointer)


def substreams(relation: Algebra, groups: Sequence[int], pointer: str) -> None:
    """Check the columns that hold the values of the substreams of the one window of a relation."""
    windows = tuple(dict.fromkeys(own_frequency_windows(relation)))
    if len(windows) != 1 or windows[0].every is None or not windows[0].by:
        raise fault(pointer, "groups are those of the substreams of one window, which has every and by", "P0341")
    types = [windows[0].schema[i].type for i in windows[0].by]
    if [relation.schema[i].type for i in groups] != types:
        raise fault(pointer, "groups have the types of the columns by of the window, in their order", "P0341")


def _place(node: Algebra) -> int | None:
    below = node.input if isinstance(node, Select) else node
    return below.place if isinstance(below, Arrivals) else None
