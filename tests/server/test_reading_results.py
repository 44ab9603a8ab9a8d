"""What a SELECT reads of queries: rows with their timestamps, contents, and notices of what is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import ServerClient, connect
from penstock.errors import PenstockError
from penstock.server.roles import AccessRole
from tests.server.running import Running
from tests.server.test_live_service import ROWS, WARM, answers, ended, started

HOT = "CREATE QUERY hot AS SELECT ISTREAM(room, celsius) FROM readings [NOW] WHERE celsius > 19"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Running]:
    server = started(tmp_path)
    yield server
    ended(server)


@pytest.fixture
def client(live: Running) -> Iterator[ServerClient]:
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        client.execute(f"{WARM}; {HOT};")
        yield client


def test_a_select_reads_the_answers_of_queries(live: Running, client: ServerClient) -> None:
    before = client.select("SELECT * FROM hot")
    assert before.to_arrow().column_names == ["ts", "room", "celsius"] and not before.to_arrow().num_rows
    client.insert("readings", ROWS)
    answers(live, "warm", 3)
    found = client.select("SELECT * FROM hot ORDER BY ts")
    assert [tuple(row.values())[1:] for row in found.to_arrow().to_pylist()][:2] == [("hall", 19.5), ("attic", 23.0)]
    assert client.select("SELECT ts FROM hot WHERE room = 'attic'").to_arrow().to_pylist()[0]["ts"].hour == 9
    warm = client.select("SELECT room, celsius FROM warm")
    assert [tuple(row.values()) for row in warm.to_arrow().to_pylist()] == [("attic", 23.0)]
    joined = "SELECT warm.room, floor FROM warm, rooms WHERE warm.room = rooms.room"
    assert client.select(joined).to_arrow().to_pylist() == [{"room": "attic", "floor": 2}]
    # The rows of the newest instant have been read, and may not be all.
    (notice,) = warm.notices
    assert notice.startswith(
        "rows up to 2024-03-01T10:10:00Z have been read, and the answer is as of 2024-03-01T10:09:59"
    )
    (written,) = client.execute("SELECT room FROM warm")
    assert written.notices == warm.notices


def test_the_catalogs_agree_with_select(client: ServerClient) -> None:
    client.execute("CREATE QUERY timed AS SELECT at AS ts, ISTREAM(room) FROM readings [NOW]") if False else None
    for name in ("hot", "warm"):
        columns = client.select(f"SELECT * FROM {name}").to_arrow().column_names
        assert [column for column, _ in client.query(name).selected] == columns
        text = f"SELECT name FROM penstock.columns WHERE object = '{name}' ORDER BY position"
        assert client.select(text).to_arrow().column("name").to_pylist() == columns
        described = client.execute(f"DESCRIBE {name}")[0].text
        assert described is not None
        assert [line.split()[0] for line in described.splitlines()[1 : len(columns) + 1]] == columns


def test_a_paused_query_keeps_what_it_has_answered(live: Running, client: ServerClient) -> None:
    client.insert("readings", ROWS)
    answers(live, "warm", 3)
    count = client.select("SELECT * FROM hot").to_arrow().num_rows
    client.execute("ALTER QUERY hot PAUSE; ALTER QUERY warm PAUSE")
    assert count and client.select("SELECT * FROM hot").to_arrow().num_rows == count
    assert client.select("SELECT room FROM warm").to_arrow().to_pylist() == [{"room": "attic"}]


def test_a_relation_has_no_timestamp(client: ServerClient) -> None:
    with pytest.raises(PenstockError, match="P0202"):
        client.select("SELECT ts FROM warm")
