"""The script that soaks: every good record on its way, a sliding aggregate, a join, a DISTINCT, and sums to a topic."""

from __future__ import annotations

from pathlib import Path

from benchmarks.soak.records import SLACK

#: Query -> the form of its files.
IN_FILES = {"passed": "parquet", "sums": "csv", "pairs": "parquet", "users": "json"}

TEXT = """
SET trigger = '{trigger}';
SET spark.driver.memory = '{heap}';
SET spark.driver.extraJavaOptions = '-Xlog:gc:file={out}/../gc-%p.log';
CREATE STREAM s (n BIGINT, k STRING, u INT, x BIGINT, at BIGINT)
  FROM KAFKA (bootstrap '{bootstrap}', topic '{source}', format 'json')
  TIMESTAMP BY at UNIT MILLISECOND ORDER WITHIN {slack} MILLISECONDS;
CREATE QUERY passed INTO FILES (path '{out}/passed', format 'parquet') AS SELECT n, k, x FROM s;
CREATE QUERY sums INTO FILES (path '{out}/sums', format 'csv') AS
  RSTREAM(SELECT k, COUNT(*) AS c, SUM(x) AS total, MAX(x) AS top FROM s [RANGE 30 SECONDS SLIDE 5 SECONDS] GROUP BY k);
CREATE QUERY pairs INTO FILES (path '{out}/pairs', format 'parquet') AS
  ISTREAM(SELECT a.n AS n, b.n AS m FROM s [NOW] AS a, s [RANGE 10 SECONDS] AS b WHERE a.u = b.u AND a.n <> b.n);
CREATE QUERY users INTO FILES (path '{out}/users', format 'json') AS
  RSTREAM(SELECT DISTINCT u FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] WHERE x >= 900);
CREATE QUERY totals INTO KAFKA (bootstrap '{bootstrap}', topic '{sink}', format 'json', key 'k') AS
  RSTREAM(SELECT k, COUNT(*) AS c, SUM(x) AS total FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k);
"""


#: What the JVM may take for its objects: where it may take two gigabytes, garbage hides what grows for an hour.
HEAP = "512m"


def text(bootstrap: str, source: str, sink: str, out: Path, trigger: str) -> str:
    return TEXT.format(bootstrap=bootstrap, source=source, sink=sink, out=out, slack=SLACK, trigger=trigger, heap=HEAP)
