"""The queries of the bench: in CQL, and in plain SQL over the whole history for a third opinion (DuckDB).

`columns`: those of the answer that are compared, all whole numbers; the CQL result and both other answers have them by
these names. Only complete windows are compared: an answer at an instant after the last timestamp is nobody's duty.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

STREAM = """
CREATE STREAM C (ts BIGINT, src INT, dst INT, proto STRING, bytes DOUBLE)
  FROM FILES (path '{data}/*.parquet', format 'parquet')
  TIMESTAMP BY ts UNIT MILLISECOND;
"""


def watched_stream(folder: Path, more: str = "", format_: str = "parquet") -> str:
    """Return the declaration of the stream over a folder in which files appear. more: at its end, as RETAIN."""
    declared = STREAM.format(data=folder).replace(
        "/*.parquet', format 'parquet'", f"', format '{format_}', watch 'true'"
    )
    return declared.replace("UNIT MILLISECOND;", f"UNIT MILLISECOND{more};")


@dataclass(frozen=True)
class BenchQuery:
    """native_rows: on how many rows at the most Spark's side runs, where all of them would take hours."""

    name: str
    title: str
    cql: str
    reference: str
    columns: tuple[str, ...]
    native_rows: int | None = None

    def script(self, data: Path, out: Path) -> str:
        sink = f"CREATE QUERY {self.name} INTO FILES (path '{out}', format 'parquet') AS\n"
        return STREAM.format(data=data) + sink + self.cql.strip() + ";\n"


FILTER = BenchQuery(
    "q1",
    "filter and project",
    "SELECT src, dst, bytes * 8 AS bits FROM C WHERE proto = 'udp' AND bytes > 1000",
    "SELECT ts, src, dst, bytes * 8 AS bits FROM C WHERE proto = 'udp' AND bytes > 1000",
    ("ts", "src", "dst", "bits"),
)

TUMBLING = BenchQuery(
    "q2",
    "tumbling 10 s, count and sum by src",
    """
SELECT RSTREAM(src, COUNT(*) AS n, SUM(bytes) AS total)
FROM C [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY src
""",
    """
SELECT ((ts + 9999) // 10000) * 10000 AS ts, src, count(*) AS n, sum(bytes) AS total
FROM C GROUP BY 1, 2 HAVING ((ts + 9999) // 10000) * 10000 <= (SELECT max(ts) FROM C)
""",
    ("ts", "src", "n", "total"),
)

SLIDING = BenchQuery(
    "q3",
    "sliding 60 s by 1 s, sum by src",
    "SELECT RSTREAM(src, SUM(bytes) AS total) FROM C [RANGE 60 SECONDS SLIDE 1 SECOND] GROUP BY src",
    """
WITH pane AS (SELECT ((ts + 999) // 1000) AS k, src, sum(bytes) AS total FROM C GROUP BY 1, 2)
SELECT (k + later) * 1000 AS ts, src, sum(total) AS total FROM pane, range(60) AS r(later)
WHERE (k + later) * 1000 <= (SELECT max(ts) FROM C) GROUP BY 1, 2
""",
    ("ts", "src", "total"),
)

PER_TUPLE = BenchQuery(
    "q4",
    "for every tuple, sum of its src over 10 s",
    """
RSTREAM(SELECT n.src, a.total
        FROM C [NOW] AS n, (SELECT src, SUM(bytes) AS total FROM C [RANGE 10 SECONDS] GROUP BY src) AS a
        WHERE n.src = a.src)
""",
    """
SELECT ts, src, sum(bytes) OVER (PARTITION BY src ORDER BY ts RANGE BETWEEN 9999 PRECEDING AND CURRENT ROW) AS total
FROM C
""",
    ("ts", "src", "total"),
    native_rows=500_000,
)

JOIN = BenchQuery(
    "q5",
    "join of tcp and udp on dst within 2 s",
    """
ISTREAM(SELECT a.ts AS a_ts, b.ts AS b_ts, a.dst
        FROM C [RANGE 2 SECONDS] AS a, C [RANGE 2 SECONDS] AS b
        WHERE a.proto = 'tcp' AND b.proto = 'udp' AND a.dst = b.dst)
""",
    """
SELECT a.ts AS a_ts, b.ts AS b_ts, a.dst FROM C AS a JOIN C AS b
ON a.dst = b.dst AND a.ts - b.ts < 2000 AND b.ts - a.ts < 2000 WHERE a.proto = 'tcp' AND b.proto = 'udp'
""",
    ("a_ts", "b_ts", "dst"),
)

COUNT_DISTINCT = BenchQuery(
    "q6",
    "count distinct dst by src, tumbling 10 s",
    """
SELECT RSTREAM(src, COUNT(DISTINCT dst) AS n)
FROM C [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY src
""",
    """
SELECT ((ts + 9999) // 10000) * 10000 AS ts, src, count(DISTINCT dst) AS n
FROM C GROUP BY 1, 2 HAVING ((ts + 9999) // 10000) * 10000 <= (SELECT max(ts) FROM C)
""",
    ("ts", "src", "n"),
)

TOP = BenchQuery(
    "q7",
    "top 10 src by sum, 60 s by 5 s",
    """
RSTREAM(SELECT src, SUM(bytes) AS total FROM C [RANGE 60 SECONDS SLIDE 5 SECONDS] GROUP BY src
        ORDER BY total DESC, src LIMIT 10)
""",
    """
WITH pane AS (SELECT ((ts + 4999) // 5000) AS k, src, sum(bytes) AS total FROM C GROUP BY 1, 2),
     sliding AS (SELECT (k + later) * 5000 AS ts, src, sum(total) AS total FROM pane, range(12) AS r(later)
                 WHERE (k + later) * 5000 <= (SELECT max(ts) FROM C) GROUP BY 1, 2)
SELECT ts, src, total FROM sliding QUALIFY row_number() OVER (PARTITION BY ts ORDER BY total DESC, src) <= 10
""",
    ("ts", "src", "total"),
)

THREE_WAY = BenchQuery(
    "q9",
    "join of tcp, udp and icmp on dst within 5 s",
    """
ISTREAM(SELECT a.ts AS a_ts, b.ts AS b_ts, c.ts AS c_ts, a.dst
        FROM C [RANGE 5 SECONDS] AS a, C [RANGE 5 SECONDS] AS b, C [RANGE 5 SECONDS] AS c
        WHERE a.proto = 'tcp' AND b.proto = 'udp' AND c.proto = 'icmp' AND a.dst = b.dst AND b.dst = c.dst)
""",
    """
SELECT a.ts AS a_ts, b.ts AS b_ts, c.ts AS c_ts, a.dst
FROM (SELECT * FROM C WHERE proto = 'icmp') AS c
JOIN (SELECT * FROM C WHERE proto = 'udp') AS b ON b.dst = c.dst AND abs(b.ts - c.ts) < 5000
JOIN (SELECT * FROM C WHERE proto = 'tcp') AS a ON a.dst = c.dst AND abs(a.ts - c.ts) < 5000 AND abs(a.ts - b.ts) < 5000
""",
    ("a_ts", "b_ts", "c_ts", "dst"),
)

SESSIONS = BenchQuery(
    "q10",
    "sessions by src with a gap of 10 s, count and sum",
    """
RSTREAM(SELECT src, VALID(s) AS s, COUNT(*) AS n, SUM(bytes) AS total
        FROM C [PARTITION BY src SESSION 10 SECONDS] AS s GROUP BY src, VALID(s))
""",
    # Rows of one tick have one number: the frame of a sum over ORDER BY ends with the peers of a row.
    """
WITH marked AS (SELECT ts, src, bytes, CASE WHEN ts - lag(ts) OVER (PARTITION BY src ORDER BY ts) <= 10000 THEN 0 ELSE 1
                END AS fresh FROM C),
     numbered AS (SELECT ts, src, bytes, sum(fresh) OVER (PARTITION BY src ORDER BY ts) AS session FROM marked)
SELECT max(ts) + 10000 AS ts, src, min(ts) AS s_from, count(*) AS n, sum(bytes) AS total
FROM numbered GROUP BY src, session HAVING max(ts) + 10000 <= (SELECT max(ts) FROM C)
""",
    ("ts", "src", "s_from", "n", "total"),
)

STRETCHES = BenchQuery(
    "q11",
    "src seen for 3 s without a gap, 60 s by 1 s",
    """
SELECT RSTREAM(s.src, VALID(s) AS s) FROM C (src) AS s [RANGE 60 SECONDS SLIDE 1 SECOND]
WHERE CAST(VALID(s) AS INTERVAL SECOND) >= 3
""",
    # What a window has of a run of seconds is that run, cut at both ends.
    """
WITH seconds AS (SELECT DISTINCT src, (ts + 999) // 1000 AS k FROM C),
     numbered AS (SELECT src, k, k - row_number() OVER (PARTITION BY src ORDER BY k) AS run FROM seconds),
     runs AS (SELECT src, min(k) AS first, max(k) AS last FROM numbered GROUP BY src, run),
     looks AS (SELECT src, first, last, unnest(range(first, last + 60)) AS b FROM runs)
SELECT b * 1000 AS ts, src, (greatest(first, b - 59) - 1) * 1000 AS s_from, least(last, b) * 1000 AS s_to FROM looks
WHERE b * 1000 <= (SELECT max(ts) FROM C) AND least(last, b) - greatest(first, b - 59) >= 2
""",
    ("ts", "src", "s_from", "s_to"),
    native_rows=500_000,
)

# q8, many standing aggregates, is a bench of its own: standing.py.
QUERIES: dict[str, BenchQuery] = {
    q.name: q for q in (FILTER, TUMBLING, SLIDING, PER_TUPLE, JOIN, COUNT_DISTINCT, TOP, THREE_WAY, SESSIONS, STRETCHES)
}

TUMBLE = BenchQuery(
    "tumble",
    "q2 as TUMBLE, whose windows are [start, end)",
    """
SELECT src, COUNT(*) AS n, SUM(bytes) AS total FROM TABLE(TUMBLE(TABLE C, DESCRIPTOR(ts), INTERVAL '10' SECONDS))
GROUP BY window_start, window_end, src
""",
    """
SELECT (ts // 10000) * 10000 + 9999 AS ts, src, count(*) AS n, sum(bytes) AS total
FROM C GROUP BY 1, 2 HAVING (ts // 10000) * 10000 + 9999 <= (SELECT max(ts) FROM C)
""",
    ("ts", "src", "n", "total"),
)

HOP = BenchQuery(
    "hop",
    "q3 as HOP, whose windows are [start, end)",
    """
SELECT src, SUM(bytes) AS total
FROM TABLE(HOP(TABLE C, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '60' SECONDS))
GROUP BY window_start, window_end, src
""",
    """
WITH pane AS (SELECT ts // 1000 AS k, src, sum(bytes) AS total FROM C GROUP BY 1, 2)
SELECT (k + later) * 1000 + 999 AS ts, src, sum(total) AS total FROM pane, range(60) AS r(later)
WHERE (k + later) * 1000 + 999 <= (SELECT max(ts) FROM C) GROUP BY 1, 2
""",
    ("ts", "src", "total"),
)

#: As Flink writes what others above say; on our side alone, each to be run beside the one that it names.
AS_FLINK_WRITES: dict[str, BenchQuery] = {q.name: q for q in (TUMBLE, HOP)}
OURS: dict[str, BenchQuery] = {**QUERIES, **AS_FLINK_WRITES}
