"""Queries that read one summary, registered and dropped one after the other on a server: each answers as if it were
alone, since its summary counts the rows that the query reads itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from control_kit import server

from penstock.language.scripts import bind_script
from penstock.testing.oracle import run_oracle
from penstock.testing.scalars.values import event_order

STREAMS = """
CREATE STREAM A (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND RETAIN 1000 SECONDS;
CREATE STREAM B (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND RETAIN 1000 SECONDS;
CREATE SUMMARY of_b ON B (k) WITH GRANULARITY 4 SECONDS AND COLLAPSE (2, 3) USING {method};
"""
QUERY = """CREATE QUERY {name} {start} AS SELECT A.ts AS at, A.k, B.ts AS other FROM A [RANGE 20 SECONDS] AS A,
  B [RANGE 30 SECONDS] AS B WHERE A.k = B.k
  WITH PREFERENCE {order} SUMMARY.Estimate.Count(B.k) FADE FACTOR 0.7 BUDGET 2 PER TUPLE;"""


def rows(low: int, high: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return rows of both streams, with keys that become more and less frequent."""
    return (
        [(ts, ts * 7 % (2 + ts // 15)) for ts in range(low, high)],
        [(ts, n % (1 + ts % 4)) for ts in range(low, high) for n in range(2)],
    )


def inserted(low: int, high: int) -> str:
    texts = (", ".join(map(str, one)) for one in rows(low, high))
    return " ".join(f"INSERT INTO {name} VALUES {text};" for name, text in zip("AB", texts, strict=True))


def lived(folder: Path, method: str, order: str, start: str, first: bool, second: bool) -> dict[str, list[Any]]:
    """Return what each query emits whose neighbour comes at 20, or goes at 40, or is not there at all."""
    with server(folder) as system:
        system.done(STREAMS.format(method=method))
        if first:
            system.done(QUERY.format(name="first", start="", order=order))
        system.done(inserted(0, 20))
        system.engine.round()
        if second:
            system.done(QUERY.format(name="second", start=start, order=order))
        system.done(inserted(20, 40))
        system.engine.round()
        found = {"first": system.answers("first")} if first else {}
        if first:
            system.done("DROP QUERY first;")
        system.done(inserted(40, 60))
        system.engine.round()
        return found | ({"second": system.answers("second")} if second else {})


@pytest.mark.spread(2)
@pytest.mark.parametrize("order", ["DESC", "WEIGHTED"])
@pytest.mark.parametrize("start", ["START NOW", "START BEGINNING"])
@pytest.mark.parametrize("method", ["EXACT", "COUNTSKETCH"])
def test_a_reader_answers_as_if_it_were_alone(method: str, start: str, order: str, tmp_path: Path) -> None:
    both = lived(tmp_path / "both", method, order, start, True, True)
    assert both["first"] == lived(tmp_path / "first", method, order, start, True, False)["first"]
    assert both["second"] == lived(tmp_path / "second", method, order, start, False, True)["second"]
    assert len(both["first"]) > 30 and len(both["second"]) > 30
    if start == "START BEGINNING":
        # From the first row on, it is the answer over all rows, as far as time has come.
        streams = STREAMS.format(method=method).replace(" RETAIN 1000 SECONDS", "")
        script = bind_script(streams + QUERY.format(name="second", start="", order=order))
        types = pa.schema([("ts", pa.int32()), ("k", pa.int32())])
        inputs = {
            name: pa.Table.from_pylist([{"ts": ts, "k": k} for ts, k in one], types)
            for name, one in zip("AB", rows(0, 60), strict=True)
        }
        told = [(row["ts"], row["op"], (row["at"], row["k"], row["other"])) for row in both["second"]]
        until = max(ts for ts, _, _ in told)
        wanted = [event for event in run_oracle(script.queries[0], inputs).events if event[0] <= until]
        assert sorted(told, key=event_order) == sorted(wanted, key=event_order)
