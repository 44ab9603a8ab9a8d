"""The editor's room: completion, the catalog beside it, rows of a SUBSCRIBE as they come, lists as tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_rooms import sign_in

from penstock.client import connect
from penstock.server.roles import AccessRole
from tests.server.running import Running

SCRIPT = """CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at;
CREATE STREAM orders (at TIMESTAMP, article STRING) FROM HTTP () TIMESTAMP BY at;
CREATE RELATION rooms (room STRING, `floor no` BIGINT, PRIMARY KEY (room)) FROM MEMORY ();
CREATE QUERY hot AS SELECT ISTREAM(room, celsius) FROM readings [NOW] WHERE celsius > 20;
CREATE QUERY sold AS SELECT article, COUNT(*) AS n FROM orders [RANGE 1 HOUR] GROUP BY article;
"""


@pytest.fixture
def live(serve: Callable[[str], Running]) -> Running:
    return serve(SCRIPT)


def test_words_and_names_are_completed(page: Any, live: Running) -> None:
    sign_in(page, live, room="editor")
    field, choices = page.get_by_label("statement", exact=True), page.get_by_role("listbox", name="completions")
    page.locator(".tree bdi", has_text="readings").first.wait_for(state="attached")
    field.fill("")
    field.press_sequentially("SELECT r.ce FROM readings [NOW] AS r")
    page.keyboard.press("Escape")
    for _ in range(len(" FROM readings [NOW] AS r")):
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("Control+ ")
    # The columns of the source whose alias stands before the point, and of no other.
    assert choices.get_by_role("option").all_inner_texts() == ["celsius column"]
    page.keyboard.press("Tab")
    assert field.input_value() == "SELECT r.celsius FROM readings [NOW] AS r" and choices.is_hidden()
    page.keyboard.press("Control+z")
    assert field.input_value() == "SELECT r.ce FROM readings [NOW] AS r"
    field.fill("")
    field.press_sequentially("sub")
    assert choices.get_by_role("option", name="SUBSCRIBE").count() == 1
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert field.input_value().upper().startswith("SUB") and len(field.input_value()) > 3
    field.fill("")
    # A name that is no plain word is quoted; nothing is completed in a text or comment; Escape leaves what is written.
    field.press_sequentially("SELECT fl")
    page.keyboard.press("ArrowDown")
    assert "`floor no`" in choices.inner_text()
    page.keyboard.press("Escape")
    field.press_sequentially(" 'ro")
    assert choices.is_hidden() and field.input_value() == "SELECT fl 'ro"
    field.fill("")
    field.press_sequentially("x\nSELECT * FROM penstock.que")
    assert "queries control relation" in choices.get_by_role("option").all_inner_texts()
    box, cursor = choices.bounding_box(), field.bounding_box()
    assert cursor["x"] <= box["x"] and box["x"] + box["width"] <= cursor["x"] + cursor["width"] + 1
    page.keyboard.press("Control+Enter")
    page.locator(".error").first.wait_for()


def test_the_catalog_writes_names(page: Any, live: Running) -> None:
    sign_in(page, live, room="console")
    page.get_by_role("heading", name="Editor").wait_for()
    field, tree = page.get_by_label("statement", exact=True), page.locator(".catalog")
    field.fill("SELECT  FROM rooms")
    field.press("Home")
    for _ in range(7):
        field.press("ArrowRight")
    tree.get_by_text("rooms", exact=True).click()
    tree.get_by_role("button", name="floor no").click()
    assert field.input_value() == "SELECT `floor no` FROM rooms"
    # What is declared meanwhile is there, and what was open stays so.
    field.fill("CREATE VIEW `a <b>` AS SELECT room FROM rooms")
    field.press("Control+Enter")
    tree.get_by_text("a <b>", exact=True).wait_for()
    assert tree.get_by_role("button", name="floor no").is_visible()
    assert tree.get_by_text("The system itself").count() == 1


def test_a_subscription_goes_on_until_it_is_cancelled(page: Any, live: Running) -> None:
    sign_in(page, live, AccessRole.READ, room="editor")
    field = page.get_by_label("statement", exact=True)
    field.fill("-- what is hot\nSUBSCRIBE TO hot;")
    page.get_by_role("button", name="Execute").click()
    page.get_by_text("waiting for rows").wait_for()
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        for hour in range(9, 12):
            client.insert("readings", [{"at": f"2024-03-01 {hour:02d}:00:00", "room": f"h{hour}", "celsius": 30}])
    rows = page.get_by_role("region", name="rows of the subscription")
    rows.get_by_text("h10").wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("cancelled").wait_for()
    assert page.get_by_role("button", name="Cancel").is_disabled() and rows.get_by_text("h9").is_visible()
    deadline = 50
    while live.door.service.statements() and deadline:
        page.wait_for_timeout(100)
        deadline -= 1
    assert not live.door.service.statements(), "its connection has ended"
    field.fill("SUBSCRIBE TO nothing")
    page.get_by_role("button", name="Execute").click()
    page.locator(".error", has_text="P0201").first.wait_for()
    # The room is left while rows come.
    field.fill("SUBSCRIBE TO hot")
    field.press("Control+Enter")
    page.get_by_text("waiting for rows").wait_for()
    page.get_by_label("Rooms").get_by_role("link", name="Queries").click()
    page.get_by_role("heading", name="Queries").wait_for()
    deadline = 50
    while live.door.service.statements() and deadline:
        page.wait_for_timeout(100)
        deadline -= 1
    assert not live.door.service.statements()


def test_a_command_of_the_shell_says_what_is_written_here(page: Any, live: Running) -> None:
    sign_in(page, live, room="editor")
    page.get_by_label("statement", exact=True).fill("\\d hot")
    page.get_by_text("commands with a backslash are those of").wait_for()
    assert "DESCRIBE name" in page.locator(".error").first.inner_text()


def test_a_text_that_is_too_long_for_its_list_says_so(page: Any, live: Running) -> None:
    names = ", ".join(f"celsius + {number} AS c{number}" for number in range(20))
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        client.execute(f"CREATE QUERY bought_after_click AS SELECT room, {names} FROM readings [RANGE 1 MINUTE]")
        client.insert("readings", [{"at": "2024-03-01 09:00:00", "room": "hall", "celsius": 1.5}])
        client.select("SELECT room FROM bought_after_click")
    sign_in(page, live, room="queries")
    row = page.get_by_role("region", name="queries").get_by_role("row").filter(has_text="bought_after_click")
    row.wait_for()
    assert row.locator("td").last.inner_text().endswith(" …")
    short = page.get_by_role("row").filter(has_text="sold")
    assert short.locator("td").last.inner_text().endswith("GROUP BY article")
    # Its name has one line where bars are narrow.
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(f"{live.url}/#/")
    name = page.locator(".bars a", has_text="bought_after_click").first
    name.wait_for()
    assert name.evaluate("one => one.getClientRects()[0].height < 1.9 * parseFloat(getComputedStyle(one).fontSize)")


def test_queries_are_shown_as_a_table(page: Any, live: Running) -> None:
    sign_in(page, live, AccessRole.READ, room="editor")
    field = page.get_by_label("statement", exact=True)
    field.fill("SHOW QUERIES")
    field.press("Control+Enter")
    answer = page.get_by_role("region", name="answer")
    answer.get_by_text("hot", exact=True).wait_for()
    assert answer.locator("tbody tr").count() == 2
    assert answer.locator("thead").inner_text().split() == ["name", "state", "kind", "result", "remark", "statement"]


def test_a_plan_is_filtered_and_explained(page: Any, live: Running) -> None:
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        client.insert("readings", [{"at": "2024-03-01 09:00:00", "room": "hall", "celsius": 30}])
        client.insert("orders", [{"at": "2024-03-01 09:00:00", "article": "a"}])
    sign_in(page, live, room="plan")
    page.locator(".plan [data-node]").first.wait_for()
    of_all = page.locator(".plan [data-node]").count()
    page.get_by_text("At an edge:").wait_for()
    assert page.get_by_text("At an edge:").locator("b").all_inner_texts() == ["MON", "WKS", "STR"]
    for label, value, other in (("only of the query", "hot", "sold"), ("only of queries that read", "orders", "hot")):
        page.get_by_label(label).select_option(value)
        page.wait_for_function(
            "(n) => { const f = document.querySelectorAll('.plan [data-node]').length; return f && f < n; }", arg=of_all
        )
        assert other not in page.locator(".plan svg").text_content()
        page.get_by_label(label).select_option("")
        page.wait_for_function("(n) => document.querySelectorAll('.plan [data-node]').length === n", arg=of_all)
    page.get_by_label("only of the query").select_option("hot")
    page.get_by_label("only of queries that read").select_option("orders")
    page.get_by_text("no operator runs that is chosen").wait_for()
    page.get_by_label("only of the query").select_option("")
    page.locator(".plan [data-node]").first.wait_for()
    assert "1 HOUR" in page.locator(".plan svg").text_content() and "00000 ticks" not in page.content()
    assert page.locator(".plan [data-node] rect").first.bounding_box()["width"] > 20, "it is drawn in its size"


def test_texts_of_a_plan_stay_in_their_boxes(page: Any, live: Running) -> None:
    sign_in(page, live, room="plan")
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        for second in range(0, 60, 10):
            client.insert(
                "readings",
                [{"at": f"2024-03-01 09:00:{second:02d}", "room": f"r{i}", "celsius": 30} for i in range(3_000)],
            )
            client.insert(
                "orders", [{"at": f"2024-03-01 09:00:{second:02d}", "article": f"a{i}"} for i in range(3_000)]
            )
    page.locator(".plan text.figure", has_text="ns/row").first.wait_for(state="attached")
    page.wait_for_timeout(1_500)
    beyond = page.evaluate("""() => [...document.querySelectorAll('.plan [data-node]')].flatMap((node) => {
      const box = node.querySelector('rect').getBBox();
      return [...node.querySelectorAll(':scope > text')].map((one) => [one.textContent, one.getBBox()])
        .filter(([, text]) => text.x < box.x || text.x + text.width > box.x + box.width + 1).map(([text]) => text);
    })""")
    assert beyond == []


def test_what_scrolls_says_so_and_what_cannot_be_set_is_not_offered(page: Any, live: Running) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    sign_in(page, live, room="settings")
    settings = page.get_by_role("region", name="settings")
    settings.get_by_text("it scrolls sideways").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.set_viewport_size({"width": 1600, "height": 740})
    settings.get_by_text("it scrolls sideways").wait_for(state="hidden")
    for row in settings.locator("tbody tr").all():
        is_fixed = row.locator("td").first.inner_text().startswith("metrics_")
        assert row.get_by_role("button", name="Set", exact=True).count() == (0 if is_fixed else 1)


def test_rates_fall_to_0(page: Any, live: Running) -> None:
    sign_in(page, live)
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        for minute in range(10, 20):
            client.insert("readings", [{"at": f"2024-03-01 09:{minute}:00", "room": "hall", "celsius": 30}] * 50)
    tile = page.locator(".tile", has_text="rows in a second").locator("b")
    page.wait_for_function("() => { const t = document.querySelector('.tile b').textContent; return t !== '–'; }")
    page.wait_for_function("() => document.querySelector('.tile b').textContent === '0'")
    assert tile.inner_text() == "0"
    page.goto(f"{live.url}/#/queries")
    page.wait_for_function("""() => [...document.querySelectorAll('tbody tr')].some((row) =>
      row.children[0].textContent === 'hot' && ['0', '0.00'].includes(row.children[3].textContent))""")
