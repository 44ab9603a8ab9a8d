"""A page that is left open while its server is started again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from test_rooms import ROWS, SCRIPT, sign_in

from penstock.cli.serve import ServeOptions, start_in_process
from penstock.client import connect
from penstock.server.addresses import Address, HostNames
from penstock.server.http.application.server import HttpServer
from penstock.server.http.door import HttpDoor
from penstock.server.limits import DoorLimits
from penstock.server.policy import ServerPolicy
from penstock.server.roles import AccessRole
from penstock.server.tokens import TokenFile
from penstock.settings import Settings
from tests.server.running import Running
from tests.server.test_live_service import ended, started


def again(folder: Path, before: Running) -> Running:
    """Start the server of a folder at the address that it had."""
    options = ServeOptions(folder / "checkpoint", "", script=(SCRIPT, "rooms.cql"), token_file=folder / "tokens.json")
    service = start_in_process(options, ServerPolicy(closed=(folder / "checkpoint",)))
    address = Address("127.0.0.1", before.server.address.port)
    door = HttpDoor(service, TokenFile(folder / "tokens.json"), HostNames.of(address), DoorLimits.of(Settings()))
    return Running(HttpServer(door, address), door, before.tokens, before.texts)


def test_a_page_comes_back_by_itself(page: Any, tmp_path: Path) -> None:
    """It is signed in still, says that it was away, and shows what has happened since, results included."""
    running = started(tmp_path, SCRIPT)
    try:
        sign_in(page, running, room="query/warm")
        page.locator("#link").get_by_text("live").wait_for()
        results = page.get_by_role("region", name="results of warm")
        results.wait_for()
        with connect(running.url, running.texts[AccessRole.CONTROL]) as client:
            client.insert("readings", ROWS[:2])
        results.get_by_text("19.5").wait_for()
        page.evaluate("window.sameDocument = true")
        ended(running)
        page.locator("#link").get_by_text("no connection").wait_for()
        running = again(tmp_path, running)
        page.locator("#link").get_by_text("live").wait_for()
        with connect(running.url, running.texts[AccessRole.CONTROL]) as client:
            client.insert("readings", ROWS[2:])
            client.execute("CREATE QUERY later AS SELECT room FROM readings [NOW]")
        results.get_by_text("<i>attic</i>").wait_for()
        results.get_by_text("19.5").wait_for(state="detached")
        page.get_by_label("Rooms").get_by_role("link", name="Queries").click()
        page.get_by_role("link", name="later").wait_for()
        assert page.evaluate("window.sameDocument") is True, "it was never loaded anew"
    finally:
        ended(running)


#: Connections of events that can be silent: as if packets were lost, without an end that the browser could see.
SILENT = """
  const all = [];
  window.EventSource = class extends EventSource {
    constructor(path) { super(path); all.push(this); }
    addEventListener(kind, listener) { super.addEventListener(kind, (event) => this.isSilent || listener(event)); }
  };
  window.silence = () => { for (const one of all) one.isSilent = true; };
  const now = Date.now;
  window.sleep = (seconds) => { Date.now = () => now() + 1000 * seconds; };
"""


def test_a_computer_that_slept_shows_what_happened_meanwhile(page: Any, tmp_path: Path) -> None:
    """Its connections are gone without a word: nothing but the clock says so."""
    running = started(tmp_path, SCRIPT)
    page.add_init_script(SILENT)
    try:
        sign_in(page, running, room="query/warm")
        results = page.get_by_role("region", name="results of warm")
        results.wait_for()
        with connect(running.url, running.texts[AccessRole.CONTROL]) as client:
            client.insert("readings", ROWS[:2])
            results.get_by_text("19.5").wait_for()
            page.evaluate("silence()")
            client.insert("readings", ROWS[2:])
        page.wait_for_timeout(1000)
        assert results.get_by_text("<i>attic</i>").count() == 0, "nothing has said that it is not there"
        page.evaluate("sleep(3600)")
        results.get_by_text("<i>attic</i>").wait_for(timeout=20_000)
    finally:
        ended(running)


def test_what_is_chosen_while_the_server_is_away_says_so(page: Any, tmp_path: Path) -> None:
    running = started(tmp_path, SCRIPT)
    sign_in(page, running, room="plan")
    page.locator(".plan [data-node]").first.wait_for()
    ended(running)
    page.locator("#link").get_by_text("no connection").wait_for()
    page.get_by_label("only of the query").select_option("warm")
    page.locator("#notices .bad", has_text="the server does not answer").wait_for()
    assert page.get_by_label("only of the query").input_value() == "warm"
