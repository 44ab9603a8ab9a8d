"""Commands to a live system: what each does, what is refused, and what is told."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from control_kit import STREAM, SUM, Server, server

from penstock.control.engine import ControlEnds, EngineVersion, NextVersion, Preparation
from penstock.control.outcomes import CommandState, Principal
from penstock.control.phases import Phase
from penstock.control.transactions import applying
from penstock.engines.in_process import InProcessEngine
from penstock.errors import PenstockError, ScriptErrors
from penstock.expressions.calls import user_functions
from penstock.expressions.user import UserFunction
from penstock.language.commands import Command, ShowCommand
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage
from penstock.testing.faults import FailingCalls


def test_a_script_is_one_transaction(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        states = system.states(f"{STREAM} {SUM} INSERT INTO S VALUES (1, 2), (3, 4); SHOW QUERIES;")
        assert states == ["COMPLETED", "RUNNING", "COMPLETED", ""]
        system.engine.round()
        assert system.answers("q") == [{"ts": 1, "op": "+", "s": 2}]
        with pytest.raises(ScriptErrors, match="P0202"):
            system.run("CREATE STREAM T (ts INT) FROM MEMORY () TIMESTAMP BY ts; CREATE QUERY r AS SELECT w FROM S;")
        assert "t" not in system.control.catalog.sources
        assert [one.number for _, _, one in system.control.commands()] == [1, 2, 3]


def test_begin_and_commit_stand_around_a_script(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(f"BEGIN; {STREAM} {SUM} COMMIT;")
        assert system.states("BEGIN; DROP QUERY q; ROLLBACK;") == [""]
        assert system.status("q") == "RUNNING"
        for script in ("COMMIT;", "BEGIN;", "BEGIN; COMMIT; BEGIN; COMMIT;", f"{SUM.replace('q', 'r')} COMMIT;"):
            with pytest.raises(ScriptErrors, match="P0732"):
                system.run(script)


def test_a_key_makes_a_script_happen_once(tmp_path: Path) -> None:
    admin, other = Principal("admin"), Principal("other")
    with server(tmp_path) as system:
        system.done(STREAM)
        first = system.run(SUM, who=admin, key="k")
        again = system.run(SUM, who=admin, key="k")
        assert [one.outcome for one in again] == [one.outcome for one in first]
        with pytest.raises(PenstockError, match="P0731"):
            system.run("DROP QUERY q;", who=admin, key="k")
        with pytest.raises(PenstockError, match="P0731"):
            system.run(SUM, who=admin, key="k", settings={"seed": "3"})
        with pytest.raises(ScriptErrors, match="P0206"):
            system.run(SUM, who=other, key="k")
    with server(tmp_path) as system:
        again = system.run(SUM, who=admin, key="k")
        assert [one.outcome for one in again] == [one.outcome for one in first]
        assert [text for _, text, _ in system.control.commands()] == [STREAM[:-1], SUM[:-1]]


def test_queries_are_changed_by_name_and_kept_by_number(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM + SUM + "INSERT INTO S VALUES (1, 1);")
        system.engine.round()
        system.done("ALTER QUERY q RENAME TO p; ALTER QUERY p SET (comment 'sums');")
        system.done("INSERT INTO S VALUES (2, 1), (3, 1);")
        system.engine.round()
        assert [row["s"] for row in system.answers("p") if row["op"] == "+"] == [1, 2]
        assert system.control.query("p")[0].attributes["comment"] == "sums"
        with pytest.raises(ScriptErrors, match="P0201"):
            system.run("ALTER QUERY q PAUSE;")
        system.done("CREATE QUERY q AS SELECT v FROM S [NOW];")
        assert system.control.query("q")[1].place != system.control.query("p")[1].place


def test_a_paused_query_emits_nothing_and_resumes(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM + SUM + "INSERT INTO S VALUES (1, 1), (2, 1);")
        system.engine.round()
        before = system.answers("q")
        system.done("ALTER QUERY q PAUSE;")
        assert system.status("q") == "PAUSED"
        with pytest.raises(PenstockError, match="query q is PAUSED, and cannot be paused"):
            system.run("ALTER QUERY q PAUSE;")
        system.done("INSERT INTO S VALUES (3, 1), (4, 1);")
        system.engine.round()
        assert system.answers("q") == before
        system.done("ALTER QUERY q RESUME;")
        assert system.answers("q")[len(before) :] == [{"ts": 3, "op": "-", "s": 1}, {"ts": 3, "op": "+", "s": 3}]
        with pytest.raises(PenstockError, match="cannot be resumed"):
            system.run("ALTER QUERY q RESUME;")


def test_queries_are_replaced_and_exchanged(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM + SUM + "CREATE QUERY r AS SELECT MAX(CAST(v AS BIGINT)) AS s FROM S [RANGE 5 SECONDS];")
        system.done("INSERT INTO S VALUES (1, 3), (2, 4), (3, 5);")
        system.engine.round()
        place = system.control.query("q")[1].place
        system.done("ALTER QUERY q SWAP WITH r;")
        assert system.control.query("q")[1].place == place
        # An instant is answered once: what was exchanged answers from the next one on.
        assert system.answers("q")[-1] == {"ts": 2, "op": "+", "s": 7}
        system.done("INSERT INTO S VALUES (4, 1);")
        system.engine.round()
        assert system.answers("q")[-1] == {"ts": 3, "op": "+", "s": 5}
        assert system.answers("r")[-1] == {"ts": 3, "op": "+", "s": 12}
        least = "SELECT MIN(CAST(v AS BIGINT)) AS s FROM S [RANGE 5 SECONDS]"
        system.done(f"ALTER QUERY q AS {least};")
        system.done("INSERT INTO S VALUES (5, 9);")
        system.engine.round()
        assert system.answers("q")[-1] == {"ts": 4, "op": "+", "s": 1}
        with pytest.raises(PenstockError, match="P0305"):
            system.run("ALTER QUERY q AS SELECT MIN(v) AS other FROM S [RANGE 5 SECONDS];")
        number = len(system.control.commands())
        assert system.states(f"CREATE OR REPLACE QUERY q AS {least};") == [""]
        assert len(system.control.commands()) == number, "an equal declaration changes nothing"
        system.done("CREATE OR REPLACE QUERY q START WARM AS SELECT COUNT(*) AS s FROM S [RANGE 5 SECONDS];")
        system.done("INSERT INTO S VALUES (6, 9);")
        system.engine.round()
        assert system.answers("q")[-1] == {"ts": 5, "op": "+", "s": 5}


def test_a_query_changes_once_in_a_transaction_and_often_in_a_row(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM + SUM)
        with pytest.raises(PenstockError, match="P0732"):
            system.run("ALTER QUERY q PAUSE; ALTER QUERY q RESUME;")
        system.done("CREATE QUERY r AS SELECT v FROM S; DROP QUERY r;")
        replies = [
            system.control.submit(script, wait=False)
            for script in ("ALTER QUERY q PAUSE;", "ALTER QUERY q RESUME;", "ALTER QUERY q PAUSE WITH STATE;")
        ]
        assert [one.outcome is not None for (one,) in replies] == [True, True, True]
        system.done("SHOW QUERIES;")
        assert system.status("q") == "PAUSED" and system.control.query("q")[1].phase is Phase.SILENT


def test_drop_takes_what_depends_on_it_only_when_told(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM + "CREATE VIEW w AS SELECT v FROM S [NOW]; CREATE QUERY q AS SELECT v FROM w;")
        with pytest.raises(ScriptErrors, match="P0222"):
            system.run("DROP STREAM S;")
        system.done("DROP STREAM IF EXISTS other; DROP STREAM S CASCADE;")
        assert system.control.stored == {}
        system.done(STREAM + "INSERT INTO S VALUES (7, 7); CREATE QUERY q AS SELECT v FROM S;")
        system.engine.round()
        system.done("INSERT INTO S VALUES (8, 8);")
        system.engine.round()
        assert [row["v"] for row in system.answers("q")] == [7]


def test_rows_of_a_relation_are_updated_against_its_content(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(
            "CREATE RELATION R (ts INT, op STRING, k INT, v INT, PRIMARY KEY (k)) FROM MEMORY () "
            "TIMESTAMP BY ts UNIT SECOND OPERATION BY op; CREATE QUERY q AS SELECT k, v FROM R;"
            "INSERT INTO R VALUES (1, '+', 1, 10), (1, '+', 2, 20), (2, '-', 1, 10);"
        )
        system.done("UPDATE R SET v = v + 1, ts = 5 WHERE v > 5;")
        system.done("UPDATE R SET v = v * 2, ts = 6;", key="twice")
        system.done("UPDATE R SET v = v * 2, ts = 6;", key="twice")
        system.done("INSERT INTO R VALUES (9, '+', 3, 30);")
        system.engine.round()
        changes = [(row["ts"], row["op"], row["k"], row["v"]) for row in system.answers("q")]
        assert sorted(changes) == [
            (1, "+", 1, 10),
            (1, "+", 2, 20),
            (2, "-", 1, 10),
            (5, "+", 2, 21),
            (5, "-", 2, 20),
            (6, "+", 2, 42),
            (6, "-", 2, 21),
        ]


def test_a_stream_is_altered_as_far_as_nothing_reads_it(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done("CREATE STREAM S (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;")
        system.done("ALTER STREAM S SET (slack '2 SECONDS'); CREATE QUERY q AS SELECT v FROM S;")
        system.done("INSERT INTO S VALUES (5, 5), (3, 3), (1, 1), (9, 9);")
        system.engine.round()
        assert sorted(row["v"] for row in system.answers("q")) == [3, 5]
        with pytest.raises(PenstockError, match="S is read by q"):
            system.run("ALTER STREAM S SET (slack '3 SECONDS');")
        system.done("ALTER STREAM S SET (retain '1000 SECONDS');")
    with server(tmp_path) as system:
        system.done("INSERT INTO S VALUES (19, 1), (20, 2), (29, 3);")
        system.engine.round()
        system.done("CREATE QUERY w START AT 25 AS SELECT SUM(v) AS s FROM S [RANGE 6 SECONDS];")
        assert system.answers("w")[0] == {"ts": 25, "op": "+", "s": 2}
        assert system.control.stored[1].attributes.keys() == {"slack", "retain"}


def test_rows_are_posted_to_streams_from_memory_and_http_alone(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("ts,v\n1,1\n")
    with server(tmp_path / "checkpoint") as system:
        path = tmp_path / "rows.csv"
        system.done(
            f"CREATE STREAM F (ts INT, v INT) FROM FILES (path '{path}', format 'csv', header 'true') "
            "TIMESTAMP BY ts UNIT SECOND; CREATE STREAM H (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
        )
        rows = pa.table({"ts": ["1", "2"], "v": ["1", "2"]})
        assert system.control.insert("H", rows, "a") and not system.control.insert("h", rows, "a")
        assert system.control.insert("H", rows, "a", Principal("other"))
        with pytest.raises(PenstockError, match="P0208"):
            system.control.insert("F", rows)
        with pytest.raises(PenstockError, match="P0201"):
            system.control.insert("G", rows)


def test_what_the_engine_cannot_do_is_refused_before_it_is_accepted(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done("CREATE STREAM S (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;")
        system.done("INSERT INTO S VALUES (1, 1), (2, 2), (3, 3);")
        system.engine.round()
        count = len(system.control.commands())
        for statement, code in (
            ("CREATE QUERY q START WARM AS SELECT SUM(v) AS s FROM S [RANGE 5 SECONDS];", "P0703"),
            (f"CREATE QUERY q INTO FILES (path '{tmp_path}/out', format 'csv') AS SELECT v FROM S;", "P0701"),
            ("CREATE STREAM C (v INT) FROM MEMORY () SYSTEM TIME;", "P0701"),
        ):
            for script in (statement, f"BEGIN; {statement} ROLLBACK;"):
                with pytest.raises(PenstockError, match=code):
                    system.run(script)
        assert len(system.control.commands()) == count
        system.done("CREATE QUERY q AS SELECT v FROM S;")


class Stubborn(InProcessEngine):
    """An engine that refuses queries with `bad` in their name when they are applied, not before; and waits for a
    signal."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(folder)
        self.go = threading.Event()
        self.go.set()
        self.changes: list[int] = []

    def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        assert self.go.wait(60)
        self.changes.append(len(version.queries))
        for query in version.queries.values():
            if query.query is not None and "bad" in query.query.name:
                raise PenstockError("P0502", "its sink is gone")
        return super().change(version, prepared)

    def fail(self, place: int) -> None:
        self._listener.failed(place, PenstockError("P0621", "a function failed"))


def test_a_command_that_fails_takes_along_what_depends_on_it_and_nothing_else(tmp_path: Path) -> None:
    engine = Stubborn(tmp_path / "engine")
    system = Server(tmp_path, engine)
    system.done(STREAM)
    engine.go.clear()
    replies = []
    for script in (
        "CREATE QUERY first AS SELECT v FROM S;",
        STREAM.replace(" S ", " T ") + "CREATE QUERY bad AS SELECT v FROM T;",
        "CREATE QUERY after AS SELECT v FROM T;",
        "CREATE QUERY good AS SELECT v FROM S;",
        "INSERT INTO T VALUES (1, 1);",
    ):
        replies.append(threading.Thread(target=system.run, args=(script,), kwargs={"key": script}))
        replies[-1].start()
        replies[-1].join(0.3)
    engine.go.set()
    for thread in replies:
        thread.join()
    found = {text.split()[2]: outcome for _, text, outcome in system.control.commands()}
    assert {name: one.state.value for name, one in found.items()} == {
        "S": "COMPLETED",
        "first": "RUNNING",
        "T": "FAILED",
        "bad": "FAILED",
        "after": "FAILED",
        "good": "RUNNING",
        "VALUES" if "VALUES" in found else "T": "FAILED",
    }
    assert found["bad"].message == "its sink is gone"
    assert sorted(one.name for one in system.control.stored.values()) == ["S", "first", "good"]
    system.control.close()
    with server(tmp_path) as again:
        assert sorted(one.name for one in again.control.stored.values()) == ["S", "first", "good"]
        again.done("CREATE STREAM T (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;")


def test_what_waits_together_makes_one_version(tmp_path: Path) -> None:
    engine = Stubborn(tmp_path / "engine")
    system = Server(tmp_path, engine)
    system.done(STREAM)
    engine.go.clear()
    first = system.run("CREATE QUERY q0 AS SELECT v FROM S;", wait=False)
    assert first[0].outcome is not None and first[0].outcome.state is CommandState.PENDING
    waiting = [
        threading.Thread(target=system.run, args=(f"CREATE QUERY q{i} AS SELECT v FROM S;",)) for i in range(1, 9)
    ]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join(0.1)
    engine.go.set()
    for thread in waiting:
        thread.join()
    assert engine.changes[-1] == 9 and len(engine.changes) <= 4
    system.control.close()


def test_a_command_that_takes_long_is_pending_and_goes_on(tmp_path: Path) -> None:
    engine = Stubborn(tmp_path / "engine")
    system = Server(tmp_path, engine)
    system.done(STREAM)
    engine.go.clear()
    (told,) = system.run(SUM, timeout=0.05, key="k")
    assert told.outcome is not None and told.outcome.state is CommandState.PENDING
    engine.go.set()
    (later,) = system.run("ALTER QUERY q SET (comment 'x');")
    assert later.outcome is not None and later.outcome.number == told.outcome.number + 1
    (again,) = system.run(SUM, key="k")
    assert again.outcome is not None and again.outcome.state is CommandState.RUNNING
    system.control.close()


def test_a_query_that_fails_alone_is_failed_and_can_be_resumed(tmp_path: Path) -> None:
    engine = Stubborn(tmp_path / "engine")
    system = Server(tmp_path, engine)
    system.done(STREAM + SUM + "CREATE QUERY r AS SELECT v FROM S;")
    engine.fail(system.control.query("q")[1].place)
    system.done("SHOW QUERIES;")
    assert (system.status("q"), system.status("r")) == ("FAILED", "RUNNING")
    system.control.close()
    with server(tmp_path) as again:
        assert again.status("q") == "FAILED"
        assert again.control.query("q")[1].message == "a function failed"
        again.done("ALTER QUERY q RESUME START NOW;")
        assert (again.status("q"), again.control.query("q")[1].message) == ("RUNNING", "")


def test_a_failure_that_cannot_be_noted_is_noted_later(tmp_path: Path) -> None:
    engine = Stubborn(tmp_path / "engine")
    system = Server(tmp_path, engine)
    system.done(STREAM + SUM)
    calls = FailingCalls("write", 1)
    with replaced_storage(LocalStorage(calls)):
        engine.fail(system.control.query("q")[1].place)
        end = time.monotonic() + 60
        while not calls.failed:
            assert time.monotonic() < end
            time.sleep(0.005)
    assert system.status("q") == "RUNNING"
    system.done("CREATE QUERY r AS SELECT v FROM S;")
    assert (system.status("q"), system.status("r")) == ("FAILED", "RUNNING")
    system.control.close()


def test_a_policy_is_asked_about_every_command(tmp_path: Path) -> None:
    def policy(command: Command, who: Principal) -> None:
        if who.role == "read" and not isinstance(command, ShowCommand):
            raise PenstockError("P0701", "the role read does not allow it")

    with server(tmp_path, policy=policy) as system:
        system.done(STREAM)
        with pytest.raises(PenstockError, match="the role read"):
            system.run("SHOW QUERIES; DROP STREAM S;", who=Principal("guest", "read"))
        assert system.states("SHOW STREAMS;", who=Principal("guest", "read")) == [""]


def test_settings_of_a_session_stay_with_what_was_declared(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM)
        system.done("CREATE QUERY a AS SELECT v / 2 AS h FROM S;")
        system.done("SET integer_division = true; CREATE QUERY b AS SELECT v / 2 AS h FROM S;")
        system.done("CREATE QUERY c AS SELECT v / 2 AS h FROM S;", settings={"integer_division": "true"})
        system.done("ALTER SYSTEM SET integer_division = 'true'; ")
        system.done("CREATE QUERY d AS SELECT v / 2 AS h FROM S;")
    with server(tmp_path) as system:
        system.done("INSERT INTO S VALUES (1, 3), (2, 3);")
        system.engine.round()
        assert [[row["h"] for row in system.answers(name)] for name in "abcd"] == [[1.5], [1], [1], [1]]
        with pytest.raises(PenstockError, match="P0104"):
            system.run("SHOW QUERIES;", settings={"no_such": "1"})


def test_the_time_zone_of_a_session_is_part_of_a_query(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM)
        system.done("SET time_zone = 'Europe/Berlin'; CREATE QUERY a AS SELECT HOUR(TIMESTAMP_SECONDS(v)) AS h FROM S;")
        system.done("CREATE QUERY b AS SELECT HOUR(TIMESTAMP_SECONDS(v)) AS h FROM S;")
        assert "SET time_zone = 'Europe/Berlin';\nCREATE QUERY `a`" in system.control.catalog_text()
    with server(tmp_path) as system:
        system.done("INSERT INTO S VALUES (1, 3), (2, 3);")
        system.engine.round()
        assert [[row["h"] for row in system.answers(name)] for name in "ab"] == [[1], [0]]


def test_two_controls_cannot_use_one_checkpoint(tmp_path: Path) -> None:
    with server(tmp_path), pytest.raises(PenstockError, match="P0609"):
        Server(tmp_path)
    with server(tmp_path) as again:
        again.done(STREAM)
    with pytest.raises(PenstockError, match="the control has ended"):
        again.run(SUM)


def test_the_log_is_cut_after_catalogs_and_forgets_old_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "CATALOG_EVERY", 5)
    with server(tmp_path, retention=0.0) as system:
        system.done(STREAM)
        for number in range(20):
            system.done(f"CREATE QUERY q{number} AS SELECT v FROM S;", key=f"k{number}")
            if number % 2:
                system.done(f"DROP QUERY q{number};")
        expected = sorted(one.name for one in system.control.stored.values())
        last = max(one.number for _, _, one in system.control.commands())
    files = [path.name for path in (tmp_path / "control").iterdir()]
    assert sum(name.startswith("catalog-") for name in files) == 1 and len(files) < 20
    with server(tmp_path, retention=0.0) as system:
        assert sorted(one.name for one in system.control.stored.values()) == expected
        system.done("CREATE QUERY more AS SELECT v FROM S;", key="k0")
        assert max(one.number for _, _, one in system.control.commands()) > last


def doubled(values: pa.Array) -> pa.Array:
    return pc.multiply(values, 2)


def test_what_cannot_be_bound_any_more_needs_attention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = user_functions.make(UserFunction, doubled, "INT", "doubled", ["INT"])
    registered = dict(user_functions.REGISTERED)
    monkeypatch.setitem(user_functions.REGISTERED, made.key, made)
    with server(tmp_path) as system:
        system.done(STREAM + "CREATE QUERY q AS SELECT doubled(v) AS d FROM S; CREATE QUERY r AS SELECT v FROM S;")
        system.done("INSERT INTO S VALUES (1, 1), (2, 2);")
        system.engine.round()
        before = system.answers("q")
    monkeypatch.delitem(user_functions.REGISTERED, made.key)
    assert made.key not in registered
    for _ in range(2):
        with server(tmp_path) as system:
            assert (system.status("q"), system.status("r")) == ("NEEDS ATTENTION", "RUNNING")
            assert system.control.query("q")[1].message == "unknown function DOUBLED"
            system.done("INSERT INTO S VALUES (3, 3), (4, 4);")
            system.engine.round()
            assert system.answers("q") == before
            with pytest.raises(PenstockError, match="P0206"):
                system.run("CREATE QUERY q AS SELECT v FROM S;")
    monkeypatch.setitem(user_functions.REGISTERED, made.key, made)
    with server(tmp_path) as system:
        assert system.status("q") == "NEEDS ATTENTION"
        system.done("ALTER QUERY q RESUME;")
        assert system.status("q") == "RUNNING"
    monkeypatch.delitem(user_functions.REGISTERED, made.key)
    with server(tmp_path) as system:
        system.done("DROP QUERY q;")
        assert [one.name for one in system.control.stored.values()] == ["S", "r"]


class EndedEngine(InProcessEngine):
    """An engine whose run ends by an error that is none of the version to which it is to change."""

    def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        if version.command == 0:
            return super().change(version, prepared)
        raise ControlEnds("the run has ended with P0601: the disk is full")


def test_what_was_accepted_when_the_run_ended_happens_at_the_next_start(tmp_path: Path) -> None:
    """It has not failed: the control ends, and says that the server is to end."""
    system = Server(tmp_path, EndedEngine(tmp_path / "engine"))
    assert system.control.stop_reason is None
    with pytest.raises(PenstockError, match="P0601: the control has ended: the run has ended with P0601") as caught:
        system.run(STREAM + SUM, key="k")
    reason = system.control.stop_reason
    assert reason is not None and (reason.code, reason.message) == ("P0601", caught.value.message)
    system.control.close()
    with server(tmp_path) as again:
        assert again.states(STREAM + SUM, key="k") == ["COMPLETED", "RUNNING"]
        assert len(again.control.commands()) == 2
