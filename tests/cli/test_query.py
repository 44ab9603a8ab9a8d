"""`penstock query`: one-time queries over a script's sources, in every format; wrong usage, errors, closed pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cli.shared.querying import is_statement
from penstock.runtime.spark.startup import early_session
from tests.commands import penstock

SCRIPT = """
CREATE STREAM S (ts INT, word STRING, n INT) FROM MEMORY () TIMESTAMP BY ts;
INSERT INTO S VALUES (1, 'a', 10), (2, 'b', NULL), (9, 'a', 30);
CREATE QUERY sums AS SELECT word, SUM(n) AS total FROM S [RANGE 5 SECONDS] GROUP BY word;
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "words.cql"
    path.write_text(SCRIPT)
    return path


def call(*arguments: object, given: bytes | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["query", *(str(a) for a in arguments)], input=given)
    return result.exit_code, result.stdout, result.stderr


def test_a_query_over_a_script(script: Path) -> None:
    assert call(script, "SELECT word, n FROM S ORDER BY n DESC") == (0, "word,n\na,30\na,10\nb,\n", "")
    assert call(script, "SELECT * FROM sums") == (0, "word,total\na,30\n", "")
    assert call(script, "SELECT * FROM sums AS OF 2;")[1] == "word,total\na,10\nb,\n"


def test_a_table_shows_nulls_and_the_instant(script: Path) -> None:
    code, out, err = call(script, "(SELECT n FROM S) UNION (SELECT n FROM S) ORDER BY n", "--format", "table")
    assert (code, err) == (0, "")
    assert "NULL" in out and out.endswith("(3 rows, as of 9)\n")
    assert call(script, "SELECT n FROM S LIMIT 0", "--format", "table")[1].endswith("(0 rows, as of 9)\n")


def test_json_and_arrow(script: Path) -> None:
    out = call(script, "SELECT word, n FROM S WHERE ts < 3", "--format", "json")[1]
    assert [json.loads(line) for line in out.splitlines()] == [{"word": "a", "n": 10}, {"word": "b", "n": None}]
    command = [sys.executable, "-m", "penstock", "query", str(script), "SELECT n FROM S", "--format", "arrow"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert pa.ipc.open_stream(done.stdout).read_all().to_pydict() == {"n": [10, None, 30]}


def test_json_of_numbers_is_that_of_a_server(script: Path) -> None:
    """Numbers that a double cannot hold are texts."""
    columns = "9007199254740993 AS big, 9007199254740992 AS fits, 1.50 AS price"
    out = call(script, f"SELECT {columns} FROM S WHERE ts = 1", "--format", "json")[1]
    assert json.loads(out) == {"big": "9007199254740993", "fits": 2**53, "price": "1.50"}


def test_no_rows_are_a_header(script: Path) -> None:
    assert call(script, "SELECT word, n AS word FROM S WHERE n > 99") == (0, "word,word_1\n", "")


def test_the_queries_of_a_script(script: Path) -> None:
    script.write_text(SCRIPT + "SELECT ts FROM S LIMIT 1; SHOW QUERIES; SELECT * FROM sums;")
    code, out, err = call(script)
    assert (code, out) == (0, "# select_1\nts\n1\n\n# select_2\nword,total\na,30\n")
    assert err.startswith("CREATE QUERY sums")
    assert call(script, "SELECT ts FROM S LIMIT 1")[1] == "ts\n1\n"
    code, out, err = call(script, "--format", "arrow")
    assert (code, out) == (2, "") and "P0502" in err


def test_statements_alone() -> None:
    text = "CREATE RELATION r (a INT) FROM MEMORY (); INSERT INTO r VALUES (1); SELECT a + 1 AS b FROM r"
    assert call(text) == (0, "b\n2\n", "")
    assert call("-", given=text.encode()) == (0, "b\n2\n", "")


@pytest.mark.parametrize(
    "text", ["SELECT a", " with x as (select", "(SELECT", "-- c\nSELECT", "SELECT* FROM s", "RSTREAM(SELECT a"]
)
def test_texts_that_are_statements(text: str) -> None:
    assert is_statement(text)


@pytest.mark.parametrize("text", ["select.cql", "a b.cql", "./select", "-", "selects", "show-case.cql/x", "with.cql"])
def test_texts_that_are_files(text: str) -> None:
    assert not is_statement(text) or text == "show-case.cql/x"


@pytest.mark.parametrize("text", ["SELEC a FROM s", "FROM s SELECT a", "a" * 300, "none.cql"])
def test_a_text_that_is_neither_has_a_hint(text: str) -> None:
    code, out, err = call(text)
    assert (code, out) == (2, "") and err.startswith("error P0401: cannot read the script ")
    assert "hint: what begins with no statement, such as SELECT, is taken for the name of a script" in err


def test_a_second_argument_that_is_no_statement_is_named(script: Path) -> None:
    code, out, err = call(script, "SELEC 1")
    assert (code, out) == (2, "") and "begins with no statement, such as SELECT: SELEC 1" in " ".join(err.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--server", "http://localhost", "SELECT 1"], "No such option: --server; that is --connect here; "),
        (["--token", "abc", "SELECT 1"], "No such option: --token; that is --token-file here; "),
        (["--format", "yaml", "SELECT 1"], "'--format': 'yaml' is not one of 'table', 'csv', 'json', 'arrow'; "),
    ],
)
def test_options_of_other_programs(arguments: list[str], words: str) -> None:
    code, _, err = call(*arguments)
    assert code == 2 and words in err and "Value error" not in err


def test_wrong_usage(script: Path) -> None:
    for arguments in ([], ["a", "b", "c"], ["SELECT a FROM s", script], [script, script]):
        code, out, err = call(*arguments)
        assert (code, out) == (2, "") and err.count("\n") == 1


def test_errors_have_a_position_and_a_hint(script: Path) -> None:
    code, out, err = call(script, "SELECT wrd FROM S")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "line 1:8: error P0202: unknown column wrd",
        "  SELECT wrd FROM S",
        "         ^^^",
        "  hint: did you mean word?",
    ]
    assert "P0101" in call(script)[2] and "holds no SELECT" in call(script)[2]
    assert "P0401" in call(script.parent / "none.cql", "SELECT a FROM S")[2]


@pytest.mark.parametrize(
    ("content", "reason"),
    [("SELECT".encode("utf-16"), "UTF-16"), (b"SHOW\xff VIEWS;", "not UTF-8 text in line 1")],
)
def test_files_that_are_no_text(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "wrong.cql"
    path.write_bytes(content)
    code, _, err = call(path, "SELECT a FROM S")
    assert code == 2 and "P0401" in err and reason in err


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "windows.cql"
    path.write_bytes(b"\xef\xbb\xbf" + SCRIPT.replace("\n", "\r\n").encode())
    assert call(path, "SELECT ts FROM S LIMIT 1") == (0, "ts\n1\n", "")


def test_rows_that_are_in_no_answer_are_told(tmp_path: Path) -> None:
    (tmp_path / "s.csv").write_text("ts,n\n1,10\nx,20\n5,30\n2,40\n")
    script = tmp_path / "s.cql"
    script.write_text(f"CREATE STREAM S (ts INT, n INT) FROM FILES (path '{tmp_path}/s.csv') TIMESTAMP BY ts;")
    code, out, err = call(script, "SELECT n FROM S")
    assert (code, out) == (0, "n\n10\n30\n")
    assert "1 row of S came late" in err and "1 record of S rejected" in err


def test_files_that_are_gone(tmp_path: Path) -> None:
    script = tmp_path / "s.cql"
    script.write_text(f"CREATE RELATION r (a INT) FROM FILES (path '{tmp_path}/gone.csv');")
    code, _, err = call(script, "SELECT a FROM r")
    assert code == 2 and "P0404" in err and "Traceback" not in err


def test_a_run_has_continuous_queries_only(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(early_session, "start_session_ahead", lambda *given: started.append(given))
    script.write_text(SCRIPT + "SELECT n FROM S AS OF 1;")
    for command in ("run", "check"):
        result = CliRunner().invoke(app, [command, str(script)])
        assert result.exit_code == 2 and "P0103" in result.stderr and f"{script}:5:" in result.stderr
        assert "penstock query" in result.stderr
    assert len(started) == 1, "by run, while the script was read"
    script.write_text(SCRIPT + "SELECT n FROM S;")
    assert "query_1: state none" in CliRunner().invoke(app, ["check", str(script)]).stdout


def test_neither_spark_nor_pandas_nor_a_prompt_is_loaded(script: Path) -> None:
    code = (
        "import sys; from penstock.cli.main import main; sys.argv[:] = ['penstock', 'query', sys.argv[1], "
        "'SELECT n FROM S']\ntry: main()\n"
        "finally: assert not {'pyspark', 'py4j', 'pandas', 'prompt_toolkit'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(script)], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, 'n\n10\n""\n30\n'), done.stderr


@pytest.mark.parametrize("form", ["csv", "table", "json", "arrow"])
def test_a_reader_that_has_closed_the_pipe(script: Path, form: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [*penstock(), "query", str(script), "SELECT * FROM S", "--format", form]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("form", ["csv", "json", "table"])
def test_a_reader_that_leaves_in_the_middle(tmp_path: Path, form: str) -> None:
    """Also where Python does not buffer standard output, as in most containers: a write may then write a part alone."""
    script = tmp_path / "s.cql"
    rows = ", ".join(f"({n}, '{'x' * 200}')" for n in range(2_000))
    script.write_text(f"CREATE RELATION r (n INT, t STRING) FROM MEMORY (); INSERT INTO r VALUES {rows};")
    command = [sys.executable, "-m", "penstock", "query", str(script), "SELECT * FROM r", "--format", form]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.read(5)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("text", ["", "  ", ";", "\n;;\n"])
def test_a_query_that_is_empty(script: Path, text: str) -> None:
    for arguments in ([text], [script, text]):
        code, out, err = call(*arguments)
        assert (code, out) == (2, "") and err.startswith("error P0101: the query is empty\n  hint: penstock query 'SEL")


def test_ten_thousand_rows(tmp_path: Path) -> None:
    script = tmp_path / "many.cql"
    (tmp_path / "many.csv").write_text("ts,n\n" + "".join(f"{i},{i % 7}\n" for i in range(10_000)))
    script.write_text(f"CREATE STREAM S (ts INT, n INT) FROM FILES (path '{tmp_path}/many.csv') TIMESTAMP BY ts;")
    code, out, _ = call(script, "SELECT ts, n FROM S ORDER BY ts DESC", "--format", "table")
    assert code == 0 and out.endswith("(10,000 rows, as of 9999)\n") and out.count("│\n") == 10_000


def test_control_characters_do_not_reach_a_table(tmp_path: Path) -> None:
    text = "CREATE RELATION r (a STRING) FROM MEMORY (); INSERT INTO r VALUES ('\x1b[2Jx\x9b1m\x07'); SELECT a FROM r"
    out = call(text, "--format", "table")[1]
    assert "\\x1b[2Jx\\x9b1m\\x07" in out and not set("\x1b\x9b\x07") & set(out)


def test_output_in_an_encoding_without_frames(script: Path) -> None:
    command = [*penstock(), "query", str(script), "SELECT word FROM S", "--format", "table"]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0 and b"| a    |" in done.stdout


def test_a_select_without_from_needs_no_script() -> None:
    assert call("SELECT 1 AS a, 'x' AS b", "--format", "csv") == (0, "a,b\n1,x\n", "")
    assert call("VALUES (2), (1) ORDER BY col1", "--format", "csv") == (0, "col1\n1\n2\n", "")
