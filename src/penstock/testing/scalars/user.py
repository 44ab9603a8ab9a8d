"""User-defined aggregates by their definition: final(update(init(), all values of the group)). Part of the oracle."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.expressions.nodes import Expression
from penstock.expressions.user import UserAggregateCall
from penstock.testing.scalars.values import Row, key_of, python_values


def user_value(call: UserAggregateCall, rows: list[Row], evaluate: Callable[[Expression, list[Row]], list[Any]]) -> Any:
    """Return the value over the rows of a group that pass its FILTER, NULLs included, in the order of the values."""
    code = call.definition.body
    columns = (evaluate(argument, rows) for argument in call.arguments)
    tuples = sorted(zip(*columns, strict=True), key=lambda row: tuple(map(_order, row)))
    if call.distinct:
        tuples = list({key_of(row): row for row in tuples}.values())
    state = code.init()
    if tuples:
        values = zip(*tuples, strict=True)
        state = code.update(
            state, *(pa.array(map(_plain, v), a.type) for v, a in zip(values, call.arguments, strict=True))
        )
    return python_values(pa.array([code.final(state)], call.type))[0]


def _order(value: object) -> tuple[int, Any]:
    """Return a sort key: by value, then NaN, then NULL."""
    if value is None:
        return 2, 0
    return (1, 0) if isinstance(value, float) and math.isnan(value) else (0, value)


def _plain(value: object) -> Any:
    return value + 0.0 if isinstance(value, float) else value
