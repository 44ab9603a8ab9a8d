"""A server that is killed while rows and heartbeats are posted, with Spark and without: the results are what the oracle
says of all that was posted, each once and in order, wherever the kills were."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.live_soak.served import Served
from penstock.algebra.properties.heartbeats import PlacedHeartbeat, with_heartbeats
from penstock.client import ServerClient, connect
from penstock.language.scripts import bind_script
from penstock.testing.oracle import run_oracle
from penstock.testing.scalars.values import Event

#: Posts, and seconds between two kills.
POSTS, BETWEEN = 150, {True: (0.5, 2.0), False: (8.0, 20.0)}
STREAM = "CREATE STREAM S (ts BIGINT, v INT) FROM MEMORY () TIMESTAMP BY ts ORDER WITHIN 3 SECONDS;"
QUERIES = """CREATE QUERY n AS SELECT COUNT(*) AS n, SUM(v) AS s FROM S [RANGE 10 SECONDS];
CREATE QUERY every AS SELECT v FROM S;"""


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


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("in_process", [True, False], ids=["in process", "on Spark"])
def test_each_heartbeat_is_taken_once_and_in_order(tmp_path: Path, in_process: bool) -> None:
    draw = random.Random(20)
    served = Served(tmp_path, () if in_process else ("trigger=100 ms", "shards=2"), in_process=in_process)
    served.start()
    killer = Killer(served, draw, BETWEEN[in_process])
    rows: list[tuple[int, int]] = []
    placed: list[PlacedHeartbeat] = []
    try:
        with connect(served.url, served.token, patience=240) as server:
            server.execute(STREAM + QUERIES)
            killer.start()
            stream, tick = server.stream("S"), 0
            for number in range(POSTS):
                tick += draw.choice((0, 1, 1, 2, 9))
                if draw.random() < 0.3:
                    beat = tick + draw.choice((-2, 0, 0, 1))
                    _by(server, stream, draw, beat, number)
                    placed.append(PlacedHeartbeat(len(rows), beat))
                else:
                    ts = tick + draw.choice((-4, -1, 0, 0))
                    server.post("S", f'{{"ts": {ts}, "v": {number}}}\n'.encode(), "ndjson", key=f"{number}")
                    rows.append((ts, number))
            killer.stopped.set()
            killer.join()
            stream.heartbeat(tick + 20, key="last")
            placed.append(PlacedHeartbeat(len(rows), tick + 20))
            end = time.monotonic() + 200
            while {server.query(name).instant for name in ("n", "every")} != {str(tick + 20)}:
                assert time.monotonic() < end, server.queries()
                time.sleep(0.1)
            found = {name: answered(server, name) for name in ("n", "every")}
    finally:
        killer.stopped.set()
        served.kill()
    assert killer.kills
    ts, v = ([row[i] for row in rows] for i in (0, 1))
    table = with_heartbeats(pa.table({"ts": pa.array(ts, pa.int64()), "v": pa.array(v, pa.int32())}), placed)
    for query in bind_script(STREAM + QUERIES).queries:
        expected: Any = run_oracle(query, {"S": table})
        assert expected.late["S"], "some are late"
        # Rows of a stream have an op too.
        events = [(tick, "+" if op is None else op, row) for tick, op, row in expected.events]
        assert found[query.name] == sorted(events, key=lambda event: str(event))


def _by(server: ServerClient, stream: Any, draw: random.Random, tick: int, number: int) -> None:
    """Post a heartbeat by the client or by the statement."""
    if draw.random() < 0.7:
        stream.heartbeat(tick, key=f"{number}")
    else:
        server.execute(f"ADVANCE S TO {tick}", key=f"{number}")
