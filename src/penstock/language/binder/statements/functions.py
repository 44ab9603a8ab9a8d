"""CREATE FUNCTION and CREATE AGGREGATE: from `module:attr` to the callable of scripts (docs/language.md)."""

from __future__ import annotations

from penstock.algebra import Algebra, Pattern
from penstock.expressions.functions import known_functions
from penstock.expressions.nodes import Expression
from penstock.expressions.user import UserAggregate, UserDefined, UserFunction, load, make, volatile, volatile_calls
from penstock.language.binder.context import Context
from penstock.language.statements import CreateFunction
from penstock.language.text import TextSpan
from penstock.tree import reached
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
    for node in reached(root, lambda one: () if _is_checked(one) else one.inputs):
        drawn = [] if _is_checked(node) else _draws(node)
        if drawn:
            message = f"{drawn[0]} is VOLATILE and is applied to rows that may be retracted"
            hint = "call it on the rows of a stream or of a time window, below joins and groups"
            context.fail("P0321", message, span, hint)
    # Recorded in the plan: what stands upon a view is checked alone.
    object.__setattr__(root, "_no_draws", True)


def _is_checked(node: Algebra) -> bool:
    """Return whether neither `node` nor what is below draws over rows that may be retracted."""
    return "_no_draws" in node.__dict__


def _draws(node: Algebra) -> list[str]:
    """Return the volatile functions that `node` itself applies to rows that may be retracted."""
    if not any(i.pattern is Pattern.STRICT for i in node.inputs):
        return []
    return [f for c in node.children if isinstance(c, Expression) and volatile(c) for f in volatile_calls(c)]
