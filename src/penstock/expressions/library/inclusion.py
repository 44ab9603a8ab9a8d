"""The functions of which samples and joins of them are made; a query does not need to call them.

What is no inclusion record (`sampling/inclusion.py`), or has a NULL, gives NULL.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.expressions.coercion import BIGINT, BINARY, DOUBLE
from penstock.expressions.draws import universe
from penstock.expressions.library.registry import Function, takes
from penstock.expressions.nodes import Expression, Literal
from penstock.expressions.sampling.inclusion import SIDE, of_pair, packed, unpacked
from penstock.expressions.values.datum import Arguments, Datum, arrays


def _pair(arguments: Arguments, type_: pa.DataType) -> Datum:
    left, right = arrays(arguments)
    valid = _is_record(left) & _is_record(right)
    if valid.all():
        return of_pair(left, right)
    there = pa.array(valid)
    return _spread(of_pair(left.filter(there), right.filter(there)), valid)


def _is_record(column: pa.Array) -> npt.NDArray[np.bool_]:
    sizes = np.asarray(pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False), np.int64)
    whole: npt.NDArray[np.bool_] = (sizes > 0) & (sizes % SIDE.itemsize == 0)
    return whole


def _spread(values: pa.Array, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """Return values at the valid places, NULL at the others."""
    return values.take(pa.array(np.cumsum(valid) - 1, pa.int64(), mask=~valid))


def _chance(arguments: Arguments, type_: pa.DataType) -> Datum:
    (column,) = arrays(arguments)
    valid = _is_record(column)
    found = np.zeros(len(column))
    found[valid] = unpacked(column if valid.all() else column.filter(pa.array(valid))).pi
    return pa.array(found, mask=~valid)


def _record(arguments: Arguments, type_: pa.DataType) -> Datum:
    columns = arrays(arguments)
    valid = np.logical_and.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in columns])
    records = np.zeros(len(columns[0]), SIDE)
    for name, column in zip(("pi", "cluster", "stratum", "size"), columns, strict=True):
        records[name] = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    return packed(records) if valid.all() else _spread(packed(records[valid]), valid)


def _draw_rule(name: str, arguments: Sequence[Expression]) -> tuple[tuple[Expression, ...], pa.DataType]:
    if not isinstance(arguments[0], Literal) or not pa.types.is_integer(arguments[0].type):
        raise PenstockError("P0203", f"{name} takes a whole number as its first argument, a constant")
    return tuple(arguments), BIGINT


def _draw(arguments: Arguments, type_: pa.DataType) -> Datum:
    seed, *columns = arrays(arguments)
    drawn = universe((seed[0].as_py() or 0) if len(seed) else 0, columns, len(seed), "/rows")
    return pa.array(drawn.view(np.int64))


def _priority(arguments: Arguments, type_: pa.DataType) -> Datum:
    columns = arrays(arguments)
    valid = np.logical_and.reduce([column.is_valid().to_numpy(zero_copy_only=False) for column in columns])
    weights = np.asarray(pc.fill_null(columns[0], 0.0).to_numpy(zero_copy_only=False), np.float64)
    draws = np.asarray(pc.fill_null(columns[1], 0).to_numpy(zero_copy_only=False), np.int64)
    with np.errstate(over="ignore"):
        made = weights / ((draws.view(np.uint64).astype(np.float64) + 0.5) / 2.0**64)
    return pa.array(made, mask=~valid)


FUNCTIONS = (
    Function("INCLUSION_OF_PAIR", "record, record", takes(BINARY, BINARY, BINARY), _pair, "a joined row's"),
    Function("INCLUSION_CHANCE", "record", takes(DOUBLE, BINARY), _chance, "the probability that a row was kept"),
    Function(
        "INCLUSION_RECORD",
        "pi, cluster, stratum, size",
        takes(BINARY, DOUBLE, BIGINT, BIGINT, BIGINT),
        _record,
        "the record of a row",
    ),
    Function("SAMPLE_DRAW", "seed, value, ...", _draw_rule, _draw, "the draw of a row"),
    Function("SAMPLE_PRIORITY", "weight, draw", takes(DOUBLE, DOUBLE, BIGINT), _priority, "the priority of a row"),
)
