"""Punctuations over HTTP, by the client and by the statement, in front of a real control in this process."""

from __future__ import annotations

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

SCRIPT = """CREATE STREAM bids (at TIMESTAMP, auction BIGINT, price INT) FROM HTTP () TIMESTAMP BY at;
CREATE STREAM ticks (tick BIGINT, v INT, said STRING) FROM MEMORY () TIMESTAMP BY tick PUNCTUATED BY said;
CREATE RELATION rooms (room STRING, floor INT, PRIMARY KEY (room)) FROM MEMORY ();
CREATE QUERY b AS SELECT auction, price FROM bids;
CREATE QUERY t AS ISTREAM(SELECT v FROM ticks [NOW]);
"""
PUNCTUATIONS, ROWS = "/v1/streams/bids/punctuations", "/v1/streams/bids/rows"
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = started(tmp_path_factory.mktemp("punctuations"), SCRIPT)
    yield running
    ended(running)


@pytest.fixture
def client(live: Running) -> Iterator[httpx.Client]:
    with live.client(AccessRole.CONTROL) as made:
        yield made


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def answered(server: ServerClient, query: str) -> list[Any]:
    batches = server.subscribe(query, beginning=True, until_now=True)
    return [row for batch in batches for row in batch.to_pylist()]


def kept(server: ServerClient, stream: str) -> int:
    text = f"SELECT punctuations FROM penstock.streams WHERE name = '{stream}'"
    (found,) = server.select(text).table.to_pylist()
    return int(found["punctuations"])


def test_a_punctuation_is_in_order_with_rows_and_once(live: Running, client: httpx.Client) -> None:
    row = '{"at": "2026-01-01T10:00:00Z", "auction": 17, "price": 5}'
    assert client.post(ROWS, content=row, headers=NDJSON).status_code == 200
    named = {"idempotency-key": "k"}
    first = client.post(PUNCTUATIONS, json={"where": "auction=17"}, headers=named)
    assert first.status_code == 200, first.text
    document = first.json()
    assert (document["where"], document["repeated"]) == ("auction = 17", False)
    assert document["position"] and "notices" not in document
    again = client.post(PUNCTUATIONS, json={"where": "17 = auction"}, headers=named).json()
    assert (again["repeated"], again["position"]) == (True, document["position"])
    other = client.post(PUNCTUATIONS, json={"where": "auction = 18"}, headers=named)
    assert (other.status_code, other.json()["code"]) == (422, "P0731")
    later = row.replace("10:00:00", "10:00:01") + "\n" + row.replace("17", "18").replace("10:00:00", "10:00:02")
    assert client.post(ROWS, content=later, headers=NDJSON).status_code == 200
    with connect(live.url, live.texts[AccessRole.CONTROL]) as server:
        server.stream("bids").heartbeat("2026-01-01T10:00:10Z")
        until(lambda: [row["auction"] for row in answered(server, "b")] == [17, 18])
        assert kept(server, "bids") == 1
    nothing = client.post(PUNCTUATIONS, json={"where": "price > 5 AND price < 5"}).json()
    assert nothing["notices"][0]["message"] == "nothing changes: no row can fulfil this"


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (PUNCTUATIONS, {"where": "auction <> 5"}, 400, "P0381"),
        (PUNCTUATIONS, {"where": "auction = 5 OR auction = 6"}, 400, "P0381"),
        (PUNCTUATIONS, {"where": "auction = "}, 400, "P0101"),
        (PUNCTUATIONS, {"where": ""}, 400, "P0101"),
        (PUNCTUATIONS, {"where": "bid = 5"}, 400, "P0202"),
        (PUNCTUATIONS, {"where": "auction = 5.5"}, 400, "P0203"),
        (PUNCTUATIONS, {"where": 5}, 400, "P0803"),
        (PUNCTUATIONS, {}, 400, "P0803"),
        (PUNCTUATIONS, {"where": "auction = 5", "more": 1}, 400, "P0803"),
        ("/v1/streams/rooms/punctuations", {"where": "floor = 5"}, 400, "P0380"),
        ("/v1/streams/nothing/punctuations", {"where": "a = 5"}, 404, "P0201"),
        ("/v1/streams/b/punctuations", {"where": "price = 5"}, 404, "P0201"),
    ],
)
def test_what_is_no_punctuation_is_refused(
    client: httpx.Client, path: str, body: dict[str, Any], status: int, code: str
) -> None:
    answer = client.post(path, json=body)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_a_reader_may_not_punctuate(live: Running) -> None:
    with live.client(AccessRole.READ) as reader:
        assert reader.post(PUNCTUATIONS, json={"where": "auction = 1"}).status_code == 403
        assert statement(reader, "PUNCTUATE bids WHERE auction = 1").status_code == 403
    with live.client() as nobody:
        assert nobody.post(PUNCTUATIONS, json={"where": "auction = 1"}).status_code == 401


def test_the_client_the_statement_and_records(live: Running) -> None:
    with connect(live.url, live.texts[AccessRole.CONTROL]) as server:
        ticks = server.stream("ticks")
        assert ticks.insert([{"tick": 1, "v": 1}, {"tick": 2, "v": 2, "said": None}]) == 2
        first = ticks.punctuate("v = 1")
        assert (first.where, first.repeated, first.notices) == ("v = 1", False, ()) and first.position
        # A record of a posted body is one too, without a timestamp.
        assert ticks.insert([{"tick": 3, "v": 1}, {"tick": None, "v": None, "said": "v = 2"}, {"tick": 4, "v": 2}]) == 3
        (reply,) = server.execute("PUNCTUATE ticks WHERE v BETWEEN 5 AND 7")
        assert (reply.kind, reply.state, reply.error, reply.notices) == ("PUNCTUATE", "COMPLETED", None, ())
        (reply,) = server.execute("PUNCTUATE ticks WHERE v IN (5, 6) AND tick <= 4 AND tick > 4")
        assert reply.notices == ("nothing changes: no row can fulfil this",)
        ticks.insert([{"tick": 5, "v": 6}, {"tick": 6, "v": 8}])
        ticks.heartbeat(7)
        until(lambda: [row["v"] for row in answered(server, "t")] == [1, 2, 8])
        assert kept(server, "ticks") == 3
        ticks.punctuate("v <= 7")
        ticks.punctuate("v <= 6")
        until(lambda: kept(server, "ticks") in (1, 4))
        for wrong in (1.5, None):
            with pytest.raises(PenstockError, match="P0203"):
                ticks.punctuate(wrong)  # type: ignore[arg-type]
        with pytest.raises(PenstockError, match="P0380"):
            server.stream("rooms").punctuate("floor = 5")
        with pytest.raises(PenstockError, match="P0380"):
            server.execute("PUNCTUATE rooms WHERE floor = 5")
        (found,) = server.select("SELECT punctuated_by FROM penstock.streams WHERE name = 'ticks'").table.to_pylist()
        assert found == {"punctuated_by": "said"}


def test_a_whole_catalog_says_it_again(live: Running) -> None:
    with connect(live.url, live.texts[AccessRole.ADMIN]) as server:
        text = server.catalog().sql
        assert "PUNCTUATED BY said" in text and "PUNCTUATE ticks" not in text, "punctuations are no declarations"
        assert list(server.apply(text)) == []
        changed = text.replace(" PUNCTUATED BY said", "")
        assert changed != text
        kinds = [one.kind for one in server.apply(changed, dry=True)]
        assert "CREATE STREAM" in kinds, "another stream"


def test_they_are_kept_over_a_restart(tmp_path: Path) -> None:
    running = started(tmp_path, SCRIPT)
    with connect(running.url, running.texts[AccessRole.CONTROL]) as server:
        server.stream("ticks").punctuate("v = 1", key="before")
        server.stream("ticks").insert([{"tick": 1, "v": 2}])
        until(lambda: kept(server, "ticks") == 1)
        server.stream("ticks").punctuate("v = 2")
    ended(running)
    running = started(tmp_path, SCRIPT)
    with connect(running.url, running.texts[AccessRole.CONTROL]) as server:
        assert server.stream("ticks").punctuate("v = 1", key="before").repeated
        server.stream("ticks").insert([{"tick": 2, "v": 1}, {"tick": 3, "v": 2}, {"tick": 4, "v": 3}])
        server.stream("ticks").heartbeat(7)
        until(lambda: [row["v"] for row in answered(server, "t")] == [2, 3])
        assert kept(server, "ticks") == 2
    ended(running)


def test_as_many_are_kept_as_the_setting_says(tmp_path: Path) -> None:
    running = started(tmp_path, SCRIPT)
    with connect(running.url, running.texts[AccessRole.ADMIN]) as server:
        server.execute("ALTER SYSTEM SET punctuations = 2")
        stream = server.stream("ticks")
        stream.punctuate("v IN (1, 2)")
        until(lambda: kept(server, "ticks") == 2)
        with pytest.raises(PenstockError, match="P0804") as refused:
            stream.punctuate("v = 3")
        assert "keeps 2 punctuations" in str(refused.value)
        # Of a record it is a dead letter.
        stream.insert([{"tick": 1, "said": "v = 3"}, {"tick": 1, "v": 3}])
        stream.heartbeat(7)
        until(lambda: [row["v"] for row in answered(server, "t")] == [3])
        assert kept(server, "ticks") == 2
    ended(running)


def test_what_was_closed_before_a_query_began(tmp_path: Path) -> None:
    """CLOSED follows the punctuations that come from then on, and where it begins with a past those of before."""
    running = started(tmp_path, SCRIPT)
    with connect(running.url, running.texts[AccessRole.CONTROL]) as server:
        stream = server.stream("ticks")
        stream.insert([{"tick": 1, "v": 1}, {"tick": 1, "v": 2}])
        stream.punctuate("v = 1")
        until(lambda: kept(server, "ticks") == 1)
        closed = "SELECT v, COUNT(*) AS n FROM ticks GROUP BY v HAVING CLOSED(v)"
        server.execute(f"CREATE QUERY w START BEGINNING AS {closed}")
        server.execute(f"CREATE QUERY q AS {closed}")
        stream.insert([{"tick": 2, "v": 2}, {"tick": 3, "v": 3}, {"tick": 3, "said": "v <= 3"}, {"tick": 4, "v": 4}])
        stream.heartbeat(9)
        until(lambda: [(row["v"], row["n"]) for row in answered(server, "q")] == [(2, 1), (3, 1)])
        until(lambda: sorted((row["v"], row["n"]) for row in answered(server, "w")) == [(1, 1), (2, 2), (3, 1)])
    ended(running)
