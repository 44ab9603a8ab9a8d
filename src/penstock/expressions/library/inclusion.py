"""The functions of which samples and joins of them are made; a query does not call them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.expressions.coercion import BIGINT, BINARY, DOUBLE
from penstock.expressions.draws import universe
from penstock.expressions.nodes import Expression
from penstock.expressions.registry import Function, takes
from penstock.expressions.sampling.inclusion import RECORD, of_pair, packed
from penstock.expressions.values.datum import Arguments, Datum, arrays


def _pair(arguments: Arguments, type_: pa.DataType) -> Datum:
    left, right = arrays(arguments)
    return of_pair(left, right)


def _record(arguments: Arguments, type_: pa.DataType) -> Datum:
    columns = arrays(arguments)
    records = np.zeros(len(columns[0]), RECORD)
    for name, column in zip(("pi", "cluster", "stratum", "size"), columns, strict=True):
        records[name] = column.to_numpy(zero_copy_only=False)
    return packed(records)


def _draw_rule(name: str, arguments: Sequence[Expression]) -> tuple[tuple[Expression, ...], pa.DataType]:
    return tuple(arguments), BIGINT


def _draw(arguments: Arguments, type_: pa.DataType) -> Datum:
    seed, *columns = arrays(arguments)
    drawn = universe(seed[0].as_py() if len(seed) else 0, columns, len(seed), "/rows")
    return pa.array(drawn.view(np.int64))


def _priority(arguments: Arguments, type_: pa.DataType) -> Datum:
    weights, draws = (column.to_numpy(zero_copy_only=False) for column in arrays(arguments))
    with np.errstate(over="ignore"):
        return pa.array(weights / ((draws.view(np.uint64).astype(np.float64) + 0.5) / 2.0**64))


FUNCTIONS = (
    Function("INCLUSION_OF_PAIR", "record, record", takes(BINARY, BINARY, BINARY), _pair, "a joined row's"),
    Function(
        "INCLUSION_RECORD", "pi, cluster, stratum, size", takes(BINARY, DOUBLE, BIGINT, BIGINT, BIGINT), _record,
        "the record of a row",
    ),
    Function("SAMPLE_DRAW", "seed, value, ...", _draw_rule, _draw, "the draw of a row"),
    Function("SAMPLE_PRIORITY", "weight, draw", takes(DOUBLE, DOUBLE, BIGINT), _priority, "the priority of a row"),
)  # fmt: skip
