"""EXPLAIN ANALYZE: the figures are those of a run, in all three formats, and only of inputs that end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import PenstockError
from penstock.physical.execution.executor import StageExecutor
from penstock.physical.operators.rowwise import Projection
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.runtime import run_local
from penstock.session import Session

DECLARED = """
CREATE STREAM S (ts INT, k INT, a INT) FROM FILES (path '{path}') TIMESTAMP BY ts;
CREATE RELATION R (k INT, name STRING) FROM MEMORY ();
INSERT INTO R VALUES (0, 'even');
"""


@pytest.fixture
def session(tmp_path: Path) -> Session:
    """S has 100 good rows at ticks 0 to 99, one late and one malformed."""
    rows = [f"{t},{t % 2},{t % 10}" for t in range(100)]
    (tmp_path / "s.csv").write_text("\n".join(["ts,k,a", *rows, "5,1,1", "x,1,1"]) + "\n")
    session = Session()
    session.execute(DECLARED.format(path=tmp_path / "s.csv"))
    return session


def measured(session: Session, query: str) -> dict[str, dict[str, Any]]:
    """Label of each operator of the physical plan -> its figures."""
    session.execute(f"CREATE QUERY q AS {query}")
    plan = json.loads(session.explain("q", "json", analyze=True))["physical"]
    session.execute("DROP QUERY q")
    return {node["label"]: node["measured"] for node in plan["nodes"]}


def test_rows_and_state(session: Session) -> None:
    found = measured(session, "SELECT k, COUNT(*) AS n FROM S [RANGE 10 SECOND] WHERE a < 5 GROUP BY k")
    scan = found["Scan"]
    assert (scan["rows_in"], scan["rows_out"], scan["late"], scan["rejected"]) == (102, 100, 1, 1)
    assert (found["Filter"]["rows_in"], found["Filter"]["rows_out"]) == (100, 50)
    assert found["Aggregate"]["rows_in"] == 50
    # At tick 99 the window holds the five rows of ticks 90 to 94, in two groups.
    assert found["Aggregate"]["state_rows"] == 5 + 2
    assert found["Aggregate"]["peak_state_rows"] >= 7
    assert 0 < found["Aggregate"]["state_bytes"] <= found["Aggregate"]["peak_state_bytes"]
    assert found["Aggregate"]["shards"] == 1
    assert "state_rows" not in found["Filter"]
    assert all(figures["cpu_ms"] >= 0 for figures in found.values())


def test_rows_that_are_passed_over_are_counted(tmp_path: Path) -> None:
    """Of three row groups the second holds no row that is wanted, and the third no more than a late one."""
    columns = {"ts": [1, 2, 3, 4, 5, 0], "k": [1, 1, 7, 7, 8, 8], "a": [1, 2, 3, 4, 5, 6]}
    pq.write_table(pa.table(columns, pa.schema(dict.fromkeys(columns, pa.int32()))), tmp_path / "s.parquet", 2)
    session = Session()
    session.execute(DECLARED.format(path=tmp_path / "s.parquet"))
    found = measured(session, "SELECT COUNT(*) AS n FROM S [RANGE 10 SECOND] WHERE k = 1")
    scan = found["Scan"]
    assert (scan["rows_in"], scan["passed_over"], scan["late"], scan["rows_out"]) == (6, 2, 1, 3)
    assert found["Filter"]["rows_out"] == 2


def test_the_answer_has_as_many_rows_as_it_says(session: Session) -> None:
    query = session.query("SELECT k, SUM(a) AS s FROM S [RANGE 7 SECOND SLIDE 3 SECOND] GROUP BY k")._query
    table = pa.table({n: pa.array([f(t) for t in range(100)], pa.int32()) for n, f in COLUMNS.items()})
    answer = run_local([query], {"S": table}).tables["query"]
    found = measured(session, "SELECT k, SUM(a) AS s FROM S [RANGE 7 SECOND SLIDE 3 SECOND] GROUP BY k")
    assert found["Output"]["rows_out"] == len(answer)


COLUMNS: dict[str, Any] = {"ts": lambda t: t, "k": lambda t: t % 2, "a": lambda t: t % 10}


def test_shards_and_static_relations(session: Session) -> None:
    session.execute("SET shards = 3")
    found = measured(session, "SELECT name, COUNT(*) AS n FROM S [RANGE 10 SECOND], R WHERE S.k = R.k GROUP BY name")
    assert (found["Lookup"]["rows_in"], found["Lookup"]["rows_out"]) == (100, 50)
    assert found["Aggregate"]["shards"] == 3


def test_the_plans_of_static_relations_are_there_with_their_figures(session: Session) -> None:
    session.execute("""
        CREATE RELATION Q (k INT, v INT, PRIMARY KEY (k)) FROM MEMORY ();
        INSERT INTO Q VALUES (0, 5), (0, 6), (1, 7), (2, 8);
        CREATE VIEW big AS SELECT k, COUNT(*) AS n FROM Q WHERE v > 6 GROUP BY k;
        CREATE QUERY joined AS SELECT S.a, n FROM S [RANGE 10 SECOND], big WHERE S.k = big.k""")
    nodes = json.loads(session.explain("joined", "json", analyze=True))["physical"]["nodes"]
    (lookup,) = (n for n in nodes if n["label"] == "Lookup")
    inside = {n["label"]: n["measured"] for n in nodes if "." in n["id"]}
    assert lookup["measured"]["rows_in"] == 100
    assert {label: (m["rows_in"], m["rows_out"]) for label, m in inside.items() if label in ("Scan", "Filter")} == {
        "Scan": (4, 3),
        "Filter": (3, 2),
    }
    assert inside["Scan"]["rejected"] == 1
    assert inside["Aggregate"]["rows_in"] == 2
    assert len({n["id"] for n in nodes}) == len(nodes)


def test_time_of_several_sources_advances_together(session: Session, tmp_path: Path) -> None:
    """The source furthest behind is read first, so a join does not hold all of one side."""
    size = 200_000
    ticks = pa.array(range(size), pa.int32())
    session.stream("L", pa.table({"t": ticks, "x": ticks}), "t")
    session.stream("M", pa.table({"t": ticks, "y": ticks}), "t")
    found = measured(session, "SELECT x FROM L [RANGE 10 SECOND], M [RANGE 10 SECOND] WHERE x = y")
    assert found["Output"]["rows_out"] > size
    assert found["Join"]["peak_state_rows"] < size


def test_in_a_script_it_sees_what_was_declared_before(session: Session) -> None:
    script = """
        CREATE RELATION T (a INT) FROM MEMORY ();
        INSERT INTO T VALUES (1), (2);
        EXPLAIN ANALYZE SELECT a FROM T;
        INSERT INTO T VALUES (3);
        EXPLAIN ANALYZE SELECT a FROM T;
    """
    first, second = session.execute(script).texts
    assert "rows out 2" in first
    assert "rows out 3" in second
    assert "physical plan, as it ran in" in first


def test_text_and_mermaid(session: Session) -> None:
    session.execute("CREATE QUERY q AS SELECT a FROM S [RANGE 2 SECOND]")
    text, chart = session.explain("q", "text", analyze=True), session.explain("q", "mermaid", analyze=True)
    assert "rows in 102  rows out 100  late 1  rejected 1" in text
    assert "<i>rows in 102  rows out 100" in chart
    assert "rows in" not in session.explain("q")


def test_nothing_is_counted_without_a_meter(session: Session) -> None:
    plan = plan_queries([session.query("SELECT COUNT(*) + 1 AS n FROM S [NOW]")._query])
    stage = StageExecutor(plan, 1, 0, 1, {})
    assert Projection in {type(operator) for operator in stage._operators.values()}


def failure(session: Session, query: str) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        session.execute(f"EXPLAIN ANALYZE {query}")
    return caught.value


def test_a_source_without_an_end(session: Session, tmp_path: Path) -> None:
    source = f"FROM FILES (path '{tmp_path}', format 'csv', watch 'true') TIMESTAMP BY ts"
    session.execute(f"CREATE STREAM W (ts INT, k INT, a INT) {source}")
    error = failure(session, "SELECT a FROM W")
    assert (error.code, error.message) == ("P0622", "W has no end, so there is no run of it to measure")
    assert error.hint is not None


def test_a_source_that_fails(session: Session, tmp_path: Path) -> None:
    source = f"FROM FILES (path '{tmp_path / 's.csv'}') TIMESTAMP BY ts ON ERROR FAIL"
    session.execute(f"CREATE STREAM F (ts INT, k INT, a INT) {source}")
    assert failure(session, "SELECT a FROM F").code == "P0403"
    session.execute("CREATE STREAM G (ts INT) FROM FILES (path '/nowhere/x.csv') TIMESTAMP BY ts")
    assert failure(session, "SELECT ts FROM G").code == "P0404"
