"""What is printed of the page: all rows, in dark ink, without what can only be clicked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_rooms import SCRIPT, rows, sign_in

from penstock.client import connect
from penstock.server.roles import AccessRole
from tests.server.running import Running

pytestmark = pytest.mark.server

CUT = """() => [...document.querySelectorAll(".scroll")].filter((one) => one.scrollHeight > one.clientHeight + 1 ||
  one.scrollWidth > one.clientWidth + 1).map((one) => one.getAttribute("aria-label"))"""
BRIGHTNESS = """(name) => {
  const [r, g, b] = getComputedStyle(document.documentElement)[name].match(/\\d+/g).map(Number);
  return (r + g + b) / 3; }"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_room_on_paper(page: Any, serve: Callable[[str], Running], scheme: str) -> None:
    running = serve(SCRIPT)
    rows(running)
    with connect(running.url, running.texts[AccessRole.CONTROL]) as client:
        queries = (f"CREATE QUERY q{n} AS SELECT room FROM readings [RANGE {n} SECONDS]" for n in range(1, 41))
        client.execute(";\n".join(queries))
    page.emulate_media(color_scheme=scheme)
    sign_in(page, running, room="queries")
    page.get_by_role("link", name="q40").wait_for()
    assert page.evaluate(CUT) == ["queries"], "on the screen its rows are scrolled"
    page.emulate_media(media="print", color_scheme=scheme)
    assert page.evaluate(CUT) == []
    page.set_viewport_size({"width": 720, "height": 1000})
    assert page.evaluate(CUT) == [], "nor on a sheet of A4"
    heights = page.evaluate("[...document.querySelectorAll('.state')].map((one) => one.getClientRects().length)")
    assert set(heights) == {1}, "words are not broken"
    assert page.evaluate(BRIGHTNESS, "backgroundColor") > 250
    assert page.evaluate(BRIGHTNESS, "color") < 60
    for name in ("Overview", "New query"):
        assert not page.get_by_role("link", name=name).is_visible()
    assert page.get_by_role("columnheader", name="lag").is_visible(), "titles of columns are buttons"
    assert page.get_by_role("heading", name="Queries").is_visible()
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(media="screen", color_scheme=scheme)
    page.goto(f"{running.url}/#/query/warm")
    page.locator(".plan [data-node]").first.wait_for()
    page.emulate_media(media="print", color_scheme=scheme)
    assert not page.get_by_role("button", name="Drop").is_visible()
    plan, picture = (page.locator(one).first.bounding_box() for one in (".plan", ".plan svg"))
    assert picture["height"] <= plan["height"] + 1 and picture["width"] <= plan["width"] + 1, "the whole plan is there"
