"""User-defined functions that misbehave, and faults in operators that nobody has foreseen.

A server imports this module with the functions, in its own process and in all workers, and with it the faults: in
workers the operator of a window of so many rows raises where it is made, where it advances, and where its state is
written.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, NoReturn

import pyarrow as pa

from penstock.physical.operators.windows.row_window import RowWindow

#: By the rows of its window, where an operator raises.
AT_MAKING, AT_ADVANCE, AT_WRITING = 991, 992, 993
_NAMES = ("calm", "raising", "sleeping", "mistyped", "hungry", "dying")
DECLARED = "".join(
    f"CREATE FUNCTION {name} (BIGINT) RETURNS BIGINT AS 'benchmarks.bad_queries.faults:{name}';" for name in _NAMES
)


def calm(values: pa.Array) -> pa.Array:
    """Return the values: with it workers import this module."""
    return values


def raising(values: pa.Array) -> NoReturn:
    """Raise, as code of users does."""
    raise ValueError("what a user's function says")


def sleeping(values: pa.Array) -> pa.Array:
    """Return the values after a while."""
    time.sleep(20)
    return values


def mistyped(values: pa.Array) -> list[str]:
    """Return no numbers."""
    return ["no number"] * len(values)


def hungry(values: pa.Array) -> NoReturn:
    """Take all memory."""
    held = []
    while True:
        held.append(bytearray(2**26))


def dying(values: pa.Array) -> NoReturn:
    """End the process."""
    os._exit(3)


def _raise_at(method: str, rows: int) -> None:
    inner = getattr(RowWindow, method)

    def faulty(self: RowWindow, *given: Any) -> Any:
        spec = given[0] if method == "__init__" else self._spec
        if spec.rows == rows and "pyspark.daemon" in sys.modules:
            raise RuntimeError(f"injected at {method}")
        return inner(self, *given)

    setattr(RowWindow, method, faulty)


for _method, _rows in (("__init__", AT_MAKING), ("advance", AT_ADVANCE), ("synopses", AT_WRITING)):
    _raise_at(_method, _rows)
