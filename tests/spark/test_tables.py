"""Tables of others as sources and results, on Spark: commits followed, a relation kept, stopped and gone on with."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.errors import PenstockError
from penstock.session import Session


def until(condition: Any, run: Any, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert not run.wait(0.1)
        assert time.monotonic() < deadline, "nothing came"


def append(path: Path, *rows: tuple[int, int], mode: Any = "append") -> None:
    at, k = zip(*rows, strict=True)
    table = pa.table({"at": pa.array(at, pa.int64()), "k": pa.array(k, pa.int32())})
    write_deltalake(path, table, mode=mode)


def test_a_delta_table_is_followed_into_another(spark: Any, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    script = f"""CREATE STREAM s (at BIGINT, k INT) FROM DELTA (path '{source}', watch 'true') TIMESTAMP BY at;
        CREATE QUERY q INTO DELTA (path '{out}', key 'k') AS
          SELECT k, COUNT(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k;"""

    def start() -> Any:
        session = Session(spark)
        session.execute(script)
        return session.start(checkpoint=str(tmp_path / "checkpoint"))

    def result() -> list[tuple[int, int]]:
        return sorted(tuple(row.values()) for row in DeltaTable(out).to_pyarrow_table().to_pylist())

    append(source, (1, 1), (2, 2), (3, 1))
    run = start()
    until(lambda: run.progress().rows_out and result() == [(1, 1), (2, 1)], run)
    append(source, (5, 2), (6, 2))
    until(lambda: result() == [(1, 2), (2, 2)], run)
    run.stop()
    append(source, (14, 3))
    run = start()
    until(lambda: result() == [(2, 2)], run)
    write_deltalake(source, pa.table({"at": ["x"], "k": [1]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(PenstockError, match="version 3") as caught:
        run.wait(60)
    assert caught.value.code == "P0402"
