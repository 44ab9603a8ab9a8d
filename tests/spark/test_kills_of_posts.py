"""A server that is killed while rows are posted, and heartbeats or punctuations between them, with Spark and without:
the results are what the oracle says of all that was posted, each once and in order, wherever the kills were."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from benchmarks.live_soak.served import Served
from penstock.algebra.properties.heartbeats import PlacedHeartbeat, with_heartbeats
from penstock.client import ServerClient, connect
from penstock.language.binder.statements.punctuations import read_punctuation
from penstock.language.scripts import bind_script
from penstock.testing.oracle import run_oracle
from penstock.testing.scalars.values import Event

#: At least so many posts and kills, and seconds between two kills.
POSTS, KILLS, BETWEEN = 150, 2, {True: (0.5, 2.0), False: (8.0, 20.0)}
STREAM = "CREATE STREAM S (ts BIGINT, v INT) FROM MEMORY () TIMESTAMP BY ts ORDER WITHIN 3 SECONDS;"
QUERIES = """CREATE QUERY n AS SELECT COUNT(*) AS n, SUM(v) AS s FROM S [RANGE 10 SECONDS];
CREATE QUERY every AS SELECT v FROM S;"""

#: Posts a record that is no row, and returns it.
Record: TypeAlias = Callable[[ServerClient, random.Random, int, int], PlacedHeartbeat]


class Killer(threading.Thread):
    """Kills a server and starts it again, until it is stopped."""

    def __init__(self, served: Served, draw: random.Random, between: tuple[float, float]) -> None:
        super().__init__(daemon=True)
        self.served, self.draw, self.between = served, draw, between
        self.stopped = threading.Event()
        self.kills = 0

    def run(self) -> None:
        while not self.stopped.wait(self.draw.uniform(*self.between)):
            self.served.kill()
            self.kills += 1
            self.served.start()


def answered(server: ServerClient, query: str) -> list[Event]:
    rows = (row for batch in server.subscribe(query, beginning=True, until_now=True) for row in batch.to_pylist())
    return sorted(
        ((row.pop("ts"), row.pop("op", None), tuple(row.values())) for row in rows), key=lambda event: str(event)
    )


def survived(tmp_path: Path, in_process: bool, seed: int, least: int, record: Record) -> list[dict[str, int]]:
    """Post rows, and records between them, while the server is killed; check the answers. Return what was set apart.

    Args:
        least: how much older than the time a row is at most.
        record: posts one and returns it, given the client, random choices, the time and a number.
    """
    draw = random.Random(seed)
    served = Served(tmp_path, () if in_process else ("trigger=100 ms", "shards=2"), in_process=in_process)
    served.start()
    killer = Killer(served, draw, BETWEEN[in_process])
    rows: list[tuple[int, int]] = []
    placed: list[PlacedHeartbeat] = []
    try:
        with connect(served.url, served.token, patience=240) as server:
            server.execute(STREAM + QUERIES)
            killer.start()
            tick = number = 0
            while number < POSTS or killer.kills < KILLS:
                tick += draw.choice((0, 1, 1, 2, 9))
                if draw.random() < 0.3:
                    placed.append(record(server, draw, tick, number)._replace(rows=len(rows)))
                else:
                    ts = tick + draw.choice((-least, -1, 0, 0))
                    server.post("S", f'{{"ts": {ts}, "v": {number}}}\n'.encode(), "ndjson", key=f"{number}")
                    rows.append((ts, number))
                number += 1
            killer.stopped.set()
            killer.join()
            server.stream("S").heartbeat(tick + 20, key="last")
            placed.append(PlacedHeartbeat(len(rows), tick + 20))
            end = time.monotonic() + 200
            while {server.query(name).instant for name in ("n", "every")} != {str(tick + 20)}:
                assert time.monotonic() < end, server.queries()
                time.sleep(0.1)
            found = {name: answered(server, name) for name in ("n", "every")}
    finally:
        killer.stopped.set()
        served.kill()
    ts, v = ([row[i] for row in rows] for i in (0, 1))
    table = with_heartbeats(pa.table({"ts": pa.array(ts, pa.int64()), "v": pa.array(v, pa.int32())}), placed)
    apart = []
    for query in bind_script(STREAM + QUERIES).queries:
        expected: Any = run_oracle(query, {"S": table})
        # Rows of a stream have an op too.
        events = [(tick, "+" if op is None else op, row) for tick, op, row in expected.events]
        assert found[query.name] == sorted(events, key=lambda event: str(event))
        apart.append({"late": expected.late["S"], **expected.rejected.get("S", {})})
    return apart


def heartbeat(server: ServerClient, draw: random.Random, tick: int, number: int) -> PlacedHeartbeat:
    """Post a heartbeat by the client or by the statement."""
    beat = tick + draw.choice((-2, 0, 0, 1))
    if draw.random() < 0.7:
        server.stream("S").heartbeat(beat, key=f"{number}")
    else:
        server.execute(f"ADVANCE S TO {beat}", key=f"{number}")
    return PlacedHeartbeat(0, beat)


def punctuation(server: ServerClient, draw: random.Random, tick: int, number: int) -> PlacedHeartbeat:
    """Post a punctuation by the client or by the statement."""
    source = bind_script(STREAM).catalog.sources["s"]
    where = draw.choice((f"ts = {tick + 1}", f"v BETWEEN {number} AND {number + 2}", f"ts < {tick - 1}"))
    if draw.random() < 0.7:
        server.stream("S").punctuate(where, key=f"{number}")
    else:
        server.execute(f"PUNCTUATE S WHERE {where}", key=f"{number}")
    return PlacedHeartbeat(0, 0, 0, read_punctuation(where, source).as_text())


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("in_process", [True, False], ids=["in process", "on Spark"])
def test_each_heartbeat_is_taken_once_and_in_order(tmp_path: Path, in_process: bool) -> None:
    assert all(one["late"] for one in survived(tmp_path, in_process, 20, 4, heartbeat)), "some are late"


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("in_process", [True, False], ids=["in process", "on Spark"])
def test_each_punctuation_is_taken_once_and_in_order(tmp_path: Path, in_process: bool) -> None:
    assert all(one["punctuated"] for one in survived(tmp_path, in_process, 21, 3, punctuation)), "some are punctuated"
