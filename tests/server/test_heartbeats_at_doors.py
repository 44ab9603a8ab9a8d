"""Heartbeats over HTTP, by the client and by the statement, in front of a real control in this process."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.client import ServerClient, connect
from penstock.errors import PenstockError
from penstock.server.roles import AccessRole
from tests.server.running import Running
from tests.server.test_live_service import ended, started, statement

SCRIPT = """CREATE STREAM readings (at TIMESTAMP, room STRING) FROM HTTP () TIMESTAMP BY at;
CREATE STREAM ticks (tick BIGINT, v INT, h BOOLEAN) FROM MEMORY () TIMESTAMP BY tick HEARTBEAT BY h;
CREATE RELATION rooms (room STRING, floor INT, PRIMARY KEY (room)) FROM MEMORY ();
CREATE QUERY n AS SELECT COUNT(*) AS n FROM readings [RANGE 10 SECONDS];
CREATE QUERY t AS SELECT COUNT(*) AS n FROM ticks [RANGE 10 SECONDS];
"""
HEARTBEAT, ROWS = "/v1/streams/readings/heartbeat", "/v1/streams/readings/rows"
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = started(tmp_path_factory.mktemp("heartbeats"), SCRIPT)
    yield running
    ended(running)


@pytest.fixture
def client(live: Running) -> Iterator[httpx.Client]:
    with live.client(AccessRole.CONTROL) as made:
        yield made


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def count(live: Running) -> list[Any]:
    """The content of the query n."""
    with connect(live.url, live.texts[AccessRole.READ]) as server:
        rows: list[Any] = server.select("SELECT n FROM n").table.column("n").to_pylist()
        return rows


def test_a_heartbeat_is_in_order_with_rows_and_once(live: Running, client: httpx.Client) -> None:
    row = '{"at": "2026-01-01T10:00:00Z", "room": "hall"}'
    assert client.post(ROWS, content=row, headers=NDJSON).status_code == 200
    named = {"idempotency-key": "k"}
    first = client.post(HEARTBEAT, json={"ts": "2026-01-01T10:01:00+00:00"}, headers=named)
    assert first.status_code == 200, first.text
    document = first.json()
    assert (document["ts"], document["repeated"]) == ("2026-01-01T10:01:00Z", False)
    assert document["position"] and "notices" not in document
    again = client.post(HEARTBEAT, json={"ts": "2026-01-01T10:01:00Z"}, headers=named).json()
    assert (again["repeated"], again["position"]) == (True, document["position"])
    other = client.post(HEARTBEAT, json={"ts": "2026-01-01T10:02:00Z"}, headers=named)
    assert (other.status_code, other.json()["code"]) == (422, "P0731")
    # What the answer's position has been read up to contains the heartbeat.
    after = {"penstock-after": document["position"]}
    read = client.post(
        "/v1/statements", json={"sql": "SELECT heartbeat FROM penstock.streams WHERE name = 'readings'"}, headers=after
    )
    assert "2026-01-01T10:01:00" in read.text
    late = client.post(ROWS, content=row, headers=NDJSON).json()
    assert (late["late"], late["complete_to"]) == (1, "2026-01-01T10:01:00Z")
    until(lambda: count(live) == [0])
    nothing = client.post(HEARTBEAT, json={"ts": "2026-01-01T10:00:30Z"}).json()
    assert nothing["complete_to"] == "2026-01-01T10:01:00Z"
    assert nothing["notices"][0]["message"] == (
        "nothing changes: readings is complete up to 2026-01-01T10:01:00Z already"
    )


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (HEARTBEAT, {"ts": 5}, 400, "P0102"),
        (HEARTBEAT, {"ts": "soon"}, 400, "P0102"),
        (HEARTBEAT, {"ts": "10000-01-01T00:00:00Z"}, 400, "P0102"),
        (HEARTBEAT, {"ts": None}, 400, "P0803"),
        (HEARTBEAT, {"ts": True}, 400, "P0803"),
        (HEARTBEAT, {"ts": 1.5}, 400, "P0803"),
        (HEARTBEAT, {}, 400, "P0803"),
        (HEARTBEAT, {"ts": "2026-01-01", "more": 1}, 400, "P0803"),
        ("/v1/streams/ticks/heartbeat", {"ts": "2026-01-01T00:00:00Z"}, 400, "P0102"),
        ("/v1/streams/ticks/heartbeat", {"ts": 2**61}, 400, "P0102"),
        ("/v1/streams/ticks/heartbeat", {"ts": -(2**63)}, 400, "P0102"),
        ("/v1/streams/ticks/heartbeat", {"ts": 10**40}, 400, "P0102"),
        ("/v1/streams/rooms/heartbeat", {"ts": 5}, 400, "P0380"),
        ("/v1/streams/nothing/heartbeat", {"ts": 5}, 404, "P0201"),
        ("/v1/streams/n/heartbeat", {"ts": 5}, 404, "P0201"),
    ],
)
def test_what_is_no_heartbeat_is_refused(
    client: httpx.Client, path: str, body: dict[str, Any], status: int, code: str
) -> None:
    answer = client.post(path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_a_reader_may_not_advance(live: Running) -> None:
    with live.client(AccessRole.READ) as reader:
        assert reader.post(HEARTBEAT, json={"ts": "2026-01-01"}).status_code == 403
        assert statement(reader, "ADVANCE readings TO '2026-01-01'").status_code == 403
    with live.client() as nobody:
        assert nobody.post(HEARTBEAT, json={"ts": "2026-01-01"}).status_code == 401


def test_the_client_the_statement_and_records(live: Running) -> None:
    with connect(live.url, live.texts[AccessRole.CONTROL]) as server:
        ticks = server.stream("ticks")
        assert ticks.insert([{"tick": 1, "v": 1}, {"tick": 2, "v": 2, "h": False}]) == 2
        first = ticks.heartbeat(5)
        assert (first.ts, first.repeated) == ("5", False) and first.position
        assert first.complete_to in (None, "1"), "the rows may have been read"
        # A record of a posted body is one too.
        assert ticks.insert([{"tick": 6, "v": 3, "h": None}, {"tick": 20, "v": None, "h": True}]) == 2
        (reply,) = server.execute("ADVANCE ticks TO 40")
        assert (reply.kind, reply.state, reply.error, reply.notices) == ("ADVANCE", "COMPLETED", None, ())
        _advanced(server, "ticks", 40)
        (reply,) = server.execute("ADVANCE ticks TO 39")
        assert reply.notices == ("nothing changes: ticks is complete up to 40 already",)
        assert ticks.heartbeat(40).notices == ("nothing changes: ticks is complete up to 40 already",)
        with pytest.warns(UserWarning, match="late"):
            ticks.insert([{"tick": 40, "v": 4}])
        moment = dt.datetime(2026, 1, 1, 11, tzinfo=dt.timezone(dt.timedelta(hours=1)))
        assert server.stream("readings").heartbeat(moment).ts == "2026-01-01T10:00:00Z"
        (far,) = server.execute("ADVANCE readings TO '9026-01-01 10:00:00'")
        assert "years ahead of the clock; rows before it are late" in far.notices[0]
        for wrong in (1.5, None, True):
            with pytest.raises(PenstockError, match="P0203"):
                ticks.heartbeat(wrong)  # type: ignore[arg-type]
        with pytest.raises(PenstockError, match="P0380"):
            server.stream("rooms").heartbeat(5)
        assert repr(ticks) == "RemoteStream('ticks')"
        (found,) = server.select(
            "SELECT heartbeat_by, idle_advances, heartbeat_tick FROM penstock.streams WHERE name = 'ticks'"
        ).table.to_pylist()
        assert found == {"heartbeat_by": "h", "idle_advances": False, "heartbeat_tick": 40}


def _advanced(server: ServerClient, stream: str, tick: int) -> None:
    until(lambda: any(one.name == stream and one.heartbeat == str(tick) for one in server.catalog().sources))


def test_a_whole_catalog_says_it_again(live: Running) -> None:
    with connect(live.url, live.texts[AccessRole.ADMIN]) as server:
        text = server.catalog().sql
        assert "HEARTBEAT BY h" in text and "ADVANCE ticks" not in text, "heartbeats are no declarations"
        assert list(server.apply(text)) == []
        changed = text.replace("TIMESTAMP BY tick HEARTBEAT BY h", "TIMESTAMP BY tick")
        assert changed != text
        kinds = [one.kind for one in server.apply(changed, dry=True)]
        assert "CREATE STREAM" in kinds, "another stream"


def test_without_rows_before_it(tmp_path: Path) -> None:
    """Over a restart too; an element that is not above it is late, and the first one begins time."""
    running = started(tmp_path, SCRIPT)
    with connect(running.url, running.texts[AccessRole.CONTROL]) as server:
        server.stream("ticks").heartbeat(7, key="before")
    ended(running)
    running = started(tmp_path, SCRIPT)
    with connect(running.url, running.texts[AccessRole.CONTROL]) as server:
        assert server.stream("ticks").heartbeat(7, key="before").repeated
        _advanced(server, "ticks", 7)
        with pytest.warns(UserWarning, match="late"):
            server.stream("ticks").insert([{"tick": 7, "v": 1}, {"tick": 8, "v": 1}])
        server.execute("ADVANCE ticks TO 9")
        rows = [row for batch in server.subscribe("t", beginning=True, until_now=True) for row in batch.to_pylist()]
        assert not rows or (rows[0]["ts"], rows[0]["n"]) == (8, 1)
    ended(running)
