"""The unit for systemd and the Dockerfile of examples/server: their folders are those of their user, and what they
start has the options that the program has."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from typer.main import get_command

from penstock.cli.main import app

FOLDER = Path(__file__).parents[1] / "examples" / "server"


def options_of(words: list[str]) -> dict[str, str]:
    """The options of a command of `penstock serve`, each of which the program has."""
    assert words[1] == "serve"
    command = get_command(app).commands["serve"]  # type: ignore[attr-defined]
    known = {name for parameter in command.params for name in parameter.opts}
    given = dict(zip(words[2::2], words[3::2], strict=True))
    assert set(given) <= known
    return given


def test_the_unit_writes_only_into_folders_of_its_user() -> None:
    text = (FOLDER / "penstock.service").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if "=" in line and not line.startswith("#")]
    values = {name: value for name, _, value in (line.partition("=") for line in lines)}
    options = options_of(shlex.split(values["ExecStart"]))
    # systemd gives its user what StateDirectory names; what ConfigurationDirectory names stays root's.
    own = [Path("/var/lib") / name for name in values["StateDirectory"].split()]
    tokens, checkpoint, data = (
        Path(options["--token-file"]).parent, Path(options["--checkpoint"]), Path(options["--allow-path"])
    )  # fmt: skip
    for written in (tokens, checkpoint.parent, data):
        assert written in own, written
    for closed in (tokens, checkpoint):
        assert not data.is_relative_to(closed) and not closed.is_relative_to(data)
    assert values["StateDirectoryMode"] == "0700"


def test_the_dockerfile_starts_what_there_is() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    words = {word: rest for word, _, rest in (line.partition(" ") for line in text.splitlines())}
    options = options_of(json.loads(words["ENTRYPOINT"]) + json.loads(words["CMD"]))
    assert "--home-dir /state" in text and Path(options["--token-file"]).parent == Path("/state")
    ignored = (FOLDER.parents[1] / ".dockerignore").read_text().split()
    assert {".git", ".venv"} <= set(ignored) and "src" not in ignored
