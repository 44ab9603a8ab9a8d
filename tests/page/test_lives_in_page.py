"""What happens to a page while it is open: its query goes, its token ends, nobody looks at it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_rooms import sign_in

from penstock.client import connect
from penstock.expressions.calls import user_functions
from penstock.expressions.user import UserFunction
from penstock.server.roles import AccessRole
from tests.server.running import Running
from tests.server.test_live_service import ended, started

SCRIPT = """CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP ()
  TIMESTAMP BY at RETAIN 1 DAY;
CREATE QUERY hot AS SELECT ISTREAM(room, celsius) FROM readings [NOW] WHERE celsius > 20;
"""


@pytest.fixture
def live(serve: Callable[[str], Running]) -> Running:
    return serve(SCRIPT)


def rows(running: Running, hour: int) -> None:
    with connect(running.url, running.texts[AccessRole.CONTROL]) as client:
        at = "2024-03-01 {:02}:{:02}:00"
        client.insert("readings", [{"at": at.format(hour, n), "room": f"room {hour}", "celsius": 30.0} for n in (1, 2)])


def test_a_query_that_others_drop_or_rename(page: Any, live: Running) -> None:
    sign_in(page, live, room="query/hot")
    page.locator(".plan [data-node]").first.wait_for()
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        client.execute("ALTER QUERY hot RENAME TO `quite hot`")
        rows(live, 9)
        page.get_by_text("there is no query hot any more").wait_for()
        assert page.get_by_role("button", name="Drop").count() == 0
        page.get_by_role("link", name="All queries").click()
        page.get_by_role("link", name="quite hot").click()
        # One's own renaming leads to the new name.
        page.get_by_role("button", name="Rename").click()
        page.get_by_role("dialog").get_by_label("its new name").fill('<b>"/%')
        page.get_by_role("dialog").get_by_role("button", name="Rename").click()
        page.locator("h1 bdi").get_by_text('<b>"/%', exact=True).wait_for()
        client.execute('DROP QUERY `<b>"/%`')
        page.get_by_text("any more: it was dropped or renamed").wait_for()


def test_a_query_that_failed_tells_why_and_what_to_do(page: Any, live: Running) -> None:
    """In this process none fails alone: the answers of the server are those of one that has Spark."""
    failed = {"state": "FAILED", "error": {"code": "P0621", "message": "checked failed:\n  it fails on:\n    (-1)",
                                           "hint": None, "position": None}}  # fmt: skip
    page.route("**/v1/queries/hot", lambda one: one.fulfill(json={**one.fetch().json(), **failed}))
    page.route("**/v1/plan?query=hot", lambda one: one.fulfill(status=404, json={}))
    sign_in(page, live, room="query/hot")
    trouble = page.locator(".error")
    trouble.get_by_text("P0621").wait_for()
    assert trouble.inner_text().split("\n")[:3] == ["P0621: checked failed:", "  it fails on:", "    (-1)"]
    assert "Resume begins it again" in trouble.inner_text() and page.locator(".state.FAILED").count() == 1
    page.get_by_text("none of its operators runs").wait_for()
    assert not page.locator(".plan").is_visible()
    page.unroute("**/v1/queries/hot")
    page.unroute("**/v1/plan?query=hot")
    rows(live, 9)
    page.locator(".plan [data-node]").first.wait_for()
    assert page.locator(".plan svg").bounding_box()["width"] > 50 and page.locator(".error").count() == 0


def same(values: pa.Array) -> pa.Array:
    return values


def test_a_query_that_needs_attention_can_be_resumed(
    page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = user_functions.make(UserFunction, same, "DOUBLE", "tried", ["DOUBLE"])
    monkeypatch.setitem(user_functions.REGISTERED, made.key, made)
    ended(started(tmp_path, SCRIPT.replace("room, celsius)", "tried(celsius) AS c)")))
    monkeypatch.delitem(user_functions.REGISTERED, made.key)
    running = started(tmp_path, "")
    try:
        sign_in(page, running, room="query/hot")
        page.locator(".error").get_by_text("unknown function TRIED").wait_for()
        page.locator(".error").get_by_text("start the server with what it lacks, then Resume").wait_for()
        page.locator(".state", has_text="NEEDS ATTENTION").wait_for()
        page.get_by_role("button", name="Resume").click()
        page.get_by_role("dialog").get_by_role("button", name="Resume").click()
        page.locator(".error").get_by_text("hot cannot be bound").wait_for()
    finally:
        ended(running)
    monkeypatch.setitem(user_functions.REGISTERED, made.key, made)
    running = started(tmp_path, "")
    try:
        sign_in(page, running, room="query/hot")
        page.get_by_role("button", name="Resume").click()
        page.get_by_role("dialog").get_by_label("from where it answers").select_option("NOW")
        page.get_by_role("dialog").get_by_role("button", name="Resume").click()
        page.get_by_role("button", name="Pause").wait_for()
        page.locator(".plan [data-node]").first.wait_for()
        assert page.locator(".error").count() == 0 and running.door.service.query("hot").state == "RUNNING"
    finally:
        ended(running)


def test_a_page_that_nobody_sees_reads_no_results_and_goes_on_where_it_was(page: Any, live: Running) -> None:
    sign_in(page, live, room="query/hot")
    results = page.get_by_role("region", name="results of hot")
    rows(live, 9)
    results.get_by_text("room 9").first.wait_for()
    turn = "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(f"Object.defineProperty(document, 'hidden', {{value: true, configurable: true}}); {turn}")
    with connect(live.url, live.texts[AccessRole.READ]) as client:
        for _ in range(100):
            if not client.select("SELECT id FROM penstock.subscriptions").table.num_rows:
                break
            page.wait_for_timeout(100)
        else:
            raise AssertionError("a page that is hidden still reads results")
    rows(live, 10)
    page.wait_for_timeout(500)
    page.evaluate(f"Object.defineProperty(document, 'hidden', {{value: false, configurable: true}}); {turn}")
    results.get_by_text("room 10").first.wait_for()
    rows(live, 11)
    results.get_by_text("room 11").first.wait_for()
    texts = [row.locator("td").nth(1).inner_text() for row in results.locator("tbody tr").all()]
    assert texts == ["room 11"] + ["room 10"] * 2 + ["room 9"] * 2, "each row once, the newest first"


def test_a_token_that_is_revoked_is_asked_for(page: Any, live: Running) -> None:
    """Also where nothing happens any more: the stream of events ends, and the page asks why."""
    sign_in(page, live, AccessRole.READ, room="query/hot")
    page.locator(".plan [data-node]").first.wait_for()
    live.tokens.revoke("read")
    rows(live, 9)
    page.get_by_label("token").wait_for()
    page.get_by_label("token").fill(live.texts[AccessRole.READ])
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("P0801").wait_for()
    page.get_by_label("token").fill(live.texts[AccessRole.ADMIN])
    page.get_by_role("button", name="Sign in").click()
    page.locator("h1 bdi").get_by_text("hot").wait_for()
    page.get_by_role("region", name="results of hot").wait_for()


def test_what_is_settable_of_a_stream_is_set_in_its_form(page: Any, live: Running) -> None:
    sign_in(page, live, room="streams")
    page.get_by_role("button", name="readings", exact=True).click()
    retain = page.get_by_label("retain", exact=True)
    retain.wait_for()
    assert retain.input_value() == "1 DAY"
    form = retain.locator("xpath=ancestor::form")
    for value, told in (("<b>a while</b>", "P0104"), ("2 HOURS", "is 2 HOURS")):
        retain.fill(value)
        form.get_by_role("button", name="Set").click()
        page.get_by_text(told).first.wait_for()
    with connect(live.url, live.texts[AccessRole.READ]) as client:
        assert client.select("SELECT retain FROM penstock.streams").table.to_pylist() == [{"retain": "2 HOUR"}]
