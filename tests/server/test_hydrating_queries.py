"""A query whose past is being read is listed, has subscribers, and can be dropped, as one that answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stepped_reading import SteppedReading

from penstock.client import connect
from penstock.control.engine import NextVersion, Preparation
from penstock.engines import in_process
from penstock.errors import PenstockError
from penstock.results.select_workers import SelectWorkers
from penstock.server.roles import AccessRole
from tests.server.running import Running
from tests.server.test_live_service import ended, started

SCRIPT = """CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND RETAIN 1000 SECONDS;
CREATE QUERY other AS SELECT SUM(v) AS s FROM S [RANGE 5 SECONDS];"""
WARM = "CREATE QUERY w START WARM AS SELECT MAX(v) AS s FROM S [RANGE 5 SECONDS]"


class ReadingEngine(in_process.InProcessEngine):
    """An engine that takes its time to read a past."""

    readings: list[SteppedReading]

    def __init__(self, folder: Path, workers: SelectWorkers) -> None:
        super().__init__(folder, workers=workers)
        self.readings = []
        ENGINES.append(self)

    def prepare(self, version: NextVersion) -> Preparation | None:
        self.readings.append(SteppedReading(version))
        return self.readings[-1]


ENGINES: list[ReadingEngine] = []


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(in_process, "InProcessEngine", ReadingEngine)
    running = started(tmp_path, SCRIPT)
    with connect(running.url, running.texts[AccessRole.CONTROL]) as client:
        client.insert("S", [{"ts": n, "v": n} for n in (1, 2, 3, 4)])
        first(running, "other")
    yield running
    ended(running)


def first(running: Running, query: str) -> list[dict[str, Any]]:
    """Return the first rows of a query, which may still come."""
    client = connect(running.url, running.texts[AccessRole.READ])
    with client, client.subscribe(query, beginning=True) as batches:
        return next(batch.to_pylist() for batch in batches)


def hydrating(running: Running, share: float) -> SteppedReading:
    with connect(running.url, running.texts[AccessRole.CONTROL]) as client:
        assert [one.state for one in client.execute(WARM)] == ["HYDRATING"]
    reading = ENGINES[-1].readings[-1]
    reading.share = share
    return reading


class Waiting:
    """A subscriber of w, in a thread of its own. statement: by SUBSCRIBE."""

    def __init__(self, running: Running, statement: bool = False) -> None:
        self._running, self._statement = running, statement
        self._found: list[list[dict[str, Any]] | PenstockError] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        end = time.monotonic() + 10
        while not running.door.service.statements() and time.monotonic() < end:
            time.sleep(0.01)

    def _read(self) -> None:
        client = connect(self._running.url, self._running.texts[AccessRole.READ], patience=0.0)
        with client, client.follow("SUBSCRIBE TO w") if self._statement else client.subscribe("w") as batches:
            try:
                self._found.append(next(batch.to_pylist() for batch in batches))
            except PenstockError as error:
                self._found.append(error)

    def rows(self) -> list[dict[str, Any]]:
        self._thread.join(20)
        (found,) = self._found
        if isinstance(found, PenstockError):
            raise found
        return found


def test_it_is_listed_with_what_it_has_read(live: Running) -> None:
    reading = hydrating(live, 0.4321)
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        listed = {one.name: (one.state, one.share) for one in client.queries()}
        assert listed == {"other": ("RUNNING", None), "w": ("HYDRATING", 0.4321)}
        found = client.query("W")
        assert found.kind == "relation" and [name for name, _ in found.columns] == ["ts", "op", "s"]
        assert (found.instant, found.rows) == (None, None)
        (shown,) = client.execute("SHOW QUERIES")
        texts = (shown.text or "").splitlines()
        assert [text.partition(" -- ")[2] for text in texts] == ["", "HYDRATING 43%"]
        with live.client(AccessRole.READ) as http:
            assert "max(" in http.get("/v1/queries/w/plan").text
            assert http.get("/v1/catalog").json()["queries"][1]["share"] == 0.4321
        client.execute("ALTER QUERY w RENAME TO renamed", wait=False)
        assert [one.name for one in client.queries()] == ["other", "renamed"]
        reading.over.set()
        client.execute("ALTER QUERY renamed SET (comment 'now')")
        assert {one.name: (one.state, one.share) for one in client.queries()} == {
            "other": ("RUNNING", None),
            "renamed": ("RUNNING", None),
        }


@pytest.mark.parametrize("statement", [False, True])
def test_a_subscriber_waits_until_it_answers(live: Running, statement: bool) -> None:
    reading = hydrating(live, 0.5)
    waiting = Waiting(live, statement)
    assert live.door.service.statements()[-1].text.lower().startswith("subscribe to")
    reading.over.set()
    assert [(one["ts"], one["op"], one["s"]) for one in waiting.rows()] == [(3, "+", 3)]


def test_until_now_there_is_nothing(live: Running) -> None:
    hydrating(live, 0.5)
    with live.client(AccessRole.READ) as http:
        answer = http.get("/v1/queries/w/results?until=now&format=csv")
        assert (answer.status_code, answer.text.split()) == (200, ["ts,op,s"])


def test_the_subscribers_of_one_that_is_dropped_end_with_an_error(live: Running) -> None:
    reading = hydrating(live, 0.5)
    waiting = Waiting(live)
    with live.client(AccessRole.CONTROL) as http:
        assert http.delete("/v1/queries/w").status_code == 200
        assert http.get("/v1/queries/w").status_code == 404
    assert reading.ended and reading.discarded
    with pytest.raises(PenstockError, match="has not begun") as found:
        waiting.rows()
    assert found.value.code == "P0201"


def test_one_whose_past_cannot_be_read_is_gone(live: Running) -> None:
    reading = hydrating(live, 0.5)
    waiting = Waiting(live)
    reading.error = PenstockError("P0703", "it is gone")
    reading.over.set()
    with pytest.raises(PenstockError, match="its command failed"):
        waiting.rows()
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        assert [one.name for one in client.queries()] == ["other"]


def test_one_that_answers_while_another_is_to_take_its_place_is_running(live: Running) -> None:
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        client.execute("ALTER QUERY other AS SELECT COUNT(*) AS s FROM S [RANGE 5 SECONDS]")
        assert client.query("other").state == "RUNNING"
        (reading,) = ENGINES[-1].readings
        reading.over.set()
        client.execute("ALTER QUERY other PAUSE")
        client.execute("ALTER QUERY other RESUME")
        assert client.query("other").state == "HYDRATING"
        ENGINES[-1].readings[-1].over.set()
        client.execute("ALTER QUERY other SET (comment 'now')")
        assert client.query("other").state == "RUNNING"


def test_one_that_begins_at_an_instant_ahead_is_waiting(live: Running) -> None:
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        (created,) = client.execute(WARM.replace("START WARM", "START AT 7"))
        ENGINES[-1].readings[-1].over.set()
        client.execute("ALTER QUERY w SET (comment 'now')")
        assert (client.query("w").state, client.query("w").first) == ("WAITING", "7")
        assert (
            next(one for _, _, one in live.door.service._control.commands() if one.number == created.number).tick == 7
        )
        (shown,) = client.execute("SHOW QUERIES")
        assert (shown.text or "").splitlines()[1].endswith(" -- WAITING until 7")
        client.insert("S", [{"ts": n, "v": n} for n in (6, 7, 8)])
        assert first(live, "w")[0] == {"ts": 7, "op": "+", "s": 7}
        assert (client.query("w").state, client.query("w").first) == ("RUNNING", None)


def test_one_whose_past_is_not_kept_waits_for_what_is_missing(live: Running) -> None:
    select = "SELECT MAX(v) AS s FROM T [RANGE 5 SECONDS]"
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        client.execute("CREATE STREAM T (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND")
        client.execute("CREATE QUERY all_of_it AS SELECT ISTREAM(v) FROM T [NOW]")
        client.insert("T", [{"ts": n, "v": n} for n in (1, 2, 3, 4)])
        first(live, "all_of_it")
        (shown,) = client.execute(f"EXPLAIN START {select}")
        lines = (shown.text or "").splitlines()
        assert "WARM: no; " in lines[1] and lines[2] == "WARM WAIT: yes"
        client.execute(f"CREATE QUERY w START WARM WAIT AS {select}")
        ENGINES[-1].readings[-1].over.set()
        client.execute("ALTER QUERY w SET (comment 'now')")
        assert (client.query("w").state, client.query("w").first) == ("WAITING", "8")
        client.insert("T", [{"ts": n, "v": n} for n in range(5, 11)])
        assert first(live, "w")[0] == {"ts": 8, "op": "+", "s": 8}
