"""What a session hands out in Python, without Spark: descriptions, rows, and mistakes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import penstock
from penstock.connectors.sinks import open_sink
from penstock.errors import PenstockError
from penstock.handles import Run
from penstock.runtime.monitoring.progress import QueryCounts, RunProgress, SourceCounts

SCRIPT = """
CREATE STREAM S (ts INT, word STRING) FROM MEMORY () TIMESTAMP BY ts;
CREATE RELATION R (word STRING, n INT) FROM MEMORY ();
INSERT INTO S VALUES (1, 'a'), (2, '<b>'), (3, NULL);
CREATE QUERY words INTO MEMORY () AS SELECT word FROM S;
CREATE QUERY counts INTO MEMORY () AS SELECT COUNT(*) AS n FROM S [RANGE 5 SECONDS];
CREATE QUERY files INTO FILES (path 'out') AS SELECT word FROM S;
"""


@pytest.fixture
def session() -> penstock.Session:
    made = penstock.Session()
    made.execute(SCRIPT)
    return made


def run_of(session: penstock.Session, error: PenstockError | None = None) -> Run:
    """A run that is invented; its query `words` has answered three rows, in two batches."""
    queries = list(session.catalog.queries.values())
    sinks = {query.name: open_sink(query) for query in queries}
    for name in ("words", "counts"):
        sinks[name].open(resume=False, overwrite=False)
    sinks["words"].write(1, pa.table({"ts": [3], "word": pa.array([None], pa.string())}))
    sinks["words"].write(0, pa.table({"ts": [1, 2], "word": ["a", "<b>"]}))
    progress = RunProgress(
        rows_in=3,
        rows_out=3,
        sources={"S": SourceCounts(3, late=1)},
        queries={"words": QueryCounts(3, "3", "memory"), "files": QueryCounts(0, "", "out")},
    )
    stopped: list[bool] = []
    job: Any = SimpleNamespace(
        active=True, error=error, progress=lambda: progress, stop=lambda: stopped.append(True), stopped=stopped
    )
    return Run(job, queries, sinks, lambda *rest: queries)


def test_importing_the_package_is_cheap() -> None:
    ask = "import sys, penstock; print(sorted(m for m in sys.modules if m.partition('.')[0] in ('pyarrow', 'pyspark')))"
    assert subprocess.run([sys.executable, "-c", ask], check=True, capture_output=True).stdout == b"[]\n"
    assert {"Session", "PenstockError", "function"} <= set(dir(penstock))
    with pytest.raises(AttributeError, match="no attribute 'Sessions'"):
        _ = penstock.Sessions  # type: ignore[attr-defined]


def test_a_session_says_what_it_knows(session: penstock.Session) -> None:
    assert repr(session) == "Session(1 stream, 1 relation, 3 queries)"
    assert repr(penstock.Session()) == "Session(nothing declared)"
    assert list(session.sources) == ["S", "R"] and list(session.queries) == ["words", "counts", "files"]


def test_a_query_describes_itself_and_does_not_run(session: penstock.Session) -> None:
    words, counts = session.queries["words"], session.queries["counts"]
    assert repr(words) == "Query(words: a stream of (ts BIGINT, word STRING))"
    assert repr(counts) == "Query(counts: a relation, emitted as changes of (ts BIGINT, op STRING, n BIGINT))"
    assert words.schema == pa.schema([("ts", pa.int64()), ("word", pa.string())])
    assert "SELECT word FROM S" in words._repr_html_() and "<td>STRING</td>" in words._repr_html_()


def test_a_source_gives_its_rows(session: penstock.Session, capsys: pytest.CaptureFixture[str]) -> None:
    source = session.sources["S"]
    assert repr(source) == "Stream(S (ts INT, word STRING) FROM MEMORY)"
    assert source.to_arrow().to_pydict() == {"ts": [1, 2, 3], "word": ["a", "<b>", None]}
    assert list(source.to_pandas()["ts"]) == [1, 2, 3]
    assert "<td>ts</td>" in source._repr_html_()
    source.show(rows=2)
    shown = capsys.readouterr().out
    assert "<b>" in shown and "NULL" not in shown and shown.endswith("1 more row\n")
    session.sources["R"].show()
    assert capsys.readouterr().out == "R: no rows\n"


def test_a_source_of_files_and_one_without_end(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("ts,x\n1,5\n2,no\n3,7\n")
    session = penstock.Session()
    declared = "CREATE STREAM {} (ts INT, x INT) FROM FILES (path '{}', format 'csv', header 'true'{}) TIMESTAMP BY ts;"
    session.execute(declared.format("F", tmp_path, "") + declared.format("W", tmp_path, ", watch 'true'"))
    with pytest.warns(UserWarning, match="1 row of F is malformed and left out"):
        assert session.sources["F"].to_arrow().to_pydict() == {"ts": [1, 3], "x": [5, 7]}
    with pytest.raises(PenstockError, match="W has no end") as error:
        session.sources["W"].show()
    assert error.value.code == "P0622"


def test_a_table_that_was_handed_over_is_a_source() -> None:
    table = pa.table({"ts": [1, 2], "x": [5, 6]})
    session = penstock.Session()
    stream = session.stream("T", table, timestamp="ts")
    relation = session.relation("U", table)
    assert repr(stream) == "Stream(T (ts BIGINT, x BIGINT) FROM DATAFRAME)"
    assert stream.to_arrow().equals(table) and relation.to_arrow().equals(table)
    assert repr(relation).startswith("Relation(U ")


def test_a_run_has_the_results_in_memory(session: penstock.Session, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_of(session)
    assert list(run.results) == ["words", "counts"]
    assert run["WORDS"].to_arrow().to_pydict() == {"ts": [1, 2, 3], "word": ["a", "<b>", None]}
    assert list(run.to_pandas("words")["ts"]) == [1, 2, 3]
    assert repr(run["words"]) == "Result(words: 3 rows of (ts BIGINT, word STRING))"
    assert "&lt;b&gt;" in run["words"]._repr_html_() and "<i>NULL</i>" in run["words"]._repr_html_()
    run.show()
    shown = capsys.readouterr().out
    assert shown.startswith("words\n") and shown.endswith("counts: no rows\n")
    run.show("words", rows=1)
    assert capsys.readouterr().out.endswith("2 more rows\n")
    # Another run of a query of the same name has results of its own.
    again = run_of(session)
    again._results["words"]._sink.write(0, pa.table({"ts": [9], "word": ["z"]}))
    assert run["words"].to_arrow().num_rows == 3


def test_which_result(session: penstock.Session) -> None:
    run = run_of(session)
    with pytest.raises(PenstockError, match=r"which query\? In memory are the results of: words, counts") as error:
        run.to_arrow()
    assert error.value.code == "P0201"
    with pytest.raises(PenstockError, match="the result of files is not in memory: it is in out"):
        run["files"]
    with pytest.raises(PenstockError, match="the run has no query word") as error:
        run["word"]
    assert error.value.hint == "did you mean words?"


def test_a_run_describes_itself_and_stops_as_a_context(session: penstock.Session) -> None:
    with run_of(session) as run:
        assert repr(run) == "Run(words, counts, files: running, 3 rows in, 3 rows out)"
        page = run._repr_html_()
        assert "<td>S</td><td>3</td><td>1</td>" in page and "<p>running</p>" in page
    assert run._job.stopped == [True]  # type: ignore[attr-defined]
    assert "failed with P0502" in repr(run_of(session, PenstockError("P0502", "no")))


def test_the_workers_python_is_named() -> None:
    from penstock.runtime.spark.output.failures import translate
    from penstock.runtime.spark.startup.workers import other_python

    other = other_python(
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark"
    )
    assert other is not None and other.code == "P0604"
    assert "is version 3.9, not 3.11" in other.message and sys.executable in other.message
    assert "set PYSPARK_PYTHON to" in (other.hint or "")
    lacking = translate("Traceback\nModuleNotFoundError: No module named 'penstock'\n")
    assert (lacking.code, "has no module penstock" in lacking.message) == ("P0604", True)
    assert translate(ValueError("ModuleNotFoundError: No module named 'their_own'")).code == "P0601"


def test_a_snapshot_is_the_answer_of_a_one_time_query(session: penstock.Session) -> None:
    found = session.select("SELECT word FROM S WHERE word IS NOT NULL ORDER BY word DESC")
    assert found.to_arrow().to_pydict() == {"word": ["a", "<b>"]}
    assert repr(found) == "Snapshot(2 rows of (word STRING), as of 3)" and found.as_of == "3"
    assert "&lt;b&gt;" in found._repr_html_() and (found.late, found.rejected) == ({}, {})
    assert repr(session.select("SELECT * FROM counts AS OF 1")) == "Snapshot(1 row of (n BIGINT), as of 1)"
    assert session.select("SELECT word FROM R").as_of is None
    assert session.queries.keys() == {"words", "counts", "files"}


def test_a_snapshot_counts_the_rows_that_it_lacks() -> None:
    session = penstock.Session()
    session.execute("""CREATE STREAM S (ts INT, a INT) FROM MEMORY () TIMESTAMP BY ts;
        INSERT INTO S VALUES (5, 1), (1, 2), (NULL, 3), (6, 4)""")
    found = session.select("SELECT a FROM S ORDER BY a")
    assert found.to_arrow().to_pydict() == {"a": [1, 4]}
    assert found.late == {"S": 1} and found.rejected == {"S": {"no usable timestamp, operation, key or period": 1}}


def test_an_arrow_table_is_read_at_an_instant() -> None:
    session = penstock.Session()
    session.stream("S", pa.table({"ts": [1, 2, 9], "a": ["x", "y", "z"]}), timestamp="ts")
    assert session.select("SELECT a FROM S [RANGE 2 SECONDS] AS OF 3").to_arrow().to_pydict() == {"a": ["y"]}


@pytest.mark.parametrize(
    ("text", "code"),
    [("SHOW STREAMS", "P0101"), ("SELECT word FROM S; SELECT word FROM S", "P0101"), ("SELECT nothing FROM S", "P0202"),
     ("INSERT INTO S VALUES (4, 'x')", "P0101")],
)  # fmt: skip
def test_only_one_select_is_answered(session: penstock.Session, text: str, code: str) -> None:
    with pytest.raises(PenstockError) as caught:
        session.select(text)
    assert caught.value.code == code and len(session.catalog.memory["s"]) == 3


def test_a_script_answers_its_selects_once_where_asked_to(session: penstock.Session) -> None:
    run = penstock.Session()
    run.execute("CREATE STREAM S (word STRING, n INT) FROM MEMORY () TIMESTAMP BY n UNIT SECOND;\nSELECT word FROM S")
    assert list(run.queries) == ["query_1"]
    with pytest.raises(PenstockError) as caught:
        run.execute("SELECT word FROM S;\nSELECT word FROM S AS OF 2")
    error = caught.value
    assert error.code == "P0103" and error.position is not None and error.position.line == 2
    assert error.hint is not None and "penstock query" in error.hint and list(run.queries) == ["query_1"]
    done = session.execute("SHOW VIEWS; SELECT n FROM counts; SHOW RELATIONS", one_time=True)
    assert [isinstance(answer, str) for answer in done.answers] == [True, False, True] and len(done.texts) == 2
    with pytest.raises(PenstockError) as caught:
        session.query("SELECT word FROM S AS OF 2")
    assert caught.value.code == "P0103"


def test_a_source_without_an_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts,a\n1,2\n")
    session = penstock.Session()
    session.execute(
        f"CREATE STREAM W (ts INT, a INT) FROM FILES (path '{tmp_path}/*.csv', header 'true', watch 'true')"
        " TIMESTAMP BY ts"
    )
    with pytest.raises(PenstockError) as caught:
        session.select("SELECT a FROM W")
    assert caught.value.code == "P0622" and caught.value.message.startswith("W has no end")


def test_an_error_at_the_instant_names_it(session: penstock.Session) -> None:
    with pytest.raises(PenstockError) as caught:
        session.select("SELECT ts FROM S WHERE word = (SELECT word FROM S) AS OF 2")
    assert caught.value.code == "P0612" and " has 2 rows at 2 where one is needed" in caught.value.message
    assert session.select("SELECT ts FROM S WHERE word = (SELECT word FROM S) AS OF 1").to_arrow().num_rows == 1


def test_arguments_of_a_session_that_are_none() -> None:
    session = penstock.Session()
    with pytest.raises(PenstockError, match="expected a SparkSession, not str"):
        penstock.Session("local[2]")  # type: ignore[arg-type]
    for decorate in (session.function, session.aggregate, penstock.function, penstock.aggregate):
        with pytest.raises(PenstockError, match=r"P0221.*the return type is a function"):
            decorate(lambda x: x)  # type: ignore[operator]
    with pytest.raises(PenstockError) as caught:
        session.execute(Path("script.cql"))  # type: ignore[arg-type]
    assert caught.value.hint == "path.read_text() is the text of a file"
    session.execute("CREATE RELATION r (a INT) FROM MEMORY (); INSERT INTO r VALUES (1)")
    with pytest.raises(PenstockError, match="rows: expected a number of rows"):
        session.select("SELECT a FROM r").show(rows="x")  # type: ignore[arg-type]
