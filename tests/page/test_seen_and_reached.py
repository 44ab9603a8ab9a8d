"""What can be read and reached in every room: contrast, names for readers of screens, the keyboard, no other site."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from test_rooms import ROWS, sign_in

from penstock.client import connect
from penstock.server.roles import AccessRole
from tests.server.running import Running

SCRIPT = """CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at;
CREATE QUERY one AS SELECT ISTREAM(room, celsius) FROM readings [NOW] WHERE celsius > 20;
CREATE QUERY two AS SELECT ISTREAM(room) FROM readings [NOW] WHERE celsius > 20;
CREATE QUERY still AS SELECT room FROM readings [NOW] WHERE celsius < 0;
ALTER QUERY still PAUSE;
"""
ROOMS = ("", "queries", "query/one", "streams", "plan", "editor", "settings", "commands")
#: Texts whose contrast to what is behind them is too small, with their contrast.
PALE = """() => {
  const numbers = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const back = (element) => {
    const box = element.closest('[data-node]')?.querySelector('rect');
    if (box) return numbers(getComputedStyle(box).fill);
    for (let one = element; one; one = one.parentElement) {
      const colour = numbers(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
    if (!text || !element.getClientRects().length) continue;
    if (element.closest('textarea, option, title, :disabled, .skip')) continue;
    const colour = numbers(getComputedStyle(element)[element.closest('svg') ? 'fill' : 'color']);
    const [a, b] = [light(colour), light(back(element))], ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    seen += 1;
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${text.slice(0, 40)} ${element.tagName} ${element.className}`);
  }
  return [seen, found];
}"""
#: What can be operated and has no name.
NAMELESS = """() => [...document.querySelectorAll(
    'a[href], button, input, select, textarea, [role=button], [tabindex="0"]')]
  .filter((one) => one.getClientRects().length)
  .filter((one) => !(one.getAttribute('aria-label') || one.textContent.trim() || one.title
    || one.closest('label')?.textContent.trim()))
  .map((one) => one.outerHTML.slice(0, 200))"""
FOCUSED = """() => {
  const one = document.activeElement, style = getComputedStyle(one.querySelector?.(':scope > rect') ?? one);
  return [one === document.body ? 'end' : one.getAttribute('aria-label') ?? one.textContent,
    parseFloat(style.outlineWidth) > 0 && style.outlineStyle !== 'none' || parseFloat(style.strokeWidth) > 2,
    !!one.closest('.plan')];
}"""
INSIDE = """() => {
  const [a, b] = [document.activeElement, document.querySelector('.plan')].map((one) => one.getBoundingClientRect());
  return a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
}"""


@pytest.fixture
def live(serve: Callable[[str], Running]) -> Running:
    running = serve(SCRIPT)
    with connect(running.url, running.texts[AccessRole.ADMIN]) as client:
        client.insert("readings", ROWS)
        with pytest.raises(Exception, match="P02"):
            client.execute("CREATE QUERY bad AS SELECT nothing FROM readings [NOW]")
    return running


def test_every_room_in_the_light_and_in_the_dark(page: Any, live: Running) -> None:
    elsewhere: list[str] = []
    page.on("request", lambda one: elsewhere.append(one.url) if not one.url.startswith(live.url + "/") else None)
    sign_in(page, live)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        for room in ROOMS:
            page.goto(f"{live.url}/#/{room}")
            page.locator("main h1").wait_for()
            if room in ("query/one", "plan"):
                page.locator(".plan text.figure").first.wait_for(state="attached")
            page.wait_for_timeout(300)
            seen, pale = page.evaluate(PALE)
            assert seen > 10 and pale == [], (scheme, room)
            assert page.evaluate(NAMELESS) == [], room
            assert page.locator("h1").count() == 1 and page.locator("img:not([alt])").count() == 0
    assert elsewhere == []


def test_help_has_no_backticks(page: Any, live: Running) -> None:
    """What the documentation has in backticks is code; texts of a user stay what they are."""
    sign_in(page, live, room="settings")
    settings = page.get_by_role("region", name="settings")
    settings.locator("td code", has_text="FREQUENT").wait_for()
    assert "`" not in "".join(settings.locator(".prose").all_inner_texts()) and settings.locator(".prose").count() > 20
    page.goto(f"{live.url}/#/streams")
    page.get_by_role("button", name="readings").click()
    page.locator("label code", has_text="dead letter").wait_for()
    assert "`" not in page.locator("main").inner_text()


def test_the_keyboard_goes_through_a_room_and_out(page: Any, live: Running) -> None:
    """Each stop can be seen; a plan is two stops, however many operators it has, whose parts arrows reach."""
    sign_in(page, live, room="query/one")
    page.locator(".plan text.figure").first.wait_for(state="attached")
    page.locator("main").focus()
    stops = []
    for _ in range(60):
        page.keyboard.press("Tab")
        stops.append(page.evaluate(FOCUSED))
        if stops[-1][0] == "end":
            break
    names = [name for name, _, _ in stops]
    assert names[-1] == "end" and {"Pause", "Drop", "as text", "value of the chart"} & set(names) >= {
        "Pause",
        "Drop",
        "as text",
    }
    assert all(is_seen for name, is_seen, _ in stops if name != "end"), stops
    assert sum(is_plan for _, _, is_plan in stops) == 5, "the plan, its three buttons and one part of it"
    page.locator(".plan [data-node]").first.focus()
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("rows from")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.locator(".plan .chosen").get_attribute("data-node") != "0:result"
    page.get_by_text("rows_in").wait_for()
    for _ in range(4):
        page.keyboard.press("ArrowDown")
        assert page.evaluate(INSIDE), "what is reached is in sight"


def test_the_link_to_the_content_stays_in_the_room(page: Any, live: Running) -> None:
    sign_in(page, live, room="queries")
    page.get_by_role("heading", name="Queries").wait_for()
    page.locator(".skip").focus()
    assert page.locator(".skip").bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    assert page.evaluate("document.activeElement.id") == "main" and page.url.endswith("#/queries")
    page.get_by_role("heading", name="Queries").wait_for()


def test_what_has_the_keyboard_keeps_it_when_figures_come(page: Any, live: Running) -> None:
    sign_in(page, live, room="query/one")
    page.get_by_role("button", name="Weight").focus()
    told = page.locator("dt:text-is('rows of its result') + dd")
    told.get_by_text(re.compile("^[01] since")).first.wait_for()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('main dl dd:last-child'))")
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        client.insert(
            "readings", [{"at": f"2024-03-01 11:{n:02}:00", "room": "hall", "celsius": 25.0} for n in range(9)]
        )
    told.get_by_text(re.compile("^9 since")).wait_for()
    assert page.evaluate("document.activeElement.textContent") == "Weight"
    assert page.evaluate("getSelection().toString()") == "RESULTS", "what is marked can be copied"


def test_the_wheel_scrolls_the_page_and_zooms_with_control(page: Any, live: Running) -> None:
    sign_in(page, live, room="query/one")
    page.locator(".plan text.figure").first.wait_for(state="attached")
    place = "document.querySelector('.plan svg').style.transform"
    before = page.evaluate(place)
    page.locator(".plan").hover()
    page.mouse.wheel(0, 120)
    page.wait_for_timeout(300)
    assert page.evaluate("scrollY") > 0 and page.evaluate(place) == before
    page.keyboard.down("Control")
    page.mouse.wheel(0, -120)
    page.keyboard.up("Control")
    page.wait_for_function(f"{place} !== '{before}'")


def test_shared_operators_have_the_colours_of_their_queries_and_edges_their_rows(page: Any, live: Running) -> None:
    sign_in(page, live, room="query/one")
    shared = page.locator(".plan .shared").first
    shared.wait_for()
    marks = shared.locator(".marks rect")
    assert marks.count() == 2 and shared.locator(".marks title").text_content() == "one\ntwo"
    colours = [mark.evaluate("one => getComputedStyle(one).fill") for mark in marks.all()]
    legend = page.locator(".legend a")
    assert legend.all_inner_texts() == ["one", "two"]
    assert [
        link.locator("i").evaluate("one => getComputedStyle(one).backgroundColor") for link in legend.all()
    ] == colours
    assert len(set(colours)) == 2
    edges = page.locator(".plan tspan")
    assert edges.count() > 0 and all("rows" in one or "/s" in one for one in edges.all_text_contents())
    with connect(live.url, live.texts[AccessRole.READ]) as client:
        (passed,) = client.select("SELECT MAX(rows) AS n FROM penstock.plan_edges").table.to_pylist()
    assert any(one == f"{passed['n']} rows" for one in edges.all_text_contents())


def test_the_overview_knows_the_batches_before_it_was_opened(page: Any, live: Running) -> None:
    sign_in(page, live)
    phases = page.locator("section", has=page.get_by_role("heading", name="Phases of batches"))
    phases.get_by_text("a batch, mean of the last").wait_for()
    phases.get_by_text("operators", exact=True).wait_for()
    page.locator(".chart canvas").first.wait_for()
    page.get_by_text("rows in a second").locator("xpath=preceding-sibling::b").get_by_text("–").wait_for(
        state="detached"
    )
    # Of queries that have no time none is behind.
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        client.execute(
            "CREATE RELATION r (x INT, PRIMARY KEY (x)) FROM MEMORY (); CREATE QUERY timeless AS SELECT x FROM r"
        )
        told = client.select("SELECT lag, heartbeat FROM penstock.queries WHERE name = 'timeless'").table.to_pylist()
    assert told == [{"lag": None, "heartbeat": None}]
