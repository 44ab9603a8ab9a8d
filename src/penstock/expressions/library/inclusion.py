"""The function that joins make of the inclusion records of their sides; a query does not call it."""

from __future__ import annotations

import pyarrow as pa

from penstock.expressions.coercion import BINARY
from penstock.expressions.inclusion import of_pair
from penstock.expressions.registry import Function, takes
from penstock.expressions.values.datum import Arguments, Datum, arrays


def _pair(arguments: Arguments, type_: pa.DataType) -> Datum:
    left, right = arrays(arguments)
    return of_pair(left, right)


FUNCTIONS = (Function("INCLUSION_OF_PAIR", "record, record", takes(BINARY, BINARY, BINARY), _pair, "a joined row's"),)
