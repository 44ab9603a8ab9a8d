"""What a SELECT reads of queries: rows with their timestamps, contents, and notices of what is not there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import ServerClient, connect
from penstock.errors import PenstockError
from penstock.results.cancellation import Cancellation
from penstock.server.roles import AccessRole
from penstock.server.statements.positions import await_read
from tests.server.running import Running
from tests.server.test_live_service import ROWS, WARM, ended, started, statement

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
    count = client.select("SELECT * FROM hot").to_arrow().num_rows
    client.execute("ALTER QUERY hot PAUSE; ALTER QUERY warm PAUSE")
    assert count and client.select("SELECT * FROM hot").to_arrow().num_rows == count
    assert client.select("SELECT room FROM warm").to_arrow().to_pylist() == [{"room": "attic"}]


def test_a_relation_has_no_timestamp(client: ServerClient) -> None:
    with pytest.raises(PenstockError, match="P0202"):
        client.select("SELECT ts FROM warm")


def test_what_was_posted_is_read(live: Running, client: ServerClient) -> None:
    """Without a wait between them: each SELECT has the rows of the INSERT or post before it."""
    for number in range(30):
        at = f"2024-03-01 09:{number:02}:00"
        if number % 2:
            client.insert("readings", [{"at": at, "room": "hall", "celsius": 20.0}])
        else:
            client.execute(f"INSERT INTO readings VALUES (TIMESTAMP '{at}', 'hall', 20.0)")
        # The instant of the row itself is not final.
        assert client.select("SELECT COUNT(*) AS n FROM hot").to_arrow().to_pylist() == [{"n": number}]
        (script,) = client.execute("SELECT COUNT(*) AS n FROM hot")
        assert script.rows == [{"n": number}]
    with client.subscribe("hot", beginning=True, until_now=True) as rows:
        assert sum(batch.num_rows for batch in rows) == 29


def test_positions_over_http(live: Running, client: ServerClient) -> None:
    with live.client(AccessRole.CONTROL) as raw:
        added = raw.post(
            "/v1/streams/readings/rows",
            content=b"at,room,celsius\n2024-03-01T09:00:00Z,hall,21\n",
            headers={"Content-Type": "text/csv"},
        ).json()
        source = added["position"].split(".")[0]
        inserted = statement(raw, "INSERT INTO rooms VALUES ('cellar', -1)").json()["statements"][0]
        assert inserted["position"].split(".")[0] != source
        select = {"sql": "SELECT COUNT(*) AS n FROM hot"}
        both = {"Penstock-After": f"{added['position']}, {inserted['position']}"}
        assert raw.post("/v1/statements", json=select, headers=both).json()["statements"][0]["rows"] == [{"n": 0}]
        for wrong in ("x", "1", "1.2.3", "-1.2", "1." + "9" * 13):
            refused = raw.post("/v1/statements", json=select, headers={"Penstock-After": wrong})
            assert (refused.status_code, refused.json()["code"]) == (410, "P0712"), wrong
        # Nothing reads what has been dropped, or was never there.
        assert raw.post("/v1/statements", json=select, headers={"Penstock-After": "999.1"}).status_code == 200


def test_a_position_is_waited_for_so_long(live: Running, client: ServerClient) -> None:
    waits: list[float] = []

    def never(source: int, post: int) -> bool:
        waits.append(time.monotonic())
        return False

    with pytest.raises(PenstockError, match="P0725"):
        await_read("1.2", never, Cancellation(), 0.05)
    assert len(waits) > 1
    left = Cancellation()
    left.set()
    with pytest.raises(PenstockError, match="P0726"):
        await_read("1.2", never, left, None)


def test_explain_of_a_one_time_select(client: ServerClient) -> None:
    (plan,) = client.execute("EXPLAIN SELECT room, COUNT(*) AS n FROM hot WHERE celsius > 20 GROUP BY room")
    assert plan.text is not None and "hot" in plan.text and "room" in plan.text
    (control,) = client.execute("EXPLAIN SELECT name FROM penstock.queries WHERE state = 'RUNNING'")
    assert control.text is not None and "queries" in control.text
    with pytest.raises(PenstockError, match="P0201"):
        client.execute("EXPLAIN START SELECT room FROM warm")


def test_a_non_retroactive_relation_is_selected(client: ServerClient) -> None:
    client.execute("CREATE NON RETROACTIVE RELATION tax (at TIMESTAMP, rate INT) FROM MEMORY () TIMESTAMP BY at")
    client.execute("CREATE NON RETROACTIVE RELATION fixed (rate INT) FROM MEMORY (); INSERT INTO fixed VALUES (7)")
    assert client.select("SELECT rate FROM fixed").to_arrow().to_pylist() == [{"rate": 7}]
    with pytest.raises(PenstockError, match="P0340"):
        client.execute("CREATE QUERY alone AS SELECT rate FROM tax")


def test_a_select_without_from_is_answered(live: Running, client: ServerClient) -> None:
    assert client.select("SELECT 1 AS a, 'x' AS b").to_arrow().to_pylist() == [{"a": 1, "b": "x"}]
    assert client.select("VALUES (2), (1) ORDER BY col1").to_arrow().to_pylist() == [{"col1": 1}, {"col1": 2}]
    assert client.select("SELECT COUNT(*) AS n").to_arrow().to_pylist() == [{"n": 1}]
    joined = (
        "SELECT rooms.room, w.name FROM rooms JOIN (VALUES (2, 'high')) AS w (floor, name) ON rooms.floor = w.floor"
    )
    assert client.select(joined).to_arrow().to_pylist() == [{"room": "attic", "name": "high"}]
    with live.client(AccessRole.READ) as http:
        reply = statement(http, "SELECT 1 AS a; VALUES (3)").json()["statements"]
        assert [(one["kind"], one["rows"]) for one in reply] == [("SELECT", [{"a": 1}]), ("SELECT", [{"col1": 3}])]
        error = statement(http, "SELECT a").json()
        assert error["code"] == "P0202" and "no FROM" in error["hint"]


def test_constants_beside_a_stream_answer_on_after_a_restart(tmp_path: Path) -> None:
    server = started(tmp_path)
    values = "(VALUES ('hall', 'low')) AS w (room, name)"
    named = f"CREATE QUERY named AS SELECT celsius, name FROM readings [RANGE 1 DAY] r, {values} WHERE r.room = w.room"
    with connect(server.url, server.texts[AccessRole.CONTROL]) as client:
        client.execute(f"CREATE QUERY one AS SELECT 1 AS a; {named};")
        client.insert("readings", ROWS[:2])
        assert client.select("SELECT * FROM one").to_arrow().to_pylist() == [{"a": 1}]
        assert client.select("SELECT * FROM named").to_arrow().num_rows == 1
    ended(server)
    server = started(tmp_path, "")
    with connect(server.url, server.texts[AccessRole.CONTROL]) as client:
        client.insert("readings", [*ROWS[2:], {"at": "2024-03-01 11:00:00", "room": "attic", "celsius": 1.0}])
        assert client.select("SELECT * FROM one").to_arrow().to_pylist() == [{"a": 1}]
        found = client.select("SELECT * FROM named ORDER BY celsius").to_arrow().to_pylist()
        assert found == [{"celsius": 19.5, "name": "low"}, {"celsius": 20.0, "name": "low"}]
    ended(server)
