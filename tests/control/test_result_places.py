"""Results in places of their own at a live system: a command is refused where two queries would write into one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from control_kit import STREAM, Server

from penstock.cli.checking import IdleEngine
from penstock.connectors.overview.targets import ResultPlaces
from penstock.errors import PenstockError, ScriptErrors


def begun(folder: Path) -> Server:
    return Server(folder, IdleEngine(folder / "engine"))


@pytest.fixture
def system(tmp_path: Path) -> Iterator[Server]:
    made = begun(tmp_path)
    made.done(f"{STREAM} {query('f', tmp_path / 'out')}")
    yield made
    made.control.close()


def query(name: str, path: Path, *, begin: str = "CREATE") -> str:
    return f"{begin} QUERY {name} INTO FILES (path '{path}', format 'csv') AS SELECT v FROM S;"


def names(system: Server) -> list[str]:
    return sorted(one.name for one in system.control.stored.values() if one.kind == "QUERY")


def refused(system: Server, script: str, whole: bool = False) -> PenstockError:
    """Return the error of a script that is refused, which changes nothing."""
    before, commands = system.control.stored, len(system.control.commands())
    with pytest.raises(ScriptErrors) as caught:
        system.control.apply(script) if whole else system.run(script)
    (error,) = caught.value.errors
    assert error.code == "P0504"
    assert system.control.stored == before and len(system.control.commands()) == commands
    return error


def test_a_query_into_the_folder_of_another_one_is_refused(system: Server, tmp_path: Path) -> None:
    """Each wrote its part of a batch over that of the other, and nobody was told."""
    error = refused(system, "\n" + query("g", tmp_path / "x" / ".." / "out"))
    assert "query g writes to" in error.message and "the same location as query f" in error.message
    assert error.position is not None and (error.position.line, error.position.column) == (2, 21)
    assert "overlaps" in refused(system, query("g", tmp_path / "out" / "inner")).message
    assert "overlaps" in refused(system, query("g", tmp_path)).message
    system.run(f"ALTER QUERY f PAUSE; {query('h', tmp_path / 'other')}")
    refused(system, query("g", tmp_path / "out"))
    refused(system, "\n".join(query(name, tmp_path / "new") for name in ("a", "b")))
    refused(system, query("h", tmp_path / "out", begin="CREATE OR REPLACE"))
    # One that was declared before the other as well as one declared after it.
    for name, folder in (("f", "other"), ("h", "out")):
        error = refused(system, f"ALTER QUERY {name} INTO FILES (path '{tmp_path / folder}', format 'csv');")
        assert error.message.startswith(f"query {name} writes to"), error.message


def test_a_whole_catalog_with_two_results_in_a_folder_is_refused(system: Server, tmp_path: Path) -> None:
    script = f"{STREAM} {query('f', tmp_path / 'out')}\n{query('g', tmp_path / 'out')}"
    error = refused(system, script, whole=True)
    assert error.position is not None and error.position.line == 2
    system.control.apply(f"{STREAM} {query('g', tmp_path / 'out')}")
    assert names(system) == ["g"]


def test_a_place_that_becomes_free_may_be_taken(system: Server, tmp_path: Path) -> None:
    out = tmp_path / "out"
    system.done(query("f", out, begin="CREATE OR REPLACE"))
    system.done("ALTER QUERY f RENAME TO e;")
    system.done(f"DROP QUERY e; {query('g', out)}")
    system.done(f"ALTER QUERY g INTO FILES (path '{tmp_path / 'moved'}', format 'csv'); {query('f', out)}")
    # Only what is there at the end counts.
    system.done(
        "BEGIN;"
        + "".join(
            f"ALTER QUERY {name} INTO FILES (path '{path}', format 'csv');"
            for name, path in (("f", tmp_path / "moved"), ("g", out))
        )
        + "COMMIT;"
    )


def test_a_stream_that_reads_what_a_query_writes(system: Server, tmp_path: Path) -> None:
    def stream(name: str, path: str) -> str:
        return (
            f"CREATE STREAM {name} (ts INT, v INT) FROM FILES (path '{tmp_path}/{path}', format 'csv') TIMESTAMP BY ts;"
        )

    error = refused(system, stream("T", "out/*.csv"))
    assert "query f writes to" in error.message and "which T reads" in error.message
    system.done(stream("T", "in/*.csv"))
    assert "which T reads" in refused(system, query("g", tmp_path / "in")).message


def test_what_stands_refuses_no_other_declaration(system: Server, tmp_path: Path) -> None:
    """Also where a file has come to lie in the place of its folder, and after a restart, when nothing is known."""
    system.done(query("h", tmp_path / "deep" / "out"))
    system.control.close()
    (tmp_path / "deep").write_text("")
    again = begun(tmp_path)
    again.done("CREATE STREAM T (ts INT) FROM MEMORY () TIMESTAMP BY ts; CREATE QUERY i AS SELECT ts FROM T;")
    again.done(query("j", tmp_path / "other"))
    again.control.close()


def test_a_stream_that_stands_where_a_query_writes_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = begun(tmp_path)
    stream = f"CREATE STREAM T (ts INT, v INT) FROM FILES (path '{tmp_path}/out/*.csv', format 'csv') TIMESTAMP BY ts;"
    with monkeypatch.context() as patch:
        patch.setattr(ResultPlaces, "new_collisions", lambda *_: ())
        system.done(f"{STREAM} {stream} {query('f', tmp_path / 'out')}")
    system.done(
        "ALTER STREAM T SET (retain '2000 SECONDS'); CREATE OR REPLACE "
        + stream.removeprefix("CREATE ").replace("v INT", "w INT")
    )
    system.control.close()


def test_queries_that_were_accepted_before_this_was_checked_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = begun(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(ResultPlaces, "new_collisions", lambda *_: ())
        system.done(f"{STREAM} {query('f', tmp_path / 'out')} {query('g', tmp_path / 'out')}")
    system.control.close()
    again = begun(tmp_path)
    again.done("ALTER QUERY f SET (comment 'x'); CREATE QUERY h AS SELECT v FROM S;")
    assert names(again) == ["f", "g", "h"]
    again.control.close()
