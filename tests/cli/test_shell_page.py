"""docs/shell.md is true: its commands and statements print what stands below them."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.cli.shell.commands import COMMANDS
from penstock.cli.shell.shell import Shell
from penstock.cli.shell.sides import SessionSide
from penstock.client import connect
from penstock.connectors.sinks.output import OutputFormat
from penstock.server.roles import AccessRole
from penstock.session import Session
from tests.commands import penstock
from tests.server.test_live_service import ended, started

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "shell.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+(?: \w+)?)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SCRIPT = next(text for kind, text in BLOCKS if kind == "cql")
EXAMPLES = [(text, result) for (kind, text), (_, result) in pairwise(BLOCKS) if kind == "sh"]


@pytest.mark.parametrize(("command", "result"), EXAMPLES, ids=lambda text: text.split("\n")[0][:40])
def test_the_commands(command: str, result: str, tmp_path: Path) -> None:
    (tmp_path / "rooms.cql").write_text(SCRIPT)
    ran = command.replace("penstock ", f"{shlex.join(penstock())} ", 1)
    done = subprocess.run(["sh", "-c", ran], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, result, "")


@pytest.mark.server
def test_the_commands_at_a_server(tmp_path: Path) -> None:
    server = started(tmp_path)
    try:
        (tmp_path / "ada.token").write_text(server.texts[AccessRole.ADMIN])
        (tmp_path / "ada.token").chmod(0o600)
        with connect(server.url, server.texts[AccessRole.ADMIN]) as client:
            client.execute("CREATE RELATION levels (room STRING, level INT) FROM MEMORY ()")
            client.execute("INSERT INTO levels VALUES ('hall', 0), ('attic', 2)")
        executed = 0
        for (kind, command), (_, result) in pairwise(BLOCKS):
            if kind == "sh connected":
                # The rooms of docs/server.md have another column name in the server of this test.
                ran = re.sub(r"\bpenstock ", f"{shlex.join(penstock())} ", command)
                ran = ran.replace("FROM rooms", "FROM levels")
                environment = {**os.environ, "SERVER": server.url}
                done = subprocess.run(["sh", "-c", ran], cwd=tmp_path, capture_output=True, text=True, env=environment)
                assert (done.returncode, done.stdout) == (0, result), done.stderr
                executed += 1
        assert executed == 2
    finally:
        ended(server)


def test_the_statements() -> None:
    out, err = io.StringIO(), io.StringIO()
    shell = Shell(SessionSide(Session()), out, err, OutputFormat.TABLE)
    shell.execute(SCRIPT, None)
    count = 0
    for (kind, text), (following, result) in pairwise(BLOCKS):
        if kind == "shell":
            assert following == "result"
            out.seek(0)
            out.truncate()
            assert shell.read(text.splitlines(keepends=True), None) and err.getvalue() == ""
            assert out.getvalue() == result
            count += 1
    assert count == 4


def test_every_command_is_on_the_page() -> None:
    assert all(f"| `{command.usage}` |" in PAGE for command in COMMANDS.values())
