"""What the images of sketches say: HLL_SKETCH_ESTIMATE, COUNT_MIN_ESTIMATE, and their errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.expressions.coercion import BIGINT, BINARY, DOUBLE, STRING, cast_to, is_integer, misfit
from penstock.expressions.library.registry import Function
from penstock.expressions.nodes import Expression, Literal
from penstock.expressions.sketches import count_min, hyperloglog
from penstock.expressions.sketches.argument import image_argument
from penstock.expressions.values.datum import Arguments, Datum, Kernel, arrays

NOTE = """A sketch is a BINARY value that an aggregate made, here or elsewhere: `HLL_SKETCH_AGG` in the format of
Apache DataSketches, `COUNT_MIN_SKETCH` in that of Spark. A value that is no such image, is cut off or has another
version gives NULL; written as a literal, `X'00'`, it is the error `P0203`.
"""

_BEYOND_BIGINT = 2.0**63

Typed = tuple[tuple[Expression, ...], pa.DataType]


def _image(name: str, argument: Expression, read: Callable[[bytes], Any], maker: str) -> Expression:
    """Return the argument as BINARY. maker: the aggregate that makes such images. Raises PenstockError P0203: it is no
    BINARY, or a constant and no image."""
    try:
        sketch = image_argument(name, argument)
        if isinstance(sketch, Literal) and sketch.value is not None:
            read(sketch.value)
    except PenstockError as error:
        error.hint = error.hint or f"it takes what {maker} makes, as BINARY, whole and unchanged"
        raise
    return sketch


def _hll_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    return (_image(name, arguments[0], _estimate, "HLL_SKETCH_AGG"),), BIGINT


def _hll_error_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    return _hll_rule(name, arguments)[0], DOUBLE


def _error_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    return (_image(name, arguments[0], count_min.read_image, "COUNT_MIN_SKETCH"),), DOUBLE


def _count_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    sketch = _image(name, arguments[0], count_min.read_image, "COUNT_MIN_SKETCH")
    value = arguments[1]
    if is_integer(value.type):
        return (sketch, cast_to(value, BIGINT)), BIGINT
    if value.type not in (STRING, BINARY) and not pa.types.is_null(value.type):
        raise misfit(name, [value.type], hint="it takes integers, STRING and BINARY: cast the value")
    return (sketch, value), BIGINT


def _per_image(column: pa.Array, of: Callable[[bytes], Any]) -> list[Any]:
    """Return `of` each image, computed once for each different one; None where it is NULL or no image."""
    known: dict[bytes | None, Any] = {None: None}
    result = []
    for data in column.to_pylist():
        if data not in known:
            try:
                known[data] = of(data)
            except PenstockError:
                known[data] = None
        result.append(known[data])
    return result


def _of_image(of: Callable[[bytes], Any]) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        (column,) = arrays(arguments)
        return pa.array(_per_image(column, of), type_)

    return run


def _estimate(data: bytes) -> int:
    estimate: float = hyperloglog.deserialized(data).get_estimate()
    if not 0.0 <= estimate < _BEYOND_BIGINT:
        # The sums in the header, from which the library estimates, are damaged.
        raise PenstockError("P0203", "not an image of an HLL sketch: the count in its header is out of range")
    return math.floor(estimate + 0.5)


def _counts(arguments: Arguments, type_: pa.DataType) -> Datum:
    """Decode every image once, then look up all values that meet it."""
    images, values = arrays(arguments)
    encoded = images.dictionary_encode()
    found = np.zeros(len(values), np.int64)
    known = np.zeros(len(values), np.bool_)
    which = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    for number, sketch in enumerate(_per_image(encoded.dictionary, count_min.read_image)):
        rows = np.flatnonzero(which == number)
        if sketch is not None and not pa.types.is_null(values.type):
            found[rows] = sketch.counts(values.take(pa.array(rows)))
            known[rows] = True
    known &= pc.is_valid(values).to_numpy(zero_copy_only=False)
    return pa.array(found, type_, mask=~known)


FUNCTIONS = (
    Function(
        "HLL_SKETCH_ESTIMATE",
        "sketch",
        _hll_rule,
        _of_image(_estimate),
        "about how many different values the sketch of HLL_SKETCH_AGG or HLL_UNION_AGG has",
    ),
    Function(
        "HLL_SKETCH_ERROR",
        "sketch",
        _hll_error_rule,
        _of_image(lambda data: hyperloglog.standard_error(hyperloglog.deserialized(data).lg_config_k)),
        "the relative standard error of its HLL_SKETCH_ESTIMATE: 1.04 over the root of the number of its registers",
    ),
    Function(
        "COUNT_MIN_ESTIMATE",
        "sketch, value",
        _count_rule,
        _counts,
        "how often the value occurs in the sketch of COUNT_MIN_SKETCH: never too small",
    ),
    Function(
        "COUNT_MIN_ERROR",
        "sketch",
        _error_rule,
        _of_image(lambda data: count_min.read_image(data).error),
        "by how much a COUNT_MIN_ESTIMATE is too large, at most, with the sketch's confidence: eps times its values",
    ),
)
