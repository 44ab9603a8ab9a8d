"""Groups and rows that promises close, over kills of workers and restarts, while files come [docs/promises.md]."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.soak.watch import workers
from penstock.connectors.sinks.files import read_result
from penstock.language.scripts import bind_script
from penstock.session import Session
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

SCRIPT = """
SET max_batch_bytes = 1;
SET shards = 3;
CREATE STREAM S (ts BIGINT, k INT, x INT) FROM FILES (path '{data}', format 'parquet') TIMESTAMP BY ts UNIT SECOND
  CLUSTERED BY (k) WITHIN 2 ROWS;
CREATE STREAM T (ts BIGINT, k INT, x INT) FROM FILES (path '{data}', format 'parquet') TIMESTAMP BY ts UNIT SECOND
  CLUSTERED BY (k, x) WITHIN 7 SECONDS ORDERED BY (x) WITHIN 30 ROWS;
CREATE QUERY final INTO FILES (path '{out}/final') AS
  SELECT k, COUNT(*) AS n, MAX(x) AS m FROM S GROUP BY k HAVING CLOSED(k);
CREATE QUERY again INTO FILES (path '{out}/again') AS
  SELECT k, x % 2 AS o, COUNT(DISTINCT x) AS n FROM S GROUP BY k, x % 2;
CREATE QUERY rows INTO FILES (path '{out}/rows') AS SELECT k, x FROM T WHERE CLOSED(k, x);
CREATE QUERY ordered INTO FILES (path '{out}/ordered') AS SELECT x, MIN(k) AS l FROM T GROUP BY x HAVING CLOSED(x);
CREATE QUERY different INTO FILES (path '{out}/different') AS SELECT DISTINCT k, x FROM T;
"""


def _write(folder: Path, files: int) -> pa.Table:
    """Write rows whose values come together, some of them again, a file a round."""
    folder.mkdir()
    tables = []
    for i in range(files):
        ts = [t // 2 for t in range(i * 20, i * 20 + 20)]
        k = [None if t % 17 == 3 else t // 3 + t * 7 % 4 - 4 * (t % 29 == 5) for t in range(i * 20, i * 20 + 20)]
        x = [t // 9 + t % 2 for t in range(i * 20, i * 20 + 20)]
        tables.append(
            pa.table({"ts": pa.array(ts, pa.int64()), "k": pa.array(k, pa.int32()), "x": pa.array(x, pa.int32())})
        )
        pq.write_table(tables[-1], folder / f"part-{i:03d}.parquet")
    return pa.concat_tables(tables)


def test_closings_over_kills_and_restarts(spark: Any, tmp_path: Path) -> None:
    rows = _write(tmp_path / "data", 12)
    text = SCRIPT.format(data=tmp_path / "data", out=tmp_path / "out")
    for stop_after in (4, 8, None):
        session = Session(spark)
        session.execute(text)
        run = session.start(checkpoint=str(tmp_path / "checkpoint"))
        killed = False
        while not run.wait(0.05):
            if stop_after is not None and run.progress().batches >= stop_after:
                if not killed:
                    killed = _kill_a_worker()
                    continue
                run.stop()
                break
    for query in bind_script(text).queries:
        (name,) = query.root.source_names
        found = read_result(str(tmp_path / "out" / query.name))
        assert found.num_rows > 20
        assert_same(query, found, run_oracle(query, {name: rows}))


def _kill_a_worker() -> bool:
    """Kill one of the Python workers of this process's Spark, if there is one."""
    found = workers(os.getpid())
    if found:
        os.kill(found[0], signal.SIGKILL)
    return bool(found)
