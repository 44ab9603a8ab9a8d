"""Mistakes that a newcomer makes and that answers do not show: each is told of."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Session
from penstock.algebra.nodes.scans import Source
from penstock.cli.shared.answers import warnings_of
from penstock.control.row_changes import replaced_rows, row_notices
from penstock.errors import PenstockError, ScriptErrors
from penstock.language.binder.statements.punctuations import read_punctuation
from penstock.language.scripts import bind_script
from penstock.language.scripts.parse import parse_script
from penstock.language.scripts.script_binder import bind_command
from penstock.physical.execution.ingest import unit_warning
from penstock.runtime.local.one_time import OneTimeAnswer, answer_once
from penstock.settings import Settings
from penstock.types import CALENDAR

pa = pytest.importorskip("pyarrow")

_SECONDS, _MILLISECONDS = 1_709_283_600, 1_709_283_600_000


def _stream(unit: str = "") -> Source:
    text = f"CREATE STREAM m (k INT, t BIGINT) FROM MEMORY () TIMESTAMP BY t {unit}"
    return bind_script(text).catalog.sources["m"]


def _answer(text: str) -> OneTimeAnswer:
    (action,) = bind_script(text).actions
    return answer_once(action.query, action.memory, {})  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("declared", "value", "meant"),
    [
        ("", _MILLISECONDS, "MILLISECOND"),
        ("UNIT SECOND", _MILLISECONDS * 1000, "MICROSECOND"),
        ("UNIT MILLISECOND", _SECONDS, "SECOND"),
        ("UNIT MILLISECOND", _MILLISECONDS * 1000, "MICROSECOND"),
        ("UNIT MICROSECOND", _MILLISECONDS, "MILLISECOND"),
    ],
)
def test_a_timestamp_in_another_unit_names_the_one_to_declare(declared: str, value: int, meant: str) -> None:
    warning = unit_warning(_stream(declared), value)
    assert warning is not None
    assert warning.endswith(f"2024-03-01 in {meant}: TIMESTAMP BY t UNIT {meant} declares that")


@pytest.mark.parametrize(
    ("declared", "value"),
    [("", _SECONDS), ("", 7), ("", 0), ("", -5), ("UNIT MILLISECOND", _MILLISECONDS), ("", 10**15 * 9), ("", None)],
)
def test_other_timestamps_have_no_warning(declared: str, value: int | None) -> None:
    assert unit_warning(_stream(declared), value) is None


def test_the_warning_says_which_time_was_read() -> None:
    assert "the year 56135 by its UNIT SECOND" in str(unit_warning(_stream(), _MILLISECONDS))
    assert "1970-01-20 by its UNIT MILLISECOND" in str(unit_warning(_stream("UNIT MILLISECOND"), _SECONDS))


def test_a_query_in_this_process_tells_of_the_unit() -> None:
    text = "CREATE STREAM m (k INT, t BIGINT) FROM MEMORY () TIMESTAMP BY t; INSERT INTO m VALUES"
    answer = _answer(f"{text} (1, {_MILLISECONDS}); SELECT COUNT(*) FROM m")
    assert any("UNIT MILLISECOND declares that" in line for line in warnings_of(answer))


def test_a_frame_in_milliseconds_warns() -> None:
    session = Session()
    session.stream("f", pa.table({"k": [1], "t": [_MILLISECONDS]}), timestamp="t")
    with pytest.warns(UserWarning, match="UNIT MILLISECOND declares that"):
        session.select("SELECT COUNT(*) FROM f")


def test_a_table_that_is_not_declared_is_named_as_such() -> None:
    session = Session()
    for ask in (session.select, session.query, session.execute):
        with pytest.raises(ScriptErrors) as caught:
            ask("SELECT k FROM frame")
        (error,) = caught.value.errors
        assert "session.stream('frame', table, timestamp=..)" in (error.hint or "")
    session.stream("frames", pa.table({"k": [1], "t": [1]}), timestamp="t")
    with pytest.raises(ScriptErrors, match=r"did you mean frames\?") as caught:
        session.select("SELECT k FROM frame")
    assert "session.stream" not in str(caught.value)


@pytest.mark.parametrize(
    "declared", ["", "CREATE STREAM s (t INT) FROM MEMORY () TIMESTAMP BY t; CREATE QUERY q AS SELECT t FROM s"]
)
def test_a_query_that_is_not_declared_is_explained_by_itself(declared: str) -> None:
    session = Session()
    if declared:
        session.execute(declared)
    for name in ("nosuch", "SELECT t FROM s"):
        with pytest.raises(PenstockError, match="unknown query") as caught:
            session.explain(name)
        named = "known: q" if declared and " " not in name else "session.query('SELECT ..')"
        assert named in (caught.value.hint or "")


def _relation(operation: str = "") -> Source:
    columns = "k INT, v INT, op STRING, t TIMESTAMP, PRIMARY KEY (k)"
    text = f"CREATE RELATION r ({columns}) FROM MEMORY () TIMESTAMP BY t {operation}"
    return bind_script(text).catalog.sources["r"]


def _rows(*rows: tuple[int, int, str, int]) -> pa.Table:
    names, types = ["k", "v", "op", "t"], [pa.int32(), pa.int32(), pa.string(), pa.timestamp("us", "UTC")]
    columns = zip(*rows, strict=True)
    return pa.table([pa.array(values, type_) for values, type_ in zip(columns, types, strict=True)], names=names)


@pytest.mark.parametrize(
    ("operation", "rows", "count"),
    [
        ("", [(1, 1, "+", 5), (1, 2, "+", 5)], 1),
        ("", [(1, 1, "+", 5), (1, 2, "+", 5), (1, 3, "+", 5), (2, 2, "+", 5)], 2),
        ("", [(1, 1, "+", 5), (1, 2, "+", 6)], 0),
        ("OPERATION BY op", [(1, 1, "+", 5), (1, 2, "+", 5)], 1),
        ("OPERATION BY op", [(1, 1, "+", 5), (1, 1, "-", 5), (1, 2, "+", 5)], 0),
    ],
)
def test_rows_that_another_of_their_instant_replaces(
    operation: str, rows: list[tuple[int, int, str, int]], count: int
) -> None:
    source, table = _relation(operation), _rows(*rows)
    assert replaced_rows(source, table) == count
    assert len(row_notices(source, table)) == (count > 0)


def test_the_notice_names_the_key() -> None:
    (notice,) = row_notices(_relation(), _rows((1, 1, "+", 5), (1, 2, "+", 5)))
    assert notice.message == "1 row of r is replaced by a later one of the same instant"
    assert notice.hint == "at an instant there is one row of a k, the last: the primary key"


_OBJECTS = "CREATE STREAM s (k INT, v DOUBLE, t TIMESTAMP) FROM FILES (path '{path}', format 'json') TIMESTAMP BY t"


def test_a_key_that_no_column_has(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"k": 1, "value": 2.5, "t": "2024-03-01 09:00:00"}\n')
    with caplog.at_level(logging.WARNING, "penstock.connectors"):
        _answer(f"{_OBJECTS.format(path=path)}; SELECT * FROM s")
    (record,) = caplog.records
    message = record.getMessage()
    assert message.startswith("s: column v is NULL")
    assert message.endswith("have no such key; they have value, which no column is called")


@pytest.mark.parametrize("member", ['"v": 2.5, "other": 1, ', '"V": 2.5, "other": 1, ', ""])
def test_other_keys_beside_all_columns_are_no_mistake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, member: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(f'{{"k": 1, {member}"t": "2024-03-01 09:00:00"}}\n')
    with caplog.at_level(logging.WARNING, "penstock.connectors"):
        _answer(f"{_OBJECTS.format(path=path)}; SELECT * FROM s")
    assert not caplog.records


def test_a_number_that_is_joined_with_a_text() -> None:
    declared = """CREATE STREAM s (k INT, t TIMESTAMP) FROM MEMORY () TIMESTAMP BY t;
        CREATE RELATION r (k INT, label STRING) FROM MEMORY ();"""
    (warning,) = bind_script(f"{declared} SELECT s.k FROM s LEFT JOIN r ON s.k = r.label").warnings
    assert warning.message == "r.label is a text, and s.k is none: what is no number in it joins nothing"
    assert not bind_script(f"{declared} SELECT s.k FROM s LEFT JOIN r ON s.k = r.k").warnings


def test_a_rejected_record_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "de.csv"
    path.write_text("k,v,t\n1,2.5,01.03.2024 09:00\n")
    text = _OBJECTS.format(path=path).replace("format 'json'", "format 'csv', header 'true'")
    lines = list(warnings_of(_answer(f"{text}; SELECT * FROM s")))
    assert lines[0] == "WARNING: 1 record of s rejected: 1 x bad timestamp in column t"
    assert lines[1] == "  such as de.csv:2: bad timestamp '01.03.2024 09:00' in column t"
    assert lines[2].startswith("  hint: a TIMESTAMP is written as 2024-03-01 09:00:00")


def test_a_file_is_no_delta_table(tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    path = tmp_path / "a.csv"
    path.write_text("k,t\n")
    declared = f"CREATE STREAM s (k INT, t TIMESTAMP) FROM DELTA (path '{path}') TIMESTAMP BY t"
    with pytest.raises(PenstockError, match="it is a file") as caught:
        _answer(f"{declared}; SELECT * FROM s")
    assert caught.value.code == "P0404"


def test_a_subquery_with_two_rows_has_a_hint() -> None:
    text = """CREATE RELATION r (k INT) FROM MEMORY (); INSERT INTO r VALUES (1), (2);
        SELECT k FROM r WHERE k = (SELECT k FROM r)"""
    with pytest.raises(PenstockError) as caught:
        _answer(text)
    assert (caught.value.code, caught.value.hint) == (
        "P0612",
        "MAX or another aggregate makes one of them, IN (SELECT ..) takes any of them",
    )


def test_frames_that_cannot_be_read_say_which_column() -> None:
    pandas = pytest.importorskip("pandas")
    session, times = Session(), pandas.to_datetime(["2024-03-01"] * 2)
    with pytest.raises(PenstockError, match="in column k") as mixed:
        session.stream("a", pandas.DataFrame({"k": [1, "x"], "t": times}), timestamp="t")
    assert mixed.value.hint == "a column has values of one type: frame['k'].astype(str)"
    doubled = pandas.DataFrame([[1, 2, times[0]]], columns=["k", "k", "t"])
    with pytest.raises(PenstockError, match="b has several columns k") as several:
        session.stream("b", doubled, timestamp="t")
    assert several.value.code == "P0206"
    with pytest.raises(PenstockError, match="the timestamp column t is") as texts:
        session.stream("c", pandas.DataFrame({"t": ["2024-03-01"]}), timestamp="t")
    assert "pandas.to_datetime" in str(texts.value.hint)


@pytest.mark.parametrize(
    ("name", "format_", "hint"),
    [
        ("a.csv", "json", "has the format 'csv'"),
        ("a.csv", "parquet", "that of the file"),
        ("a.gz", "csv", "ends with .gz"),
    ],
)
def test_a_file_of_another_format_says_what_to_declare(tmp_path: Path, name: str, format_: str, hint: str) -> None:
    (tmp_path / name).write_text("k,v,t\n1,2.5,2024-03-01 09:00:00\n")
    text = _OBJECTS.format(path=tmp_path / name).replace("format 'json'", f"format '{format_}'")
    lines = list(warnings_of(_answer(f"{text}; SELECT * FROM s")))
    assert lines[-1].startswith("  hint: ") and hint in lines[-1]


def test_a_flag_with_a_value_is_named() -> None:
    ended = _run("run", "--drain", "yes", "a.cql")
    assert ended.returncode == 2 and "; --drain takes no value; " in ended.stderr


def test_arguments_of_a_frame_that_would_be_left_out() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"k": [1], "op": ["+"], "t": pandas.to_datetime(["2024-03-01"])})
    with pytest.raises(PenstockError, match="t is a TIMESTAMP, which has microseconds") as units:
        Session().stream("a", frame, timestamp="t", unit="MILLISECOND")
    with pytest.raises(PenstockError, match="operation needs a timestamp") as operations:
        Session().relation("a", frame, operation="op")
    assert (units.value.code, operations.value.code) == ("P0209", "P0209")


def _refused_rows() -> Session:
    pandas = pytest.importorskip("pandas")
    session = Session()
    times = pandas.to_datetime(["2024-03-01 09:00:00", "2024-03-01 08:00:00"])
    session.relation("r", pandas.DataFrame({"k": [1, 2], "op": ["I", "D"], "t": times}), timestamp="t", operation="op")
    session.stream("s", pandas.DataFrame({"k": [1, 2], "t": times}), timestamp="t")
    return session


@pytest.mark.parametrize(
    ("source", "said"),
    [("r", r"2 records of r rejected: .*\n  hint: .* \+ or - in the column of OPERATION BY"),
     ("s", r"1 row of s came late and came into no result.\n  hint: ORDER WITHIN")],
)  # fmt: skip
def test_rows_of_a_frame_that_are_in_no_answer(source: str, said: str) -> None:
    with pytest.warns(UserWarning, match=said):
        _refused_rows().select(f"SELECT k FROM {source}")


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"k,v,t\n1,M\xfcller,2024-03-01 09:00:00\n", "iconv"),
        (b'k,v,t\n"1,234",a,2024-03-01 09:00:00\n', "a point and nothing between thousands"),
        (b"k,v,t\n1,a,2024-03-01 09:00:00\n2,a,2024-03-01 08:00:00\n", "ORDER WITHIN 5 MINUTES"),
    ],
)
def test_what_to_do_about_records_that_are_left_out(tmp_path: Path, content: bytes, hint: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    files = f"FROM FILES (path '{path}', format 'csv', header 'true') TIMESTAMP BY t"
    lines = list(warnings_of(_answer(f"CREATE STREAM s (k INT, v STRING, t TIMESTAMP) {files}; SELECT * FROM s")))
    assert lines[-1].startswith("  hint: ") and hint in lines[-1]


def test_what_is_taken_for_a_frame_or_a_column() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"k": [1]}, index=pandas.to_datetime(["2024-03-01"]))
    session = Session()
    for call, hint in (
        (lambda: session.relation("a", "data.csv"), "FROM FILES (path 'data.csv')"),
        (lambda: session.stream("a", frame, timestamp="index"), "frame.reset_index()"),
        (lambda: session.stream("a", frame, timestamp=frame["k"]), "as in 'k'"),
        (lambda: session.query("CREATE QUERY q AS SELECT 1"), "without CREATE QUERY"),
    ):
        with pytest.raises(PenstockError) as caught:
            call()
        errors = getattr(caught.value, "errors", (caught.value,))
        assert hint in str(errors[0].hint)


def test_spark_settings_that_spark_has_not() -> None:
    from penstock.runtime.spark.startup.session import unknown_settings

    known = ["spark.executor.memory", "spark.driver.memory"]
    given = {"spark.executor.memry": "1g", "spark.driver.memory": "1g", "spark.hadoop.a": "b", "spark.zzz": "1"}
    assert unknown_settings(given, known) == [
        "Spark has no setting spark.executor.memry: did you mean spark.executor.memory?",
        "Spark has no setting spark.zzz, and ignores it",
    ]


@pytest.mark.parametrize("master", ["local[x]", "local[0]", "local[", "localhost", "yarm", "yarn"])
def test_masters_that_are_none(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.runtime.spark.startup.jvm import session_settings

    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(PenstockError, match="Spark does not start") as caught:
        session_settings(master, {})
    assert (caught.value.code, bool(caught.value.hint)) == ("P0601", True)


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[2]", "local[*,4]", "local-cluster[2,1,1024]", "spark://a:7077", "k8s://a"]
)
def test_masters_that_are_some(master: str) -> None:
    from penstock.runtime.spark.startup.jvm import session_settings

    assert session_settings(master, {})


def _run(*words: str, output: str | None = None, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *words]
    with Path(output or "/dev/null").open("w") as place:
        return subprocess.run(
            command,
            stdout=place if output else subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            input=given,
            timeout=120,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
        )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_is_told_once() -> None:
    ended = _run("query", "SELECT 1 AS a", output="/dev/full")
    assert ended.returncode == 2
    assert ended.stderr == "error P0502: standard output cannot be written: No space left on device\n"


def test_no_editor_is_opened_where_there_is_no_terminal() -> None:
    ended = _run("shell", "--keep-going", given="SELECT 1 AS a;\n\\e\nSELECT 2 AS b;\n")
    assert "\\e opens vi, which needs a terminal" in ended.stderr
    assert "2" in ended.stdout


def test_a_shell_is_not_left_by_a_command_with_a_word() -> None:
    ended = _run("shell", "--keep-going", given="\\q now\nSELECT 2 AS b;\n\\q\nSELECT 3 AS c;\n")
    assert "error P0101: \\q now: \\q stands alone" in ended.stderr
    assert "b" in ended.stdout and "c" not in ended.stdout


def test_a_checkpoint_is_a_path() -> None:
    session = Session()
    session.execute(
        "CREATE STREAM s (k INT, t TIMESTAMP) FROM MEMORY () TIMESTAMP BY t; CREATE QUERY q AS SELECT k FROM s"
    )
    with pytest.raises(PenstockError, match="checkpoint: expected a text, not int") as caught:
        session.start(checkpoint=5)  # type: ignore[arg-type]
    assert caught.value.code == "P0203"


def test_a_punctuation_without_its_word() -> None:
    source = _stream()
    for where in ("WHERE k = 7", "where  k = 7"):
        with pytest.raises(PenstockError) as caught:
            read_punctuation(where, source)
        assert caught.value.hint == "the condition alone, without WHERE: k = 7"


def test_instants_are_shown_until_the_year_9999() -> None:
    assert CALENDAR.show(253_402_300_799_000_000) == "9999-12-31T23:59:59Z"
    assert CALENDAR.show(253_402_300_800_000_000) == "253402300800000000"


def test_an_attribute_by_the_words_of_its_declaration() -> None:
    declared = bind_script("CREATE STREAM m (k INT, t TIMESTAMP) FROM MEMORY () TIMESTAMP BY t")
    script = parse_script("ALTER STREAM m SET (order_within '5 SECONDS')")
    with pytest.raises(ScriptErrors) as caught:
        bind_command(script.statements[0], declared.catalog, Settings(), script.source)
    assert caught.value.errors[0].hint == "what ORDER WITHIN declares is called slack here"
