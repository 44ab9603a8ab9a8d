"""What a query as a whole requires of its operators, where a plan as data combines them as no statement does. What an
operator requires of its own inputs it checks when it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.algebra import (
    Aggregate,
    Algebra,
    Arrivals,
    AtInstants,
    Coalesce,
    Distinct,
    Except,
    FrequencyWindow,
    Frequent,
    IndividualResults,
    Internal,
    Intersect,
    NRRJoin,
    OuterJoin,
    RelationScan,
    RelationToStream,
    RowWindow,
    Select,
    SemiJoin,
    Sequenced,
    Shed,
    StreamToRelation,
    is_nrr,
)
from penstock.algebra.analysis.period_operators import period_operator
from penstock.algebra.nodes.base import TimeModelWindow, common_domain, has_lives
from penstock.algebra.nodes.base.checks import need_relations, need_stream, refused
from penstock.algebra.nodes.frequency import each_result, holds_internal, own_frequency_windows
from penstock.algebra.nodes.internal import own_operators, reaches_internal, what_forbids_internal
from penstock.algebra.nodes.panes import check_panes
from penstock.algebra.nodes.results import not_to_be_kept
from penstock.algebra.properties.update_pattern import Pattern

#: The streams of the enclosing query in the sequence model; None outside of one.
Line = Sequence[Algebra] | None

_NEVER = "its results never expire, and here they would have to"


def check_in_query(node: Algebra, line: Line) -> None:
    """Check an operator in its query. Raises PenstockError."""
    if isinstance(node, TimeModelWindow) and line is not None:
        raise refused("a query of the sequence model has windows of its own kind (FrequencyWindow) only", "P0310")
    expires = isinstance(node, _EXPIRING) and not (isinstance(node, Intersect) and node.every)
    if expires and any(map(reaches_internal, node.inputs)):
        raise refused(f"{node.worded} over the results of an INTERNAL window: {_NEVER}", "P0310")
    check = _CHECKS.get(type(node))
    if check is not None:
        check(node, line)


#: Those whose results have to expire.
_EXPIRING = (Distinct, Except, Intersect, SemiJoin, OuterJoin, Coalesce, Shed, Frequent)


def without_periods(node: Algebra, clause: str) -> None:
    """Check that nothing under `clause` follows periods."""
    by_periods = period_operator(node)
    if by_periods is not None:
        raise refused(f"{by_periods} under {clause} has no meaning", "P0374")


def _row_window(node: RowWindow, line: Line) -> None:
    if node.step is not None and node.slide is not None:
        raise refused("a window moves by a step or by a slide", "P0102")


def _aggregate(node: Aggregate, line: Line) -> None:
    # Strategies group streams, too.
    need_relations(node.inputs)
    for call in node.aggregates:
        check_panes(node.input, call)


def _shed(node: Shed, line: Line) -> None:
    if node.input.pattern is Pattern.STRICT and node.row_window is None:
        message = "a relation with updates has no budget: a tuple that was dropped could be retracted later"
        raise refused(message, "P0376")


def _nrr_join(node: NRRJoin, line: Line) -> None:
    if not is_nrr(node.right):
        raise refused("the right input is no NON RETROACTIVE relation that is updated", "P0340")
    if is_nrr(node.left) or not node.left.is_elementwise:
        message = "the left input has rows that are not single elements of streams"
        raise refused(message, "P0340", "join the NON RETROACTIVE relation before rows are grouped")


def _internal(node: Internal, line: Line) -> None:
    if line is not None:
        raise refused(f"INTERNAL in a query of the sequence model: {_NEVER}", "P0310")
    forbidding = what_forbids_internal(node.input)
    if forbidding is not None:
        raise refused(f"INTERNAL under {type(forbidding).__name__}: {_NEVER}", "P0310")
    for operator in own_operators(node.input):
        if isinstance(operator, RelationScan) and operator.pattern is not Pattern.MONOTONIC:
            raise refused(f"{operator.source.name} loses rows beside an INTERNAL window: {_NEVER}", "P0310")


def _individual(node: IndividualResults, line: Line) -> None:
    if line is not None:
        if not isinstance(each_result(node.input), IndividualResults):
            raise refused("these results have no lives of their own: take their ISTREAM", "P0318")
        return
    unfit = not_to_be_kept(node.input)
    if unfit is not None or not has_lives(node.input):
        what = "this relation" if unfit is None else type(unfit).__name__
        raise refused(f"the results of {what} have no lives of their own: take its ISTREAM", "P0318")


def _frequency_window(node: FrequencyWindow, line: Line) -> None:
    if line is None or _place(node.input) is None:
        message = "a FrequencyWindow stands over Arrivals, or over a Select of them, in a query of the sequence model"
        raise refused(message, "P0106")


def _at_instants(node: AtInstants, line: Line) -> None:
    if line is None:
        raise refused("AtInstants stand in a query of the sequence model (Sequenced)")
    if not node.groups:
        return
    windows = tuple(dict.fromkeys(own_frequency_windows(node.input)))
    if len(windows) != 1 or windows[0].every is None or not windows[0].by:
        message = "groups are those of the substreams of one window, which has every and by"
        raise refused(message, at=("groups",))
    types = [windows[0].schema[i].type for i in windows[0].by]
    if [node.input.schema[i].type for i in node.groups] != types:
        raise refused("groups have the types of the columns by of the window, in their order", at=("groups",))


def _sequenced(node: Sequenced, line: Line) -> None:
    streams, body = node.streams, node.body
    for one in streams:
        need_stream(one)
    if len(set(streams)) != len(streams):
        raise refused("two streams of the line are the same", "P0106")
    common_domain(streams)
    if not isinstance(body, RelationToStream | AtInstants | IndividualResults):
        raise refused("the body is no RelationToStream, AtInstants or IndividualResults")
    below = body.input
    if holds_internal(below):
        raise refused(f"INTERNAL in a query of the sequence model: {_NEVER}", "P0310")
    without_periods(below, "FREQUENCY")
    for operator in own_operators(below):
        other = next((child for child in operator.inputs if child.is_stream), None)
        if other is not None and not isinstance(operator, FrequencyWindow):
            raise refused(f"{type(operator).__name__} stands over a stream that is not of the line", "P0310")
        if isinstance(operator, StreamToRelation) and not isinstance(operator, FrequencyWindow):
            raise refused("the body has a window that is none of the sequence model", "P0310")
    if {_place(one.input) for one in own_frequency_windows(below)} != set(range(len(streams))):
        raise refused("the windows of the body do not read all streams of the line")
    common_domain((*streams, *(one for one in own_operators(below) if isinstance(one, RelationScan))))


def _place(node: Algebra) -> int | None:
    below = node.input if isinstance(node, Select) else node
    return below.place if isinstance(below, Arrivals) else None


_CHECKS: Mapping[type[Algebra], Callable[[Any, Line], None]] = {
    RowWindow: _row_window,
    Aggregate: _aggregate,
    Shed: _shed,
    NRRJoin: _nrr_join,
    Internal: _internal,
    IndividualResults: _individual,
    FrequencyWindow: _frequency_window,
    AtInstants: _at_instants,
    Sequenced: _sequenced,
}
