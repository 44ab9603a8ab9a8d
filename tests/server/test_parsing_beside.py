"""A large script is parsed in a process beside the server, and comes back as plain data."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.errors import PenstockError, ScriptErrors
from penstock.language.scripts import parse_script, print_statement
from penstock.results.worker_process import WorkerProcess
from penstock.server.roles import AccessRole
from penstock.server.statements import parse_process, parsing
from penstock.server.statements.parsing import SMALL, ScriptParser
from tests.server.running import Running
from tests.server.test_live_service import ended, started

STATEMENTS = (Path(__file__).parents[1] / "language" / "statements.txt").read_text().splitlines()
LARGE = ";\n".join(f"CREATE VIEW v{number} AS SELECT a, b FROM s WHERE a > {number}" for number in range(1_000))
#: A process that reads and never answers.
SILENT = "import sys\nwhile sys.stdin.buffer.read(1 << 16):\n    pass"


@pytest.fixture
def parser() -> Iterator[ScriptParser]:
    parser = ScriptParser()
    yield parser
    parser.close()


def test_every_statement_is_plain_data() -> None:
    """Spans are compared by their text: `==` leaves them out."""
    text = ";\n".join(STATEMENTS)
    script = parse_script(text)
    loaded = tuple(parsing._loaded(parse_process.answered(text)))
    assert loaded == script.statements and len(loaded) == len(STATEMENTS)
    assert repr(loaded) == repr(script.statements)
    assert [print_statement(one) for one in loaded] == [print_statement(one) for one in script.statements]


def test_a_large_script_is_the_same(parser: ScriptParser) -> None:
    assert len(LARGE) > SMALL
    found = parser("\ufeff" + LARGE)
    assert found == parse_script("\ufeff" + LARGE)
    assert [found.text_of(one) for one in found.statements] == LARGE.split(";\n")


def test_errors_come_back_and_the_process_goes_on(parser: ScriptParser) -> None:
    for wrong in (f"{LARGE};\nSELECT FROM;\nSHOW NOTHING", f"{LARGE};\nSELECT 'a"):
        with pytest.raises(ScriptErrors) as here:
            parse_script(wrong)
        with pytest.raises(ScriptErrors) as beside:
            parser(wrong)
        assert beside.value.render() == here.value.render()
    process = parser._process
    assert process is not None and process.alive
    assert parser(LARGE) == parse_script(LARGE) and parser._process is process


def test_a_small_script_needs_no_process(parser: ScriptParser) -> None:
    assert parser("SHOW QUERIES") == parse_script("SHOW QUERIES") and parser._process is None


def test_a_process_that_has_ended_is_replaced(parser: ScriptParser) -> None:
    parser(LARGE)
    assert parser._process is not None
    parser._process.kill()
    parser._process.was_ended()
    assert parser(LARGE) == parse_script(LARGE)


def test_a_process_that_is_ended_as_it_parses(parser: ScriptParser, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [sys.executable, "-c", "import os; os.read(0, 8); os.kill(os.getpid(), 9)"]
    monkeypatch.setattr(parsing, "process_command", lambda: ends)
    with pytest.raises(PenstockError, match=r"P0601.*was ended from outside"):
        parser(LARGE)
    assert parser._process is None


def test_a_script_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "process_command", lambda: [sys.executable, "-c", SILENT])
    begun: list[WorkerProcess] = []

    class Noted(WorkerProcess):
        def __init__(self, command: list[str]) -> None:
            super().__init__(command)
            begun.append(self)

    monkeypatch.setattr(parsing, "WorkerProcess", Noted)
    with pytest.raises(PenstockError, match=r"P0804.*longer than 0\.1 seconds to read"):
        ScriptParser(0.1)(LARGE)
    assert not begun[0].alive


def test_one_that_is_closed_leaves_no_process() -> None:
    parser = ScriptParser()
    parser(LARGE)
    process = parser._process
    assert process is not None
    parser.close()
    assert not process.alive
    assert parser(LARGE) == parse_script(LARGE) and parser._process is None


def test_others_are_answered_while_a_script_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that parses is held until the others have been answered, by a door of threads that never parse it."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    held = f"open({str(gate)!r}).read()\nfrom penstock.server.statements.parse_process import main\nmain()"
    monkeypatch.setattr(parsing, "process_command", lambda: [sys.executable, "-c", held])
    running: Running = started(tmp_path)
    try:
        with running.client(AccessRole.ADMIN) as client, ThreadPoolExecutor(1) as pool:
            text = ";\n".join(f"SHOW {'STREAMS'}" for _ in range(2_000))
            large = pool.submit(client.post, "/v1/statements", json={"sql": text}, timeout=120)
            for _ in range(20):
                assert client.post("/v1/statements", json={"sql": "SHOW STREAMS"}).status_code == 200
            assert not large.done()
            gate.write_text("go")
            assert len(large.result().json()["statements"]) == 2_000
    finally:
        ended(running)


def test_its_answer_is_in_parts() -> None:
    """Who loads a part lets no other thread run meanwhile."""
    parts = pickle.loads(parse_process.answered(LARGE))
    assert len(parts) > 5 and max(map(len, parts)) < 60_000
