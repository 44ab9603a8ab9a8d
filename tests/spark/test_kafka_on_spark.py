"""Runs on Spark that read and write a real broker, also one that goes away."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka_kit import received, send, topic

from penstock.connectors.deadletters import DeadLetters
from penstock.session import Session


def records(start: int, stop: int, partitions: int) -> list[dict[str, Any]]:
    """One row a second from 0 on, dealt out to partitions: each is in order."""
    return [
        {"value": json.dumps({"k": f"k{i % 3}", "n": i, "at": i}), "partition": i % partitions}
        for i in range(start, stop)
    ]


def per_minute(seconds: int) -> dict[tuple[int, str], tuple[int, int]]:
    """(end of a minute, which belongs to it, k) -> count and sum of n."""
    found: dict[tuple[int, str], tuple[int, int]] = {}
    for i in range(seconds):
        key = (-(-i // 60) * 60, f"k{i % 3}")
        count, total = found.get(key, (0, 0))
        found[key] = (count + 1, total + i)
    return found


def sums(broker: Any, name: str) -> Counter[tuple[int, str, int, int]]:
    rows = [json.loads(m.value()) for m in received(broker, name)]
    return Counter((r["ts"], r["k"], r["c"], r["total"]) for r in rows)


def until(what: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def script(broker: Any, source: str, sink: str, more: str) -> str:
    return f"""
    CREATE STREAM s (k STRING, n BIGINT, at BIGINT)
      FROM KAFKA (bootstrap '{broker.bootstrap}', topic '{source}', format 'json'{more}) TIMESTAMP BY at;
    CREATE QUERY q INTO KAFKA (bootstrap '{broker.bootstrap}', topic '{sink}', format 'json', key 'k') AS
      SELECT RSTREAM(k, COUNT(*) AS c, SUM(n) AS total) FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY k;
    """


def test_bounded_run_with_bad_records_and_a_relation_of_updates(spark: Any, broker: Any) -> None:
    trades, rates = topic(broker, 3), topic(broker)
    send(broker, trades, [*records(0, 300, 3), {"value": "{nope", "partition": 1}])
    updates = [("+", "k0", 2, 0), ("+", "k1", 7, 50), ("-", "k0", 2, 100), ("+", "k0", 5, 100)]
    send(broker, rates, [{"key": k, "value": json.dumps({"op": op, "r": r, "at": at})} for op, k, r, at in updates])
    session = Session(spark)
    where = f"KAFKA (bootstrap '{broker.bootstrap}', topic '{{}}', format 'json', ending 'latest'{{}})"
    session.execute(f"""
    CREATE STREAM s (k STRING, n BIGINT, at BIGINT) FROM {where.format(trades, ", max_rows '150'")} TIMESTAMP BY at;
    CREATE RELATION rates (op STRING, k STRING, r INT, at BIGINT)
      FROM {where.format(rates, ", key 'k'")} TIMESTAMP BY at OPERATION BY op;
    CREATE QUERY priced INTO MEMORY () AS SELECT ISTREAM(s.n, r) FROM s [NOW], rates WHERE s.k = rates.k;
    """)
    run = session.start()
    assert run.wait(300)
    from penstock.connectors.sinks.memory import collected

    found = collected("priced")
    expected = [(i, 2 if i < 100 else 5) for i in range(0, 300, 3)] + [(i, 7) for i in range(1, 300, 3) if i >= 50]
    assert sorted(zip(found["n"].to_pylist(), found["r"].to_pylist(), strict=True)) == sorted(expected)
    progress = run.progress().sources["s"]
    assert (progress.rows, progress.malformed, progress.late, progress.records_waiting) == (301, 1, 0, 0)
    (letter,) = DeadLetters(run.dead_letters).read("s")
    assert (letter.path, letter.line, letter.record) == (f"{trades}/1", 100, "{nope")


@pytest.mark.slow
def test_broker_gone_for_a_minute_and_a_restart_from_the_checkpoint(spark: Any, broker: Any, tmp_path: Path) -> None:
    """Unbounded, exactly once: the broker dies while records come, and the run stops and goes on between others."""
    source, sink = topic(broker, 2), topic(broker)
    text = script(broker, source, sink, ", max_rows '100'")
    checkpoint = str(tmp_path / "checkpoint")
    send(broker, source, records(0, 400, 2))
    session = Session(spark)
    session.execute(text)
    run = session.start(checkpoint=checkpoint)
    until(lambda: run.progress().queries["q"].rows >= 3)
    broker.stop(hard=True)
    time.sleep(60)
    broker.start()
    send(broker, source, records(400, 700, 2))
    until(lambda: run.progress().sources["s"].rows == 700 and run.progress().sources["s"].records_waiting == 0)
    assert not run.wait(0)
    run.stop()
    send(broker, source, records(700, 1000, 2))
    again = Session(spark)
    again.execute(text)
    run = again.start(checkpoint=checkpoint)
    until(lambda: run.progress().sources["s"].rows == 1000 and run.progress().sources["s"].records_waiting == 0)
    run.stop()
    expected = Counter((end, k, *sums) for (end, k), sums in per_minute(961).items())
    assert sums(broker, sink) == expected


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_driver_killed_between_and_within_batches(broker: Any, tmp_path: Path) -> None:
    """The whole process group dies at random moments, three times; every result is there once."""
    source, sink = topic(broker, 2), topic(broker)
    seconds, draw = 1500, random.Random(time.time_ns())
    send(broker, source, records(0, seconds, 2))
    path = tmp_path / "script.cql"
    path.write_text(script(broker, source, sink, ", max_rows '50', ending 'latest'"))
    command = [sys.executable, "-m", "penstock", "run", str(path), "--checkpoint", str(tmp_path / "checkpoint")]
    kills = 0
    while True:
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        before = len(received(broker, sink))
        while kills < 3 and process.poll() is None:
            if len(received(broker, sink)) > before:
                time.sleep(draw.uniform(0, 2))
                os.killpg(process.pid, signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.05)
        if process.wait(600) != -signal.SIGKILL:
            break
    assert process.returncode == 0, (tmp_path / "log").read_text()[-2000:]
    assert kills == 3
    until_end = (seconds - 1) // 60 * 60
    assert sums(broker, sink) == Counter((end, k, *s) for (end, k), s in per_minute(until_end + 1).items())
