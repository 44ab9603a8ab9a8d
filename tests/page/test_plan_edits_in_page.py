"""Choices of a plan in the forms of an operator, in a browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from test_rooms import sign_in

from penstock.client import connect
from penstock.server.roles import AccessRole
from tests.server.running import Running

SCRIPT = """CREATE STREAM pairs (at INT, k INT) FROM HTTP () TIMESTAMP BY at UNIT SECOND RETAIN 1 HOUR;
CREATE QUERY met AS SELECT a.k FROM pairs [RANGE 9 SECONDS] a, pairs [RANGE 9 SECONDS] b WHERE a.k = b.k;
"""


def test_the_kind_of_a_synopsis_is_chosen_in_the_form_of_its_operator(
    page: Any, serve: Callable[[str], Running]
) -> None:
    live = serve(SCRIPT)
    with connect(live.url, live.texts[AccessRole.ADMIN]) as client:
        client.insert("pairs", [{"at": 1, "k": 1}, {"at": 3, "k": 1}])
        sign_in(page, live, AccessRole.ADMIN, room="query/met")
        store = page.get_by_role("button", name="WindowStore", exact=True)
        store.wait_for()
        store.focus()
        page.keyboard.press("Enter")
        kind = page.get_by_label("kind")
        kind.wait_for()
        assert kind.locator("option").all_inner_texts() == ["the planner's choice", "HashJoinIndex", "SortedRuns"]
        assert kind.input_value() == "HashJoinIndex"
        # A store joins nothing in an order.
        assert page.get_by_label("join_order").count() == 0 and page.get_by_label("shared").input_value() == "true"
        kind.select_option("SortedRuns")
        kind.locator("xpath=ancestor::form").get_by_role("button", name="Set").click()
        page.get_by_text("the new plan takes over").wait_for()
        (query,) = client.select("SELECT text FROM penstock.commands WHERE text LIKE 'UPDATE%'").table.to_pylist()
        assert "SortedRuns" in query["text"]
