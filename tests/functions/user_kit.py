"""Running a script over rows, and user code that lies in a module of its own."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.language.scripts import Catalog, bind_script
from penstock.runtime.local.runtime import run_local

SOURCE = "CREATE STREAM S (ts INT, a INT) FROM MEMORY () TIMESTAMP BY ts;"


def answer(script: str, rows: list[tuple[Any, ...]], catalog: Catalog | None = None, **options: Any) -> list[Any]:
    """The rows of the last query of `script` over a stream S (ts, a), without `op`."""
    bound = bind_script(SOURCE + script, catalog, one_time=False)
    table = pa.table(
        {"ts": pa.array([r[0] for r in rows], pa.int32()), "a": pa.array([r[1] for r in rows], pa.int32())}
    )
    last = bound.queries[-1].name
    return [tuple(r.values()) for r in run_local(bound.queries, {"S": table}, **options).tables[last].to_pylist()]
