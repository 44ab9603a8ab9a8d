"""Flink SQL's APPROX_COUNT_DISTINCT over HOP windows, in one process (PyFlink's local cluster) with parallelism 1.

Batch mode: Flink's planner has the function for batches alone. The rows are CSV, written before the clock starts, since
the package from PyPI reads no Parquet. The second run in this process is measured, by the processor time of the JVM.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
from pathlib import Path

from pyflink.common import Configuration
from pyflink.java_gateway import get_gateway
from pyflink.table import EnvironmentSettings, TableEnvironment

_TABLE = """
CREATE TABLE S (x BIGINT, v DOUBLE, ts INT, t AS TO_TIMESTAMP_LTZ(CAST(ts AS BIGINT), 0))
WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv')
"""
_ANSWER = "CREATE TABLE {} (ts BIGINT, r BIGINT) WITH ('connector' = 'filesystem', 'path' = '{}', 'format' = 'csv')"
#: A window of Penstock ends at the instant that is the last of Flink's, whose end is exclusive.
_QUERY = """
INSERT INTO {} SELECT UNIX_TIMESTAMP(CAST(window_end AS STRING)) - 1, {}
FROM TABLE(HOP(TABLE S, DESCRIPTOR(t), INTERVAL '1' SECOND, INTERVAL '60' SECONDS))
GROUP BY window_start, window_end
"""


def _processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("call")
    for name in ("data", "scratch", "report"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    given = parser.parse_args()
    configuration = Configuration()
    configuration.set_string("parallelism.default", "1")
    configuration.set_string("table.local-time-zone", "UTC")
    configuration.set_string("io.tmp.dirs", str(given.scratch))
    settings = EnvironmentSettings.new_instance().in_batch_mode().with_configuration(configuration).build()
    environment = TableEnvironment.create(settings)
    environment.execute_sql(_TABLE.format(given.data))
    jvm = int(get_gateway().jvm.java.lang.ProcessHandle.current().pid())
    took, out = 0.0, given.scratch
    for run in range(2):
        out = given.scratch / f"answer_{run}"
        environment.execute_sql(_ANSWER.format(f"answer_{run}", out))
        begun = _processor_seconds(jvm)
        environment.execute_sql(_QUERY.format(f"answer_{run}", given.call)).wait()
        took = _processor_seconds(jvm) - begun
    parts = [path for path in out.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    rows = [row for path in parts for row in csv.reader(path.read_text().splitlines())]
    given.report.write_text(json.dumps({"seconds": took, "answers": {ts: float(r) for ts, r in rows}}))


if __name__ == "__main__":
    main()
