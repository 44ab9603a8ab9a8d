"""`SUMMARY.Estimate.Count(c, ..)`: an estimate of a summary, in a preference."""

from __future__ import annotations

from sqlglot import exp

from penstock.expressions.coercion import BIGINT, DOUBLE
from penstock.expressions.nodes import Column, Expression, SummaryEstimate
from penstock.language.binder.context import BindingFailed
from penstock.language.binder.scalars.binder import ScalarBinder, name_of
from penstock.language.dialect import span_of

_TYPES = {"COUNT": BIGINT, "SHARE": DOUBLE}


def estimate_parts(node: exp.Expr) -> tuple[exp.Identifier, exp.Anonymous] | None:
    """Return the summary's name and the call of `name.Estimate.Count(..)`; None for another node."""
    inner, call = node.this, node.args.get("expression")
    if not isinstance(node, exp.Dot) or not isinstance(inner, exp.Dot) or not isinstance(call, exp.Anonymous):
        return None
    name, word = inner.this, inner.args.get("expression")
    if not isinstance(name, exp.Identifier) or not isinstance(word, exp.Identifier):
        return None
    return (name, call) if word.name.upper() == "ESTIMATE" else None


def hint_of_estimate(node: exp.Expr) -> str | None:
    """Return how an estimate is written, for a name of several parts that is nearly one: a word of it, or a call of
    Count or Share behind a dot; None for another node."""
    words = [str(one.this).upper() for one in node.find_all(exp.Identifier, exp.Anonymous) if isinstance(one.this, str)]
    is_call = isinstance(node.args.get("expression"), exp.Anonymous)
    if not {"SUMMARY", "ESTIMATE"}.intersection(words) and not (is_call and _TYPES.keys() & set(words)):
        return None
    return "an estimate has three parts: SUMMARY.Estimate.Count(k), or the name of a summary in place of SUMMARY"


def summary_estimate(binder: ScalarBinder, node: exp.Expr) -> Expression:
    """Bind an estimate. Raises BindingFailed after P0201, P0203, P0204, P0304 or P0350."""
    parts, context = estimate_parts(node), binder.context
    if parts is None:
        raise BindingFailed  # reported by unsupported.py
    identifier, call = parts
    if binder.summaries is None:
        hint = "a summary is read by WITH PREFERENCE; a query counts with COUNT(*)"
        context.fail("P0304", "an estimate of a summary outside of WITH PREFERENCE", span_of(node), hint)
    quantity = str(call.this).upper()
    if quantity not in _TYPES:
        context.fail("P0204", f"a summary has no estimate {call.this}", span_of(node), "it has Count and Share")
    if not call.expressions or any(isinstance(argument, exp.Star) for argument in call.expressions):
        context.fail(
            "P0203", f"{call.this} takes the columns of a summary", span_of(node), "name them: Estimate.Count(k)"
        )
    columns: list[Column] = []
    for argument in binder.bind_all(list(call.expressions)):
        if not isinstance(argument, Column):
            hint = "declare a view with the expression as a column, and the summary over it"
            context.fail("P0350", "an estimate takes columns of a stream", span_of(node), hint)
        columns.append(argument)
    name = name_of(identifier)
    summary = None if name.key == "summary" and not name.quoted else name
    definition, ordered = binder.summaries.find(summary, columns, span_of(node), context)
    return SummaryEstimate(_TYPES[quantity], quantity, definition.name, ordered)
