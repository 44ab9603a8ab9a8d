"""What explain and a session say of the state of queries before they run."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.physical.planning.state_size.summary import size_text
from penstock.runtime.spark.changes.restart_decision import decide
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.start import prepare, settled, start_request
from penstock.session import Session

SCRIPT = """CREATE STREAM S (ts BIGINT, k INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM T (ts BIGINT, k INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE QUERY counts AS SELECT k, COUNT(*) AS n FROM S [RANGE 10 SECONDS] GROUP BY k;
CREATE QUERY pairs AS SELECT S.k FROM S [NOW], T [UNBOUNDED] WHERE S.k = T.k;"""


@pytest.fixture
def session() -> Session:
    made = Session()
    made.execute(SCRIPT)
    return made


def test_text(session: Session) -> None:
    said = session.explain("counts").split("-- counts: state\n")[1].splitlines()
    assert said[0].startswith("bounded by RANGE 10 SECOND of S; about ")
    assert said[0].endswith("(S with 1 row/s, the default)")
    assert "Aggregate: groups, 10 rows, " in said[1]
    assert said[1].endswith("bounded: RANGE 10 SECOND of S")


def test_json_says_the_same(session: Session) -> None:
    state = json.loads(session.explain("pairs", "json"))["state"]
    assert state["bounded"] == "unbounded"
    assert "UNBOUNDED of T" in state["by"]
    assert "give T a window" in state["hint"]
    assert state["assumed"] == {"S": {"rate": 1.0, "known": False}, "T": {"rate": 1.0, "known": False}}
    assert state["bytes"] == sum(part["bytes"] for one in state["operators"] for part in one["parts"])
    session.declare("SET statistics = 'T(rate 10)';")
    more = json.loads(session.explain("pairs", "json"))["state"]
    assert more["assumed"]["T"] == {"rate": 10.0, "known": True}
    assert more["bytes"] == pytest.approx(10 * state["bytes"], rel=0.01)


def test_a_start_warns_of_what_has_no_bound(session: Session, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    def prepared(*names: str) -> None:
        queries = [session.catalog.queries[name] for name in names]
        folder = Folder(tmp_path / "-".join(names))
        work = session._work(queries, False)
        for _ in range(2):
            brought = start_request(work, folder)
            prepare(work, brought, settled(work, brought, decide(brought, folder), folder, 2), folder, 2)
        horizons = folder.read_mark("horizons")
        assert 10.0 in [length for name, length in horizons.items() if "Aggregate" in name]
        assert not any("Join" in name for name in horizons)

    prepared("counts")
    assert caplog.records == []
    prepared("counts", "pairs")
    (record,) = caplog.records
    assert (record.levelno, record.name) == (logging.WARNING, "penstock.runtime")
    assert (record.event, record.fields["query"]) == ("unbounded", "pairs")  # type: ignore[attr-defined]
    assert "give T a window" in caplog.messages[0]


def test_a_query_that_nobody_knows(session: Session) -> None:
    with pytest.raises(PenstockError) as caught:
        session.state("count")
    assert caught.value.code == "P0201"


def test_sizes() -> None:
    assert [size_text(n) for n in (0, 999, 1500, 64_200, 3.2e6, 5e9, 7e12)] == [
        "0 bytes",
        "999 bytes",
        "1.5 kB",
        "64.2 kB",
        "3.2 MB",
        "5 GB",
        "7.0 TB",
    ]
