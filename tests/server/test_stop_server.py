"""`penstock serve` ends by itself where a query that has failed is to stop it."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest

from penstock.cli.serve import ServeOptions, serve
from penstock.errors import PenstockError
from tests.server.fake_service import FakeService


def test_a_server_is_stopped_by_a_query(fake: FakeService, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ServeOptions(tmp_path / "state", "127.0.0.1:0", token_file=tmp_path / "tokens.json")
    reason = PenstockError("P0621", "query q failed: a function failed")

    def fail() -> None:
        fake.reason = reason

    timer = threading.Timer(0.5, fail)
    timer.start()
    with pytest.raises(PenstockError) as caught:
        serve(options, lambda _options, _policy: fake)
    assert caught.value is reason and fake.closed
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{capsys.readouterr().out.strip()}/healthz")
