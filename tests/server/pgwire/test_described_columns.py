"""A statement whose columns a client knows, and whose queries are replaced before it is executed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.server.roles import AccessRole
from tests.server.pgwire.running import RawClient, RunningPg, problem

CREATE = "CREATE QUERY replaced AS SELECT room FROM rooms WHERE level = 2"
OTHER_ROWS = "ALTER QUERY replaced AS SELECT room FROM rooms WHERE level = 0 START NOW"
#: ALTER QUERY .. AS keeps the columns of a result.
OTHER_COLUMNS = "DROP QUERY replaced; CREATE QUERY replaced AS SELECT room, level FROM rooms WHERE level = 2"
SELECT = "SELECT * FROM replaced"


def sent(raw: RawClient, *given: tuple[str, bytes]) -> list[tuple[str, bytes]]:
    for kind, body in given:
        raw.send(kind, body)
    raw.send("S")
    return raw.until("Z")


def prepared(raw: RawClient, text: str = SELECT, describe: bool = True) -> None:
    found = sent(raw, ("P", b"s\0" + text.encode() + b"\0\0\0"), *([("D", b"Ss\0")] if describe else []))
    assert "E" not in {kind for kind, _ in found}, found


def executed(raw: RawClient) -> list[tuple[str, bytes]]:
    return sent(raw, ("B", b"\0s\0\0\0\0\0\0\0"), ("E", b"\0\0\0\0\0"))


def done(raw: RawClient, text: str) -> None:
    assert "E" not in {kind for kind, _ in raw.query(text)}, text


@pytest.fixture
def replaced(raw: RawClient) -> Any:
    done(raw, CREATE)
    yield raw
    done(raw, "DROP QUERY replaced")


def test_other_rows_are_read(replaced: RawClient) -> None:
    prepared(replaced)
    assert "E" not in {kind for kind, _ in executed(replaced)}
    done(replaced, OTHER_ROWS)
    assert "E" not in {kind for kind, _ in executed(replaced)}


def test_other_columns_are_an_error_until_the_client_knows_them(replaced: RawClient) -> None:
    prepared(replaced)
    done(replaced, OTHER_COLUMNS)
    for _ in range(2):
        found = problem(executed(replaced))
        assert (found["C"], found["R"]) == ("0A000", "RevalidateCachedQuery")
        assert found["M"] == "P0901: cached plan must not change result type" and "prepare it again" in found["H"]
    (described,) = [body for kind, body in sent(replaced, ("D", b"Ss\0")) if kind == "T"]
    assert b"level" in described
    assert "E" not in {kind for kind, _ in executed(replaced)}


def test_a_client_that_does_not_know_them_reads_them(replaced: RawClient) -> None:
    prepared(replaced, describe=False)
    done(replaced, OTHER_COLUMNS)
    found = sent(replaced, ("B", b"\0s\0\0\0\0\0\0\0"), ("D", b"P\0"), ("E", b"\0\0\0\0\0"))
    (described,) = [body for kind, body in found if kind == "T"]
    assert b"level" in described and "E" not in {kind for kind, _ in found}


def test_what_it_reads_is_gone(raw: RawClient) -> None:
    done(raw, CREATE)
    prepared(raw)
    done(raw, "DROP QUERY replaced")
    assert problem(executed(raw))["C"] == "42P01"


def test_a_driver_that_keeps_statements_prepares_it_again(pg: RunningPg) -> None:
    asyncpg = pytest.importorskip("asyncpg")

    async def talk() -> None:
        given: dict[str, Any] = {"host": "127.0.0.1", "port": pg.port, "user": "admin", "database": "penstock"}
        connection = await asyncpg.connect(**given, password=pg.texts[AccessRole.ADMIN])
        try:
            await connection.execute(CREATE)
            await connection.fetch(SELECT)
            await connection.execute(OTHER_COLUMNS)
            await connection.fetch(SELECT)
        finally:
            await connection.execute("DROP QUERY IF EXISTS replaced")
            await connection.close()

    asyncio.run(talk())
