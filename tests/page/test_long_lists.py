"""A list of 1,000 queries by keyboard: it is one stop, between whose rows keys go; what is reached is in sight."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from test_rooms import sign_in

from tests.server.running import Running

COUNT = 1000
SCRIPT = """CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at;
CREATE QUERY one AS SELECT room FROM readings [NOW];
"""
#: The name that has the keyboard, and whether it is in sight.
REACHED = """() => {
  const box = document.activeElement.getBoundingClientRect();
  return [document.activeElement.textContent, box.top >= 0 && box.bottom <= innerHeight];
}"""
#: Milliseconds from a key to the row that it reaches, for each of twenty.
PACE = """async () => {
  const spent = [];
  for (let i = 0; i < 20; i += 1) {
    const begun = performance.now();
    document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown', bubbles: true}));
    document.activeElement.getBoundingClientRect();
    spent.push(performance.now() - begun);
  }
  return spent;
}"""


@pytest.fixture
def listed(page: Any, serve: Callable[[str], Running]) -> Any:
    """Return a page with 1,000 queries in its list: the server answers with those that it has not."""
    live = serve(SCRIPT)

    def answered(route: Any) -> None:
        if "penstock.queries" not in (route.request.post_data or ""):
            route.continue_()
            return
        answer = route.fetch()
        route.fulfill(response=answer, body=json.dumps(many(answer.json())))

    page.route("**/v1/statements*", answered)
    sign_in(page, live, room="queries")
    page.get_by_text("query0999").wait_for()
    return page


def many(answer: Any) -> Any:
    """Return an answer with a query as one with many, of which every other one has another name."""
    (row,) = answer["statements"][-1]["rows"]
    names = [f"{'query' if n % 2 else 'alert'}{n:04}" for n in range(COUNT)]
    answer["statements"][-1]["rows"] = [{**row, "name": name, "id": n} for n, name in enumerate(names)]
    return answer


def test_keys_go_through_a_thousand_queries(listed: Any) -> None:
    page = listed
    page.get_by_label("find").focus()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('td > a')"):
            break
    reached = []
    for key in ("ArrowDown", "End", "ArrowDown", "ArrowUp", "Home", "PageDown", "q", "q", "ArrowUp"):
        page.keyboard.press(key)
        reached.append(page.evaluate(REACHED))
    assert [name for name, _ in reached] == [
        "alert0002",
        "query0999",
        "query0999",
        "query0997",
        "alert0000",
        "alert0020",
        "query0001",
        "query0003",
        "query0001",
    ]
    assert all(is_seen for _, is_seen in reached), reached
    page.wait_for_timeout(1100)
    page.keyboard.type("alert05")
    assert page.evaluate(REACHED) == ["alert0500", True]
    spent = page.evaluate(PACE)
    assert sorted(spent)[10] < 100, spent
    page.keyboard.press("Tab")
    assert not page.evaluate("!!document.activeElement.closest('tbody')"), "the list is one stop"


def test_the_place_in_a_list_stays_when_it_is_drawn_again(listed: Any) -> None:
    page = listed
    page.locator("td > a", has_text="alert0000").focus()
    page.keyboard.press("End")
    page.get_by_role("button", name="state").first.evaluate("(one) => one.click()")
    page.get_by_role("button", name="name").first.evaluate("(one) => one.click()")
    stops = page.locator('td > a[tabindex="0"]')
    assert stops.all_inner_texts() == ["query0999"]
    page.get_by_label("find").fill("alert")
    page.get_by_text("query0999").wait_for(state="detached")
    assert stops.count() == 1, "what is left can be reached"
