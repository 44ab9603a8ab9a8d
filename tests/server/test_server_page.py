"""docs/server.md is true: its commands are executed by sh and curl against a server that `penstock serve` started."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.client import connect
from tests.commands import penstock

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+(?: \w+)?)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@contextmanager
def served(folder: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run `penstock serve` in a folder; yield its address."""
    command = [*penstock(), "serve", *options, "--in-process", "--http", "127.0.0.1:0"]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(folder / "config"), "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http"), process.communicate()[1]
        yield url, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_commands(tmp_path: Path) -> None:
    (tmp_path / "rooms.cql").write_text(next(text for kind, text in BLOCKS if kind == "live"), encoding="utf-8")
    with served(tmp_path, "rooms.cql", "--checkpoint", "state") as (url, _):
        environment = {
            **os.environ, "SERVER": url, "XDG_CONFIG_HOME": str(tmp_path / "config"), "PYTHONPATH": str(ROOT / "src"),
        }  # fmt: skip
        head, executed = "set -e\n", 0
        for (kind, text), (following, result) in pairwise([*BLOCKS, ("", "")]):
            if kind != "sh":
                continue
            if text.startswith("alias "):
                # Aliases are for interactive shells.
                head += text.replace("alias post='", "post() { ").rstrip().removesuffix("'") + ' "$@"; }\n'
                continue
            if "results" in text:
                _await_rows(url, tmp_path)
            script = head + text.replace("penstock ", f"{shlex.join(penstock())} ", 1)
            done = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, (text, done.stdout, done.stderr)
            if following in ("result", "json"):
                assert done.stdout.strip() == result.strip()
            executed += 1
        assert executed == 10
        python = next(text for kind, text in BLOCKS if kind == "python")
        _run_python(python.replace("http://127.0.0.1:8265", url), (tmp_path / "ada.token").read_text().strip())


def _await_rows(url: str, folder: Path) -> None:
    token = (folder / "ada.token").read_text(encoding="utf-8").strip()
    with connect(url, token) as client, client.subscribe("warm", beginning=True) as batches:
        count = 0
        for batch in batches:
            count += batch.num_rows
            if count >= 3:
                return


def _run_python(text: str, token: str) -> None:
    # The subscription has no end: the example stops at its first batch.
    text = text.replace(
        "        print(batch.to_pylist())\n", "        shown.append(batch.to_pylist())\n        break\n"
    )
    text = text.replace('    server.insert("readings"', '    sender(server)\n    #    server.insert("readings"')
    shown: list[object] = []

    def sender(server: object) -> None:
        import threading

        def send() -> None:
            time.sleep(1.0)
            rows = [{"at": f"2024-03-01 1{hour}:00:00", "room": "hall", "celsius": 18.0} for hour in (1, 2)]
            server.insert("readings", rows)  # type: ignore[attr-defined]

        threading.Thread(target=send).start()

    names = {"token": token, "shown": shown, "sender": sender}
    exec(compile(text, "docs/server.md", "exec"), names)
    assert shown and list(names["rooms"]["room"]) == ["hall", "attic"]  # type: ignore[index]


def test_a_token_of_the_first_start_is_private_and_in_no_output(tmp_path: Path) -> None:
    with served(tmp_path, "--checkpoint", "state") as (url, process):
        place = tmp_path / "config" / "penstock" / "first-token"
        token = place.read_text(encoding="utf-8").strip()
        assert place.stat().st_mode & 0o777 == 0o600
        with connect(url, token) as client:
            assert client.queries() == []
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0
    assert token not in out + err and str(place) in err


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--http", "0.0.0.0:0"], "P0806"),
        (["--http", "0.0.0.0:0", "--no-auth", "--insecure"], "P0806"),
        (["--http", "nonsense"], "P0806"),
        (["--tls-cert", "x.pem"], "P0806"),
        (["--tls-cert", "x.pem", "--tls-key", "y.pem"], "P0806"),
        (["--set", "max_body_bytes=none"], "P0104"),
    ],
)
def test_starts_that_are_refused(tmp_path: Path, options: list[str], code: str) -> None:
    environment = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")}
    command = [*penstock(), "serve", "--in-process", "--checkpoint", str(tmp_path / "state")]
    if "--http" not in options:
        options = [*options, "--http", "127.0.0.1:0"]
    done = subprocess.run([*command, *options], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode in (1, 2) and code in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_tls(tmp_path: Path) -> None:
    chain, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout",
            str(key),
            "-out",
            str(chain),
        ],
        check=True,
        capture_output=True,
    )
    with served(tmp_path, "--checkpoint", "state", "--tls-cert", str(chain), "--tls-key", str(key)) as (url, _):
        assert url.startswith("https://")
        token = (tmp_path / "config" / "penstock" / "first-token").read_text(encoding="utf-8").strip()
        with connect(url, token, certificates=str(chain)) as client:
            assert client.queries() == []


def test_tokens_on_the_command_line(tmp_path: Path) -> None:
    def token(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*penstock(), "token", *arguments, "--token-file", str(tmp_path / "tokens.json")]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert "there is no file" in token("list").stderr
    made = token("add", "ada", "--role", "control", "--expires", "2 hours")
    assert made.returncode == 0 and made.stdout.startswith("pnst_") and made.stdout.strip() not in made.stderr
    listed = token("list")
    assert "ada" in listed.stdout and "control" in listed.stdout and "pnst_" not in listed.stdout
    assert token("add", "ada").returncode == 2
    assert "P0807" in token("add", "bob", "--expires", "soon").stderr
    assert token("revoke", "ada").returncode == 0
    assert "P0807" in token("revoke", "ada").stderr
