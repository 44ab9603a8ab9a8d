"""SAMPLE of a source in FROM (docs/language/windows.md)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.algebra import Algebra, Sample, StreamScan, WindowSample
from penstock.algebra.nodes.frequency import in_sequence
from penstock.expressions.coercion import is_numeric
from penstock.expressions.nodes import Column
from penstock.language.binder.context import Context
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scope import Entry, Scope
from penstock.language.dialect import span_of
from penstock.language.queries import NamedSource, SampleClause
from penstock.types import type_name

#: More rows than a sample has.
MOST_ROWS = 2**31 - 1


def bind_sample(node: Algebra, sample: SampleClause, name: str, context: Context) -> Algebra:
    """Return the sample of the stream `node`. Raises BindingFailed after P0102, P0103, P0202 or P0901."""
    if not node.is_stream:
        hint = "leave SAMPLE out: of a relation every row is read"
        context.fail("P0103", f"SAMPLE draws from a stream; {name} is a relation", sample.span, hint)
    if sample.percent is None:
        return node
    if not 0 <= sample.percent <= 100:
        context.fail("P0102", "a sample is between 0 and 100 percent", sample.span, "SAMPLE(10) keeps a tenth")
    if not isinstance(node, StreamScan) and not sample.by:
        hint = "let the query keep a column in which they differ, or sample the stream that it reads"
        context.warn(f"rows of {name} that are equal at one instant are sampled together", sample.span, hint)
    seed = context.settings.get_int("seed") if sample.seed is None else sample.seed
    return Sample(node, sample.percent, seed, name, _columns(node, sample.by, name, context))


def bind_rows(node: Algebra, sample: SampleClause | None, name: str, scope: Scope, context: Context) -> Algebra:
    """Return SAMPLE(n ROWS) of the content of a window of `name`; `node` itself for another sample, or none."""
    if sample is None or sample.rows is None:
        return node
    if not 1 <= sample.rows <= MOST_ROWS:
        hint = "write SAMPLE(100 ROWS)"
        context.fail("P0203", f"a sample has 1 to {MOST_ROWS:,} rows, not {sample.rows}", sample.span, hint)
    if in_sequence(node):
        hint = "write the part with FREQUENCY as a view, and read the view, which is a stream"
        context.fail("P0310", "SAMPLE(n ROWS) in a query with FREQUENCY", sample.span, hint)
    seed = context.settings.get_int("seed") if sample.seed is None else sample.seed
    per = _columns(node, sample.per, "", context, scope)
    weight = None
    if sample.weight is not None:
        tree = sample.weight
        weight = ExpressionBinder(scope, context, "WEIGHT").bind(tree)
        if not is_numeric(weight.type):
            hint = "weigh by a column of numbers, or cast the value"
            context.fail("P0203", f"WEIGHT is a number, not {type_name(weight.type)}", span_of(tree), hint)
    return WindowSample(node, sample.rows, seed, name, per, weight)


def refuse_rows(source: NamedSource | None, context: Context) -> None:
    """Refuse SAMPLE(n ROWS) of a source whose rows have periods. Raises BindingFailed after P0103."""
    if source is not None and source.sample is not None and source.sample.rows is not None:
        hint = "SAMPLE(10) leaves elements out before they have periods; windows in time or rows have SAMPLE(n ROWS)"
        context.fail("P0103", "SAMPLE(n ROWS) of a source with periods", source.sample.span, hint)


def _columns(
    node: Algebra, columns: Sequence[exp.Expr], name: str, context: Context, scope: Scope | None = None
) -> tuple[int, ...]:
    entries = tuple(Entry(i, f.name, f.type, name) for i, f in enumerate(node.schema))
    binder = ExpressionBinder(scope or Scope(entries), context, "SAMPLE")
    found: dict[int, None] = {}
    for bound, written in zip(context.each(binder.bind, columns), columns, strict=True):
        if not isinstance(bound, Column):
            hint = "name a column; compute others in a view, and sample that"
            context.fail("P0102", "a sample is by columns of the stream", span_of(written), hint)
        found[bound.index] = None
    return tuple(found)
