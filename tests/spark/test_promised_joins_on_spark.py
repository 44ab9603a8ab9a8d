"""Joins whose rows leave by promises, over kills of workers and restarts, while files come [docs/promises.md]."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.connectors.sinks.files import read_result
from penstock.language.scripts import bind_script
from penstock.session import Session
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle
from tests.spark.test_promised_groups_on_spark import _kill_a_worker, _write

#: Rows of some values come again, against the promises.
SCRIPT = """
SET max_batch_bytes = 1;
SET shards = 3;
CREATE STREAM P (ts BIGINT, k INT, x INT) FROM FILES (path '{data}', format 'parquet') TIMESTAMP BY ts UNIT SECOND
  UNIQUE (k, x);
CREATE STREAM C (ts BIGINT, k INT, x INT) FROM FILES (path '{data}', format 'parquet') TIMESTAMP BY ts UNIT SECOND
  CLUSTERED BY (k) WITHIN 2 ROWS FOREIGN KEY (k, x) REFERENCES P (k, x) WITHIN 3 ROWS;
CREATE STREAM T (ts BIGINT, k INT, x INT) FROM FILES (path '{data}', format 'parquet') TIMESTAMP BY ts UNIT SECOND
  CLUSTERED BY (k, x) WITHIN 7 SECONDS ORDERED BY (x) WITHIN 30 ROWS;
CREATE QUERY both INTO FILES (path '{out}/both') AS
  SELECT C.k, C.ts AS done FROM P, C WHERE P.k = C.k AND P.x = C.x AND P.ts <= C.ts;
CREATE QUERY every INTO FILES (path '{out}/every') AS
  SELECT P.k, P.x, T.ts AS done FROM P LEFT JOIN T ON P.k = T.k AND P.x = T.x AND P.ts < T.ts;
CREATE QUERY slid INTO FILES (path '{out}/slid') AS
  SELECT P.k, C.x FROM P [RANGE 9 SECONDS SLIDE 4 SECONDS], C [RANGE 6 SECONDS SLIDE 3 SECONDS] WHERE P.k = C.k;
CREATE QUERY alone INTO FILES (path '{out}/alone') AS
  SELECT P.k, P.x FROM P WHERE NOT EXISTS (SELECT * FROM T WHERE P.x = T.x AND T.k > P.k);
CREATE QUERY closed INTO FILES (path '{out}/closed') AS
  SELECT C.k, T.x FROM C, T WHERE C.k = T.k AND C.x = T.x AND CLOSED(C.k, C.x);
CREATE QUERY itself INTO FILES (path '{out}/itself') AS
  SELECT a.k, b.x FROM C AS a, C AS b WHERE a.k = b.k AND a.x < b.x;
"""


def test_joins_over_kills_and_restarts(spark: Any, tmp_path: Path) -> None:
    rows = _write(tmp_path / "data", 6)
    text = SCRIPT.format(data=tmp_path / "data", out=tmp_path / "out")
    for stop_after in (2, 4, None):
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
        found = read_result(str(tmp_path / "out" / query.name))
        assert found.num_rows > 10, query.name
        assert_same(query, found, run_oracle(query, dict.fromkeys(query.root.source_names, rows)))
