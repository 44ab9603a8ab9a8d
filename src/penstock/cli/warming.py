"""`penstock warm`: everything that an installation would otherwise make during its first queries, made beforehand.

Two caches are filled: the loops that numba compiles (`penstock.compilation`), by queries of every kind over made-up
rows, and the archive of Java's classes (`runtime/spark/startup/class_data_archive.py`), by a query on Spark.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

from penstock.errors import PenstockError
from penstock.temporary import removed_after

_DECLARATIONS = """
CREATE STREAM s (ts TIMESTAMP, k STRING, n INT, a BIGINT, x DOUBLE, d DECIMAL(12, 2)) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM t (ts TIMESTAMP, k STRING, n INT, b BIGINT, y DOUBLE) FROM MEMORY () TIMESTAMP BY ts;
CREATE RELATION r (k STRING, w BIGINT) FROM MEMORY ();
CREATE RELATION u (ts TIMESTAMP, k STRING, w BIGINT, PRIMARY KEY (k)) FROM MEMORY () TIMESTAMP BY ts;
"""
#: A query of every kind of operator, with the types of columns that are most frequent.
QUERIES = (
    "SELECT * FROM s WHERE a > 3",
    "SELECT k, SUM(a) AS a, COUNT(*) AS c FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k",
    "SELECT k, SUM(a) AS a, AVG(n) AS n, COUNT(*) AS c FROM s [RANGE 10 SECONDS] GROUP BY k",
    "SELECT COUNT(*) AS c, AVG(x) AS x, SUM(d) AS d FROM s [RANGE 10 SECONDS SLIDE 2 SECONDS]",
    "SELECT k, AVG(x) AS x FROM s [RANGE 10 SECONDS] GROUP BY k",
    "SELECT k, MIN(a) AS l, MAX(x) AS m FROM s [RANGE 10 SECONDS] GROUP BY k",
    "SELECT k, COUNT(DISTINCT a) AS c, MEDIAN(x) AS m, STDDEV(x) AS e FROM s [RANGE 10 SECONDS] GROUP BY k",
    "SELECT k, SUM(x) AS x FROM s [ROWS 20] GROUP BY k",
    "SELECT k, a FROM s [PARTITION BY k ROWS 3]",
    "SELECT DISTINCT k, n FROM s [RANGE 10 SECONDS]",
    "SELECT DISTINCT k FROM s",
    "RSTREAM(SELECT s.k, a, b FROM s [NOW], t [RANGE 10 SECONDS] WHERE s.k = t.k)",
    "SELECT s.k, s.n, a, b FROM s [RANGE 10 SECONDS], t [RANGE 20 SECONDS] WHERE s.k = t.k AND s.n = t.n",
    "SELECT s.k, a, b FROM s [RANGE 10 SECONDS] LEFT JOIN t [RANGE 10 SECONDS] ON s.k = t.k",
    "SELECT s.k, a, w FROM s [RANGE 10 SECONDS], r WHERE s.k = r.k",
    "SELECT s.k, a, w FROM s [RANGE 10 SECONDS], u WHERE s.k = u.k",
    "SELECT k, a FROM s [RANGE 10 SECONDS] WHERE k NOT IN (SELECT k FROM t [RANGE 5 SECONDS])",
    "SELECT k FROM s [RANGE 10 SECONDS] UNION SELECT k FROM t [RANGE 10 SECONDS]",
    "SELECT k FROM s [RANGE 10 SECONDS] EXCEPT SELECT k FROM t [RANGE 10 SECONDS]",
    "SELECT k, a FROM s [RANGE 10 SECONDS] ORDER BY a DESC LIMIT 3",
    "ISTREAM(SELECT k, SUM(a) AS a FROM s [RANGE 10 SECONDS] GROUP BY k)",
    "SELECT AVG(a) AS m FROM s [RANGE 20 TUPLES, FREQUENCY 10 TUPLES]",
)
#: What runs on Spark while its classes are recorded: reading, exchange, state, a sink.
_ON_SPARK = """
CREATE STREAM s (ts INT, k STRING, a INT) FROM FILES (path 'in.csv', format 'csv', header 'true') TIMESTAMP BY ts;
CREATE QUERY sums INTO FILES (path 'sums', format 'csv') AS
SELECT k, SUM(a) AS a FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k;
"""
#: Seconds after which a JVM that does not end has failed to write its archive.
_LONGEST = 300


def compile_loops(report: Callable[[str], None]) -> None:
    """Run every query over made-up rows, so that the loops of its operators are compiled and kept."""
    import pyarrow as pa

    from penstock.language.scripts import bind_script
    from penstock.runtime.local.runtime import run_local

    began, count = time.monotonic(), 600
    ticks = pa.array([1_000_000 * (i // 3) for i in range(count)], pa.timestamp("us"))
    keys = pa.array([f"k{i % 7}" for i in range(count)])
    small = pa.array([i % 5 for i in range(count)], pa.int32())
    large = pa.array([i * 37 % 101 for i in range(count)], pa.int64())
    real = pa.array([i * 0.37 for i in range(count)])
    exact = pa.array(range(count), pa.int64()).cast(pa.decimal128(21, 2)).cast(pa.decimal128(12, 2))
    few = pa.array([f"k{i}" for i in range(7)])
    inputs = {
        "s": pa.table({"ts": ticks, "k": keys, "n": small, "a": large, "x": real, "d": exact}),
        "t": pa.table({"ts": ticks, "k": keys, "n": small, "b": large, "y": real}),
        "r": pa.table({"k": few, "w": large[:7]}),
        "u": pa.table({"ts": ticks, "k": keys, "w": large}),
    }
    for number, query in enumerate(QUERIES, 1):
        (bound,) = bind_script(f"{_DECLARATIONS} CREATE QUERY q AS {query};").queries
        run_local([bound], inputs, shards=2, batch_rows=150, drain=True)
        report(f"loops: {number} of {len(QUERIES)} queries, {time.monotonic() - began:.0f} s")


def write_archive(report: Callable[[str], None]) -> bool:
    """Run a query on Spark and have its JVM write the archive of its classes; return whether it did.

    Raises:
        PenstockError: P0601, P0603 where Spark does not run.
    """
    from penstock.runtime.java import require_java
    from penstock.runtime.spark.startup.class_data_archive import archive_options, cache_folder
    from penstock.runtime.spark.startup.jvm import WRITES_ARCHIVE, end_started

    began, folder = time.monotonic(), cache_folder()
    if folder is None:
        report("Java: PENSTOCK_CACHE is empty, so nothing is kept")
        return True
    if archive_options(require_java(), folder):
        report("Java: the archive of classes is there")
        return True
    report("Java: a query on Spark, whose classes are written to an archive")
    os.environ[WRITES_ARCHIVE] = "1"
    from penstock.session import Session

    with removed_after("warm-") as place, chdir(place):
        rows = "".join(f"{i},k{i % 7},{i}\n" for i in range(300))
        Path("in.csv").write_text(f"ts,k,a\n{rows}", encoding="utf-8")
        session = Session()
        session.execute(_ON_SPARK)
        session.start().wait()
        end_started(_LONGEST)
    is_written = bool(archive_options(require_java(), folder))
    done = f"written to {folder}" if is_written else f"not written: {folder} must be writable, its path without spaces"
    report(f"Java: {done}, {time.monotonic() - began:.0f} s")
    return is_written


def warm(only_java: bool, report: Callable[[str], None]) -> bool:
    """Fill the caches; return whether all of them could be. Raises PenstockError as `write_archive` does."""
    if not only_java:
        try:
            compile_loops(report)
        except OSError as error:
            raise PenstockError("P0601", f"compiled loops cannot be kept: {error}", cause=error) from error
    return write_archive(report)
