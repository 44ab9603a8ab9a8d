"""PAUSE says whether RESUME can follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from control_kit import Server, server

from penstock.errors import PenstockError, ScriptErrors
from penstock.runtime.live.starts import StartOption

KEPT = "CREATE STREAM S (ts INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND RETAIN 100 SECONDS;"
FORGOTTEN = KEPT.replace(" RETAIN 100 SECONDS", "")
WIDE = "CREATE QUERY q AS SELECT SUM(v) AS s FROM S [RANGE 10 SECONDS];"


def warned(one: Server, text: str) -> list[str]:
    """Return the warnings for the statements of a script."""
    return [warning.message for outcome in one.run(text) for warning in outcome.warnings]


def begun(one: Server, script: str) -> None:
    one.done(script)
    one.done("".join(f"INSERT INTO S VALUES ({ts}, {ts});" for ts in range(1, 9)))
    one.engine.round()


def test_a_pause_says_that_resume_cannot_follow(tmp_path: Path) -> None:
    """It does so as RESUME is refused then; the query is paused all the same."""
    with server(tmp_path) as one:
        begun(one, FORGOTTEN + WIDE)
        (message,) = warned(one, "ALTER QUERY q PAUSE")
        assert message.startswith("RESUME of q will be refused: ")
        assert one.status("q") == "PAUSED"
        with pytest.raises((PenstockError, ScriptErrors)) as refused:
            one.done("ALTER QUERY q RESUME")
        assert message.partition("refused: ")[2] in str(refused.value)


def test_a_pause_that_resume_can_follow_says_nothing(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        begun(one, KEPT + WIDE)
        assert warned(one, "ALTER QUERY q PAUSE") == []
        one.done("ALTER QUERY q RESUME")


def test_nothing_is_said_where_the_state_is_kept_or_nothing_runs(tmp_path: Path) -> None:
    with server(tmp_path) as one:
        begun(one, FORGOTTEN + WIDE)
        assert warned(one, "ALTER QUERY q PAUSE WITH STATE") == []
        # A silent one that is paused loses what it has.
        assert len(warned(one, "ALTER QUERY q RESUME; ")) == 0
        assert len(warned(one, "ALTER QUERY q PAUSE")) == 1


def test_it_is_paused_where_that_cannot_be_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(tmp_path) as one:
        begun(one, FORGOTTEN + WIDE)

        def broken(*given: Any) -> StartOption:
            raise RuntimeError("injected")

        monkeypatch.setattr(one.engine, "start_option", broken)
        assert warned(one, "ALTER QUERY q PAUSE") == []
        assert one.status("q") == "PAUSED"
