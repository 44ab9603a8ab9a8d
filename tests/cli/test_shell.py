"""`penstock shell` without a terminal: statements from a pipe and from files, commands, errors, completion."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cli.shell.completion import candidates
from penstock.cli.shell.declared import Declared, declared_of, quoted
from penstock.cli.shell.shell import Quit, Shell, duration_text
from penstock.cli.shell.sides import SessionSide
from penstock.connectors.sinks.output import OutputFormat
from penstock.language.quotes import is_blank, statement_end
from penstock.language.scripts import bind_script
from penstock.session import Session
from tests.commands import penstock

SCRIPT = """CREATE STREAM S (ts INT, word STRING, n INT) FROM MEMORY () TIMESTAMP BY ts;
INSERT INTO S VALUES (1, 'a', 10), (2, 'b', NULL), (9, 'a', 30);
CREATE QUERY sums AS SELECT word, SUM(n) AS total FROM S [RANGE 5 SECONDS] GROUP BY word;
"""


def piped(*arguments: object, given: str | bytes) -> subprocess.CompletedProcess[str]:
    """Run the command over an input in this process: what a process adds is tested once."""
    command = ["shell", *(str(a) for a in arguments)]
    done = CliRunner().invoke(app, command, input=given)
    return subprocess.CompletedProcess(command, done.exit_code, done.stdout, done.stderr)


def process(*arguments: object, given: str | bytes) -> subprocess.CompletedProcess[str]:
    """Run the command over an input in a process of its own."""
    content = given if isinstance(given, bytes) else given.encode()
    command = [*penstock(), "shell", *(str(a) for a in arguments)]
    done = subprocess.run(command, input=content, capture_output=True)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


class Told:
    """A shell whose output is in memory."""

    def __init__(self, form: OutputFormat = OutputFormat.CSV, keep_going: bool = True) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        self.session = Session()
        self.shell = Shell(SessionSide(self.session), self.out, self.err, form, keep_going=keep_going)

    def __call__(self, text: str) -> tuple[str, str]:
        """Return what is written to standard output and to standard error."""
        for stream in (self.out, self.err):
            stream.seek(0)
            stream.truncate()
        self.shell.read(text.splitlines(keepends=True), None)
        return self.out.getvalue(), self.err.getvalue()


@pytest.fixture
def told() -> Told:
    made = Told()
    assert made(SCRIPT) == ("", "")
    return made


def test_statements_of_a_pipe() -> None:
    statements = SCRIPT + "SELECT word\nFROM S\nWHERE n > 5; SELECT * FROM sums -- no semicolon at the end"
    for run in (piped, process):
        done = run(given=statements)
        assert (done.returncode, done.stdout, done.stderr) == (0, "word\na\na\nword,total\na,30\n", "")
    done = process(given="\ufeff" + SCRIPT + "SELECT 'é' AS v FROM S LIMIT 1; SELECT nothing;")
    assert done.returncode == 1 and done.stdout == "v\né\n" and "error P0" in done.stderr


def test_the_script_of_the_command_line_comes_first(tmp_path: Path) -> None:
    script = tmp_path / "s.cql"
    script.write_text(SCRIPT + "SELECT COUNT(*) AS c FROM S;")
    done = piped(script, "--format", "json", given="SELECT n FROM S LIMIT 1;\n\\q\nSELECT nothing;")
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"c": 3}, {"n": None}]
    script.write_text("SELECT nothing FROM s; SELECT a FROM t")
    done = piped(script, given="SHOW VIEWS;")
    assert done.returncode == 2 and done.stderr.count("error P0201") == 2 and done.stdout == ""
    assert piped(tmp_path / "none.cql", given="").returncode == 2


def test_the_first_error_ends_a_pipe_unless_told_otherwise() -> None:
    statements = SCRIPT + "SELECT wrd FROM S;\nSELECT COUNT(*) AS c FROM S;\n"
    done = piped(given=statements)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[:3] == [
        "<stdin>:4:8: error P0202: unknown column wrd",
        "  SELECT wrd FROM S;",
        "         ^^^",
    ]
    done = piped("--keep-going", given=statements)
    assert (done.returncode, done.stdout) == (1, "c\n3\n") and "P0202" in done.stderr


def test_positions_are_those_of_the_input() -> None:
    done = piped("--keep-going", given=SCRIPT + "SHOW VIEWS; SELECT a\n  FROM S; SELECT b FROM S;\n\n  SELEC c;")
    first, second, third = (line for line in done.stderr.splitlines() if line.startswith("<stdin>"))
    assert first.startswith("<stdin>:4:20: error P0202") and second.startswith("<stdin>:5:18: error P0202")
    assert third.startswith("<stdin>:7:3: error P0101") and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("given", "code", "word"),
    [
        (b"\xef\xbb\xbfSHOW VIEWS;\r\n", 0, ""),
        ("SHOW VIEWS;".encode("utf-16"), 2, "UTF-16"),
        (b"SHOW VIEWS;\nSHOW \xff;", 2, "not UTF-8 text in line 2"),
        (b"", 0, ""),
        (b" ;;\n-- nothing\n/* nor here */;\n", 0, ""),
        (b"SELECT 'open\n;", 1, "' is opened here and never closed"),
        (b"SELECT /* open\n;", 1, "/* is opened here and never closed"),
        (b"\\nothing\n", 1, "unknown command \\nothing"),
        (b"\\dt\n", 1, "hint: \\d shows what is declared"),
        (b"\\c other\n", 1, "penstock shell --connect"),
        (b"\\copy r from 'r.csv'\n", 1, "FROM FILES (path '...')"),
        (b"\\set x 1\n", 1, "a setting is SET name = value"),
        (b"\x00\x01;", 2, "UTF-16 or UTF-32"),
        (b"SELECT \x01;", 1, "P0202"),
    ],
)
def test_odd_inputs(given: bytes, code: int, word: str) -> None:
    done = piped(given=given)
    assert done.returncode == code and word in done.stderr and "Traceback" not in done.stderr
    assert "\x01" not in done.stderr


def test_a_reader_that_has_closed_the_pipe() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [*penstock(), "shell"]
    done = subprocess.run(command, input=SCRIPT + "SELECT * FROM S;", stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_neither_spark_nor_a_prompt_is_loaded() -> None:
    code = (
        "import sys; from penstock.cli.main import app\n"
        "try: app(['shell'], standalone_mode=False)\n"
        "finally: assert not {'pyspark', 'py4j', 'prompt_toolkit'} & set(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=SCRIPT + "SELECT n FROM S LIMIT 1;", capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout == 'n\n""\n', done.stderr


def test_an_error_leaves_the_session_as_it_was(told: Told) -> None:
    out, err = told("CREATE VIEW v AS SELECT nothing FROM S;")
    assert out == "" and err.startswith("line 1:25: error P0202")
    assert told("SHOW VIEWS;") == ("name,statement\n", "")


def test_an_error_that_is_not_the_users_has_no_traceback(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object, **more: object) -> None:
        raise ZeroDivisionError("by \x1b[31mzero\nat once")

    monkeypatch.setattr(told.session, "execute", fails)
    assert told("SHOW VIEWS;") == ("", "error P0601: the statement failed: ZeroDivisionError: by \\x1b[31mzero\n")
    assert told.shell.failed


def test_an_interruption_passes_through_and_changes_nothing(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*given: object, **more: object) -> None:
        raise KeyboardInterrupt

    before = told.session.catalog
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("penstock.runtime.local.one_time.answer_once", stopped)
        told("SELECT n FROM S; DROP QUERY sums;")
    assert told.session.catalog is before and told("SELECT ts FROM S LIMIT 1;") == ("ts\n1\n", "")


def test_describe(told: Told) -> None:
    told("CREATE VIEW `odd name` (`a``b`) AS SELECT n FROM S; \\format table")
    listed, _ = told("\\d")
    for name, kind in (("S", "stream"), ("odd name", "view"), ("sums", "query")):
        assert any(name in line and kind in line for line in listed.splitlines())
    shown, _ = told("\\d `odd name`")
    assert "view odd name" in shown and "a`b" in shown and "INT" in shown and "CREATE VIEW" in shown
    assert "CREATE STREAM S" in told("\\d s;")[0]
    assert "CREATE QUERY sums" in told("\\d sums")[0]
    assert "error P0201: unknown stream, relation, view or query sum" in told("\\d sum")[1]
    assert "did you mean sums?" in told("\\d sum")[1]


def test_secrets_are_not_shown(told: Told) -> None:
    told("CREATE RELATION p (a INT) FROM POSTGRES (dbname 'd', table 't', user 'u', password 'pst');")
    shown, err = told("\\d p")
    assert "***" in shown and "pst" not in shown and err == ""


def test_watch_repeats_the_last_select(told: Told) -> None:
    assert "there is none yet" in told("\\watch 1 1")[1]
    told("SELECT COUNT(*) AS c FROM S;")
    assert told("\\watch 0.01 3") == ("c\n3\n" * 3, "")
    for wrong in ("\\watch x", "\\watch 0", "\\watch 1 0", "\\watch 1 2 3", "\\watch nan"):
        assert "error P0101" in told(wrong)[1]


def test_format(told: Told) -> None:
    assert told("\\format") == ("format: csv\n", "")
    assert told("\\format json\nSELECT ts FROM S LIMIT 1;") == ('{"ts":1}\n', "")
    out, err = told("\\format TABLE\nSELECT n FROM S WHERE n > 99;")
    assert "n" in out and out.endswith("(0 rows, as of 9)\n") and err == ""
    assert "error P0104: the shell has no format arrow" in told("\\format arrow")[1]
    assert piped("--format", "arrow", given="").returncode == 2


def test_include(told: Told, tmp_path: Path) -> None:
    inner, outer, loop = (tmp_path / name for name in ("inner.cql", "outer file.cql", "loop.cql"))
    inner.write_text(
        "SELECT ts FROM S LIMIT 1;\n\\format json\nSELECT wrd FROM S;\nSHOW VIEWS;\nSELECT ts FROM S LIMIT 1;"
    )
    outer.write_text(f"\\i {inner}\n")
    out, err = told(f"\\i {outer}")
    assert out == 'ts\n1\n{"ts":1}\n' and err.startswith(f"{inner}:3:8: error P0202")
    assert "error P0401: cannot read the script" in told(f"\\i {tmp_path}/none.cql")[1]
    assert "needs the name of a file" in told("\\i")[1]
    loop.write_text(f"\\i {loop}\n")
    assert "may execute each other 16 deep at most" in told(f"\\i {loop}")[1]
    first = Told(keep_going=False)
    assert not first.shell.read([f"\\i {inner}\n", "SHOW VIEWS;"], None)
    assert first.err.getvalue().count("error") == 1


def test_help_and_quit(told: Told) -> None:
    out, _ = told("\\?")
    for word in ("\\d [name]", "\\watch", "\\i file", "\\format", "\\q"):
        assert word in out
    with pytest.raises(Quit):
        told("\\q")


def test_explain_show_and_set(told: Told) -> None:
    assert "logical plan" in told("EXPLAIN SELECT n FROM S [RANGE 5 SECONDS];")[0]
    assert "physical plan, as it ran" in told("EXPLAIN ANALYZE SELECT n FROM S [RANGE 5 SECONDS];")[0]
    head, listed = told("SHOW QUERIES;")[0].splitlines()[:2]
    assert head == "name,state,kind,result,remark,statement"
    assert listed.startswith("sums,DECLARED,relation,") and "CREATE QUERY sums" in listed
    assert told("SHOW VIEWS;") == ("name,statement\n", "")
    assert told("SHOW STREAMS;")[0].startswith("name,statement\nS,")
    assert told("SELECT 5 / 2 AS h FROM S LIMIT 1; SET integer_division = true; SELECT 5 / 2 AS h FROM S LIMIT 1;")[
        0
    ] == ("h\n2.5\nh\n2\n")


def test_nulls_wide_columns_and_control_characters(told: Told) -> None:
    told("CREATE RELATION r (a STRING, b STRING) FROM MEMORY ();")
    told(f"INSERT INTO r VALUES ('\x1b]0;x\x07\x9b', NULL), ('{'w' * 5000}', '');")
    out, _ = told("\\format table\nSELECT * FROM r;")
    assert "\\x1b]0;x\\x07\\x9b" in out and "NULL" in out and "w" * 5000 in out
    assert not set("\x1b\x07\x9b") & set(out)
    out, _ = told("SHOW RELATIONS; EXPLAIN SELECT a FROM r WHERE a = '\x1b[2J';")
    assert "\x1b" not in out
    assert "\x1b" not in told("SELECT `\x1b[2J` FROM r;")[1]


def test_many_statements_are_read_in_time(told: Told) -> None:
    rows = ",\n".join(f"({i}, 'w', {i})" for i in range(10, 5_010))
    told(f"INSERT INTO S VALUES\n{rows};\n" + "".join(f"SET seed = {i};\n" for i in range(500)))
    assert told("SELECT COUNT(*) AS c FROM S;") == ("c\n5003\n", "")


# --- where statements end ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "end"),
    [("a;b", 2), ("';';", 4), ('";" ;', 5), ("`;``;`;", 7), ("-- ;\n;", 6), ("/* ; /* ; */ ; */;", 18), ("r'\\';", 5),
     ("'it''s;';", 9), ("'a\\';';", 7), ("no", None), ("'open;", None), ("/* ;", None)],
)  # fmt: skip
def test_the_end_of_a_statement(text: str, end: int | None) -> None:
    assert statement_end(text) == end


def test_blank_texts() -> None:
    assert all(map(is_blank, ("", " \n", ";", "-- a\n", "/* a; */ ;", "-- ';")))
    assert not any(map(is_blank, ("a", "'", "/* open", "'';", "-- a\nb")))


# --- completion -------------------------------------------------------------------------------------------------------


@pytest.fixture
def catalog() -> Declared:
    script = bind_script(
        """CREATE STREAM Flights (ts INT, origin STRING, `odd column` INT, `select` INT) FROM MEMORY () TIMESTAMP BY ts;
           CREATE RELATION `odd name` (`a``b` INT) FROM MEMORY ();
           CREATE VIEW forty (n) AS SELECT ts FROM Flights;
           CREATE QUERY flow AS SELECT origin FROM Flights"""
    )
    return declared_of(script.catalog)


@pytest.mark.parametrize(
    ("before", "texts"),
    [
        ("SELECT * FROM Fli", ["Flights"]),
        ("SELECT * FROM od", ["`odd column`", "`odd name`"]),
        ("SELECT * FROM `odd n", ["`odd name`"]),
        ("SELECT * FROM `Fli", ["`Flights`"]),
        ("SELECT `a``", ["`a``b`"]),
        ("SELECT Flights.", ["`odd column`", "`select`", "origin", "ts"]),
        ("SELECT `odd name`.", ["`a``b`"]),
        ("SELECT f.or", ["origin"]),
        ("SELECT flow.", ["origin"]),
        ("SELECT forty.", ["n"]),
        ("SELECT 'Fli", []),
        ("SELECT 1 -- Fli", []),
        ("SELECT /* Fli", []),
        ("SELECT 1 -- x\nFROM Flig", ["Flights"]),
        ("SELEC", ["`select`", "SELECT"]),
        ("SELECT * FRO", ["FROM", "FROM_UNIXTIME", "FROM_UTC_TIMESTAMP"]),
        ("SELECT ", []),
        ("", []),
        ("SELECT STRING_AG", ["STRING_AGG"]),
        ("\\f", ["\\format"]),
        ("\\d od", ["`odd name`"]),
        ("\\d `odd", ["`odd name`"]),
        ("\\format j", ["json"]),
        ("\\nothing x", []),
    ],
)
def test_completion(before: str, texts: list[str], catalog: Declared) -> None:
    found = candidates(before, catalog)
    assert [c.text for c in found] == texts
    assert all(before.endswith(before[len(before) - c.length :]) for c in found)


def test_a_completion_in_backticks_replaces_them(catalog: Declared) -> None:
    (found,) = candidates("SELECT * FROM `odd n", catalog)
    assert (found.length, found.what) == (len("`odd n"), "relation")


def test_completion_of_files(tmp_path: Path, catalog: Declared) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.cql").touch()
    (tmp_path / ".hidden").touch()
    assert [c.text for c in candidates(f"\\i {tmp_path}/f", catalog)] == ["file.cql", "folder/"]
    assert [c.text for c in candidates(f"\\i {tmp_path}/", catalog)] == ["file.cql", "folder/"]
    assert candidates(f"\\i {tmp_path}/none/x", catalog) == []


def test_names_are_written_so_that_they_parse(catalog: Declared) -> None:
    assert [quoted(n) for n in ("a1", "select", "a b", "`", "1a", "é")] == [
        "a1",
        "`select`",
        "`a b`",
        "````",
        "`1a`",
        "`é`",
    ]


def test_summaries_are_declared_shown_and_dropped() -> None:
    told = Told()
    assert told(SCRIPT + "CREATE SUMMARY words ON S (word) USING EXACT;")[1] == ""
    assert "words" in told("SHOW SUMMARIES;")[0]
    query = "WITH PREFERENCE words.Estimate.Count(word) BUDGET 1 PER TUPLE"
    assert told(f"CREATE QUERY often AS SELECT word FROM S [RANGE 5 SECONDS] {query};")[1] == ""
    refused = told("DROP SUMMARY words;")[1]
    assert "often" in refused and "hint" in refused
    assert told("DROP QUERY often; DROP SUMMARY words;")[1] == ""
    assert "words" not in told("SHOW SUMMARIES;")[0]


def test_words_of_people_who_do_not_know_the_shell(told: Told) -> None:
    assert "\\watch" in told("help\n")[0] and "\\watch" in told("HELP;\n")[0]
    for word in ("quit\n", "exit;\n"):
        with pytest.raises(Quit):
            told(word)
    # Within a statement they are names.
    out, err = told("SELECT n AS\nexit\nFROM S WHERE n > 15;\n")
    assert "exit" in out and err == ""


def test_a_name_with_spaces_is_told_as_it_is_written() -> None:
    out = io.StringIO()
    shell = Shell(SessionSide(Session()), out, io.StringIO(), OutputFormat.TABLE, confirms=True)
    shell.read((SCRIPT + "CREATE QUERY `a b` AS SELECT n FROM S;\n").splitlines(keepends=True), None)
    assert "`a b` is declared: SELECT * FROM `a b` shows" in out.getvalue()


def test_rows_with_a_line_for_each_value() -> None:
    told = Told(OutputFormat.TABLE)
    out, err = told(SCRIPT + "\\x\nSELECT word, n AS `längster name` FROM S WHERE n IS NULL;\n\\x off\n\\x what\n")
    assert out.startswith("row 1\nword          | b\nlängster name | NULL\n(1 row, as of ")
    assert err.startswith("error P0101") and "expanded" not in err, "a program need not be told"
    assert told("\\x\nSELECT word FROM S WHERE n = 99;\n")[0].startswith("(0 rows")
    assert told("SELECT 'a\\nb' AS t FROM S WHERE n = 10;\n")[0].startswith("row 1\nt | a")


def test_how_long_statements_take() -> None:
    told = Told()
    out, err = told(SCRIPT + "\\timing\nSELECT n FROM S WHERE n = 10;\nSELECT x FROM S;\n\\timing\nSELECT n FROM S;\n")
    assert out.startswith("n\n10\n") and err.count("time: ") == 2, "also of one that fails"
    assert duration_text(0.0123) == "12.3 ms" and duration_text(12.34) == "12.3 s"


def test_answers_go_into_a_file(tmp_path: Path) -> None:
    told, place = Told(), tmp_path / "ä b.csv"
    out, err = told(
        SCRIPT
        + f"\\o {place}\nSELECT word FROM S WHERE n = 10;\nSELECT x FROM S;\n\\o\nSELECT n FROM S WHERE n = 10;\n"
    )
    assert place.read_text() == "word\na\n" and out == "n\n10\n" and "P0202" in err
    assert "P0502" in told(f"\\o {tmp_path / 'none' / 'x'}\n")[1]
    told(f"\\o {place}\nSELECT n FROM S WHERE n = 30;\n")
    told.shell.finish()
    assert place.read_text() == "n\n30\n"


def test_a_statement_is_edited_and_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    told(SCRIPT + "SELECT word FROM S WHERE n = 10;\n")
    editor = tmp_path / "edit"
    editor.write_text(
        "import pathlib, sys\np = pathlib.Path(sys.argv[-1])\np.write_text(p.read_text().replace('10', '30'))\n"
    )
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"{sys.executable} {editor}")
    out, _ = told("\\e\n")
    assert out == "SELECT word FROM S WHERE n = 30;\nword\na\n"
    assert "not changed" in told("\\e\n")[0]
    script = tmp_path / "one.cql"
    script.write_text("SELECT n FROM S WHERE n = 10;")
    assert told(f"\\e {script}\n")[0].endswith("n\n30\n")
    monkeypatch.setenv("EDITOR", f"{sys.executable} -c 'raise SystemExit(3)'")
    assert "ended with 3" in told("\\e\n")[1]
    for wrong in ("no-such-editor", "'"):
        monkeypatch.setenv("EDITOR", wrong)
        assert "the variable EDITOR" in told("\\e\n")[1]
