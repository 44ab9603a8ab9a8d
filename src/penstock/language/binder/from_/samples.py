"""SAMPLE of a source in FROM (docs/language.md)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.algebra import Algebra, Sample
from penstock.expressions.nodes import Column
from penstock.language.binder.context import Context
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scope import Entry, Scope
from penstock.language.dialect import span_of
from penstock.language.queries import SampleClause


def bind_sample(node: Algebra, sample: SampleClause, name: str, context: Context) -> Algebra:
    """Return the sample of the stream `node`. Raises BindingFailed after P0102, P0103, P0202 or P0901."""
    if not node.is_stream:
        context.fail("P0103", f"SAMPLE draws from a stream; {name} is a relation", sample.span)
    if sample.percent is None:
        hint = "SAMPLE(p) keeps p percent of the elements"
        context.fail("P0901", "SAMPLE(n ROWS) is not supported yet", sample.span, hint)
    if not 0 <= sample.percent <= 100:
        context.fail("P0102", "a sample is between 0 and 100 percent", sample.span)
    seed = context.settings.get_int("seed") if sample.seed is None else sample.seed
    return Sample(node, sample.percent, seed, name, _columns(node, sample.by, name, context))


def _columns(node: Algebra, columns: Sequence[exp.Expr], name: str, context: Context) -> tuple[int, ...]:
    entries = tuple(Entry(i, f.name, f.type, name) for i, f in enumerate(node.schema))
    binder = ExpressionBinder(Scope(entries), context, "SAMPLE")
    found: dict[int, None] = {}
    for bound, written in zip(context.each(binder.bind, columns), columns, strict=True):
        if not isinstance(bound, Column):
            context.fail("P0102", "SAMPLE BY takes columns of the stream", span_of(written))
        found[bound.index] = None
    return tuple(found)
