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
from tests.servers.postgres import PASSWORD, Unavailable, server


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


def test_a_polled_table_is_kept_in_another(spark: Any, tmp_path: Path) -> None:
    """Upserts and deletions from one server table to another, stopped and gone on with; no file has the password."""
    try:
        running = server()
    except Unavailable as error:
        pytest.skip(str(error))
    running.execute("""DROP TABLE IF EXISTS items, kept, penstock_batches;
        CREATE TABLE items (id int PRIMARY KEY, kind text, price int, changed bigint, gone boolean);
        INSERT INTO items VALUES (1, 'a', 10, 1, false), (2, 'b', 20, 2, false), (3, 'a', 30, 3, false)""")
    place = f"url '{running.url.replace('penstock@', f'penstock:{PASSWORD}@')}'"
    script = f"""CREATE RELATION items (id INT, kind STRING, price INT, changed BIGINT, op STRING, PRIMARY KEY (id))
          FROM POSTGRES ({place}, table 'items', version 'changed', poll '100 ms', deleted 'gone')
          TIMESTAMP BY changed OPERATION BY op;
        CREATE QUERY totals INTO POSTGRES ({place}, table 'kept', key 'kind') AS
          SELECT kind, SUM(price) AS total FROM items GROUP BY kind;"""

    def start() -> Any:
        session = Session(spark)
        session.execute(script)
        return session.start(checkpoint=str(tmp_path / "checkpoint"))

    def result() -> list[tuple[object, ...]]:
        return running.execute("SELECT kind, total FROM kept ORDER BY kind")

    run = start()
    until(lambda: result() == [("a", 40), ("b", 20)], run)
    running.execute(
        "UPDATE items SET price = 12, changed = 5 WHERE id = 1; INSERT INTO items VALUES (4, 'c', 1, 6, false)"
    )
    until(lambda: result() == [("a", 42), ("b", 20), ("c", 1)], run)
    run.stop()
    running.execute("UPDATE items SET gone = true, changed = 7 WHERE id = 2")
    run = start()
    until(lambda: result() == [("a", 42), ("c", 1)], run)
    running.execute("UPDATE items SET gone = true, changed = 8")
    until(lambda: result() == [], run)
    run.stop()
    files = [file for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()]
    assert files and not [file for file in files if PASSWORD.encode() in file.read_bytes()]
