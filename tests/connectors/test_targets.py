"""Results in places of their own: what `check` refuses before two queries write into one place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.connectors.contract import Target
from penstock.errors import PenstockError, ScriptErrors
from penstock.session import Session

STREAM = "CREATE STREAM S (a INT, at BIGINT) FROM MEMORY () TIMESTAMP BY at;\n"


def script(*sinks: str) -> str:
    return STREAM + "\n".join(f"CREATE QUERY q{i} INTO {sink} AS SELECT a FROM S;" for i, sink in enumerate(sinks))


def refused(text: str, file: str | None = None) -> PenstockError:
    with pytest.raises(ScriptErrors) as caught:
        Session().declare(text, file)
    assert len(caught.value.errors) == 1
    return caught.value.errors[0]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    return tmp_path


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("out", "out"),
        ("./x/../out", "out"),
        ("out/", "out"),
        ("out//inner", "out/inner"),
        ("{here}/out", "out"),
        ("file://{here}/out", "out"),
        ("FILE://localhost{here}/out", "out"),
        ("file:{here}/out", "out"),
        ("link/out", "real/out"),
        ("link", "real"),
        ("out", "out/inner/deeper"),
        ("real/inner", "link"),
    ],
)
def test_one_folder_however_it_is_written(here: Path, one: str, other: str) -> None:
    sinks = [f"FILES (path '{path.format(here=here)}', format 'csv')" for path in (one, other)]
    error = refused(script(*sinks))
    assert error.code == "P0504"
    assert "query q1 writes to" in error.message
    assert "query q0" in error.message
    assert error.position is not None
    assert (error.position.line, error.position.column) == (3, 22)


@pytest.mark.parametrize(("one", "other"), [("out", "out2"), ("out/a", "out/b"), ("outer", "out"), ("out", "Out")])
def test_folders_beside_each_other_are_fine(here: Path, one: str, other: str) -> None:
    assert Session().declare(script(f"FILES (path '{one}')", f"FILES (path '{other}')")) == ("q0", "q1")


def test_the_case_of_a_name_where_the_disk_does_not_tell_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a disk finds a folder by any case: here one that a link gives the other case of the whole path."""
    other = Path(str(here).swapcase())
    monkeypatch.setattr(Path, "exists", lambda self: os.access(self, os.F_OK) or str(self).startswith(str(other)))
    monkeypatch.setattr(Path, "samefile", lambda self, path: str(self).casefold() == str(path).casefold())
    assert refused(script("FILES (path 'out')", "FILES (path 'OUT')")).code == "P0504"


def test_a_query_of_an_earlier_script(here: Path) -> None:
    session = Session()
    session.declare(script("FILES (path 'out')"))
    with pytest.raises(ScriptErrors) as caught:
        session.declare("CREATE QUERY more INTO FILES (path 'out') AS SELECT a FROM S;")
    assert caught.value.code == "P0504"
    assert session.declare("DROP QUERY q0; CREATE QUERY more INTO FILES (path 'out') AS SELECT a FROM S;") == ("more",)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [
        ("url 'postgresql://me:x@Server/db', table 't'", "host 'server', dbname 'db', table 'public.t'", True),
        ("host 'localhost', dbname 'db', table 't'", "host '127.0.0.1', port '5432', dbname 'db', table 't'", True),
        ("host 'a', dbname 'db', table 't'", "host 'a', dbname 'db', table 'u'", False),
        ("host 'a', dbname 'db', table 't'", "host 'a', dbname 'other', table 't'", False),
        ("host 'a', dbname 'db', table 't'", "host 'b', dbname 'db', table 't'", False),
        ("host 'a', dbname 'db', table 't', mode 'append'", "host 'a', dbname 'db', table 't', mode 'append'", False),
        ("host 'a', dbname 'db', table 't', mode 'append'", "host 'a', dbname 'db', table 't'", True),
    ],
)
def test_tables_of_postgres(one: str, other: str, meet: bool) -> None:
    text = script(f"POSTGRES ({one})", f"POSTGRES ({other})")
    if meet:
        error = refused(text)
        assert error.code == "P0504"
        assert "me:x" not in error.render()
    else:
        Session().declare(text)


def test_delta_tables_are_folders(here: Path) -> None:
    assert refused(script("DELTA (path 'out')", "DELTA (path './out')")).code == "P0504"
    assert refused(script("FILES (path 'out')", "DELTA (path 'out/table')")).code == "P0504"
    Session().declare(script("DELTA (path 'out', mode 'append')", "DELTA (path 'out', mode 'append')"))
    keyed = "CREATE QUERY {} INTO DELTA (path 'out', mode 'append', key 'a') AS SELECT a FROM S [NOW] GROUP BY a;"
    assert refused(STREAM + keyed.format("p") + keyed.format("q")).code == "P0504"


def test_what_lies_in_no_place_meets_nothing() -> None:
    Session().declare(script("CONSOLE ()", "CONSOLE ()", "MEMORY ()", "MEMORY ()"))
    kafka = "KAFKA (bootstrap 'b:9092', topic 't', format 'json')"
    Session().declare(script(kafka, kafka))  # a topic is made for several writers, and nothing in it is ever removed


@pytest.mark.parametrize(
    ("path", "reads"),
    [
        ("out", True), ("out/*.csv", True), ("*/*.csv", True), ("**/*.csv", True), ("out/part-*", True),
        ("./real/../out/", True), ("o*", True), ("out/part-00000000.csv", True),
        ("*.csv", False), ("in/*.csv", False), ("out/*/*.csv", False), ("out/x*.csv", False), ("out2", False),
    ],
)  # fmt: skip
def test_what_the_script_reads(here: Path, path: str, reads: bool) -> None:
    declared = f"CREATE STREAM F (a INT, at BIGINT) FROM FILES (path '{path}', format 'csv'{{}}) TIMESTAMP BY at;\n"
    text = declared + "CREATE QUERY q INTO FILES (path 'out') AS SELECT a FROM F;"
    session = Session()
    session.declare(text.format(", watch 'true'"))
    assert bool(session.warnings) == reads
    if reads:
        assert session.warnings[0].render().startswith("line 2:21: warning: query q writes to ")
        assert refused(text.format("")).code == "P0504"
    else:
        Session().declare(text.format(""))


def test_a_result_below_a_file(here: Path) -> None:
    (here / "taken").write_text("x")
    for path in ("taken", "taken/below", "taken/far/below"):
        error = refused(script(f"FILES (path '{path}')"))
        assert error.code == "P0502"
        assert error.message == f"query q0: {here / path} cannot be created, {here / 'taken'} is not a folder"


def test_places_in_general() -> None:
    one = Target("files", ("/", "a"), "/a")
    assert one.meets(Target("files", ("/", "a", "b"), "/a/b"))
    assert not one.meets(Target("postgres", ("/", "a"), "/a"))
    assert not Target("files", ("a",), "a", True).meets(Target("files", ("a",), "a", True))
    assert Target("files", ("a",), "a", True).meets(Target("files", ("a", "b"), "a/b", True))
