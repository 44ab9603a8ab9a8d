"""A second opinion on session windows: Spark's own, over the same rows as a batch."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local

FIXED = "'5 seconds'"
OF_ROWS = "CASE usr WHEN 'ann' THEN '2 seconds' WHEN 'bob' THEN IF(amount = 7, '1 minute', '4 seconds') END"
COUNTS = "COUNT(*) AS n, SUM(amount) AS total"
ITEMS = f"usr, session_window.start, session_window.end, window_time(session_window) AS last, {COUNTS}"
SECOND = 1_000_000


@pytest.mark.spark
@pytest.mark.parametrize("gap", [FIXED, OF_ROWS])
def test_the_same_text_has_the_same_sessions(gap: str, spark: Any) -> None:
    grouped = f"GROUP BY usr, session_window(at, {gap})"
    draw = random.Random(7)
    times = sorted(draw.randrange(1_500) for _ in range(600))
    rows = pa.table({
        "at": pa.array([t * SECOND for t in times], pa.timestamp("us", "UTC")),
        "usr": [draw.choice(("ann", "bob", "eve", None)) for _ in times],
        "amount": pa.array([draw.randrange(9) for _ in times], pa.int32()),
    })  # fmt: skip
    spark.createDataFrame(rows.to_pandas(), "at timestamp, usr string, amount int").createOrReplaceTempView("actions")
    names = ("session_window.start", "session_window.end", "window_time(session_window)")
    bounds = ", ".join(f"UNIX_MICROS({name})" for name in names)
    asked = f"SELECT usr, {bounds}, n, total FROM ({{}})"
    inner = f"SELECT usr, session_window, {COUNTS} FROM actions {grouped}"
    expected = [tuple(row) for row in spark.sql(asked.format(inner)).collect()]
    script = "CREATE STREAM actions (at TIMESTAMP, usr STRING, amount INT) FROM MEMORY () TIMESTAMP BY at;"
    bound = bind_script(f"{script}CREATE QUERY q AS RSTREAM(SELECT {ITEMS} FROM actions {grouped});")
    answer = run_local(bound.queries, {"actions": rows}, drain=True).tables["q"]
    columns = [answer["usr"], *(answer[c].cast(pa.int64()) for c in ("start", "end", "last", "n", "total"))]
    found = list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert len(found) > 100 and max(n for *_, n, _ in found) > 3


ORIGINS = {
    "1969": -3 * SECOND, "1600": -11_676_096_000 * SECOND, "summer time begins": 1_710_054_000 * SECOND,
    "summer time ends": 1_729_994_400 * SECOND, "9999": 253_402_300_000 * SECOND - 1,
}  # fmt: skip


@pytest.mark.spread(2)
@pytest.mark.spark
@pytest.mark.parametrize("origin", ORIGINS.values(), ids=ORIGINS)
def test_sessions_anywhere_in_time_to_the_microsecond(origin: int, spark: Any) -> None:
    """Pauses of the gap, a microsecond less and more, and ties, around instants where calendars and signs change."""
    draw = random.Random(origin)
    at, rows = origin - 100 * SECOND, []
    for _ in range(300):
        at += draw.choice((0, 1, 2 * SECOND - 1, 2 * SECOND, 2 * SECOND + 1, 700_000))
        rows.append((at, draw.choice(("ann", "bob"))))
    grouped = "GROUP BY usr, session_window(at, '2 seconds')"
    typed = "SELECT TIMESTAMP_MICROS(micros) AS at, usr FROM instants"
    spark.createDataFrame(rows, "micros long, usr string").createOrReplaceTempView("instants")
    inner = f"SELECT usr, session_window AS w, COUNT(*) AS n FROM ({typed}) {grouped}"
    asked = f"SELECT usr, UNIX_MICROS(w.start), UNIX_MICROS(w.end), n FROM ({inner})"
    expected = [tuple(row) for row in spark.sql(asked).collect()]
    table = pa.table({"at": pa.array([t for t, _ in rows], pa.timestamp("us", "UTC")), "usr": [u for _, u in rows]})
    script = "CREATE STREAM actions (at TIMESTAMP, usr STRING) FROM MEMORY () TIMESTAMP BY at;"
    items = "usr, session_window.start, session_window.end, COUNT(*) AS n"
    bound = bind_script(f"{script}CREATE QUERY q AS RSTREAM(SELECT {items} FROM actions {grouped});")
    answer = run_local(bound.queries, {"actions": table}, drain=True).tables["q"]
    columns = [answer["usr"], *(answer[c].cast(pa.int64()) for c in ("start", "end", "n"))]
    found = list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert sorted(found) == sorted(expected)
    assert len(found) > 20 and max(n for *_, n in found) > 3
