"""Relation-to-stream operators: ISTREAM, DSTREAM, RSTREAM, with RESTORE, and WSTREAM (docs/language/queries.md)."""

from __future__ import annotations

from penstock.algebra import (
    Algebra,
    AtInstants,
    IndividualResults,
    Pattern,
    RelationToStream,
    Restored,
    StreamKind,
)
from penstock.algebra.analysis.period_operators import period_operator
from penstock.algebra.nodes.base import has_lives
from penstock.algebra.nodes.frequency import each_result, in_sequence, on_the_line
from penstock.algebra.nodes.r2s import evaluation_period
from penstock.algebra.nodes.results import not_to_be_kept, without_slide
from penstock.language.binder.context import Context
from penstock.language.binder.from_.frequency import checked, in_order
from penstock.language.binder.from_.windows import bind_window
from penstock.language.binder.scope import Entry
from penstock.language.queries import StreamOperator, ToStream


def to_stream(operator: ToStream, node: Algebra, context: Context, often: bool = False) -> Algebra:
    """Return `operator` over the relation `node`. often: a FREQUENCY follows it. Raises BindingFailed after P0307,
    P0318 or P0319.
    """
    kind = operator.operator
    if node.is_stream:
        hint = f"leave out {kind.value}, or give the inner stream a window in FROM"
        context.fail("P0307", f"{kind.value} over a stream: it needs a relation", operator.span, hint)
    counted = often or in_sequence(node)
    if counted:
        node = on_the_line(checked(node, operator.span, context))
    if operator.restore is not None:
        return _restored(operator, node, counted, context)
    if kind is StreamOperator.WSTREAM:
        return _windowed(operator, node, counted, context)
    if not counted:
        return RelationToStream(node, StreamKind[kind.name])
    everything = kind is StreamOperator.RSTREAM
    stream = AtInstants(node) if everything else RelationToStream(node, StreamKind[kind.name])
    return in_order(stream, operator.span, context)


def _windowed(operator: ToStream, node: Algebra, counted: bool, context: Context) -> Algebra:
    """Return WSTREAM(R)[w]: the window w over all results of R as a monotonic relation. counted: R is in the sequence
    model.
    """
    if operator.window is None:
        context.fail("P0318", "WSTREAM needs a window after it", operator.span, "WSTREAM(...)[ROWS 10]")
    unfit = not_to_be_kept(node)
    if unfit is not None:
        hint = "a kept result would no longer answer the query; a window over its ISTREAM would keep it"
        context.fail("P0318", f"WSTREAM over {unfit.worded}", operator.span, hint)
    results: Algebra = IndividualResults(node) if has_lives(node) else RelationToStream(node, StreamKind.ISTREAM)
    if counted:
        results = in_order(each_result(node), operator.span, context)
    if operator.window.internal is not None:
        message = "the window of WSTREAM determines the answer: it cannot be INTERNAL"
        context.fail(
            "P0310", message, operator.window.internal.span, "the windows below WSTREAM already act as INTERNAL"
        )
    entries = tuple(Entry(i, f.name, f.type) for i, f in enumerate(results.schema))
    return bind_window(operator.window, results, context, entries)


def _restored(operator: ToStream, node: Algebra, counted: bool, context: Context) -> Algebra:
    kind = operator.operator
    assert operator.restore is not None
    if kind not in (StreamOperator.ISTREAM, StreamOperator.RSTREAM):
        message = f"{kind.value} RESTORE: only ISTREAM and RSTREAM restore results"
        context.fail("P0319", message, operator.restore.span)
    by_periods = period_operator(node)
    if by_periods is not None:
        hint = "RESTORE looks between boundaries, where granules end; without it all results of boundaries are emitted"
        context.fail("P0374", f"{by_periods} under RESTORE has no meaning", operator.restore.span, hint)
    reported = RelationToStream(node, StreamKind[kind.name])
    period = None if counted else evaluation_period(reported)
    if period is None:
        hint = "results are lost only between slide boundaries: give all windows of the query the same SLIDE"
        context.fail("P0319", "RESTORE needs one common SLIDE", operator.restore.span, hint)
    continual = without_slide(node)
    by_life = has_lives(continual) and continual.pattern is not Pattern.STRICT
    return Restored(reported, continual, *period, by_life)
