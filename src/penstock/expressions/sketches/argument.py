"""The rule on arguments that are images of sketches."""

from __future__ import annotations

from penstock.expressions.coercion import BINARY, NULL, cast_to, misfit
from penstock.expressions.nodes import Expression

_HINT = "it takes BINARY: a sketch that is held as a text is UNBASE64(text) or UNHEX(text)"


def image_argument(name: str, argument: Expression) -> Expression:
    """Return the argument as BINARY. Raises PenstockError P0203 for a text too, whose bytes are the image of nothing:
    each row would silently be NULL."""
    if argument.type not in (BINARY, NULL):
        raise misfit(name, [argument.type], hint=_HINT)
    return cast_to(argument, BINARY)
