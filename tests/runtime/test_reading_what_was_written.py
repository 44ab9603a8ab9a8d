"""A server on the engine of Spark, whose rounds run beside its statements: a SELECT reads what was posted before, and
what a paused query has left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inline_engine import without_spark
from inline_server import opened_service

from penstock.language.scripts import parse_script
from penstock.server.roles import AccessRole, Caller
from penstock.server.service import ScriptRequest, Service, StatementReply
from penstock.server.statements.positions import position_text

__all__ = ["without_spark"]

ADMIN = Caller("test", AccessRole.ADMIN)
SCRIPT = """CREATE STREAM readings (ts BIGINT, room STRING) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION levels (ts BIGINT, room STRING, level INT, PRIMARY KEY (room)) FROM MEMORY ()
  TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY all_of AS SELECT ISTREAM(room) FROM readings [NOW];
CREATE QUERY counts AS SELECT room, COUNT(*) AS n FROM readings [RANGE 1 HOUR] GROUP BY room;
CREATE QUERY updated AS SELECT room, level FROM levels"""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_spark: None) -> Iterator[Service]:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    service, engine, _, _ = opened_service(checkpoint, monkeypatch)
    ended = threading.Event()

    def rounds() -> None:
        while not ended.wait(0.03):
            run: Any = engine.run
            if run is not None:
                run.round()

    thread = threading.Thread(target=rounds)
    thread.start()
    try:
        sent(service, SCRIPT)
        yield service
    finally:
        ended.set()
        thread.join()
        service.close()


def sent(service: Service, text: str, after: str | None = None) -> StatementReply:
    reply = service.execute(ScriptRequest(parse_script(text), ADMIN, after=after)).statements[-1]
    assert reply.error is None, reply.error
    return reply


def rows(service: Service, text: str, after: str | None = None) -> list[tuple[Any, ...]]:
    table = sent(service, text, after).table
    assert table is not None
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_what_was_written_is_read(served: Service) -> None:
    for number in range(12):
        # Not one behind the other: equal rows that leave and enter at one instant cancel.
        table = pa.table({"ts": pa.array([10 * number], pa.int64()), "room": ["hall"]})
        posted = served.post("readings", table, None, ADMIN)
        assert rows(served, "SELECT COUNT(*) AS n FROM all_of", posted.position) == [(number,)]
        inserted = sent(served, f"INSERT INTO levels VALUES ({number}, 'hall', {number})").position
        assert inserted is not None and inserted != posted.position
        both = f"{posted.position}, {inserted}"
        # The instant of the newest row is not final.
        expected = [("hall", number - 1)] if number else []
        assert rows(served, "SELECT room, level FROM updated", both) == expected
        assert rows(served, "SELECT room, level FROM levels", both) == expected


def test_what_nothing_reads_is_not_waited_for(served: Service) -> None:
    sent(served, "CREATE STREAM idle (ts BIGINT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND")
    posted = served.post("idle", pa.table({"ts": pa.array([1], pa.int64())}), None, ADMIN).position
    assert rows(served, "SELECT COUNT(*) AS n FROM all_of", position_text({99: 5})) == [(0,)]
    sent(served, "DROP STREAM idle")
    assert rows(served, "SELECT COUNT(*) AS n FROM all_of", posted) == [(0,)]


def test_a_paused_query_keeps_its_rows_and_a_new_one_is_empty(served: Service) -> None:
    table = pa.table({"ts": pa.array([1, 2, 3], pa.int64()), "room": ["a", "b", "c"]})
    posted = served.post("readings", table, None, ADMIN).position
    assert rows(served, "SELECT * FROM all_of", posted) == [(1, "a"), (2, "b")]
    (notice,) = sent(served, "SELECT * FROM all_of", posted).notices
    assert notice.message == "rows up to 3 have been read, and the answer is as of 2"
    sent(served, "ALTER QUERY all_of PAUSE")
    # All that it has emitted: nothing comes before the row at 3 any more.
    assert rows(served, "SELECT * FROM all_of") == [(1, "a"), (2, "b"), (3, "c")]
    # A name that is used again has none of the rows of the former query.
    sent(served, "DROP QUERY all_of; CREATE QUERY all_of AS SELECT ISTREAM(room) FROM readings [NOW]")
    time.sleep(0.1)
    assert rows(served, "SELECT * FROM all_of") == []
