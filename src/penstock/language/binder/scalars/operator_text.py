"""Operators as a query has them, for messages: BETWEEN is computed by `>=` and `<=`, and shown as BETWEEN."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sqlglot import exp

from penstock.language.dialect import span_of
from penstock.language.text import SourceText

#: operators that other ones compute (a comparison with ALL its opposite, `%` the function MOD).
_OPERATORS: Mapping[type[exp.Expr], str] = {
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.In: "IN",
    exp.Between: "BETWEEN",
    exp.Mod: "%",
    exp.DPipe: "||",
    exp.BitwiseLeftShift: "<<",
    exp.BitwiseRightShift: ">>",
}
#: operators with several notations.
_SPELLED: Mapping[type[exp.Expr], re.Pattern[str]] = {
    exp.EQ: re.compile("==?"),
    exp.NEQ: re.compile("!=|<>"),
    exp.NullSafeEQ: re.compile(r"<=>|IS\s+NOT\s+DISTINCT\s+FROM", re.IGNORECASE),
    exp.NullSafeNEQ: re.compile(r"IS\s+DISTINCT\s+FROM", re.IGNORECASE),
}


def written_operator(node: exp.Expr, source: SourceText) -> str | None:
    """Return the operator of `node` as it is written; None where the function that computes it has that name."""
    if isinstance(node, exp.Is):
        return f"IS {'NOT ' if node.args.get('negate') else ''}{node.expression.sql().upper()}"
    spelled = _SPELLED.get(type(node))
    if spelled is None:
        return _OPERATORS.get(type(node))
    match = spelled.search(source.text, span_of(node.this).end, span_of(node.expression).start)
    return " ".join(match[0].upper().split()) if match else None
