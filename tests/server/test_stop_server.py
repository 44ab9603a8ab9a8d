"""How `penstock serve` ends: by a query that has failed and is to stop it, and with requests in hand."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from penstock.cli.serve import ServeOptions, psql_line, serve
from penstock.errors import PenstockError
from penstock.runtime.allocation import FreedMemory
from penstock.server.http.application import server
from penstock.server.roles import AccessRole
from tests.server.fake_service import FakeService, eventually
from tests.server.running import Running


def test_a_server_is_stopped_by_a_query(fake: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ServeOptions(tmp_path / "state", "127.0.0.1:0", token_file=tmp_path / "tokens.json")
    reason = PenstockError("P0502", "query q failed: its disk is full")

    def fail() -> None:
        fake.reason = reason

    timer = threading.Timer(0.5, fail)
    timer.start()
    assert serve(options, lambda _options, _policy: fake) == 1
    said = capsys.readouterr()
    assert fake.closed and "P0502" in said.err and "query q failed: its disk is full" in said.err
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{said.out.strip()}/healthz")


def test_a_server_returns_freed_memory_while_it_runs(
    fake: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned: list[bool] = []

    def look(_: FreedMemory) -> bool:
        returned.append(True)
        if len(returned) == 3:
            fake.reason = PenstockError("P0502", "query q failed")
        return True

    monkeypatch.setattr(FreedMemory, "look", look)
    options = ServeOptions(tmp_path / "state", "127.0.0.1:0", token_file=tmp_path / "tokens.json")
    assert serve(options, lambda _options, _policy: fake) == 1
    assert len(returned) == 3


def test_the_reason_for_an_end_outlives_what_is_closed(
    fake: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has ended is gone when the service is closed; the exit code still says that it failed."""
    monkeypatch.setattr(FakeService, "stop_reason", lambda self: None if self.closed else self.reason)
    fake.reason = PenstockError("P0601", "the disk is full")
    options = ServeOptions(tmp_path / "state", "127.0.0.1:0", token_file=tmp_path / "tokens.json")
    assert serve(options, lambda _options, _policy: fake) == 1
    assert "P0601: the disk is full" in capsys.readouterr().err


def test_a_start_that_fails_makes_no_token(
    fake: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the next one, which finds it, would not say where the first token is."""
    options = ServeOptions(tmp_path / "state", "127.0.0.1:0", token_file=tmp_path / "tokens.json")

    def fail(_options: ServeOptions, _policy: object) -> FakeService:
        raise PenstockError("P0609", "the checkpoint is in use")

    with pytest.raises(PenstockError, match="P0609"):
        serve(options, fail)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = replace(options, address=f"127.0.0.1:{other.getsockname()[1]}")
        with pytest.raises(PenstockError, match="P0806"):
            serve(taken, lambda _options, _policy: fake)
    assert not (tmp_path / "first-token").exists() and not (tmp_path / "tokens.json").exists()
    # One that cannot keep its first token does not run.
    (tmp_path / "first-token").mkdir()
    with pytest.raises(PenstockError, match="P0807"):
        serve(options, lambda _options, _policy: fake)
    assert fake.closed
    (tmp_path / "first-token").rmdir()
    fake.reason = PenstockError("P0502", "query q failed: its disk is full")
    assert serve(options, lambda _options, _policy: fake) == 1
    assert f"a token of the role admin is in {tmp_path / 'first-token'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pg", "user", "line"),
    [("127.0.0.1:5439", "ada",
      'psql "host=127.0.0.1 port=5439 dbname=penstock user=ada" (its password is the token ada)'),
     ("[::1]:5439", None, 'psql "host=::1 port=5439 dbname=penstock user=penstock"'),
     ("0.0.0.0:1", None, 'psql "host=127.0.0.1 port=1 dbname=penstock user=penstock"')],
)  # fmt: skip
def test_the_start_says_how_psql_connects(pg: str, user: str | None, line: str) -> None:
    assert psql_line(pg, user) == line


def test_a_request_that_outlasts_the_end_is_told_to_ask_again(
    serve: Callable[..., Running], fake: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_GRACE", 1)
    fake.slow = 20.0
    running = serve()
    with running.client(AccessRole.ADMIN) as client, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.post, "/v1/statements", json={"sql": "SELECT * FROM readings"})
        eventually(lambda: bool(fake.statements()))
        running.server.close()
        answer = asked.result(20)
    assert answer.status_code == 503 and answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["retry-after"] == "1" and answer.json()["code"] == "P0601"
