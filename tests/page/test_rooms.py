"""The page in a browser, over a server whose queries run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client import connect
from penstock.server.roles import AccessRole
from tests.server.running import Running

SCRIPT = """CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at;
CREATE RELATION rooms (room STRING, floor BIGINT, PRIMARY KEY (room)) FROM MEMORY ();
INSERT INTO rooms VALUES ('hall', 9223372036854775807), ('<i>attic</i>', 2);
CREATE QUERY warm AS SELECT room, MAX(celsius) AS celsius FROM readings [RANGE 1 HOUR] GROUP BY room;
CREATE QUERY `hot "rooms"/é` AS SELECT ISTREAM(*) FROM readings [NOW] WHERE celsius > 20;
"""
ROWS = [
    {"at": "2024-03-01 09:00:00", "room": "hall", "celsius": 19.5},
    {"at": "2024-03-01 09:20:00", "room": "<i>attic</i>", "celsius": 23.0},
    {"at": "2024-03-01 10:10:00", "room": "hall", "celsius": 20.0},
]


def rows(running: Running) -> None:
    with connect(running.url, running.texts[AccessRole.CONTROL]) as client:
        client.insert("readings", ROWS)


def sign_in(page: Any, running: Running, role: AccessRole = AccessRole.ADMIN, room: str = "") -> None:
    page.goto(f"{running.url}/#/{room}")
    page.get_by_label("token").fill(running.texts[role])
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Overview").wait_for()


@pytest.fixture
def live(serve: Callable[[str], Running]) -> Running:
    return serve(SCRIPT)


def test_signing_in_and_out(page: Any, live: Running) -> None:
    page.goto(live.url)
    page.get_by_label("token").fill("pnst_wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("P0801").wait_for()
    sign_in(page, live)
    page.get_by_role("heading", name="Overview").wait_for()
    assert page.evaluate("document.cookie") == "", "no script reads the session"
    page.reload()
    page.get_by_role("heading", name="Overview").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("token").wait_for()


def test_queries_and_their_results(page: Any, live: Running) -> None:
    sign_in(page, live, room="queries")
    page.get_by_role("link", name='hot "rooms"/é').click()
    page.get_by_role("heading", name='hot "rooms"/é').wait_for()
    page.get_by_label("Rooms").get_by_role("link", name="Queries").click()
    page.get_by_role("link", name="warm").click()
    page.locator(".plan [data-node]").first.wait_for()
    rows(live)
    results = page.get_by_role("region", name="results of warm")
    results.get_by_text("<i>attic</i>").wait_for()
    results.get_by_text("19.5").wait_for(state="detached")
    # The last row is not final before a later one has come.
    assert results.locator("tbody tr").all_inner_texts() == ["<i>attic</i>\t23"]
    page.locator(".chart canvas").first.wait_for()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").wait_for()
    assert live.door.service.query("warm").state == "PAUSED"
    page.get_by_role("button", name="Drop").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Drop").click()
    page.get_by_role("dialog").get_by_role("button", name="Drop").click()
    page.get_by_role("heading", name="Queries").wait_for()
    assert [one.name for one in live.door.service.queries()] == ['hot "rooms"/é']


def test_the_editor_marks_errors_and_registers(page: Any, live: Running) -> None:
    sign_in(page, live, room="editor")
    field = page.get_by_label("statement")
    field.fill("CREATE QUERY q AS\nSELECT 'é🙂', rom FROM rooms")
    page.get_by_text("P0202").wait_for()
    assert page.locator(".editor mark").all_inner_texts() == ["rom"]
    field.fill("CREATE QUERY q AS SELECT room FROM rooms")
    page.get_by_text("How it can start").wait_for()
    field.press("Control+Enter")
    page.get_by_text("CREATE QUERY RUNNING").wait_for()
    assert live.door.service.query("q").state == "RUNNING"
    page.reload()
    assert page.get_by_label("statement").input_value().startswith("CREATE QUERY q")


def test_the_console_shows_every_digit(page: Any, live: Running) -> None:
    sign_in(page, live, room="console")
    page.get_by_label("statement", exact=True).fill("SELECT room, floor FROM rooms ORDER BY floor")
    page.get_by_role("button", name="Execute").click()
    answer = page.get_by_role("region", name="answer")
    answer.get_by_text("9223372036854775807").wait_for()
    assert answer.locator("tbody tr").all_inner_texts() == ["<i>attic</i>\t2", "hall\t9223372036854775807"]
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    assert download.value.path().read_bytes() == b"room,floor\r\n<i>attic</i>,2\r\nhall,9223372036854775807\r\n"
    page.get_by_label("statement", exact=True).fill("SELECT x FROM nowhere")
    page.get_by_role("button", name="Execute").click()
    page.get_by_text("P0201").nth(1).wait_for()  # in the answer, and in the verdict on what is written


def test_every_room_fits_a_narrow_screen(page: Any, live: Running) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    sign_in(page, live, room="query/warm")
    page.locator("main h1").wait_for()
    rows(live)
    for room in ("query/warm", "", "queries", "streams", "editor", "plan", "settings", "commands"):
        page.goto(f"{live.url}/#/{room}")
        page.locator("main h1").wait_for()
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, room
        assert not page.locator("main > .error").count(), room


def test_an_address_of_no_room_is_told(page: Any, live: Running) -> None:
    sign_in(page, live)
    page.goto(f"{live.url}/#/querys")
    page.get_by_text("There is no room querys").wait_for()
    page.get_by_role("heading", name="Overview").wait_for()


def test_names_that_begin_alike_stay_apart_on_a_narrow_screen(page: Any, live: Running) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    sign_in(page, live)
    page.locator(".bars a").first.wait_for()
    cut = "[...document.querySelectorAll('.bars a, .bars span')].filter(one => one.scrollWidth > one.clientWidth + 1)"
    assert page.evaluate(f"{cut}.map(one => one.textContent)") == []


def test_rooms_are_reached_by_keyboard(page: Any, live: Running) -> None:
    sign_in(page, live)
    page.get_by_role("heading", name="Overview").wait_for()
    page.wait_for_timeout(500)
    # Behind the content, which has the focus, come the rooms.
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.textContent"))
    assert {"Queries", "Streams", "Editor", "Settings", "Commands"} <= set(seen)


def test_a_hidden_page_asks_nothing(page: Any, live: Running) -> None:
    sign_in(page, live)
    page.get_by_role("heading", name="Overview").wait_for()
    hidden = "Object.defineProperty(document, 'hidden', {value: true})"
    page.evaluate(f"{hidden}; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_timeout(300)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    rows(live)
    page.wait_for_timeout(1_500)
    assert not asked


def test_a_read_token_has_no_commands(page: Any, live: Running) -> None:
    sign_in(page, live, AccessRole.READ, "query/warm")
    for name in ("Pause", "Alter", "Rename", "Weight", "Drop"):
        button = page.get_by_role("button", name=name)
        button.wait_for()
        assert button.is_disabled()
        assert button.get_attribute("title") == "the token read has the role read; this needs the role control"
    rooms = page.get_by_label("Rooms")
    rooms.get_by_role("link", name="Settings").click()
    page.get_by_role("button", name="Set").first.wait_for()
    buttons = page.get_by_role("button", name="Set", exact=True).all()
    assert buttons and all(one.is_disabled() and "role admin" in str(one.get_attribute("title")) for one in buttons)
    rooms.get_by_role("link", name="Editor").click()
    field = page.get_by_label("statement")
    field.fill("CREATE QUERY q AS SELECT room FROM rooms")
    assert page.get_by_role("button", name="Execute").is_disabled()
    field.press("Control+Enter")
    # What reads can be used.
    page.get_by_label("statement", exact=True).fill("SELECT floor FROM rooms WHERE room = 'hall'")
    page.get_by_role("button", name="Execute").click()
    page.get_by_role("region", name="answer").get_by_text("9223372036854775807").wait_for()
    assert [one.name for one in live.door.service.queries()] == ["warm", 'hot "rooms"/é']
    assert live.door.service.query("warm").state == "RUNNING"


def test_a_control_token_has_all_commands_but_those_of_the_system(page: Any, live: Running) -> None:
    sign_in(page, live, AccessRole.CONTROL, "settings")
    page.get_by_role("button", name="Set", exact=True).first.wait_for()
    assert page.get_by_role("button", name="Set", exact=True).first.is_disabled()
    page.get_by_label("Rooms").get_by_role("link", name="Queries").click()
    page.get_by_role("link", name="warm").click()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").wait_for()
    # Another token has its own commands in the same browser.
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("token").wait_for()
    sign_in(page, live, AccessRole.READ, "query/warm")
    page.get_by_role("button", name="Resume").wait_for()
    assert page.get_by_role("button", name="Resume").is_disabled()


def test_what_the_server_says_is_text(page: Any, live: Running) -> None:
    """A column, a comment and a value with markup stay what they are."""
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        client.execute("CREATE QUERY x AS SELECT room AS `<img src=x onerror=alert(1)>`, '</pre><b>' AS b FROM rooms")
    sign_in(page, live, room="query/x")
    page.get_by_role("region", name="results of x").get_by_text("</pre><b>").first.wait_for()
    assert page.locator("main img").count() == 0
    assert "<img" in json.dumps(page.locator("th").all_inner_texts())
