"""Stream, queries and tables of the experiment of `[csql 10]`, for the local runtime (`csql.py`) and Spark alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from benchmarks.local_harness import markdown

GROUPS = 10
PLAIN, GROUPED = "AVG", "AVG with GROUP BY"


def stream(rows: int, groups: int = GROUPS) -> pa.Table:
    """One tuple a tick; values are whole, so that every order of adding them gives the same sum."""
    draw = np.random.default_rng(2006)
    return pa.table(
        {
            "ts": pa.array(np.arange(rows)),
            "k": pa.array(draw.integers(0, groups, rows), pa.int32()),
            "v": pa.array(np.floor(draw.normal(100.0, 15.0, rows))),
        }
    )


DECLARED = "CREATE STREAM S (ts BIGINT, k INT, v DOUBLE) FROM {source} TIMESTAMP BY ts UNIT MILLISECOND;"


def select(window: str, grouped: bool) -> str:
    columns, group = ("k, AVG(v) AS a", " GROUP BY k") if grouped else ("AVG(v) AS a", "")
    return f"SELECT {columns} FROM S [{window}]{group}"


def script(window: str, grouped: bool = False) -> str:
    return f"{DECLARED.format(source='MEMORY ()')}\nCREATE QUERY q AS {select(window, grouped)};"


def counted(rows: int, every: int) -> str:
    return f"RANGE {rows} TUPLES, FREQUENCY {every} TUPLES"


def grid(across: Sequence[int], name: Callable[[int], str], of: Mapping[tuple[int, int], str], corner: str) -> str:
    """A table: the frequencies down, `across` to the right."""
    down = sorted({key[0] for key in of})
    rows = [[f"{one:,}", *(of[one, other] for other in across)] for one in down]
    return markdown([corner, *map(name, across)], rows)
