"""Finalize: compute the values of aggregates from their lanes, vectorised over any number of rows."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.expressions.aggregates import function_of
from penstock.expressions.aggregates.accumulators.contract import Accumulator
from penstock.expressions.aggregates.contract import AccumulatedFunction, ArgumentSums, Floats, Integers
from penstock.physical.plan.state.aggregate_layout import AggregateLayout, Argument


def finish(plan: AggregateLayout, integers: Integers, floats: Floats, others: Mapping[int, pa.Array]) -> list[pa.Array]:
    """Return one array per call. integers: (lanes, rows) int64; floats: (lanes, rows); others: by position of the call,
    the results that are not computed from lanes."""
    columns: list[pa.Array] = []
    sums: dict[int, ArgumentSums] = {}
    for number, (call, source) in enumerate(zip(plan.calls, plan.sources, strict=True)):
        if source is None:
            columns.append(pa.array(integers[0], call.type))
            continue
        argument = plan.arguments[source]
        if not argument.summed or number in others:
            columns.append(others[number])
            continue
        if source not in sums:
            sums[source] = _sums(argument, integers, floats)
        function = function_of(call)
        assert isinstance(function, AccumulatedFunction)
        columns.append(function.finalize(call, sums[source]))
    return columns


def _sums(argument: Argument, integers: Integers, floats: Floats) -> ArgumentSums:
    """Return the lanes of one argument by accumulator."""
    kind = argument.type
    parts: dict[Accumulator, tuple[Integers, Floats]] = {}
    i, f = argument.integers + 1, argument.floats
    for accumulator in argument.accumulators:
        own, pairs = accumulator.integers(kind), accumulator.floats(kind)
        parts[accumulator] = integers[i : i + own], floats[f : f + pairs]
        i, f = i + own, f + pairs
    return ArgumentSums(kind, integers[argument.integers], parts)
