"""The script of a server's start: executed once, edited, moved, after a crash, and beside commands."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from control_kit import Server
from mortal_storage import MortalStorage

from penstock.control import command_log
from penstock.control.engine import EngineVersion, NextVersion, Preparation
from penstock.control.outcomes import SYSTEM
from penstock.engines.in_process import InProcessEngine
from penstock.errors import PenstockError, ScriptErrors
from penstock.server.start_script import StartScript
from penstock.testing.faults import LOSSES, PowerCut, PowerLost

SCRIPT = """CREATE STREAM S (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND RETAIN 1000 SECONDS;
CREATE RELATION r (v INT, name STRING) FROM MEMORY ();
INSERT INTO r VALUES (1, 'one'), (2, 'two');
CREATE QUERY q AS SELECT SUM(v) AS s FROM S [RANGE 5 SECONDS];
"""


def start(system: Server, folder: Path, script: str = SCRIPT) -> int:
    """Execute a script at a start; return how many commands that made."""
    before = len(system.control.commands())
    StartScript(system.control, folder).execute(script, "start.cql")
    return len(system.control.commands()) - before


def restarted(system: Server, folder: Path, script: str = SCRIPT) -> tuple[Server, int]:
    system.control.close()
    again = Server(folder)
    return again, start(again, folder, script)


def rows(system: Server) -> list[int]:
    one = system.control.stored
    (number,) = [key for key, value in one.items() if value.name == "r"]
    return system.control._posted.table(system.control.catalog.sources["r"], number).column("v").to_pylist()


def test_a_script_is_executed_once(tmp_path: Path) -> None:
    system = Server(tmp_path)
    assert start(system, tmp_path) == 4
    for script in (SCRIPT, f"-- a comment\n\n  {SCRIPT}"):
        system, count = restarted(system, tmp_path, script)
        assert count == 0 and rows(system) == [1, 2]
    system.control.close()


def test_it_is_not_executed_again_when_the_log_has_forgotten_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = Server(tmp_path)
    start(system, tmp_path)
    system.control.close()
    later = command_log._now() + 30 * 24 * 3600 * 1_000_000
    monkeypatch.setattr(command_log, "_now", lambda: later)
    system = Server(tmp_path)
    assert start(system, tmp_path) == 0 and rows(system) == [1, 2]
    system.control.close()


def test_what_has_changed_is_replaced_and_what_is_gone_stays(tmp_path: Path) -> None:
    system = Server(tmp_path)
    start(system, tmp_path)
    place = system.control.query("q")[1].place
    edited = SCRIPT.replace("5 SECONDS", "7 SECONDS")
    system, count = restarted(system, tmp_path, edited)
    assert count == 1 and "7 SECONDS" in system.control.query("q")[0].text
    assert system.control.query("q")[1].place == place, "it writes the same result"
    system, count = restarted(system, tmp_path, SCRIPT)
    assert count == 1 and "5 SECONDS" in system.control.query("q")[0].text
    system, count = restarted(system, tmp_path, SCRIPT.partition("CREATE QUERY")[0])
    assert count == 0 and system.status("q") == "RUNNING"
    system.control.close()


def test_what_commands_have_changed_stays(tmp_path: Path) -> None:
    system = Server(tmp_path)
    start(system, tmp_path)
    system.done("ALTER QUERY q AS SELECT SUM(v) AS s FROM S [RANGE 9 SECONDS];")
    system, count = restarted(system, tmp_path)
    assert count == 0 and "9 SECONDS" in system.control.query("q")[0].text
    system.done("DROP QUERY q; DROP RELATION r;")
    system, count = restarted(system, tmp_path)
    assert count == 3 and "5 SECONDS" in system.control.query("q")[0].text and rows(system) == [1, 2]
    system.control.close()


def test_other_statements_happen_once_and_settings_hold_for_those_behind(tmp_path: Path) -> None:
    script = SCRIPT + "ALTER QUERY q RENAME TO p; SET state_strategy = 'direct';\nCREATE QUERY t AS SELECT v FROM S;"
    system = Server(tmp_path)
    assert start(system, tmp_path, script) == 6
    assert dict(system.control.query("t")[0].settings)["state_strategy"] == "direct"
    assert "state_strategy" not in system.control.query("p")[0].settings
    system.done("ALTER QUERY p PAUSE;")
    system, _ = restarted(system, tmp_path, script.replace("'two'", "'zwei'"))
    assert system.status("p") == "PAUSED" and rows(system) == [1, 2, 1, 2]
    system.control.close()


def test_a_transaction_is_executed_as_a_whole(tmp_path: Path) -> None:
    script = f"BEGIN;\n{SCRIPT}COMMIT;"
    system = Server(tmp_path)
    assert start(system, tmp_path, script) == 4
    system, count = restarted(system, tmp_path, script)
    assert count == 0
    system.control.close()


class Refusing(InProcessEngine):
    """An engine that refuses a query when it is applied."""

    def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        if any(one.query is not None and one.query.name == "q" for one in version.queries.values()):
            raise PenstockError("P0502", "its sink is gone")
        return super().change(version, prepared)


def test_what_fails_is_told_and_tried_again(tmp_path: Path) -> None:
    system = Server(tmp_path, Refusing(tmp_path / "engine"))
    with pytest.raises(PenstockError, match="P0502"):
        start(system, tmp_path)
    system, count = restarted(system, tmp_path)
    assert count == 1 and system.status("q") == "RUNNING"
    with pytest.raises(ScriptErrors) as caught:
        start(system, tmp_path, SCRIPT + "CREATE QUERY z AS\n  SELECT nowhere FROM S;")
    position = caught.value.errors[0].position
    assert position is not None and (position.line, position.column) == (6, 10)
    system.control.close()


def test_a_key_of_somebody_else_is_no_start(tmp_path: Path) -> None:
    system = Server(tmp_path)
    start(system, tmp_path)
    system.done("CREATE QUERY k AS SELECT v FROM S;", key="start nonsense", who=SYSTEM)
    system, count = restarted(system, tmp_path)
    assert count == 0
    system.control.close()


def test_power_that_goes_during_a_start(tmp_path: Path) -> None:
    """A start that is interrupted is made again with a script whose statements have moved."""
    cuts, number = 0, 4
    while True:
        folder, spare = tmp_path / str(number), tmp_path / f"{number}-spare"
        spare.mkdir()
        folder.mkdir()
        calls = PowerCut(spare, number)
        cut = True
        with MortalStorage(calls).living():
            system = Server(folder)
            start(system, folder)
            cut = False
        if not cut:
            with suppress(PowerLost):
                system.control.close()
            assert cuts > 5
            return
        calls.lose(LOSSES[number % len(LOSSES)], random.Random(number), [folder])
        system = Server(folder)
        start(system, folder, f"-- moved\n{SCRIPT}")
        assert rows(system) == [1, 2], f"power went at call {number}"
        assert sorted(one.name for one in system.control.stored.values()) == ["S", "q", "r"]
        system.control.insert("S", pa.table({"ts": pa.array([1, 2], pa.int32()), "v": pa.array([1, 2], pa.int32())}))
        system.engine.round()
        assert system.answers("q")
        assert start(system, folder) == 0
        system.control.close()
        cuts, number = cuts + 1, number + 11
