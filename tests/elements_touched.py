"""How many elements a preference looks at for each row, by the length of its window; run with NUMBA_DISABLE_JIT=1 and
the number of rows that are counted, then windows in seconds, of a row a second and side.

The table of elements that its loops are given counts how often an element of it is read. Rows are counted once the
window has been full for a while. Prints a JSON object: by case, a list of (window, elements read for a row, pairs
examined for a row).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.figures import PAIRS_EXAMINED
from penstock.figures.figure import number
from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.preferences.operator import Preferring
from penstock.physical.synopses.preferences.numbered_elements import NumberedElements
from penstock.runtime.local.runtime import run_local

SCRIPT = """
CREATE STREAM a (ts INT, k INT, n INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM b (ts INT, k INT, n INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY q AS SELECT a.n, b.n AS m FROM a, b WHERE a.k = b.k WITH PREFERENCE {clause} WINDOW {window} SECONDS;
"""
#: By name, the clause, and the number of keys; None for one to four partners of a row.
CASES: dict[str, tuple[str, int | None]] = {
    "covered": ("a.n BUDGET 1000 PER TUPLE", None),
    "few units": ("a.n BUDGET 1 PER TUPLE", None),
    "a rate": ("WEIGHTED a.n BUDGET 3 PER 2 SECONDS", None),
    "few units, more and more partners": ("1 BUDGET 2 PER TUPLE", 5),
}

read = 0
seen: list[tuple[int, int, int]] = []


class CountingTable(np.ndarray[Any, Any]):
    """A table that counts how often a field of an element of it is read or written."""

    def __getitem__(self, at: Any) -> Any:
        global read
        read += isinstance(at, int | np.integer)
        return super().__getitem__(at)


hold, advance = NumberedElements._hold, Preferring.advance


def counted_hold(self: NumberedElements, *given: Any) -> None:
    self._rows = self._rows.view(CountingTable)
    hold(self, *given)
    self._rows = self._rows.view(CountingTable)


def counted_advance(self: Preferring, moment: Moment) -> Iterator[Elements]:
    yield from advance(self, moment)
    seen.append((self._order, read, int(number(self.figures(), PAIRS_EXAMINED))))


def measured(clause: str, keys: int | None, window: int, counted: int) -> tuple[int, float, float]:
    draw = np.random.default_rng(1)
    count = window + counted
    inputs: dict[str, pa.Table] = {}
    for name in ("a", "b"):
        columns = {"ts": np.arange(count), "k": draw.integers(0, keys or window // 4, count),
                   "n": draw.integers(0, 99, count)}  # fmt: skip
        inputs[name] = pa.table({column: values.astype(np.int32) for column, values in columns.items()})
    seen.clear()
    run_local(bind_script(SCRIPT.format(clause=clause, window=window)).queries, inputs, 1, False, batch_rows=40)
    full = [one for one in seen if one[0] >= 2 * window + 80]
    rows, reads, pairs = (last - first for first, last in zip(full[0], full[-1], strict=True))
    return window, round(reads / rows, 2), round(pairs / rows, 2)


if __name__ == "__main__":
    NumberedElements._hold = counted_hold  # type: ignore[method-assign, assignment]
    Preferring.advance = counted_advance  # type: ignore[method-assign]
    counted, *windows = map(int, sys.argv[1:])
    print(json.dumps({name: [measured(*case, window, counted) for window in windows] for name, case in CASES.items()}))
