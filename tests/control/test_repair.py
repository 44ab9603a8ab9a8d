"""`penstock repair`: a query with which a server does not come up is paused in its log, whatever has become of it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from control_kit import STREAM, SUM, Server, server
from mortal_storage import MortalStorage
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.control.engine import Activity, EngineVersion, NextVersion, Preparation
from penstock.control.live.repair import pause_queries
from penstock.control.phases import Phase
from penstock.engines.in_process import InProcessEngine
from penstock.errors import PenstockError
from penstock.testing.faults import LOSSES, PowerCut, PowerLost

OTHER = "CREATE QUERY r AS SELECT MAX(v) AS m FROM S [RANGE 5 SECONDS];"


class DeadlyEngine(InProcessEngine):
    """An engine whose process dies with a query that is named q."""

    def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        for one in version.queries.values():
            if one.query is not None and one.query.name == "q" and one.activity is Activity.RUNNING:
                raise PowerLost
        return super().change(version, prepared)


def deadly(folder: Path) -> Server:
    return Server(folder, DeadlyEngine(folder / "engine"))


def standing(folder: Path) -> None:
    """Leave a checkpoint whose engine dies with the query q, which runs."""
    with server(folder) as system:
        system.done(STREAM + SUM + OTHER)


def created(folder: Path) -> None:
    """Leave a checkpoint in which the query q was accepted when its engine died."""
    system = deadly(folder)
    system.done(STREAM + OTHER)
    with pytest.raises(PowerLost):
        system.run(SUM)
    system.control.close()


@pytest.mark.parametrize("leave", [standing, created])
def test_a_server_that_a_query_keeps_from_coming_up(tmp_path: Path, leave: object) -> None:
    leave(tmp_path)  # type: ignore[operator]
    with pytest.raises(PowerLost):
        deadly(tmp_path)
    assert pause_queries(tmp_path, ["Q"]) == [("q", "RUNNING")]
    for _ in range(2):
        system = deadly(tmp_path)
        assert (system.status("q"), system.status("r")) == ("PAUSED", "RUNNING")
        system.control.close()
    with server(tmp_path) as system:
        texts = [(text, who.who, one.state.value) for who, text, one in system.control.commands()]
        assert texts[-1] == ("ALTER QUERY `q` PAUSE", "penstock repair", "RUNNING")
        system.done("ALTER QUERY q RESUME; INSERT INTO S VALUES (1, 5), (2, 6);")
        system.engine.round()
        assert system.answers("q") and system.answers("r")


class DyingAtDrop(InProcessEngine):
    """An engine whose process dies when it is to end the query that is named q."""

    def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        if not any(one.query is not None and one.query.name == "q" for one in version.queries.values()):
            raise PowerLost
        return super().change(version, prepared)


@pytest.mark.parametrize("names", [[], ["Q"], ["r", "q", "Q"]])
def test_a_query_whose_drop_was_accepted(tmp_path: Path, names: list[str]) -> None:
    """The next start drops the query without running it, also where nobody repairs anything."""
    standing(tmp_path)
    system = Server(tmp_path, DyingAtDrop(tmp_path / "engine"))
    with pytest.raises(PowerLost):
        system.run("DROP QUERY q")
    system.control.close()
    states = {"q": ("q", "DROPPED"), "r": ("r", "RUNNING")}
    assert pause_queries(tmp_path, names) == [states[name] for name in dict.fromkeys(map(str.lower, names))]
    for _ in range(2):
        system = deadly(tmp_path)
        with pytest.raises(PenstockError, match="P0201"):
            system.control.query("q")
        assert system.status("r") == ("PAUSED" if "r" in names else "RUNNING")
        system.control.close()
    with pytest.raises(PenstockError, match="P0201"):
        pause_queries(tmp_path, ["q"])


def test_what_does_not_run_is_left_as_it_is(tmp_path: Path) -> None:
    standing(tmp_path)
    assert pause_queries(tmp_path, ["q", "r", "q"]) == [("q", "RUNNING"), ("r", "RUNNING")]
    files = sorted(path.name for path in (tmp_path / "control").iterdir())
    assert pause_queries(tmp_path, ["q"]) == [("q", "PAUSED")]
    assert sorted(path.name for path in (tmp_path / "control").iterdir()) == files
    with server(tmp_path) as system:
        system.done("ALTER QUERY q RESUME")
        system.done("ALTER QUERY q PAUSE WITH STATE")
    assert pause_queries(tmp_path, ["q"]) == [("q", "PAUSED")]
    with server(tmp_path) as system:
        assert system.control.query("q")[1].phase is Phase.PAUSED


def test_a_pause_that_depends_on_a_command_that_fails(tmp_path: Path) -> None:
    """The change of q was accepted and cannot be carried out: q is paused all the same, and the log says so."""
    standing(tmp_path)

    class Refusing(InProcessEngine):
        dead = True

        def change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
            if any(one.query is not None and "MIN" in one.query.text for one in version.queries.values()):
                if self.dead:
                    raise PowerLost
                raise PenstockError("P0601", "it cannot be carried out")
            return super().change(version, prepared)

    engine = Refusing(tmp_path / "engine")
    system = Server(tmp_path, engine)
    with pytest.raises(PowerLost):
        system.run("ALTER QUERY q AS SELECT MIN(CAST(v AS BIGINT)) AS s FROM S [RANGE 5 SECONDS]")
    system.control.close()
    pause_queries(tmp_path, ["q"])
    for _ in range(2):
        engine = Refusing(tmp_path / "engine")
        engine.dead = False
        system = Server(tmp_path, engine)
        states = [one.state.value for _, _, one in system.control.commands()][-3:]
        assert states == ["FAILED", "FAILED", "RUNNING"] and system.status("q") == "PAUSED"
        assert "SUM" in system.control.query("q")[0].text
        system.control.close()
    deadly(tmp_path).control.close()


def test_a_checkpoint_that_a_server_uses(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(STREAM + SUM)
        with pytest.raises(PenstockError, match="P0609"):
            pause_queries(tmp_path, ["q"])
    with pytest.raises(PenstockError, match="did you mean q") as caught:
        pause_queries(tmp_path, ["qq"])
    assert caught.value.code == "P0201"
    with pytest.raises(PenstockError, match="P0201"):
        pause_queries(tmp_path, ["q", "S"])
    with server(tmp_path) as system:
        assert system.status("q") == "RUNNING"


@pytest.mark.parametrize("below", ["", "control"])
def test_a_folder_of_something_else(tmp_path: Path, below: str) -> None:
    (tmp_path / "x" / below).mkdir(parents=True)
    for folder in (tmp_path / "x", tmp_path / "none"):
        with pytest.raises(PenstockError, match="P0608"):
            pause_queries(folder, ["q"])
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("leave", [standing, created])
def test_power_that_goes_at_any_call(tmp_path: Path, leave: object) -> None:
    number = 0
    while True:
        number += 1
        checkpoint, spare = tmp_path / str(number) / "checkpoint", tmp_path / str(number) / "spare"
        checkpoint.mkdir(parents=True)
        spare.mkdir()
        leave(checkpoint)  # type: ignore[operator]
        calls = PowerCut(spare, number)
        cut = True
        with MortalStorage(calls).living():
            pause_queries(checkpoint, ["q"])
            cut = False
        if not cut:
            assert number > 3
            return
        calls.lose(LOSSES[number % len(LOSSES)], random.Random(number), [checkpoint])
        assert pause_queries(checkpoint, ["q"])[0][1] in ("RUNNING", "PAUSED")
        system = deadly(checkpoint)
        assert (system.status("q"), system.status("r")) == ("PAUSED", "RUNNING")
        system.control.close()


def test_on_the_command_line(tmp_path: Path) -> None:
    standing(tmp_path)

    def repair(*arguments: object) -> tuple[int, str, str]:
        done = CliRunner().invoke(app, ["repair", *(str(one) for one in arguments)])
        return done.exit_code, done.stdout, done.stderr

    said = "q is paused; ALTER QUERY q RESUME begins it again\n"
    assert repair(tmp_path, "--pause", "q") == (0, said, "")
    code, out, err = repair(tmp_path, "--pause", "q", "--pause", "r")
    assert code == 0 and out.splitlines()[0].startswith("q was PAUSED, and does not run")
    with server(tmp_path) as system:
        system.done("CREATE QUERY `a \x1bb` AS SELECT v FROM S")
    assert "ALTER QUERY `a \\x1bb` RESUME" in repair(tmp_path, "--pause", "a \x1bb")[1]
    code, out, err = repair(tmp_path, "--pause", "x")
    assert (code, out) == (2, "") and "P0201" in err and "known: " in err
    code, out, err = repair(tmp_path / "control", "--pause", "q")
    assert code == 2 and "P0608" in err
    assert repair(tmp_path)[0] == 2
