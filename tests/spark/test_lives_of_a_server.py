"""`penstock serve` on Spark in four lives over one checkpoint: it is killed, ended by SIGTERM, and its JVM is killed.

Between them the log of batches and PostgreSQL's protocol, which need a server on Spark as well.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from server_kit import Server, at_least, changes, declared, reading, rows, served, warmest
from test_ports import LOOPBACK, family, listening, sockets

from penstock.client import ServerClient
from penstock.server.tokens import TokenFile

SCRIPT = (
    declared("readings")
    + declared("measured")
    + f"""
CREATE RELATION levels (room STRING, level INT, PRIMARY KEY (room)) FROM HTTP () SYSTEM TIME;
CREATE QUERY highest AS {warmest("measured")};
"""
)
ALERT = "CREATE QUERY alert AS ISTREAM(SELECT number, rows_in, seconds FROM penstock.batch_log [NOW] WHERE seconds > 0)"
RECENT = "CREATE QUERY recent AS SELECT COUNT(*) AS n, MAX(seconds) AS s FROM penstock.batch_log [RANGE 1 HOUR]"


def test_four_lives_of_a_server(tmp_path: Path) -> None:
    (tmp_path / "rooms.cql").write_text(SCRIPT, encoding="utf-8")
    with served(tmp_path) as server:
        found = alerts_on_the_system(server.client)
        server.process.kill()
        server.process.communicate(timeout=60)
    with served(tmp_path, "--pg", "127.0.0.1:0") as server:
        alerts_go_on(server, found)
        door_of_postgresql(server)
        told, cursor = at_rest(server)
        # A copy that is made while it runs, at rest, serves as well as the checkpoint itself.
        shutil.copytree(tmp_path / "state", tmp_path / "copy")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "copy").rename(tmp_path / "state")
    with served(tmp_path) as server:
        copy_goes_on(server.client, told, cursor)
        # Not a server that answers and in which nothing goes on: whoever watches it starts it again.
        for one in family(server.process.pid)[1:]:
            if b"java" in Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")[0]:
                os.kill(one, signal.SIGKILL)
        server.client.insert("later", [reading("10:30", "attic", 23.5)])
        assert server.process.wait(60) == 1
        assert "error P0601: the run failed: Spark's JVM was killed by SIGKILL" in server.notices
    with served(tmp_path) as server:
        server.client.insert("later", [reading("10:40", "attic", 22.0)])
        at_least(server.client, "SELECT * FROM warm WHERE celsius = 23.5", 1)
        assert rows(server.client, "SELECT * FROM warm ORDER BY room") == [
            {"room": "attic", "celsius": 23.5},
            {"room": "hall", "celsius": 20.0},
        ]


def alerts_on_the_system(client: ServerClient) -> list[dict[str, Any]]:
    client.execute(f"CREATE QUERY warm_readings AS {warmest('readings')}")
    client.execute(ALERT)
    client.execute(RECENT)
    for number in range(3):
        client.insert("readings", [reading(f"09:0{number}", "hall", 20.0 + number)])
        found = alerts(client, number + 1)
    assert [row["rows_in"] for row in found] == [1, 1, 1]
    # The log is quiet, so its time goes on without another row; then nothing runs any more.
    assert at_least(client, "SELECT n, s FROM recent WHERE n = 3", 1)[0]["s"] == max(row["seconds"] for row in found)
    at_rest = batches_of(client)
    time.sleep(3)
    assert batches_of(client) == at_rest, "nothing came, so nothing runs"
    listed = rows(client, "SELECT number, rows_in FROM penstock.batch_log ORDER BY number")
    assert listed == [{"number": row["number"], "rows_in": 1} for row in found]
    return found


def alerts(client: ServerClient, count: int) -> list[dict[str, Any]]:
    """Return the rows of the alert from its beginning, when there are so many."""
    found: list[dict[str, Any]] = []
    with client.subscribe("alert", beginning=True) as batches:
        for batch in batches:
            found += batch.to_pylist()
            if len(found) >= count:
                return found
    raise AssertionError("the subscription ended")


def batches_of(client: ServerClient) -> int:
    return int(rows(client, "SELECT MAX(number) AS n FROM penstock.batches")[0]["n"])


def alerts_go_on(server: Server, found: list[dict[str, Any]]) -> None:
    client = server.client
    client.insert("readings", [reading("09:30", "hall", 30.0)])
    again = alerts(client, 4)
    assert again[:3] == found and len({row["number"] for row in again}) == len(again)
    client.execute("DROP QUERY alert; DROP QUERY recent; DROP QUERY warm_readings;")
    assert not (server.folder / "state" / "control" / "kept" / "0").exists()


def door_of_postgresql(server: Server) -> None:
    """`penstock serve --pg`."""
    end = time.monotonic() + 30
    while "PostgreSQL's protocol: " not in (told := server.notices):
        assert time.monotonic() < end, told
        time.sleep(0.05)
    host, _, port = told.partition("PostgreSQL's protocol: ")[2].split()[0].rpartition(":")
    given = f"host={host} port={port} dbname=penstock user=first connect_timeout=30"
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(f"{given} password=wrong")
    (user,) = (one.name for one in TokenFile(server.folder / "penstock" / "tokens.json").entries())
    with psycopg.connect(given.replace("first", user) + f" password={server.token}", autocommit=True) as connection:
        connection.execute(
            "INSERT INTO measured VALUES ('2024-03-01 09:00:00', 'hall', 19.5), ('2024-03-01 09:20:00', 'attic', 23.0)"
        )
        with connection.cursor() as cursor:
            first = next(iter(cursor.stream("SUBSCRIBE TO highest WITH (SNAPSHOT)")))
        assert first[1:] == ("+", "hall", 19.5)
        cursor = connection.execute("INSERT INTO levels VALUES ('hall', 0), ('attic', 2), ('cellar', -1)")
        assert cursor.statusmessage == "INSERT 0 3"
        assert connection.execute("UPDATE levels SET level = 5 WHERE level >= 0").statusmessage == "UPDATE 2"
        sessions = connection.execute("SELECT who, door FROM penstock.sessions WHERE door = 'postgresql'").fetchall()
        assert sessions == [(user, "postgresql")]
        listed = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'penstock'").fetchall()
        assert ("batches",) in listed


def at_rest(server: Server) -> tuple[list[tuple[Any, ...]], str | None]:
    """Begin a query; return what it has answered, and the cursor behind it."""
    client = server.client
    client.execute(declared("later"))
    assert client.execute(f"CREATE QUERY warm AS {warmest('later')}")[0].state == "RUNNING"
    client.insert("later", [reading("09:00", "hall", 19.5), reading("09:20", "attic", 23.0)])
    told, cursor = changes(client, "warm", 1)
    assert told[0] == ("+", "hall", 19.5)
    (source,) = (one for one in client.catalog().sources if one.name == "later")
    assert source.heartbeat == "2024-03-01T09:19:59.999999Z"
    assert httpx.get(f"{server.url}/readyz").status_code == 200
    found = listening(set().union(*map(sockets, family(server.process.pid))))
    assert found and set(found) <= LOOPBACK
    return told, cursor


def copy_goes_on(client: ServerClient, told: list[tuple[Any, ...]], cursor: str | None) -> None:
    assert [(query.name, query.state) for query in client.queries()] == [("highest", "RUNNING"), ("warm", "RUNNING")]
    client.insert("later", [reading("10:10", "hall", 20.0)])
    more, _ = changes(client, "warm", 2, cursor)
    assert (told + more)[:3] == [("+", "hall", 19.5), ("+", "attic", 23.0), ("-", "hall", 19.5)]
    selected = client.select("SELECT room, celsius FROM warm ORDER BY room")
    assert selected.to_arrow().to_pylist() == [{"room": "attic", "celsius": 23.0}]
    assert selected.instant == "2024-03-01T10:09:59.999999Z"
    assert client.query("warm").rows == len(told) + len(more)
    snapshot = next(client.subscribe("warm", snapshot=True))
    assert [row["room"] for row in snapshot.to_pylist()] == ["attic"]
