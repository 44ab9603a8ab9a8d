"""A relation without timestamps takes rows at every door; the answer names the queries that have read it before."""

from __future__ import annotations

from pathlib import Path

from penstock.client import connect
from penstock.server.roles import AccessRole
from tests.server.test_live_service import ROWS, ended, started, statement

NDJSON = "application/x-ndjson"
NAMED = "SELECT celsius, floor FROM readings [RANGE 1 DAY] AS r, rooms WHERE r.room = rooms.room"
CELLAR = {"at": "2024-03-01 10:20:00", "room": "cellar", "celsius": 11.0}
LAST = {"at": "2024-03-01 11:00:00", "room": "none", "celsius": 0.0}


def test_rows_are_accepted_over_http_and_the_answer_names_the_readers(tmp_path: Path) -> None:
    server = started(tmp_path)
    with connect(server.url, server.texts[AccessRole.CONTROL]) as client:
        assert client.post("rooms", b'{"room": "shed", "floor": 0}', "ndjson").notices == ()
        client.execute(f"CREATE QUERY early AS {NAMED}")
        (inserted,) = client.execute("INSERT INTO rooms VALUES ('cellar', -1)")
        (notice,) = inserted.notices
        assert inserted.error is None and "early keeps what was read" in notice and "RESUME" in notice
        client.execute(f"CREATE QUERY late AS {NAMED}")
        with server.client(AccessRole.CONTROL) as http:
            path, body = "/v1/streams/rooms/rows", '{"room": "roof", "floor": 3}\n'
            posted = http.post(path, content=body, headers={"Content-Type": NDJSON}).json()
            (found,) = posted["notices"]
            assert found["message"].startswith("rooms has no timestamps: early, late keep") and found["hint"]
            (again,) = statement(http, "INSERT INTO rooms VALUES ('tower', 9)").json()["statements"]
            assert again["notices"][0]["message"] == found["message"]
        client.insert("readings", [*ROWS, CELLAR, LAST])
        rooms = client.select("SELECT room FROM rooms ORDER BY room").to_arrow().column("room").to_pylist()
        assert rooms == ["attic", "cellar", "hall", "roof", "shed", "tower"]
        assert _floors(client, "early") == [0, 0, 2] and _floors(client, "late") == [-1, 0, 0, 2]
    ended(server)
    server = started(tmp_path, "")
    with connect(server.url, server.texts[AccessRole.CONTROL]) as client:
        client.insert("readings", [{**CELLAR, "at": "2024-03-01 11:10:00"}, {**LAST, "at": "2024-03-01 12:00:00"}])
        assert _floors(client, "early") == [0, 0, 2] and _floors(client, "late") == [-1, -1, 0, 0, 2]
        (inserted,) = client.execute("INSERT INTO rooms VALUES ('barn', 5)")
        assert "early, late keep" in inserted.notices[0]
    ended(server)


def _floors(client: object, query: str) -> list[int]:
    rows = client.select(f"SELECT floor FROM {query} ORDER BY floor").to_arrow()  # type: ignore[attr-defined]
    found: list[int] = rows.column("floor").to_pylist()
    return found
