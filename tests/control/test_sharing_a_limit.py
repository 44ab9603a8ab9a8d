"""`state_limit` divided over the queries of an engine in this process, and budgets of runs of granules registered in
it, also by another process that goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from control_kit import Server

from penstock.physical.execution.meter import StateGauge
from penstock.runtime.monitoring.metrics import SheddingMetrics

_STREAM = "CREATE STREAM S (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
_FROM = "SELECT k, VALID(s) FROM S (k) VALID FOR 3 SECONDS [RANGE 20 SECONDS] AS s;"


@pytest.fixture(autouse=True)
def _measured_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """State is measured in a fiftieth of the time: rounds of a few milliseconds would go by before the next look."""
    monkeypatch.setattr(StateGauge, "_SHARE", 0)


def server_of(folder: Path, limit: str) -> Server:
    return Server(folder, settings={"state_limit": limit, "state_limit_action": "shed"})


def insert(server: Server, first: int, seconds: int) -> None:
    """Post fifty rows a second, of a different value each, and answer every five seconds."""
    for begin in range(first, first + seconds, 5):
        rows = [f"({at}, {at * 50 + k})" for at in range(begin, begin + 5) for k in range(50)]
        server.done(f"INSERT INTO S VALUES {', '.join(rows)};")
        server.engine.round()


def shedding(server: Server, queries: tuple[str, ...] = ("light", "heavy")) -> dict[str, SheddingMetrics]:
    figures = server.engine.figures()
    names = {server.control.query(name)[1].place: name for name in queries}
    found = {names[figures.places[name]]: one.shedding for name, one in figures.metrics.queries.items()}
    return {name: one for name, one in found.items() if one is not None}


def test_queries_of_an_engine_without_spark_divide_a_limit_by_weight(tmp_path: Path) -> None:
    server = server_of(tmp_path, "400 KB")
    light, heavy = f"CREATE QUERY light AS {_FROM}", f"CREATE QUERY heavy WITH (weight '3') AS {_FROM}"
    server.done(f"{_STREAM} {light} {heavy}")
    insert(server, 0, 40)
    before = shedding(server)
    assert before["light"].budget < before["heavy"].budget < 400_000
    assert 0 < before["light"].held <= before["light"].budget and before["light"].shed > before["heavy"].shed
    server.control.close()
    other = server_of(tmp_path, "400 KB")
    insert(other, 40, 30)
    after = shedding(other)
    assert 0 < after["light"].held <= after["light"].budget < after["heavy"].budget < 400_000
    assert after["light"].shed > before["light"].shed
    other.control.close()


def test_without_a_limit_that_is_reached_nothing_is_shed(tmp_path: Path) -> None:
    server = server_of(tmp_path, "100 MB")
    made = " ".join(f"CREATE QUERY {name} AS {_FROM}" for name in ("light", "heavy"))
    server.done(f"{_STREAM} {made}")
    insert(server, 0, 30)
    assert {name: one.shed for name, one in shedding(server).items()} == {"light": 0, "heavy": 0}
    server.control.close()


_RUNS = (
    "CREATE QUERY runs WITH (memory '60 TUPLES') AS"
    " SELECT k, VALID(s) FROM S (k) [RANGE 20 SECONDS SLIDE 5 SECONDS] AS s WHERE LENGTH(VALID(s)) >= 10;"
)


def test_runs_of_granules_are_shed_the_same_by_another_process(tmp_path: Path) -> None:
    """Registered on a stream that is there already. Of fifty new values a second 250 runs of a granule begin at every
    boundary, of which none may ever be long enough: 60 are held."""
    living, dying = Server(tmp_path / "living"), Server(tmp_path / "dying")
    for server in (living, dying):
        server.done(_STREAM)
        insert(server, 0, 10)
        server.done(_RUNS)
        insert(server, 10, 20)
    dying.control.close()
    dying = Server(tmp_path / "dying")
    found = []
    for server in (living, dying):
        insert(server, 30, 20)
        found.append(shedding(server, ("runs",))["runs"])
        server.control.close()
    assert found[0] == found[1]
    one = found[0]
    assert one.held == one.budget == 60 and one.exact == 0
    assert 0 < one.vanished_total < one.shed < one.arrived
