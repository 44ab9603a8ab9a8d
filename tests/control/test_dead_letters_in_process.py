"""Dead letters of a server without Spark: what files hold that is no row, over kills, and ON ERROR."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from control_kit import CommandFailed, Server, server

from penstock.connectors.deadletters import DeadLetters
from penstock.errors import PenstockError
from penstock.runtime.live.state_folder import StateFolder

FILE = "ts,v\n4,1\n5,warm\n3,2\n,9\n6,7\n"
#: Where each record is, and why it is none.
LETTERS = [(3, "bad number 'warm' in column v"), (5, "no timestamp"), (None, "late by 1 SECOND")]


def declared(folder: Path, on_error: str = "") -> str:
    path = folder / "rows.csv"
    path.write_text(FILE)
    return (
        f"CREATE STREAM F (ts INT, v INT) FROM FILES (path '{path}', format 'csv') TIMESTAMP BY ts UNIT SECOND"
        f" {on_error}; CREATE QUERY n AS SELECT COUNT(*) AS n FROM F [RANGE 10 SECONDS];"
    )


def letters(system: Server) -> DeadLetters:
    folder = system.engine.figures().dead_letters
    assert folder is not None
    return DeadLetters(folder)


def kept(system: Server) -> Counter[str]:
    return Counter(one.reason for one in letters(system).read("F"))


def counted(system: Server) -> dict[str, int]:
    found = system.engine.figures().metrics.sources["F"]
    return {"late": found.late, "malformed": found.malformed}


def test_records_that_are_no_rows_are_kept_with_their_place(tmp_path: Path) -> None:
    with server(tmp_path / "run") as made:
        made.done(declared(tmp_path))
        made.engine.round()
        found = list(letters(made).read("F"))
        assert {one.path for one in found} == {str(tmp_path / "rows.csv")}
        assert [(one.line, one.reason) for one in found if one.reason.startswith("bad")] == LETTERS[:1]
        assert Counter(one.reason for one in found) == Counter(reason for _, reason in LETTERS)
        assert counted(made) == {"late": 1, "malformed": 2}


def test_a_round_that_is_cut_off_keeps_each_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(tmp_path / "run") as made:
        made.done(declared(tmp_path))
        with monkeypatch.context() as patched:
            patched.setattr(StateFolder, "save", _no_space)
            for _ in range(2):
                with pytest.raises(PenstockError):
                    made.engine.round()
        assert sum(kept(made).values()) == 3, "they are written before what was read is"
    with server(tmp_path / "run") as made:
        made.engine.round()
        assert sum(kept(made).values()) == 3 and counted(made) == {"late": 1, "malformed": 2}
        made.engine.round()
    with server(tmp_path / "run") as made:
        made.engine.round()
        assert sum(kept(made).values()) == 3


def test_what_a_round_left_that_was_cut_off_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(tmp_path / "run") as made:
        made.done(declared(tmp_path))
        with monkeypatch.context() as patched, pytest.raises(PenstockError):
            patched.setattr(StateFolder, "save", _no_space)
            made.engine.round()
    with server(tmp_path / "run") as made:
        assert sum(kept(made).values()) == 3
        (tmp_path / "rows.csv").write_text("ts,v\n4,1\n5,2\n6,7\n")
        made.engine.round()
        assert not kept(made) and counted(made) == {"late": 0, "malformed": 0}


def test_on_error_skip_counts_what_is_no_row(tmp_path: Path) -> None:
    with server(tmp_path / "run") as made:
        made.done(declared(tmp_path, "ON ERROR SKIP"))
        made.engine.round()
        # Late rows are kept whatever ON ERROR says: they are well formed.
        assert kept(made) == {"late by 1 SECOND": 1} and counted(made) == {"late": 1, "malformed": 2}


def test_on_error_fail_ends_the_server_with_the_record(tmp_path: Path) -> None:
    with server(tmp_path / "run") as made:
        made.done(declared(tmp_path, "ON ERROR FAIL"))
        with pytest.raises(PenstockError, match=r"rows.csv:3: bad number 'warm'") as caught:
            made.engine.round()
        assert caught.value.code == "P0403" and not made.answers("n")
        made.engine.serve()
        made.engine.wake()
        _until(lambda: made.engine.ended_by() is not None)
        found = made.engine.ended_by()
        assert found is not None and found.message == caught.value.message


def test_the_relation_of_a_query_is_judged_when_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "relation.csv"
    path.write_text("k,x\n1,10\n1,11\n,12\n2,what\n")
    relation = f"CREATE RELATION {{}} (k INT PRIMARY KEY, x INT) FROM FILES (path '{path}', format 'csv') {{}};"
    stream = "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts;"
    query = "CREATE QUERY q AS SELECT x FROM S [NOW], {0} WHERE v = k;"
    with server(tmp_path / "run") as made:
        made.done(stream + relation.format("R", "") + query.format("R"))
        reasons = Counter(one.reason for one in letters(made).read("R"))
        assert reasons == {"bad number 'what' in column x": 1, "duplicate primary key": 1, "NULL in the primary key": 1}
        made.done(relation.format("T", "ON ERROR FAIL"))
        with pytest.raises((PenstockError, CommandFailed), match="P0403"):
            made.done(query.format("T").replace("QUERY q", "QUERY p"))


def _no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def _until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
