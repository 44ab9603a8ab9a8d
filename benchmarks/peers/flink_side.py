"""Sessions by Flink SQL's SESSION table function, in one process (PyFlink's local cluster) on all cores.

The package from PyPI reads no Parquet, so rows are CSV, written before the clock starts, in one file that one reader
takes: Flink's file source gives its splits to readers in any order, and what lies behind the watermark is lost. Its
answer is CSV too, and becomes Parquet after the clock has stopped.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.dataset as ds
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.peers.sides import GAP_MS, arguments, report, write_sessions

_TABLES = """
CREATE TABLE C (ts BIGINT, src INT, dst INT, proto STRING, `bytes` DOUBLE,
  t AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR t AS t)
WITH ('connector' = 'filesystem', 'path' = '{source}', 'format' = 'csv')
;
CREATE TABLE answer (ts TIMESTAMP(3), src INT, s_from TIMESTAMP(3), n BIGINT, total DOUBLE)
WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'csv')
"""
_QUERY = f"""
INSERT INTO answer SELECT window_end, src, window_start, COUNT(*), SUM(`bytes`)
FROM TABLE(SESSION(TABLE C PARTITION BY src, DESCRIPTOR(t), INTERVAL '{GAP_MS // 1000}' SECONDS))
GROUP BY src, window_start, window_end
"""


def main() -> None:
    given = arguments()
    source = given.scratch / "source"
    source.mkdir()
    options = csv.WriteOptions(include_header=False, quoting_style="none")
    rows = ds.dataset(given.data, format="parquet")
    with csv.CSVWriter(source / "rows.csv", rows.schema, write_options=options) as writer:
        for batch in rows.to_batches():
            writer.write_batch(batch)
    report(given, lambda out: run(given.scratch, source, out))


def run(scratch: Path, source: Path, out: Path) -> float:
    configuration = Configuration()
    configuration.set_string("parallelism.default", str(os.cpu_count() or 2))
    configuration.set_string("table.local-time-zone", "UTC")
    # As much as the other sides' heap: a local cluster has 128 MB of managed memory otherwise.
    configuration.set_string("taskmanager.memory.managed.size", "1g")
    configuration.set_string("io.tmp.dirs", str(scratch))
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    environment = TableEnvironment.create(settings)
    written = scratch / f"{out.name}.csv"
    for statement in _TABLES.format(source=source, out=written).split("\n;\n"):
        environment.execute_sql(statement)
    started = time.perf_counter()
    environment.execute_sql(_QUERY).wait()
    seconds = time.perf_counter() - started
    names = ["ts", "src", "s_from", "n", "total"]
    moment = pa.timestamp("ms")
    types = dict(zip(names, (moment, pa.int32(), moment, pa.int64(), pa.float64()), strict=True))
    parts = [
        csv.read_csv(path, csv.ReadOptions(column_names=names), convert_options=csv.ConvertOptions(column_types=types))
        for path in written.rglob("*")
        if path.is_file() and path.stat().st_size and not path.name.startswith((".", "_"))
    ]
    table = pa.concat_tables(parts)
    write_sessions(out, [table[name].cast(pa.int64()) if name in ("ts", "s_from") else table[name] for name in names])
    return seconds


if __name__ == "__main__":
    main()
