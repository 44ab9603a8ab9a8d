"""`penstock shell` at a pseudo-terminal: the prompt, statements of several lines, history, completion, Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.shell.start import run_shell
from penstock.cli.shell.terminal import is_complete
from penstock.connectors.sinks.output import OutputFormat
from penstock.errors import PenstockError
from penstock.server.addresses import Address, HostNames
from penstock.server.http.application.server import HttpServer
from penstock.server.http.door import HttpDoor
from penstock.server.limits import DoorLimits
from penstock.settings import Settings
from tests.commands import penstock
from tests.server.fake_service import FakeService

_STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\r")
_PATIENCE = 20.0

SCRIPT = """CREATE STREAM Sensors (ts INT, word STRING, n INT) FROM MEMORY () TIMESTAMP BY ts;
INSERT INTO Sensors VALUES (1, 'a', 10), (2, 'b', NULL);
CREATE FUNCTION slowly (INT) RETURNS INT AS 'slow_functions:slowly';
"""
SLOW = """import time
def slowly(values):
    print("asleep", flush=True)
    time.sleep(600)
    return values
"""


class Person:
    """Someone at a terminal that runs a program."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        environment = {
            **os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "XDG_STATE_HOME": str(folder / "state"),
        }  # fmt: skip
        command = penstock()
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execve(command[0], [*command, "shell", *arguments], environment)
        self._raw = ""
        self._read = 0

    def types(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def sees(self, words: str) -> str:
        """Wait until `words` appear behind what was seen before; return what came up to there."""
        end = time.monotonic() + _PATIENCE
        while words not in (plain := _STYLES.sub("", self._raw)[self._read :]):
            assert time.monotonic() < end, f"no {words!r} in {plain!r}"
            if select.select([self._terminal], [], [], 0.2)[0]:
                try:
                    self._raw += os.read(self._terminal, 65_536).decode("utf-8", "replace")
                except OSError:
                    raise AssertionError(f"ended without {words!r}: {plain!r}") from None
        stop = plain.index(words) + len(words)
        self._read += stop
        return plain[:stop]

    def leaves(self, key: str = "") -> int:
        """Return the exit code, after reading what is left. key: typed until it ends, as one between two prompts is
        lost."""
        end = time.monotonic() + _PATIENCE
        try:
            while True:
                assert time.monotonic() < end, "it does not end"
                if not select.select([self._terminal], [], [], 1.0)[0]:
                    self.types(key)
                elif not os.read(self._terminal, 65_536):
                    break
        except OSError:
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def gone(self) -> None:
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        os.close(self._terminal)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.cql").write_text(SCRIPT)
    (tmp_path / "slow_functions.py").write_text(SLOW)
    return tmp_path


@pytest.fixture
def person(folder: Path) -> Iterator[Person]:
    made = Person(folder, "s.cql")
    made.sees("penstock>")
    yield made
    made.gone()


def test_statements_of_several_lines_and_their_history(person: Person, folder: Path) -> None:
    person.types("SELECT word\r")
    person.sees("...")
    person.types("FROM Sensors ORDER BY word;\r")
    person.sees("(2 rows, as of 2)")
    person.sees("penstock>")
    person.types("CREATE QUERY `a b` AS SELECT n FROM Sensors;\r")
    person.sees("`a b` is declared")
    person.types("\\format csv\r")
    person.sees("penstock>")
    person.types("\\q\r")
    assert person.leaves() == 0
    history = folder / "state" / "penstock" / "history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "+SELECT word\n+FROM Sensors ORDER BY word;" in history.read_text()


def test_secrets_are_not_in_the_history(person: Person, folder: Path) -> None:
    person.types("CREATE RELATION p (a INT) FROM POSTGRES (password 'hush');\r")
    person.sees("'hush');\npenstock>")
    person.types("\x04")
    assert person.leaves() == 0
    assert "hush" not in (folder / "state" / "penstock" / "history").read_text()


def test_names_and_keywords_are_completed(person: Person) -> None:
    person.types("SELECT COUNT(*) AS number FRO\t")
    person.sees("M")
    person.types(" Sens\t")
    person.sees("ors")
    person.types(";\r")
    person.sees("(1 row, as of 2)")


def test_an_error_keeps_the_shell(person: Person) -> None:
    person.types("SELECT wrd FROM Sensors;\r")
    shown = person.sees("did you mean word?")
    assert "error P0202: unknown column wrd" in shown and "Traceback" not in shown
    person.sees("penstock>")
    person.types("SELECT 'still here' AS s FROM Sensors LIMIT 1;\r")
    person.sees("(1 row")


def test_ctrl_c_leaves_the_line_and_ctrl_d_the_shell(person: Person) -> None:
    person.types("SELECT word\r")
    person.sees("...")
    person.types("\x03")
    person.sees("penstock>")
    person.types("\x04")
    assert person.leaves("\x04") == 0


def test_ctrl_c_cancels_a_statement(person: Person) -> None:
    person.types("SELECT slowly(n) AS m FROM Sensors;\r")
    person.sees("asleep")
    person.types("\x03")
    shown = person.sees("penstock>")
    assert "cancelled" in shown and "Traceback" not in shown
    person.types("SELECT n FROM Sensors WHERE n > 5;\r")
    person.sees("(1 row")


def test_ctrl_c_ends_a_watch(person: Person) -> None:
    person.types("SELECT n FROM Sensors WHERE n > 5;\r")
    person.sees("(1 row")
    person.types("\\watch 0.1\r")
    for _ in range(3):
        person.sees("(1 row")
    person.types("\x03")
    person.sees("cancelled")
    person.sees("penstock>")


def test_control_characters_do_not_reach_the_terminal(person: Person) -> None:
    person.types("\\format csv\r")
    person.sees("penstock>")
    person.types("SELECT 'x\\u001b[2J\\u0007' AS word FROM Sensors LIMIT 1;\r")
    person.sees("x\\x1b[2J\\x07")


@pytest.mark.parametrize(
    ("text", "whole"),
    [("", True), ("SELECT 1", False), ("SELECT 1;", True), ("SELECT ';", False), ("a; b", False), ("a; -- b", True),
     ("\\d", True), ("SELECT 1 -- ;", False), ("-- only", True),
     ("exit", True), ("help;", True), ("SELECT n AS\nexit", False)],
)  # fmt: skip
def test_when_enter_ends_the_input(text: str, whole: bool) -> None:
    assert is_complete(text) is whole


def test_without_the_package_of_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    monkeypatch.delitem(sys.modules, "penstock.cli.shell.terminal", raising=False)
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    with pytest.raises(PenstockError) as caught:
        run_shell(None, Settings(), OutputFormat.TABLE, False, False)
    assert caught.value.code == "P0723" and "penstock[shell]" in str(caught.value.hint)


@pytest.mark.server
def test_a_server_at_a_terminal(tmp_path: Path) -> None:
    """The content of a relation is drawn again until Ctrl-C; names of the server are completed."""
    service = FakeService()
    service.session.execute(
        "CREATE STREAM readings (at TIMESTAMP, room STRING) FROM MEMORY () TIMESTAMP BY at;"
        "CREATE QUERY warm AS SELECT room, COUNT(*) AS n FROM readings [RANGE 1 HOUR] GROUP BY room;"
        "CREATE QUERY passing AS RSTREAM(SELECT room, 1 AS n FROM readings [NOW]);"
    )
    service.parts["warm"], service.parts["passing"] = [], []
    address = Address("127.0.0.1", 0)
    server = HttpServer(HttpDoor(service, None, HostNames.of(address), DoorLimits.of(Settings())), address)
    person = Person(tmp_path, "--connect", server.url)
    try:
        assert f"at {server.url}" in person.sees("penstock>")
        service.emit("warm", ("+", "hall", 41))
        person.types("SUBSCRIBE TO warm;\r")
        person.sees("(1 row")
        service.emit("warm", ("+", "attic", 42))
        shown = person.sees("(2 rows")
        assert "attic" in shown and "hall" in shown
        person.types("\x03")
        person.sees("penstock>")
        # The rows of a stream are appended, below heads that are bold and not escaped.
        person.types("SUBSCRIBE TO passing;\r")
        person.sees("passing;\n")
        for instant in range(43, 63):  # what comes before it has subscribed is not shown
            service.emit("passing", ("+", "\x1b[2Jcellar", instant))
            time.sleep(0.2)
        shown = person.sees("cellar")
        assert "room" in shown and "x1b[1m" not in shown and "\\x1b[2Jcellar" in shown
        person.types("\x03")
        person.sees("penstock>")
        person.types("SELECT nothing FROM readi\t")
        person.sees("ngs")
        person.types(";\r")
        assert "Traceback" not in person.sees("error P0202")
        person.sees("penstock>")
        person.types("\x04")
        assert person.leaves() == 0
    finally:
        person.gone()
        server.close()
