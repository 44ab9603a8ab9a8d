"""`make serve-demo` with the page open: what the demo registers with curl appears, results follow, and the page is
there again after the demo has killed its server and started it anew."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.cli.serve import ServeOptions, start_in_process
from penstock.client import connect
from penstock.errors import PenstockError
from penstock.server.addresses import Address, HostNames
from penstock.server.http.application.server import HttpServer
from penstock.server.http.door import HttpDoor
from penstock.server.limits import DoorLimits
from penstock.server.policy import ServerPolicy
from penstock.server.roles import AccessRole
from penstock.server.tokens import TokenFile
from penstock.settings import Settings

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the demo calls the server with curl")


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import serve_demo

    return serve_demo


def follow(page: Any, address: str, token: str, go_on: Callable[[], None]) -> None:
    """Check what the page shows during the demo, from before its first query until after the restart.

    Args:
        go_on: lets the server be killed.
    """
    page.goto(f"{address}/#/queries")
    page.get_by_label("token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    for name in ("late", "hours", "busiest"):
        page.get_by_role("link", name=name, exact=True).wait_for()
    page.evaluate("window.sameDocument = true")
    page.get_by_role("link", name="busiest", exact=True).click()
    results = page.get_by_role("region", name="results of busiest")
    row = results.locator("tbody tr")
    row.first.wait_for()
    assert all(int(text.split("\t")[2]) >= 8 for text in row.all_inner_texts())
    page.locator(".plan [data-node]").first.wait_for()
    page.locator(".chart canvas").first.wait_for()
    page.locator("#link").get_by_text("live").wait_for()
    go_on()
    page.locator("#link").get_by_text("no connection").wait_for()
    page.locator("#link").get_by_text("live").wait_for()
    page.get_by_label("Rooms").get_by_role("link", name="Queries").click()
    page.get_by_role("link", name="busiest", exact=True).click()
    row.first.wait_for()
    assert page.evaluate("window.sameDocument") is True, "it was never loaded anew"


class InProcess:
    """Servers at one place whose queries run in this process. Without Spark no folder is watched, so the flights that
    the demo would write are posted."""

    def __init__(self, folder: Path, demo: Any) -> None:
        self.started: list[str] = []
        self.is_up, self.may_be_killed, self.was_seen_again = (threading.Event() for _ in range(3))
        self.token = ""
        self._folder, self._demo = folder, demo

    @contextmanager
    def server(self, secret: Path, place: str = "127.0.0.1:0") -> Iterator[tuple[str, Any]]:
        options = ServeOptions(self._folder / "checkpoint", "", token_file=secret)
        closed = (self._folder / "checkpoint",)
        service = start_in_process(options, ServerPolicy(paths=(self._folder / "demo-results",), closed=closed))
        tokens = TokenFile(secret)
        if not tokens.entries():
            secret.parent.mkdir(parents=True, exist_ok=True)
            self.token = tokens.add("demo", AccessRole.ADMIN)
            (secret.parent / "first-token").write_text(self.token, encoding="utf-8")
        host, _, port = place.partition(":")
        address = Address(host, int(port))
        running = HttpServer(HttpDoor(service, tokens, HostNames.of(address), DoorLimits.of(Settings())), address)
        ends = iter([lambda: (self.may_be_killed.wait(60), running.close(), service.close())])
        end = lambda: next(ends, lambda: None)()  # noqa: E731
        url = f"http://127.0.0.1:{running.address.port}"
        self.started.append(url)
        self.is_up.set()
        try:
            yield url, SimpleNamespace(pid=os.getpid(), kill=end, wait=lambda: None)
        finally:
            if len(self.started) == 2:
                self.was_seen_again.wait(60)
            end()

    def replay(self, flights: pa.Table, speed: float) -> Any:
        over = threading.Event()

        def post() -> None:
            for start in range(0, flights.num_rows, 100):
                if over.wait(0.2):
                    return
                with contextlib.suppress(PenstockError), connect(self.started[-1], self.token) as client:
                    client.insert("Flights", flights.slice(start, 100).to_pylist())

        return SimpleNamespace(start=threading.Thread(target=post).start, over=over)


def flights(demo: Any) -> pa.Table:
    count = 2_000
    departures = [demo.BEGINNING + timedelta(seconds=30 * n) for n in range(count)]
    return pa.table(
        {
            "departure": pa.array(departures, pa.timestamp("us", "UTC")),
            "carrier": pa.array(["UA", "B6"] * (count // 2)),
            "flight": pa.array(range(count), pa.int32()),
            "origin": pa.array([("EWR", "JFK", "LGA")[n % 3] for n in range(count)]),
            "dest": pa.array([("BOS", "ORD", "LAX", "MIA")[n % 4] for n in range(count)]),
            "dep_delay": pa.array([float(n % 200) for n in range(count)]),
        }
    )


def test_the_demo_with_the_page_open(
    demo: Any, page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own statements and its own calls, over flights that are made up and a server without Spark."""
    monkeypatch.chdir(tmp_path)
    month = tmp_path / "demo-results" / "data" / "flights"
    month.mkdir(parents=True)
    pq.write_table(flights(demo), month / "2013-06.parquet")
    servers = InProcess(tmp_path, demo)
    monkeypatch.setattr(demo.prepare, "prepare", lambda _folder: None)
    monkeypatch.setattr(demo, "server", servers.server)
    monkeypatch.setattr(demo, "Replay", servers.replay)
    files = demo.DECLARED[demo.DECLARED.index("FROM FILES") : demo.DECLARED.index(" TIMESTAMP BY")]
    monkeypatch.setattr(demo, "DECLARED", demo.DECLARED.replace(files, "FROM HTTP ()") + " RETAIN 1 DAY")
    lines = demo.Curl.lines
    # Without Spark there are no snapshots of a result, and no SELECT over one.
    monkeypatch.setattr(demo, "SELECT", "SELECT name, state FROM penstock.queries ORDER BY name")
    monkeypatch.setattr(
        demo.Curl,
        "lines",
        lambda curl, path, *limits: lines(curl, path.replace("snapshot=true", "from=beginning"), *limits),
    )
    failed: list[BaseException] = []

    def run() -> None:
        try:
            demo.run(speed=20_000.0, seconds=1.0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}")
            failed.append(error)

    running = threading.Thread(target=run)
    running.start()
    try:
        assert servers.is_up.wait(60)
        token = demo.first_token(Path("demo-results/tokens/tokens.json"))
        follow(page, servers.started[0], token, servers.may_be_killed.set)
    finally:
        servers.may_be_killed.set()
        servers.was_seen_again.set()
        running.join(120)
    assert not failed and not running.is_alive(), (failed, capsys.readouterr().out)
    assert len(servers.started) == 2 and len(set(servers.started)) == 1
