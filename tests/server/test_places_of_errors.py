"""An error stands at its own statement, also where an earlier one is the same text or begins with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.server.roles import AccessRole
from tests.server.running import Running
from tests.server.test_live_service import ended, started

CREATE = "CREATE QUERY q AS SELECT room FROM readings [RANGE 1 HOUR]"


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder: Path = tmp_path_factory.mktemp("places")
    running = started(folder)
    yield running
    ended(running)


@pytest.mark.parametrize(
    ("sql", "line", "column"),
    [
        # Refused when it is executed: the first one has dropped the query.
        (f"{CREATE}; DROP QUERY q;\n\n  DROP QUERY q", 3, 14),
        (f"{CREATE}; DROP QUERY q;\n{CREATE};\n  {CREATE}", 3, 16),
        # Refused when it is bound.
        ("SELECT room FROM rooms;\nSELECT room FROM rooms WHERE roam > 1", 2, 30),
        ("SHOW QUERIES;\nSHOW QUERIES;\n SELECT room FROM rooms; SELECT room FROM roms", 3, 43),
        # Refused when it is parsed.
        ("DROP VIEW IF EXISTS v;\n\nDROP VIEW IF EXISTS v v", 3, 23),
    ],
)
def test_an_error_stands_at_its_own_statement(live: Running, sql: str, line: int, column: int) -> None:
    with live.client(AccessRole.ADMIN) as client:
        reply = client.post("/v1/statements", json={"sql": sql})
        client.post("/v1/statements", json={"sql": "DROP QUERY IF EXISTS q"})
    found = reply.json()
    errors = [found, *(one.get("error") or {} for one in found.get("results", ()))]
    positions = [error["position"] for error in errors if error.get("position")]
    assert positions and all((place["line"], place["column"]) == (line, column) for place in positions), found
