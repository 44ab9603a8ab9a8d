"""`penstock serve` on Spark: registered, answered, subscribed, ended by SIGTERM, and continued by another process over
a copy of its checkpoint.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_ports import LOOPBACK, family, listening, sockets

from penstock.client import ServerClient, connect

ROOMS = "CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at;"
WARM = "CREATE QUERY warm AS SELECT room, MAX(celsius) AS celsius FROM readings [RANGE 1 HOUR] GROUP BY room"


def reading(time: str, room: str, celsius: float) -> dict[str, Any]:
    return {"at": f"2024-03-01 {time}:00", "room": room, "celsius": celsius}


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, ServerClient, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "penstock", "serve", str(folder / "rooms.cql"), "--http", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--checkpoint", str(folder / "state")], env={**os.environ, "XDG_CONFIG_HOME": str(folder)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, process.communicate()[1]
        token = (folder / "penstock" / "first-token").read_text(encoding="utf-8").strip()
        with connect(url, token) as client:
            yield url, client, process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def changes(client: ServerClient, count: int, cursor: str | None = None) -> tuple[list[tuple[Any, ...]], str | None]:
    """Return some rows of the query, from a cursor or its beginning, and the cursor behind them."""
    rows: list[tuple[Any, ...]] = []
    with client.subscribe("warm", cursor=cursor, beginning=cursor is None) as batches:
        for batch in batches:
            rows += [(row["op"], row["room"], row["celsius"]) for row in batch.to_pylist()]
            if len(rows) >= count:
                return rows, batches.cursor
    raise AssertionError("the subscription ended")


@pytest.mark.spark
def test_a_server_is_ended_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "rooms.cql").write_text(ROOMS, encoding="utf-8")
    with served(tmp_path) as (url, client, process):
        assert client.execute(WARM)[0].state == "RUNNING"
        client.insert("readings", [reading("09:00", "hall", 19.5), reading("09:20", "attic", 23.0)])
        rows, cursor = changes(client, 1)
        assert rows[0] == ("+", "hall", 19.5)
        assert httpx.get(f"{url}/readyz").status_code == 200
        found = listening(set().union(*map(sockets, family(process.pid))))
        assert found and set(found) <= LOOPBACK
        # A copy that is made while it runs, at rest, serves as well as the checkpoint itself.
        shutil.copytree(tmp_path / "state", tmp_path / "copy")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "copy").rename(tmp_path / "state")
    with served(tmp_path) as (_, client, _process):
        assert [query.state for query in client.queries()] == ["RUNNING"]
        client.insert("readings", [reading("10:10", "hall", 20.0)])
        more, _ = changes(client, 2, cursor)
        assert (rows + more)[:3] == [("+", "hall", 19.5), ("+", "attic", 23.0), ("-", "hall", 19.5)]
        selected = client.select("SELECT room, celsius FROM warm ORDER BY room")
        assert selected.to_arrow().to_pylist() == [{"room": "attic", "celsius": 23.0}]
        assert selected.instant == "2024-03-01T10:09:59.999999Z"
        snapshot = next(client.subscribe("warm", snapshot=True))
        assert [row["room"] for row in snapshot.to_pylist()] == ["attic"]
