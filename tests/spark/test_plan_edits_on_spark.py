"""Plans that are edited while they run on Spark: no answer is missing, and none comes twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from control_on_spark_kit import opened, result, until

from penstock.control.entities.relations import BY_NAME
from penstock.control.live.control import Control

STREAMS = (
    "CREATE STREAM A (ts INT, k INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND{retain};"
    "CREATE STREAM B (ts INT, k INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
)
PAIRS = "SELECT A.v AS a, B.v AS b FROM A [RANGE 3 SECONDS], B [RANGE 3 SECONDS] WHERE A.k = B.k"


def table(*ticks: int) -> pa.Table:
    """Two rows (ts, k, v) of each tick."""
    values = [(ts, ts % 2, 10 * ts + i) for ts in ticks for i in range(2)]
    return pa.table([pa.array(column, pa.int32()) for column in zip(*values, strict=True)], names=["ts", "k", "v"])


def expected(last: int) -> Counter[tuple[int, int, int]]:
    """The pairs that begin up to a tick: (ts, a, b)."""
    ticks = range(1, last + 1)
    pairs = ((s, t) for s in ticks for t in ticks if abs(s - t) < 3 and s % 2 == t % 2)
    return Counter((max(s, t), 10 * s + i, 10 * t + j) for s, t in pairs for i in range(2) for j in range(2))


def synopses(control: Control) -> dict[str, str]:
    found = BY_NAME["penstock.synopses"].table(control.view()).to_pylist()
    return {row["id"]: row["kind"] for row in found if row["possible"]}


def edits(control: Control) -> list[Any]:
    return [one.query.beside for one in control.queries()]


@pytest.mark.spark
def test_other_synopses_take_over_on_spark_over_a_restart(spark: Any, tmp_path: Path) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    engine, control = opened(checkpoint, spark)
    into = "INTO FILES (path '{}', format 'parquet')"
    control.submit(
        STREAMS.format(retain="")
        + f"CREATE QUERY pairs {into.format(out / 'pairs')} AS {PAIRS};"
        + f"CREATE QUERY stream {into.format(out / 'stream')} AS ISTREAM({PAIRS});"
    )

    def feed(*ticks: int) -> None:
        # An instant comes in two parts, which are in different rounds.
        for ts in ticks:
            both = table(ts)
            for part in (both.slice(0, 1), both.slice(1)):
                for source in "AB":
                    control.insert(source, part)
        until(lambda: beat(ticks[-1] - 1), control, lambda: control.version())

    def beat(tick: int) -> bool:
        known = control.version().heartbeats
        return len(known) > 1 and all(reached >= tick for reached in known.values())

    feed(1, 2, 3, 4)
    until(lambda: "HashJoinIndex" in synopses(control).values(), control, lambda: synopses(control))
    one = next(key for key, kind in synopses(control).items() if kind == "HashJoinIndex")
    control.submit(f"UPDATE penstock.synopses SET kind = 'runs' WHERE id = '{one}' CONFIRM 1 ROW;")
    until(lambda: all(edits(control)), control, lambda: (edits(control), control.commands()[-1]))
    feed(5)
    control.close()
    engine.close()

    engine, control = opened(checkpoint, spark)
    tick = 6
    while any(edits(control)):
        assert tick < 25, (edits(control), control.version())
        feed(tick)
        tick += 1
    until(lambda: "SortedRuns" in synopses(control).values(), control, lambda: synopses(control))
    feed(tick, tick + 1)
    last = tick
    until(lambda: through(out, last), control, lambda: [len(result(out / name)) for name in ("pairs", "stream")])
    control.close()
    engine.close()

    for name in ("pairs", "stream"):
        begun = [row[:1] + row[-2:] for row in result(out / name) if row[1] != "-" and row[0] <= last]
        assert Counter(begun) == expected(last), name
    gone = Counter(row[-2:] for row in result(out / "pairs") if row[1] == "-")
    assert max(gone.values()) == 1


def through(out: Path, last: int) -> bool:
    return all(any(row[0] >= last for row in result(out / name)) for name in ("pairs", "stream"))
