"""Rows that pass over an edge of the drawn plan, in a browser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from test_rooms import sign_in

from penstock.client import connect
from penstock.server.roles import AccessRole
from tests.server.running import Running

SCRIPT = """CREATE STREAM readings (at TIMESTAMP, `<i>room</i>` STRING, celsius DOUBLE) FROM HTTP () TIMESTAMP BY at;
CREATE QUERY warm AS SELECT `<i>room</i>`, MAX(celsius) AS celsius FROM readings [RANGE 1 HOUR] GROUP BY `<i>room</i>`;
"""


@pytest.mark.parametrize(("room", "role"), [("query/warm", AccessRole.READ), ("plan", AccessRole.ADMIN)])
def test_an_edge_shows_the_rows_that_pass(
    page: Any, serve: Callable[[str], Running], room: str, role: AccessRole
) -> None:
    live = serve(SCRIPT)
    sign_in(page, live, role, room=room)
    edge = page.get_by_role("button", name="rows from Scan")
    edge.wait_for()
    # By keyboard in one room, with the pointer in the other.
    if role is AccessRole.READ:
        edge.focus()
        page.keyboard.press("Enter")
    else:
        edge.dispatch_event("click")
    page.get_by_text("waiting, at most").wait_for()
    engine = live.door.service._engine  # type: ignore[attr-defined]
    while not engine._taps.edges:
        page.wait_for_timeout(20)
    with connect(live.url, live.texts[AccessRole.CONTROL]) as client:
        client.insert(
            "readings",
            [{"at": f"2024-03-01 09:{n:02}:00", "<i>room</i>": "<b>hall</b>", "celsius": 20.0 + n} for n in range(3)],
        )
    table = page.get_by_role("region", name="rows that pass")
    table.get_by_text("<b>hall</b>").first.wait_for()
    assert table.locator("tbody tr").count() == 3 and table.locator("tbody b").count() == 0
    assert "<i>room</i>" in table.locator("thead").inner_text()
    page.get_by_role("button", name="Close").click()
    for _ in range(200):
        if not engine._taps.edges:
            return
        page.wait_for_timeout(50)
    raise AssertionError("a tap that nobody looks at goes on")
