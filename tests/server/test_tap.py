"""The tap of an edge: rows that pass, at a server whose queries run in this process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.client import connect
from penstock.physical.elements import Elements
from penstock.physical.execution.flow_counts import MOST_BYTES, MOST_ROWS, FlowCounts, first_rows
from penstock.physical.plan.identity import step_keys
from penstock.runtime.monitoring.reports import IngestReport, ShardReport, report_from_json
from penstock.runtime.monitoring.taps import Taps
from penstock.server.roles import AccessRole
from penstock.server.statements.tapped_edge import _apart
from tests.server.running import Running
from tests.server.test_live_service import ROWS, WARM, ended, started

#: Of the rows that a test posts: later than those of the test before.
YEARS = count(2024)


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = started(tmp_path_factory.mktemp("taps"))
    with connect(found.url, found.texts[AccessRole.CONTROL]) as client:
        client.execute(WARM)
    yield found
    ended(found)


def queue_into(live: Running, kind: str) -> str:
    """Return the id of the queue before an operator."""
    with connect(live.url, live.texts[AccessRole.READ]) as client:
        sql = "SELECT q.id FROM penstock.queues q JOIN penstock.operators o ON o.id = q.to_operator"
        return str(client.select(f"{sql} WHERE o.kind = '{kind}' AND q.port = 0").table.to_pylist()[0]["id"])


def tap(live: Running, entity: str, rows: int = 20, seconds: float = 10, **params: Any) -> list[dict[str, Any]]:
    with live.client(AccessRole.READ) as client:
        answer = client.get(
            f"/v1/entities/{entity}/tap", params={"rows": rows, "seconds": seconds, "format": "ndjson", **params}
        )
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]


def insert(live: Running, rows: list[dict[str, Any]]) -> None:
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        client.insert("readings", rows)


def while_tapped(live: Running, entity: str, **params: Any) -> list[dict[str, Any]]:
    """Tap an edge and post rows meanwhile."""
    found: list[list[dict[str, Any]]] = []
    tapping = threading.Thread(target=lambda: found.append(tap(live, entity, **params)))
    tapping.start()
    while not edges(live):
        time.sleep(0.01)
    year = str(next(YEARS))
    insert(live, [{**row, "at": str(row["at"]).replace("2024", year)} for row in ROWS])
    tapping.join()
    return found[0]


def edges(live: Running) -> frozenset[tuple[str, int]]:
    return live.door.service._engine._taps.edges  # type: ignore[attr-defined,no-any-return]


def test_rows_that_pass_are_shown_with_their_times_and_names(live: Running) -> None:
    found = while_tapped(live, queue_into(live, "RowLog"), rows=3)
    # One log serves windows of several lengths, which are applied behind it, so no row has an end yet.
    assert [(row["ts"][5:], row["room"], row["lane0"], row["lane1"], row["count"]) for row in found] == [
        ("03-01T09:00:00Z", "hall", 1, 19.5, 1),
        ("03-01T09:20:00Z", "attic", 1, 23.0, 1),
        ("03-01T10:10:00Z", "hall", 1, 20.0, 1),
    ]
    assert [row["until"] for row in found] == [None, None, None]


def test_a_tap_ends_after_its_rows_or_its_time_and_leaves_nothing(live: Running) -> None:
    queue = queue_into(live, "RowLog")
    assert len(while_tapped(live, queue, rows=2)) == 2
    assert not edges(live)
    began = time.monotonic()
    assert tap(live, queue, seconds=0.2) == [] and time.monotonic() - began < 5
    assert not edges(live)


def test_who_leaves_a_tap_ends_it(live: Running) -> None:
    queue = queue_into(live, "RowLog")
    with (
        live.client(AccessRole.READ) as client,
        client.stream("GET", f"/v1/entities/{queue}/tap?seconds=300") as answer,
    ):
        assert answer.status_code == 200
        while not edges(live):
            time.sleep(0.01)
    end = time.monotonic() + 10
    while edges(live):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("entity", "status"), [("queue:no.0", 404), ("query:1", 404), ("setting:seed", 404), ("queue:" + "x" * 990, 404)]
)
def test_only_queues_are_tapped(live: Running, entity: str, status: int) -> None:
    with live.client(AccessRole.READ) as client:
        answer = client.get(f"/v1/entities/{entity}/tap")
        assert (answer.status_code, answer.json()["code"]) == (status, "P0201"), answer.text
        assert "penstock.queues" in answer.json()["hint"]


@pytest.mark.parametrize(
    "params", [{"rows": 0}, {"rows": MOST_ROWS + 1}, {"seconds": 0}, {"seconds": 601}, {"rows": "x"}]
)
def test_a_tap_is_bounded(live: Running, params: dict[str, Any]) -> None:
    with live.client(AccessRole.READ) as client:
        answer = client.get(f"/v1/entities/{queue_into(live, 'Aggregate')}/tap", params=params)
        assert answer.json()["code"] == "P0803"


def test_a_tap_needs_a_token(live: Running) -> None:
    with live.client() as client:
        assert client.get("/v1/entities/queue:x.0/tap").status_code == 401


@pytest.mark.parametrize("form", ["csv", "arrow", "sse"])
def test_the_formats_of_a_tap(live: Running, form: str) -> None:
    with live.client(AccessRole.READ) as client:
        queue = queue_into(live, "RowLog")
        answer = client.get(f"/v1/entities/{queue}/tap", params={"seconds": 0.1, "format": form})
        assert answer.status_code == 200 and (form == "sse" or len(answer.content))


# -- what is kept


def elements(rows: int, width: int = 1) -> Elements:
    ticks = np.arange(rows, dtype=np.int64)
    return Elements((pa.array(["x" * width] * rows), pa.array(ticks)), ticks, ticks + 1)


def test_what_is_kept_of_a_round_is_bounded() -> None:
    counts = FlowCounts(tapped=frozenset({(1, 0)}))
    for _ in range(5):
        counts.receive((1, 0), elements(400))
        counts.receive((2, 0), elements(400))
    assert len(counts.samples[1, 0]) == MOST_ROWS and set(counts.samples) == {(1, 0)}
    assert counts.rows_in == {(1, 0): 2000, (2, 0): 2000}
    wide = FlowCounts(tapped=frozenset({(1, 0)}))
    for _ in range(50):
        wide.receive((1, 0), elements(100, 1000))
    assert 0 < wide.samples[1, 0].nbytes <= MOST_BYTES
    assert first_rows(elements(3, 2 * MOST_BYTES), 3, MOST_BYTES) is None, "a row that does not fit is left out"


@pytest.mark.parametrize("report", [IngestReport(0, {}), ShardReport(1, 2, {}, {})])
def test_rows_travel_with_reports(report: IngestReport | ShardReport) -> None:
    report.counts.tapped = frozenset({(1, 0), (3, 0)})
    sent = elements(3)
    report.counts.receive((1, 0), sent)
    report.counts.receive((3, 0), Elements(sent.columns, sent.ts, sent.exp, np.array([1, -1, 2])))
    received = report_from_json(json.loads(json.dumps(report.as_json()))).counts.samples
    assert received[1, 0].columns == sent.columns and received[3, 0].signs.tolist() == [1, -1, 2]
    assert "samples" not in ShardReport(1, 2, {}, {}).as_json()


def test_several_look_at_one_edge() -> None:
    published: list[frozenset[tuple[str, int]]] = []
    taps = Taps(published.append)
    one, other = taps.begin(("k", 0), 2), taps.begin(("k", 0), 5)
    taps.offer(("k", 0), elements(3))
    taps.offer(("k", 1), elements(3))
    assert [len(part) for part in one.next(0)] == [2] and one.ended
    assert [len(part) for part in other.next(0)] == [3] and not other.ended
    one.close()
    one.close()
    other.close()
    assert published == [frozenset({("k", 0)}), frozenset()]
    other.offer(elements(3))
    assert other.next(0) == []


def test_names_of_columns_are_told_apart() -> None:
    assert _apart(["ts", "a", "a", "count", "a 2"]) == ["ts 2", "a", "a 2", "count 2", "a 2 2"]


def test_keys_of_steps_are_those_of_queues(live: Running) -> None:
    plan = live.door.service.view().figures.run.plan  # type: ignore[attr-defined]
    key = queue_into(live, "RowLog").removeprefix("queue:").rpartition(".")[0]
    assert key in step_keys(plan).values()
