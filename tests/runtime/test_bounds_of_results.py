"""ALTER QUERY .. SET (retain, max_bytes): more or less of a result is kept, and the query goes on as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from inline_engine import InlineServer, without_spark

from penstock.connectors.results.result_folder import ResultFolder, ResultRecord
from penstock.errors import PenstockError, ScriptErrors
from penstock.runtime.spark.checkpoint.folder import Folder

__all__ = ["without_spark"]

SCRIPT = """CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY q AS SELECT SUM(v) AS s FROM S [RANGE 3 SECONDS];
CREATE QUERY p INTO RESULTS (retain '2 hours') AS SELECT ISTREAM(v) FROM S [NOW];
"""


@pytest.fixture
def server(tmp_path: Path, without_spark: None) -> Iterator[InlineServer]:
    made = InlineServer(tmp_path / "checkpoint")
    made.post(SCRIPT)
    yield made
    made.close()


def record(server: InlineServer, name: str = "q") -> ResultRecord:
    """Return what the log of results says of a query."""
    run = server.engine.run
    assert run is not None
    id_ = run.version().results[f"q{server.control.query(name)[1].place}"]
    return ResultFolder.at(Folder(run.checkpoint / "penstock").results).record(id_)


@pytest.mark.parametrize("restarts", [False, True])
def test_bounds_change_while_the_query_goes_on(server: InlineServer, restarts: bool) -> None:
    server.insert("S", [(tick, tick) for tick in range(1, 6)])
    before, id_ = server.emitted("q"), server.control.query("q")[1].answer.id
    assert before and (record(server).retain, record(server).max_bytes) == (86_400, 2**30)
    server.post("ALTER QUERY q SET (retain '7 days', max_bytes '4 GB', comment 'kept');")
    if restarts:
        server.restart()
    assert (record(server).retain, record(server).max_bytes) == (7 * 86_400, 4 * 2**30)
    server.insert("S", [(6, 6), (7, 7)])
    assert server.emitted("q")[: len(before)] == before and len(server.emitted("q")) > len(before)
    stored, query = server.control.query("q")
    assert query.answer.id == id_ and stored.attributes["comment"] == "kept"
    # One alone leaves the other as it is.
    server.post("ALTER QUERY q SET (max_bytes '1 MB');")
    assert (record(server).retain, record(server).max_bytes) == (7 * 86_400, 2**20)
    assert "INTO RESULTS (`retain` '7 days', `max_bytes` '1 MB')" in server.control.catalog_text()


def test_a_result_goes_on_with_other_bounds_of_its_declaration(server: InlineServer) -> None:
    server.insert("S", [(tick, tick) for tick in range(1, 5)])
    place = server.control.query("p")[1].place
    server.post("CREATE OR REPLACE QUERY p INTO RESULTS (retain '3 hours') AS SELECT ISTREAM(v) FROM S [NOW];")
    server.insert("S", [(5, 5), (6, 6)])
    assert server.control.query("p")[1].place == place and record(server, "p").retain == 3 * 3600
    assert [row[1] for row in server.emitted("p")][:3] == [1, 2, 3]


def test_less_is_kept_from_then_on(server: InlineServer) -> None:
    server.insert("S", [(tick, tick) for tick in range(1, 5)])
    assert server.emitted("p")
    server.post("ALTER QUERY p SET (retain '1 second');")
    folder = ResultFolder.at(Folder(server.engine.run.checkpoint / "penstock").results)  # type: ignore[union-attr]
    assert record(server, "p").retain == 1
    assert folder.record(record(server, "p").id).retain == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SET (retain 'soon')", "soon"),
        ("SET (retain '1 day', retain '2 days')", "occurs twice"),
        ("SET (retian '1 day')", "no attribute retian"),
    ],
)
def test_bounds_that_are_none(server: InlineServer, text: str, message: str) -> None:
    with pytest.raises((PenstockError, ScriptErrors)) as raised:
        server.post(f"ALTER QUERY q {text};")
    assert "P0104" in str(raised.value) and message in str(raised.value)


def test_another_sink_has_no_such_bounds(server: InlineServer, tmp_path: Path) -> None:
    server.post(f"CREATE QUERY f INTO FILES (path '{tmp_path}/out', format 'csv') AS SELECT ISTREAM(v) FROM S [NOW];")
    with pytest.raises((PenstockError, ScriptErrors)) as raised:
        server.post("ALTER QUERY f SET (retain '1 day');")
    assert "query f has no attribute retain" in str(raised.value)
