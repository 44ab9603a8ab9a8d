"""`penstock check` and `explain`, usage and errors: everything that needs no Spark."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock import __version__
from penstock.cli.main import app
from tests.commands import penstock

SCRIPT = """
CREATE STREAM Orders (ts INT, item STRING, price INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE QUERY dear AS SELECT item, price FROM Orders WHERE price > 10;
CREATE QUERY counts AS SELECT item, COUNT(*) AS n FROM Orders [RANGE 1 MINUTE] GROUP BY item;
"""

WRONG = """CREATE STREAM Orders (ts INT, price INTT) FROM MEMORY () TIMESTAMP BY ts;
CREATE QUERY q AS SELEC 1;
CREATE QUERY r AS SELECT price FROM Order [RANGE 1 MINUTE];
"""


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What would have been started while the script is read."""
    starts: list[tuple[object, ...]] = []
    monkeypatch.setattr(
        "penstock.runtime.spark.startup.early_session.start_session_ahead", lambda *given: starts.append(given)
    )
    return starts


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "orders.cql"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    path = tmp_path / "wrong.cql"
    path.write_text(WRONG)
    return path


def call(*arguments: object, given: str | None = None) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], input=given)
    return result.exit_code, result.stdout, result.stderr


def test_check_says_that_a_script_is_correct(script: Path) -> None:
    code, out, err = call("check", script)
    assert (code, err) == (0, "")
    first, dear, counts = out.splitlines()
    assert first == f"{script}: correct, 2 queries"
    assert dear == "dear: state none"
    said = r"counts: state bounded by RANGE 1 MINUTE of Orders; about [0-9.]+ kB \(Orders with 1 row/s, the default\)"
    assert re.fullmatch(said, counts)


def test_check_reads_standard_input() -> None:
    code, out, err = call("check", "-", given=SCRIPT)
    assert (code, out.split("\n")[0], err) == (0, "<stdin>: correct, 2 queries", "")


def test_check_shows_where_state_has_no_bound(tmp_path: Path) -> None:
    place = tmp_path / "joined.cql"
    place.write_text("""CREATE STREAM S (ts BIGINT, k INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM T (ts BIGINT, k INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE VIEW v AS SELECT S.k, 'T' AS t -- of T
  FROM S [RANGE 5 SECONDS], T [UNBOUNDED] WHERE S.k = T.k;
CREATE QUERY pairs AS SELECT S.k, 'T' AS t -- of T
  FROM S [RANGE 5 SECONDS], T [UNBOUNDED] WHERE S.k = T.k;
CREATE QUERY by_view AS SELECT k FROM v;
CREATE QUERY groups AS SELECT k, COUNT(*) AS n FROM T [UNBOUNDED] GROUP BY k;
SET statistics = 'T(rate 100, k 20)';
""")
    _, out, _ = call("check", place)
    assert f"{place}:6:29: warning: pairs: state unbounded: it keeps the window UNBOUNDED of T; about" in out
    assert "    FROM S [RANGE 5 SECONDS], T [UNBOUNDED] WHERE S.k = T.k\n" in out.replace(";\n", "\n")
    assert f"{place}:7:1: warning: by_view: state unbounded" in out
    assert "hint: give T a window, such as [RANGE 1 HOUR] or [ROWS 1000]" in out
    assert "groups: state bounded only by the number of groups (k); about 560 bytes (T with 100 rows/s)" in out


def test_the_place_of_unbounded_state_is_that_of_its_statement(tmp_path: Path) -> None:
    """Not that of the same text in a comment, and neither a secret nor a name in a string changes it."""
    place = tmp_path / "places.cql"
    pairs = "SELECT S.k FROM S [RANGE 5 SECONDS], T [UNBOUNDED] WHERE S.k = T.k"
    sink = "INTO POSTGRES (url 'postgresql://u:very-secret@h/d', table 'FROM T [UNBOUNDED]')"
    place.write_text(f"""CREATE STREAM S (ts BIGINT, k INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM T (ts BIGINT, k INT) FROM MEMORY () TIMESTAMP BY ts;
-- CREATE QUERY pairs AS {pairs}
CREATE QUERY pairs AS {pairs};
CREATE QUERY kept {sink} AS
{pairs};
{pairs};
""")
    _, out, _ = call("check", place)
    column = 1 + pairs.index("T [")
    assert f"{place}:4:{column + len('CREATE QUERY pairs AS ')}: warning: pairs: state unbounded" in out
    assert f"{place}:6:{column}: warning: kept: state unbounded" in out
    assert f"{place}:7:{column}: warning: query_1: state unbounded" in out


def test_check_of_a_script_for_a_server(tmp_path: Path) -> None:
    """What only a server carries out is checked, with the places of results; nothing runs."""
    place = tmp_path / "served.cql"
    stream = "CREATE STREAM S (at TIMESTAMP, k INT) FROM HTTP () TIMESTAMP BY at RETAIN 1 DAY;\n"
    sink = f"INTO FILES (path '{tmp_path}/out', format 'csv')"
    place.write_text(
        f"SET shards = 4;\n{stream}CREATE QUERY q START WARM AS SELECT k FROM S [RANGE 1 HOUR];\n"
        f"CREATE QUERY f {sink} AS SELECT k, COUNT(*) AS n FROM S [UNBOUNDED] GROUP BY k;\n"
        "ALTER QUERY q SET (comment 'x'); INSERT INTO S VALUES ('2026-01-01 10:00:00', 1);\n"
        "CREATE QUERY gone AS SELECT k FROM S; DROP QUERY gone;\n"
    )
    code, out, err = call("check", "--serve", place)
    first, of_q, of_f, *promises = out.splitlines()
    assert (code, err, first) == (0, "", f"{place}: correct, 2 queries")
    assert of_q.startswith("q: state bounded by RANGE 1 HOUR of S; about") and "number of groups (k)" in of_f
    assert any("ALTER STREAM S ADD CONSTRAINT k_clustered CLUSTERED BY (k)" in line for line in promises)
    assert not (tmp_path / "out").exists()
    code, out, err = call("check", place)
    assert (code, out) == (2, "") and "P0702: FROM HTTP () needs a server" in err and "penstock check --serve" in err
    place.write_text(f"{stream}CREATE QUERY f {sink} AS SELECT k FROM S;\nCREATE QUERY g {sink} AS SELECT k FROM S;")
    code, out, err = call("check", "--serve", place)
    assert (code, out) == (2, "") and err.startswith(f"{place}:3:21: error P0504: query g writes to")
    place.write_text(
        f"{stream}CREATE QUERY f AS SELECT j FROM S;\nCREATE QUERY g AS SELECT k FROM T;\n"
        "ALTER QUERY f PAUSE; CREATE STREAM U (k INTT) FROM HTTP (); INSERT INTO U VALUES (1);"
    )
    code, out, err = call("check", "--serve", place)
    found = re.findall(rf"^{re.escape(str(place))}:(\d+:\d+): error (\w+)", err, re.MULTILINE)
    assert code == 2 and found == [("2:26", "P0202"), ("3:33", "P0201"), ("4:36", "P0209"), ("4:41", "P0207")], err
    place.write_text(
        stream.replace("HTTP ()", f"FILES (path '{tmp_path}/*.csv', format 'csv')")
        + "CREATE QUERY f AS SELECT k FROM S;"
    )
    code, _, err = call("check", "--serve", place, "--set", "shards=2")
    assert code == 2 and "error P0404: source S: no file at" in err
    code, _, err = call("check", "--serve", place, "--set", "late=1")
    assert code == 2 and "P0104" in err


def test_check_for_a_server_reports_what_stands_after_the_script(tmp_path: Path) -> None:
    """A start executes statement by statement, so one may change what another has created; the report is about the
    queries that are there then, under their last names, with the settings in force where each was written."""
    place = tmp_path / "served.cql"
    declared = (
        "CREATE STREAM S (at TIMESTAMP, k INT) FROM HTTP () TIMESTAMP BY at;\n"
        "CREATE QUERY a AS SELECT k FROM S [RANGE 1 HOUR];\nCREATE QUERY b AS SELECT k FROM S [RANGE 2 HOURS];\n"
        "CREATE QUERY c AS SELECT k FROM S [RANGE 3 HOURS];\nCREATE QUERY d AS SELECT k FROM S [RANGE 4 HOURS];\n"
    )
    changes = (
        "ALTER QUERY a RENAME TO z;\nALTER QUERY z SWAP WITH b;\nALTER QUERY z RENAME TO `y z`;\nDROP QUERY c;\n"
        "CREATE OR REPLACE QUERY d AS SELECT k FROM S [RANGE 5 HOURS];\nCREATE QUERY c AS SELECT k FROM S;\n"
        "ALTER QUERY b AS SELECT k FROM S [RANGE 6 HOURS] WHERE k > 1 START NOW;\nALTER QUERY d PAUSE;\n"
    )
    place.write_text(declared + changes)
    code, out, err = call("check", "--serve", place)
    assert (code, err) == (0, "")
    first, *rest = out.splitlines()
    assert first == f"{place}: correct, 4 queries"
    found = dict(line.split(": state ", 1) for line in rest)
    windows = {"b": "RANGE 6 HOUR of S", "y z": "RANGE 2 HOUR of S", "d": "RANGE 5 HOUR of S"}
    assert found.keys() == {*windows, "c"} and found["c"] == "none"
    assert all(f"bounded by {window}; about" in found[name] for name, window in windows.items()), out
    # Of a transaction, no query changes twice.
    place.write_text(f"BEGIN;\n{declared}ALTER QUERY a RENAME TO z; DROP QUERY b; ALTER QUERY c RENAME TO a;\nCOMMIT;")
    code, out, err = call("check", "--serve", place)
    assert (code, err) == (0, "") and [line.split(":")[0] for line in out.splitlines()[1:]] == ["z", "a", "d"], out
    place.write_text(f"BEGIN;\n{declared}ALTER QUERY a AS SELECT k FROM S [RANGE 6 HOURS] START NOW;\nCOMMIT;")
    code, out, err = call("check", "--serve", place)
    assert (code, out) == (2, "") and err.startswith(f"{place}:7:1: error P0732: a changes twice in one transaction"), (
        err
    )
    # Results of two statements meet though one of them is gone at the end; so a start would refuse the second.
    sink = f"INTO FILES (path '{tmp_path}/out', format 'csv')"
    place.write_text(
        f"{declared}CREATE QUERY f {sink} AS SELECT k FROM S;\nCREATE QUERY g {sink} AS SELECT k FROM S;\nDROP QUERY f;"
    )
    code, out, err = call("check", "--serve", place)
    assert (code, out) == (2, "") and err.startswith(f"{place}:7:21: error P0504: query g writes to"), err
    unbounded = "SELECT S.k FROM S [RANGE 1 HOUR], T [UNBOUNDED] WHERE S.k = T.k"
    place.write_text(
        f"{declared}CREATE STREAM T (at TIMESTAMP, k INT) FROM HTTP () TIMESTAMP BY at;\n"
        f"ALTER QUERY a AS {unbounded} START NOW;\nALTER QUERY a RENAME TO z;"
    )
    code, out, err = call("check", "--serve", place)
    assert (code, err) == (0, "") and f"{place}:7:52: warning: z: state unbounded" in out, out


@pytest.mark.parametrize("command", ["check", "run", "explain"])
def test_a_wrong_script_shows_all_its_errors_and_nothing_runs(command: str, wrong: Path) -> None:
    code, out, err = call(command, wrong)
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert [line for line in lines if line.startswith(str(wrong))] == [
        f"{wrong}:1:37: error P0207: unknown type INTT",
        f"{wrong}:2:19: error P0101: expected a query, found 'SELEC'",
        f"{wrong}:3:37: error P0201: unknown stream, relation or view Order",
    ]
    assert lines[1:3] == [
        "  CREATE STREAM Orders (ts INT, price INTT) FROM MEMORY () TIMESTAMP BY ts;",
        " " * 38 + "^^^^",
    ]
    assert "Traceback" not in err


def test_debug_shows_the_traceback(wrong: Path) -> None:
    code, _, err = call("--debug", "check", wrong)
    assert code == 2
    assert "Traceback" in err


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    code, _, err = call("check", tmp_path / "none.cql")
    assert code == 2
    assert err == f"error P0401: cannot read the script {tmp_path / 'none.cql'}: No such file or directory\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [("bootstrap 'kafka://h:9092'", "the addresses of brokers"), ("bootstrap 'h:port'", "the addresses of brokers"),
     ("bootstrap 'h:9092,i:99999'", "the addresses of brokers"), ("bootstrap 'h', offset 'earliest'", "no column"),
     ("bootstrap '[::1]:9092', starting 'beginning'", "'earliest' or 'latest'"),
     ("bootstrap 'SSL://h:9092, i'", "correct, 1 query")],
)  # fmt: skip
def test_options_of_kafka_are_checked_without_it(options: str, said: str, tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    text = f"CREATE STREAM s (k INT, at TIMESTAMP) FROM KAFKA (topic 't', format 'json', {options}) TIMESTAMP BY at;"
    (tmp_path / "a.cql").write_text(f"{text}\nCREATE QUERY q AS SELECT k FROM s;")
    code, out, err = call("check", tmp_path / "a.cql")
    assert said in out + err and code == (0 if "correct" in said else 2)
    assert code == 0 or "P0208" in err


def test_a_text_in_the_place_of_a_script() -> None:
    code, _, err = call("check", "SELECT 1")
    assert (
        code,
        err.endswith("hint: the argument names a file; a text is read from standard input, with - in its place\n"),
    ) == (2, True)


def test_a_script_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.cql").write_bytes(b"\xff\xfe\x00")
    code, _, err = call("check", tmp_path / "a.cql")
    assert (code, err.endswith("hint: save it as UTF-8\n")) == (2, True)
    (tmp_path / "a.cql").write_bytes(b"SHOW STREAMS;\nSHOW VIEWS -- caf\xe9")
    code, _, err = call("check", tmp_path / "a.cql")
    assert (code, "it is not UTF-8 text in line 2\n  hint: save it as UTF-8" in err) == (2, True)


def test_a_script_with_a_byte_order_mark(tmp_path: Path) -> None:
    text = "CREATE STREAM s (a INT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at;\r\nCREATE QUERY q AS SELECT a FROM s;"
    (tmp_path / "a.cql").write_text(text, encoding="utf-8-sig")
    code, out, _ = call("check", tmp_path / "a.cql")
    assert (code, "correct, 1 query" in out) == (0, True)


def test_warnings_of_check(tmp_path: Path) -> None:
    text = (
        'CREATE STREAM s (a INT, ts TIMESTAMP) FROM MEMORY () TIMESTAMP BY ts; CREATE QUERY q AS SELECT ts, "a" FROM s;'
    )
    (tmp_path / "a.cql").write_text(text)
    code, out, _ = call("check", tmp_path / "a.cql")
    assert code == 0
    assert 'warning: "a" is a text, not the column a' in out
    assert "warning: ts is called ts_1 in the result of q, where the name is taken" in out


def test_warnings_of_check_about_values(tmp_path: Path) -> None:
    text = "CREATE STREAM s (a INT, ts TIMESTAMP) FROM MEMORY () TIMESTAMP BY ts;\n"
    (tmp_path / "a.cql").write_text(text + "CREATE QUERY q AS SELECT a FROM s WHERE a > 'ten';")
    code, out, _ = call("check", tmp_path / "a.cql")
    assert code == 0
    assert f"{tmp_path / 'a.cql'}:2:45: warning: 'ten' is no DOUBLE: it is NULL here" in out


@pytest.mark.parametrize("command", ["check", "run"])
def test_files_that_are_missing(tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_spark(*_arguments: object) -> None:
        raise AssertionError("Spark is asked for")

    monkeypatch.setattr("penstock.session.Session.start", no_spark)
    names = ("one", "two", "unread")
    sources = (
        f"CREATE STREAM {n} (a INT, ts TIMESTAMP) FROM FILES (path '{tmp_path}/{n}/*.csv') TIMESTAMP BY ts;"
        for n in names
    )
    queries = (f"CREATE QUERY q{n} AS SELECT a FROM {n};" for n in names[:2])
    (tmp_path / "a.cql").write_text("\n".join((*sources, *queries)))
    code, out, err = call(command, tmp_path / "a.cql")
    assert (code, out) == (2, "")
    assert [line for line in err.splitlines() if "error" in line] == [
        f"error P0404: source {n}: no file at {tmp_path}/{n}/*.csv" for n in names[:2]
    ]


@pytest.mark.parametrize(
    ("pair", "told"),
    [("seeds=1", "did you mean seed or shed?"), ("seed=x", "whole number"), ("seed", "a setting is KEY=VALUE")],
)
def test_a_wrong_setting(script: Path, pair: str, told: str) -> None:
    code, _, err = call("check", script, "--set", pair)
    assert code == 2
    assert err.startswith("error P0104")
    assert told in err


@pytest.mark.parametrize(
    "arguments", [("run",), ("rum",), ("run", "a.cql", "--nonsense"), ("explain", "a", "--format", "x")]
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert call(*arguments)[0] == 2


@pytest.mark.parametrize("command", ["check", "explain", "run", "state"])
@pytest.mark.parametrize("mistake", ["missing", "other kind", "no text", "option", "no argument", "argument"])
def test_a_mistake_is_one_line(command: str, mistake: str, tmp_path: Path, script: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin.cql").write_bytes(b"CREATE \xff")
    given: dict[str, list[object]] = {
        "missing": [tmp_path / "none"],
        "other kind": [tmp_path / "folder"] if command != "state" else [script],
        "no text": [tmp_path / "latin.cql"],
        "option": [script, "--nonsense"],
        "no argument": [],
        "argument": [script, "another"],
    }
    code, out, err = call(command, *given[mistake])
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    first, *rest = err.splitlines()
    assert first.startswith("error") and (not rest or rest[0].startswith("  hint: "))
    words = {"missing": "none", "option": "No such option: --nonsense", "no argument": "Missing argument"}
    assert words.get(mistake, "") in first
    if mistake in ("option", "no argument", "argument"):
        assert f'{command} --help" lists what there is' in first and not rest


def test_standard_input_that_is_no_text() -> None:
    result = CliRunner().invoke(app, ["check", "-"], input=b"CREATE \xff")
    assert result.exit_code == 2
    reason = "error P0401: cannot read the script <stdin>: it is not UTF-8 text in line 1\n"
    assert result.stderr == f"{reason}  hint: save it as UTF-8, as iconv -f LATIN1 -t UTF-8 does\n"


def test_a_checkpoint_that_is_a_file(script: Path, started: list[object]) -> None:
    code, _, err = call("run", script, "--checkpoint", script)
    assert (code, err) == (2, f"error P0608: {script} is a file\n  hint: --checkpoint names a folder\n")
    assert not started


def test_without_a_command_there_is_help_once() -> None:
    code, out, err = call()
    assert code == 2 and (out + err).count("Commands") == 1


def test_version() -> None:
    assert call("--version") == (0, f"penstock {__version__}\n", "")


def test_explain_draws_both_plans(script: Path) -> None:
    code, out, _ = call("explain", script, "--query", "DEAR")
    assert code == 0
    assert "dear: logical plan" in out
    assert "dear: physical plan" in out
    assert "price > 10" in out
    assert "counts" not in out
    assert "counts: logical plan" in call("explain", script)[1]


def test_explain_as_json(script: Path) -> None:
    one = json.loads(call("explain", script, "--query", "dear", "--format", "json")[1])
    both = json.loads(call("explain", script, "--format", "json")[1])
    assert one["query"] == "dear"
    assert {"logical", "physical"} <= set(one)
    assert [plan["query"] for plan in both] == ["dear", "counts"]
    assert both[0] == one


def test_explain_as_mermaid(script: Path) -> None:
    chart = call("explain", script, "--query", "counts", "--format", "mermaid")[1]
    assert chart.startswith("flowchart BT") and chart.count("flowchart") == 1
    assert chart.count("subgraph") == 2 and chart.count("  end") == 2


def test_explain_drawn(script: Path) -> None:
    drawn = call("explain", script, "--query", "counts", "--format", "drawn")[1]
    assert len(ET.fromstring(drawn).findall(".//*[@data-plan]")) == 2
    code, out, err = call("explain", script, "--format", "drawn")
    assert (code, out) == (2, "")
    assert err.startswith("error P0104: a picture is of one query") and "--query dear" in err


def test_explain_an_unknown_query(script: Path) -> None:
    code, _, err = call("explain", script, "--query", "count")
    assert (code, err) == (2, "error P0201: unknown query count\n  hint: did you mean counts?\n")


@pytest.mark.parametrize("said, expected", [("", [(None, {"spark.a": "b"})]), ("SET spark.a = 'c';\n", [])])
def test_spark_starts_while_a_script_that_does_not_speak_of_it_is_read(
    said: str, expected: list[object], tmp_path: Path, started: list[object]
) -> None:
    path = tmp_path / "wrong.cql"
    path.write_text(said + WRONG)
    assert call("run", path, "--set", "spark.a=b")[0] == 2
    assert started == expected


def test_run_refuses_a_script_without_a_query(tmp_path: Path, started: list[object]) -> None:
    path = tmp_path / "none.cql"
    path.write_text("CREATE STREAM S (ts INT) FROM MEMORY () TIMESTAMP BY ts;\nSHOW STREAMS;\n")
    code, out, err = call("run", path)
    assert code == 0
    assert "CREATE STREAM S" in out
    assert "no query to run" in err
    assert not started


#: A thread that is inside Arrow all the time, as one that reads from Spark is.
READING = """
import sys, threading, time
import pyarrow as pa

schema = pa.schema([("a", pa.int64())])

def batches():
    while True:
        time.sleep(0.0005)
        yield pa.record_batch([pa.array([1])], schema)

def read():
    pa.RecordBatchReader.from_batches(schema, batches()).read_all()

threading.Thread(target=read, daemon=True).start()
time.sleep(0.2)
from penstock.cli.main import main
sys.argv = ["penstock", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["check", "nowhere.cql"], 2)])
def test_threads_that_still_read_do_not_change_the_exit_code(arguments: list[str], code: int) -> None:
    """With Python's own end such a thread aborts the process: exit code 134."""
    call = [sys.executable, "-c", READING, *arguments]
    process = subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == code, process.stderr
    assert "penstock" in process.stdout if not code else "nowhere.cql" in process.stderr
    assert "Fatal" not in process.stderr


def test_a_reader_that_has_gone_gets_no_traceback(script: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    call = [*penstock(), "explain", str(script)]
    found = subprocess.run(call, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (found.returncode, found.stderr) == (141, b"")


def test_ctrl_c_while_modules_are_loaded_prints_no_traceback() -> None:
    code = """
import os, signal, sys
from penstock.__main__ import main
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "penstock.settings":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
main()
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_a_script_says_how_its_data_is_had(tmp_path: Path) -> None:
    script = tmp_path / "s.cql"
    script.write_text(
        "-- What it is.\n-- Data: `make data` makes it\nCREATE RELATION r (a INT) FROM FILES (path 'none/x.csv', format"
        " 'csv');\nCREATE QUERY q INTO CONSOLE () AS SELECT a FROM r;\n"
    )
    for command in ("check", "run"):
        done = CliRunner().invoke(app, [command, str(script)])
        assert done.exit_code == 2 and "P0404" in done.stderr and "hint: `make data` makes it\n" in done.stderr


def test_a_script_without_queries_has_no_plans(tmp_path: Path) -> None:
    (tmp_path / "empty.cql").write_text("")
    result = CliRunner().invoke(app, ["explain", str(tmp_path / "empty.cql")])
    assert (result.exit_code, result.stdout) == (0, "") and "empty.cql: no query to explain" in result.stderr


def test_a_working_folder_that_has_been_removed(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"cd {gone} && rmdir {gone} && {sys.executable} -m penstock check x.cql"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "the working folder does not exist any more" in done.stderr, done.stderr


def test_a_folder_that_may_be_read_and_is_not_there_is_told(tmp_path: Path) -> None:
    arguments = [
        "serve",
        "--checkpoint",
        str(tmp_path / "c"),
        "--http",
        "nowhere",
        "--allow-path",
        str(tmp_path / "no"),
    ]
    result = CliRunner().invoke(app, [*arguments, "--allow-path", str(tmp_path / "no")])
    assert f"warning: --allow-path {tmp_path / 'no'} does not exist" in result.stderr, result.stderr
