"""CREATE FUNCTION and CREATE AGGREGATE: from `module:attr` to the callable of scripts (docs/language.md)."""

from __future__ import annotations

from penstock.algebra import Algebra, Pattern
from penstock.algebra.nodes.base import operators
from penstock.expressions.functions import known_functions
from penstock.expressions.nodes import Expression
from penstock.expressions.user import UserAggregate, UserDefined, UserFunction, load, make, volatile_calls
from penstock.language.binder.context import Context
from penstock.language.statements import CreateFunction
from penstock.language.text import TextSpan
from penstock.types import parse_type


def bind_function(statement: CreateFunction, context: Context) -> UserDefined:
    """Return the declared function or aggregate. Raises BindingFailed with the errors recorded."""
    name = statement.name
    parameters = None
    if statement.parameters is not None:
        declared = statement.parameters
        parameters = context.each(lambda p: context.guard(p.span, lambda: parse_type(p.text)), declared)
    return_type = statement.returns
    returns = None if return_type is None else context.guard(return_type.span, lambda: parse_type(return_type.text))
    # A name that the language defines is an error, whatever follows AS.
    if name.text.upper() in {known.upper() for known in known_functions()}:
        hint = "choose another name"
        context.fail("P0206", f"{name.text} is a function of the language", name.span, hint)
    body = context.guard(statement.body_span, lambda: load(statement.body))
    kind = UserFunction if statement.kind == "FUNCTION" else UserAggregate
    function: UserDefined = context.guard(
        statement.body_span,
        lambda: make(kind, body, returns, name.text, parameters, bool(statement.volatile), statement.body),
    )
    return function


def check_volatile(root: Algebra, span: TextSpan, context: Context) -> None:
    """Reject a volatile function over rows that negative tuples retract: a second draw for the retraction would give
    another row.
    """
    for node in operators(root):
        if any(i.pattern is Pattern.STRICT for i in node.inputs):
            drawn = [f for c in node.children if isinstance(c, Expression) for f in volatile_calls(c)]
            if drawn:
                message = f"{drawn[0]} is VOLATILE and is applied to rows that may be retracted"
                hint = "call it on the rows of a stream or of a time window, below joins and groups"
                context.fail("P0321", message, span, hint)
