"""`penstock serve` on Spark: registered, answered, subscribed, ended by SIGTERM, and continued by another process over
a copy of its checkpoint.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from test_ports import LOOPBACK, family, listening, sockets

from penstock.client import ServerClient, connect
from penstock.errors import PenstockError
from tests.commands import penstock

#: Where a server is killed, or is looked below; else one that is ready.
PROGRAM = (sys.executable, "-m", "penstock")

ROOMS = "CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at;"
WARM = "CREATE QUERY warm AS SELECT room, MAX(celsius) AS celsius FROM readings [RANGE 1 HOUR] GROUP BY room"


def reading(time: str, room: str, celsius: float) -> dict[str, Any]:
    return {"at": f"2024-03-01 {time}:00", "room": room, "celsius": celsius}


@contextmanager
def served(
    folder: Path, *options: str, program: tuple[str, ...] = PROGRAM
) -> Iterator[tuple[str, ServerClient, subprocess.Popen[str]]]:
    command = [*program, "serve", str(folder / "rooms.cql"), "--http", "127.0.0.1:0"]
    process = subprocess.Popen(
        [*command, "--checkpoint", str(folder / "state"), *options], env={**os.environ, "XDG_CONFIG_HOME": str(folder)},
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


LEVELS = """CREATE STREAM kept (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at RETAIN 2 HOURS;
CREATE STREAM passed (at TIMESTAMP, room STRING) FROM HTTP () TIMESTAMP BY at;
CREATE RELATION levels (at TIMESTAMP, room STRING, level INT, PRIMARY KEY (room)) FROM HTTP () TIMESTAMP BY at;
CREATE QUERY warm AS SELECT room, MAX(celsius) AS celsius FROM kept [RANGE 1 HOUR] GROUP BY room;"""
COUNTED = "SELECT room, COUNT(*) AS n FROM kept [RANGE 1 HOUR] GROUP BY room ORDER BY room"
JOINED = "SELECT kept.room, celsius, level FROM kept [RANGE 1 HOUR], levels WHERE kept.room = levels.room"


def at_least(client: ServerClient, sql: str, rows: int) -> list[dict[str, Any]]:
    """The answer of a SELECT, when it has so many rows."""
    end = time.monotonic() + 60
    while len(found := client.select(sql).to_arrow().to_pylist()) < rows:
        assert time.monotonic() < end, found
        time.sleep(0.2)
    return found


@pytest.mark.spark
def test_one_time_queries_over_what_a_server_keeps(tmp_path: Path) -> None:
    """Streams that are retained, updates of relations and answers, before and after a restart; the run beside them
    answers as ever."""
    (tmp_path / "rooms.cql").write_text(LEVELS, encoding="utf-8")
    with served(tmp_path, program=penstock()) as (_, client, process):
        assert client.select("SELECT COUNT(*) AS n FROM kept").to_arrow().to_pylist() == [{"n": 0}]
        client.insert("levels", [{"at": "2024-03-01 08:00:00", "room": "hall", "level": 1},
                                 {"at": "2024-03-01 09:40:00", "room": "attic", "level": 2},
                                 {"at": "2024-03-01 12:00:00", "room": "cellar", "level": 0}])  # fmt: skip
        answers: list[int] = []
        for number in range(12):
            client.insert("kept", [reading(f"09:{5 * number:02}", "hall" if number % 2 else "attic", 10.0 + number)])
            answers += [row["n"] for row in client.select(COUNTED).to_arrow().to_pylist()]
        at_least(client, "SELECT at FROM kept", 11)
        rows = client.select(COUNTED)
        assert rows.to_arrow().to_pylist() == [{"room": "attic", "n": 6}, {"room": "hall", "n": 5}]
        assert rows.instant == "2024-03-01T09:54:59.999999Z" and max(answers, default=0) <= 6
        joined = client.select(JOINED).to_arrow().to_pylist()
        assert sorted((row["room"], row["level"]) for row in joined) == [("attic", 2)] * 6 + [("hall", 1)] * 5
        both = client.select("SELECT warm.celsius, level FROM warm, levels WHERE warm.room = levels.room").to_arrow()
        assert sorted(row["celsius"] for row in both.to_pylist()) == [19.0, 20.0]
        for sql, hint in [("SELECT room FROM passed", "ALTER STREAM passed SET (retain"),
                          ("SELECT room FROM kept [RANGE 1 HOUR] AS OF '2025-01-01'", "ask again later")]:  # fmt: skip
            with pytest.raises(PenstockError, match="P0721") as caught:
                client.select(sql)
            assert hint in str(caught.value.hint)
        client.execute("ALTER STREAM passed SET (retain '10 MINUTES')")
        client.insert("passed", [{"at": f"2024-03-01 09:0{n}:00", "room": "hall"} for n in range(3)])
        assert len(at_least(client, "SELECT at FROM passed", 2)) == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    # With so little memory each of them is a job of Spark.
    with served(tmp_path, "--set", "snapshot_memory=512", program=penstock()) as (_, client, _process):
        again = client.select(COUNTED)
        assert again.to_arrow().equals(rows.to_arrow()) and again.instant == rows.instant
        assert sorted(map(repr, client.select(JOINED).to_arrow().to_pylist())) == sorted(map(repr, joined))
        assert changes(client, 2)[0][:2] == [("+", "attic", 10.0), ("+", "hall", 11.0)]


NAMES = """CREATE RELATION names (room STRING, name STRING, PRIMARY KEY (room)) FROM MEMORY ();
INSERT INTO names VALUES ('hall', 'Halle'), ('attic', NULL);
CREATE STREAM kept (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at RETAIN 2 HOURS;"""
NAMED = "SELECT name, celsius FROM kept [RANGE 1 HOUR] AS k, names AS n WHERE k.room = n.room"


@pytest.mark.spark
def test_static_relations_of_a_server(tmp_path: Path) -> None:
    """They are read by standing queries, with a stream or alone, and by SELECT beside these; also after a restart."""
    (tmp_path / "rooms.cql").write_text(NAMES, encoding="utf-8")
    everything = [{"room": "attic", "name": None}, {"room": "hall", "name": "Halle"}]
    named = [{"name": "Halle", "celsius": 19.5}, {"name": "Halle", "celsius": 21.0}]

    def check(client: ServerClient, rows: int) -> None:
        assert client.select("SELECT * FROM names ORDER BY room").to_arrow().to_pylist() == everything
        for sql in (NAMED, "SELECT * FROM warm"):
            found = at_least(client, f"{sql} ORDER BY celsius", rows)
            assert [row for row in found if row["name"] is not None] == named[: len(found) - 1], sql
        assert at_least(client, "SELECT * FROM alone ORDER BY room", 2) == everything

    with served(tmp_path, program=penstock()) as (_, client, process):
        (told,) = client.execute("INSERT INTO names VALUES ('cellar', 'Keller'), ('hall', 'twice')")
        assert told.state == "FAILED"
        assert client.select("SELECT * FROM names ORDER BY room").to_arrow().to_pylist() == everything
        client.execute(f"CREATE QUERY alone AS SELECT * FROM names; CREATE QUERY warm AS {NAMED}")
        client.insert("kept", [reading("09:00", "hall", 19.5), reading("09:20", "attic", 23.0)])
        client.insert("kept", [reading("09:30", "hall", 21.0)])
        check(client, 2)
        with pytest.raises(PenstockError, match="P0701") as caught:
            client.execute("SHOW VIEWS; INSERT INTO names VALUES ('cellar', 'Keller')")
        assert caught.value.position is not None and caught.value.position.column == 13
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with served(tmp_path, program=penstock()) as (_, client, _process):
        client.execute(f"CREATE QUERY late START WARM AS {NAMED}")
        client.insert("kept", [reading("09:40", "none", 0.0)])
        check(client, 3)
        at_least(client, "SELECT * FROM late", 3)


@pytest.mark.spark
def test_the_first_answer_of_a_query_with_a_past_is_whole(tmp_path: Path) -> None:
    """From the moment on at which it can be read: the batch in which it begins is waited for."""
    (tmp_path / "rooms.cql").write_text(LEVELS, encoding="utf-8")
    with served(tmp_path, program=penstock()) as (_, client, _process):
        client.insert("kept", [reading("09:00", "hall", 19.5), reading("09:20", "attic", 23.0)])
        at_least(client, COUNTED, 1)
        for name in ("late", "later"):
            client.execute(f"CREATE QUERY {name} START WARM AS {COUNTED.partition(' ORDER BY')[0]}")
            end, found = time.monotonic() + 60, None
            while found is None:
                assert time.monotonic() < end
                try:
                    found = client.select(f"SELECT * FROM {name}")
                except PenstockError as error:
                    # It is HYDRATING.
                    assert error.code == "P0721", error
            assert found.to_arrow().to_pylist() == [{"room": "hall", "n": 1}]
            assert found.instant == "2024-03-01T09:19:59.999999Z"


@pytest.mark.spark
def test_a_server_whose_run_has_ended_ends(tmp_path: Path) -> None:
    """Not one that answers and in which nothing goes on: whoever watches it starts it again."""
    (tmp_path / "rooms.cql").write_text(ROOMS, encoding="utf-8")
    with served(tmp_path) as (_, client, process):
        client.execute(WARM)
        client.insert("readings", [reading("09:00", "hall", 19.5)])
        for one in family(process.pid)[1:]:
            if b"java" in Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0")[0]:
                os.kill(one, signal.SIGKILL)
        client.insert("readings", [reading("09:20", "attic", 23.0)])
        assert process.wait(60) == 1
        assert "error P0601: the run failed: Spark's JVM was killed by SIGKILL" in process.communicate()[1]
    with served(tmp_path) as (_, client, _process):
        client.insert("readings", [reading("09:30", "attic", 20.0)])
        found = at_least(client, "SELECT * FROM warm ORDER BY room", 2)
        assert found == [{"room": "attic", "celsius": 23.0}, {"room": "hall", "celsius": 19.5}]


@pytest.mark.spark
def test_a_server_is_ended_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "rooms.cql").write_text(ROOMS, encoding="utf-8")
    with served(tmp_path) as (url, client, process):
        assert client.execute(WARM)[0].state == "RUNNING"
        client.insert("readings", [reading("09:00", "hall", 19.5), reading("09:20", "attic", 23.0)])
        rows, cursor = changes(client, 1)
        assert rows[0] == ("+", "hall", 19.5)
        (source,) = (one for one in client.catalog().sources if one.name == "readings")
        assert source.heartbeat == "2024-03-01T09:19:59.999999Z"
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
        assert client.query("warm").rows == len(rows) + len(more)
        snapshot = next(client.subscribe("warm", snapshot=True))
        assert [row["room"] for row in snapshot.to_pylist()] == ["attic"]
