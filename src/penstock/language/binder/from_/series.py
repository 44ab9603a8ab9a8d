"""`range` and `generate_series` in FROM: whole numbers in a row, over constants (docs/language/queries.md)."""

from __future__ import annotations

from sqlglot import exp

from penstock.algebra import Constant
from penstock.errors import PenstockError, counted
from penstock.expressions.coercion import BIGINT, is_integer
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.nodes import Literal
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scope import Scope
from penstock.language.dialect import span_of
from penstock.language.limits import MAX_VALUES
from penstock.language.queries import NamedSource, Star
from penstock.language.text import TextSpan
from penstock.types import Field

_HINT = "range(stop), range(start, stop) or range(start, stop, step), of whole numbers; generate_series has stop too"


def bind_series(source: NamedSource, context: Context) -> Constant:
    """Return the numbers as a static relation of one column, called as the function. Raises BindingFailed after P0105
    or P0328."""
    name, items = source.name.text.lower(), source.items or ()
    for what, part in (("VALID", source.valid), ("SAMPLE", source.sample)):
        if part is not None:
            context.fail("P0103", f"{what} behind {name}(..), whose rows hold from the beginning of time", part.span)
    numbers = [
        _number(name, item.value, item.span, context)
        for item in items
        if not isinstance(item.value, Star) and item.alias is None
    ]
    if len(numbers) < len(items) or not 1 <= len(numbers) <= 3:
        context.fail("P0328", f"{name} takes one to three whole numbers", source.span, _HINT)
    fields = (Field(name, BIGINT),)
    given = [number for number in numbers if number is not None]
    if len(given) < len(numbers):
        return Constant((), fields)
    start, stop = (0, given[0]) if len(given) == 1 else (given[0], given[1])
    step = given[2] if len(given) == 3 else 1
    if not step:
        context.fail("P0328", f"{name} with step 0 has no end", items[2].span, _HINT)
    values = range(start, stop + (0 if name == "range" else (1 if step > 0 else -1)), step)
    # len(range) fails beyond 64 bits.
    count = max(0, (values.stop - values.start + values.step - (1 if step > 0 else -1)) // values.step)
    if count > MAX_VALUES:
        message = f"these are {counted(count, 'row')} of {name}, {MAX_VALUES:,} are the limit"
        context.note(PenstockError("P0105", message), source.span)
        raise BindingFailed
    return Constant(tuple((value,) for value in values), fields)


def _number(name: str, node: exp.Expr, span: TextSpan, context: Context) -> int | None:
    """Return a constant argument; None for NULL, of which there are no rows."""
    value = fold(ExpressionBinder(Scope(()), context, name).bind(node))
    if not isinstance(value, Literal) or not (value.value is None or is_integer(value.type)):
        context.fail("P0328", f"{name} takes constant whole numbers", span_of(node) or span, _HINT)
    return None if value.value is None else int(value.value)
