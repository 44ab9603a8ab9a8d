"""A page that is left open while the plan changes shows the new one by itself, whatever order answers come in; a figure
is that of the operator in whose box it stands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_rooms import ROWS, sign_in

from penstock.client import ServerClient, connect
from penstock.server.roles import AccessRole
from tests.server.running import Running

SCRIPT = """CREATE STREAM readings (at TIMESTAMP, room STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at;
CREATE QUERY one AS SELECT ISTREAM(room) FROM readings [NOW] WHERE celsius > 20;
"""
#: By key of an operator in the picture, the rows in its figure.
FIGURES = """() => Object.fromEntries([...document.querySelectorAll('.plan [data-node]')]
  .map((node) => [node.dataset.node.slice(2), /([\\d.]+k?) rows/.exec(node.textContent)?.[1] ?? null]))"""


@pytest.fixture
def live(serve: Callable[[str], Running]) -> Running:
    return serve(SCRIPT)


def client_of(running: Running) -> ServerClient:
    return connect(running.url, running.texts[AccessRole.ADMIN])


def rows_out(client: ServerClient) -> dict[str, str | None]:
    """Return by key of an operator how many rows it has emitted, as the page shows them."""
    found = client.select("SELECT key, rows_out FROM penstock.operators").to_arrow().to_pylist()
    return {one["key"]: None if one["rows_out"] is None else str(one["rows_out"]) for one in found}


def test_an_open_page_shows_each_plan_and_figures_where_they_belong(page: Any, live: Running) -> None:
    sign_in(page, live, room="plan")
    page.locator(".plan [data-node]").first.wait_for(state="attached")
    with client_of(live) as client:
        for text in (
            "CREATE QUERY two AS SELECT room, COUNT(*) AS n FROM readings [RANGE 1 HOUR] GROUP BY room",
            "DROP QUERY one",
            "CREATE QUERY three AS SELECT ISTREAM(celsius) FROM readings [NOW] WHERE room = 'hall'",
        ):
            client.execute(text)
            client.insert("readings", ROWS)
            keys = set(rows_out(client))
            page.wait_for_function(
                "(n) => document.querySelectorAll('.plan [data-node]:not([data-node=\"0:result\"])').length >= n",
                arg=len(keys),
            )
            page.wait_for_timeout(1500)
            shown, expected = page.evaluate(FIGURES), rows_out(client)
            told = {key: rows for key, rows in shown.items() if rows is not None}
            assert told and told == {key: expected[key] for key in told}, (shown, expected)
            assert expected.keys() <= shown.keys(), "each operator of the new plan is there"
            assert {key for key in shown if key in keys or len(key) > 20} == keys, "and none of the former one"


def test_a_plan_that_comes_late_does_not_stay(page: Any, live: Running) -> None:
    """What was asked for before a change and comes after it is drawn over by what is so now."""
    sign_in(page, live, room="plan")
    page.locator(".plan [data-node]").first.wait_for(state="attached")
    held: list[tuple[Any, Any]] = []

    def delayed(route: Any) -> None:
        if held:
            route.continue_()
        else:
            held.append((route, route.fetch()))

    page.wait_for_timeout(1500)
    before = page.locator(".plan [data-node]").count()
    page.route("**/v1/plan*", delayed)
    with client_of(live) as client:
        # It is gone before anybody looks, so the plan that is asked for is the former one.
        client.execute("CREATE QUERY gone AS SELECT room FROM readings [NOW] WHERE celsius < 0; DROP QUERY gone")
        for _ in range(100):
            page.wait_for_timeout(100)
            if held:
                break
        client.execute("CREATE QUERY two AS SELECT room, COUNT(*) AS n FROM readings [RANGE 1 HOUR] GROUP BY room")
        client.insert("readings", ROWS)
        page.wait_for_timeout(1500)
        assert page.locator(".plan [data-node]").count() == before, "the answer is on its way"
        route, former = held[0]
        route.fulfill(response=former)
        page.wait_for_function("(n) => document.querySelectorAll('.plan [data-node]').length > n", arg=before)
        assert rows_out(client).keys() <= page.evaluate(FIGURES).keys()
