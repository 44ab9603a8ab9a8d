"""Answers and inputs of stages that are too large to go through Spark: they come whole, and nothing is left lying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.connectors.sinks.files import read_result
from penstock.runtime.spark.worker.spill_files import LARGE
from penstock.session import Session


def test_large_packets_on_the_way_to_a_stage_and_out_of_it(spark: Any, tmp_path: Path) -> None:
    size = LARGE // 16
    values = np.arange(3 * size)
    rows = pa.table({"ts": pa.array(values // 1000), "k": pa.array(values % 977), "x": pa.array(values * 3)})
    (tmp_path / "in").mkdir()
    for part in range(3):
        pq.write_table(rows.slice(part * size, size), tmp_path / "in" / f"part-{part}.parquet")
    session = Session(spark)
    session.execute(f"""
        SET shards = 2; SET max_batch_bytes = 1;
        CREATE STREAM S (ts BIGINT, k BIGINT, x BIGINT) FROM FILES (path '{tmp_path / "in"}', format 'parquet')
          TIMESTAMP BY ts UNIT SECOND;
        CREATE QUERY all_rows INTO FILES (path '{tmp_path / "all"}', format 'parquet') AS SELECT ts, k, x FROM S;
        CREATE QUERY firsts INTO FILES (path '{tmp_path / "firsts"}', format 'parquet') AS
          ISTREAM(SELECT DISTINCT x FROM S [RANGE 5 SECONDS]);
    """)
    run = session.start(checkpoint=str(tmp_path / "checkpoint"))
    run.wait()
    found = read_result(str(tmp_path / "all"))
    assert np.array_equal(np.sort(found["x"].to_numpy()), values * 3)
    assert np.array_equal(found["k"].to_numpy(), found["x"].to_numpy() // 3 % 977)
    assert np.array_equal(np.sort(read_result(str(tmp_path / "firsts"))["x"].to_numpy()), values * 3)
    assert run.progress().batches >= 3
    assert not list((tmp_path / "checkpoint").rglob("parcels/*/*"))
