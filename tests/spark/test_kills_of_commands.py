"""A server that is killed at each point of a command's life, and workers that are killed while it is applied: the
command happens once, and every result is what it is without a kill.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from pathlib import Path

import pytest

from benchmarks.live_soak.feed import DECLARED, STEP, stream
from benchmarks.live_soak.lives import Episode, Life, wrong
from benchmarks.live_soak.served import Served, Subscriber, finished
from benchmarks.live_soak.shapes import Passed, Shape, Sums, Totals
from penstock.client import ServerClient, connect
from penstock.errors import PenstockError

SEED = 7
#: What is posted at each point of `dying_server.py`; the statements behind the query, which come true with it.
COMMANDS = {
    "accepted": ("q1", Totals(2), ""),
    "applied": ("q2", Sums(2, 1), ""),
    "mark": ("q3", Totals(3), "DROP QUERY q1;"),
    "running": ("q4", Passed(3, 1), "INSERT INTO s VALUES {row};"),
}


class Rows:
    """Posts the rows of the stream, in order."""

    def __init__(self, client: ServerClient) -> None:
        self._client = client
        self.count = 0

    def post(self, count: int) -> None:
        self._client.insert("s", stream(SEED, self.count, count), key=f"rows {self.count}")
        self.count += count

    def next(self) -> str:
        """Return the next row as VALUES has it, which a statement inserts."""
        (row,) = stream(SEED, self.count, 1).to_pylist()
        return str(tuple(row.values()))

    def wait(self, query: str) -> None:
        """Wait until a query has answered all of them."""
        end = time.monotonic() + 120
        while (self._client.query(query).instant or "-1") != str(STEP * (self.count - 1) - 1):
            assert time.monotonic() < end, self._client.query(query)
            time.sleep(0.1)


def begun(client: ServerClient, shape: Shape, script: str, key: str) -> Episode:
    """Execute a script that begins with the query; return its episode."""
    replies = finished(client, script, key)
    assert {one.state for one in replies} <= {"RUNNING", "COMPLETED"}, replies
    assert replies[0].instant is not None
    tick = int(replies[0].instant)
    return Episode(shape, True, tick, (tick + 1) // STEP)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_commands_survive_kills(served: Served, tmp_path: Path) -> None:
    served.start()
    lives = {"q0": Life(0, "q0", [Episode(Passed(2, 0), True, -STEP, -1)])}
    with connect(served.url, served.token, patience=60) as client:
        rows = Rows(client)
        client.execute(f"{DECLARED} CREATE QUERY q0 AS {Passed(2, 0).text};")
        for point, (name, shape, rest) in COMMANDS.items():
            rows.post(100)
            rows.wait("q0")
            script = f"CREATE QUERY {name} START WARM AS {shape.text}; {rest.format(row=rows.next())}"
            (tmp_path / "point").write_text(point)
            with connect(served.url, served.token, patience=0) as other:
                try:
                    other.execute(script, key=point)
                except PenstockError as error:
                    assert error.code == "P0808"
                else:
                    # It is answered when it is accepted: the query reads its past.
                    assert point != next(iter(COMMANDS))
            assert served.ended() == -signal.SIGKILL
            (tmp_path / "point").unlink()
            served.start()
            lives[name] = Life(len(lives), name, [begun(client, shape, script, point)])
            rows.count += "INSERT" in rest
        numbers = [one.number for one in client.commands()]
        assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) == 3 + len(COMMANDS) + 2
        assert all(one.state in ("RUNNING", "COMPLETED") for one in client.commands())
        assert {one.name for one in client.queries()} == {"q0", "q2", "q3", "q4"}
        del lives["q1"]
        lives["q5"] = Life(5, "q5", [begun_while_workers_die(served, client, rows)])
        rows.post(100)
        rows.wait("q5")
        for life in lives.values():
            check(served, life, STEP * (rows.count - 1) - 1)
        served.end()


def begun_while_workers_die(served: Served, client: ServerClient, rows: Rows) -> Episode:
    """Register a query while its workers are killed, which then join state that is warm with state that is not."""
    rows.post(100)
    done = threading.Event()
    kills = []

    def kill() -> None:
        draw = random.Random(SEED)
        while not done.wait(0.3) and len(kills) < 3:
            if served.kill_worker(draw):
                kills.append(time.monotonic())

    killer = threading.Thread(target=kill)
    killer.start()
    shape = Totals(2)
    episode = begun(client, shape, f"CREATE QUERY q5 START WARM AS {shape.text};", "workers")
    rows.post(100)
    rows.wait("q5")
    done.set()
    killer.join()
    assert kills
    return episode


def check(served: Served, life: Life, until: int) -> None:
    """Subscribe from the beginning, and compare with what is computed anew."""
    subscriber = Subscriber(served.url, served.token, life, SEED)
    subscriber.start()
    end = time.monotonic() + 60
    while life.final < until and time.monotonic() < end:
        time.sleep(0.1)
    subscriber.end()
    life.episodes[-1].reached = until
    assert life.received and list(wrong(life, SEED)) == []
